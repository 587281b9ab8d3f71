"""One's own table as a task: what is trained on, what is evaluated, and that a stranger's table runs unaided."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import roc_auc_score

from milbench import Bags, UsageError, generator, load_task
from milbench.contracts.scores import Scores
from milbench.store import gallery
from milbench.store.folders import results
from tests._helpers.tasks import loaded, new_network

SHAPE = 60, 3  # bags, features


def write_table(folder: Path, truth: bool = False, **columns: Any) -> Path:
    """Write a table of 60 bags of 1 to 6 instances of 3 features: class "high" has a first feature of 5 or more."""
    rng = np.random.default_rng(0)
    rows = []
    for bag in range(SHAPE[0]):
        high, wide = bag % 2 == 0, bag % 3 == 0
        size = max(int(rng.integers(1, 7)), high + wide)
        kinds = [*(["high"] * high), *(["wide"] * wide)] + [""] * (size - high - wide)
        for kind in kinds:
            x = rng.normal(size=3) + np.array([5 * (kind == "high"), 5 * (kind == "wide"), 100])
            labels = ";".join(name for name, there in (("wide", wide), ("high", high)) if there)
            row = {"bag": f"bag {bag}", "labels": labels, "f0": x[0], "f1": x[1], "f2": x[2]}
            rows.append(
                row
                | ({"instance_label": kind} if truth else {})
                | {k: v[bag] for k, v in columns.items()}
            )
    path = folder / "mine.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def make(table: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("feature-bags", None, seed, table=str(table), **params)


def test_batches_hold_every_training_bag_once_with_its_instances(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    frame = pd.read_csv(path, keep_default_na=False)
    problem = make(path, batch_bags=7)
    assert (problem.format.num_classes, problem.format.class_names) == (2, ("high", "wide"))
    batches = list(problem.train_batches(0, generator(0)))
    assert [len(bags) for bags in batches] == [7] * 6
    assert problem.steps_per_epoch == 6
    known = {
        tuple(np.float32(part[["f0", "f1", "f2"]].to_numpy()).ravel().tolist()): part[
            "labels"
        ].iloc[0]
        for _, part in frame.groupby("bag")
    }
    seen = []
    for bags in batches:
        mask = (
            torch.ones(bags.instances.shape[:2], dtype=torch.bool)
            if bags.mask is None
            else bags.mask
        )
        for instances, there, labels in zip(bags.instances, mask, bags.labels, strict=True):
            content = tuple(instances[there].flatten().tolist())
            names = {
                name
                for name, is_there in zip(problem.format.class_names, labels.tolist(), strict=True)
                if is_there
            }
            assert names == set(filter(None, known[content].split(";")))
            assert not instances[~there].any()
            seen.append(content)
    assert len(seen) == len(set(seen)) == 42, "60 bags without 12 to test on and 6 to validate on"


def test_an_evaluated_bag_has_its_row_and_its_group(tmp_path: Path) -> None:
    groups = [f"patient {bag // 4}" for bag in range(SHAPE[0])]
    path = write_table(tmp_path, truth=True, group=groups)
    frame = pd.read_csv(path, keep_default_na=False)
    names = [*frame["bag"].unique()]
    numbers_of = dict[str, set[int]]()
    for split in make(path).splits.values():
        for bags in (split.bags[n] for n in range(len(split.bags))):
            for instances, row, group in zip(
                bags.instances, bags.origin.bag.tolist(), bags.origin.group.tolist(), strict=True
            ):
                own = frame[frame["bag"] == names[row]]
                features = own[["f0", "f1", "f2"]].to_numpy(np.float32)
                assert instances[: len(own)].numpy() == pytest.approx(features)
                numbers_of.setdefault(own["group"].iloc[0], set()).add(group)
    assert all(len(numbers) == 1 for numbers in numbers_of.values())
    assert len(set.union(*numbers_of.values())) == len(numbers_of)


def test_an_evaluated_instance_is_in_the_group_of_its_bag(tmp_path: Path) -> None:
    """Without a column of groups, the bag that it is from is the group."""
    path = write_table(tmp_path, truth=True)
    frame = pd.read_csv(path, keep_default_na=False)
    names = [*frame["bag"].unique()]
    for split in make(path).splits.values():
        for bags in (split.single_instance[n] for n in range(len(split.single_instance))):
            for instances, row, group in zip(
                bags.instances, bags.origin.bag.tolist(), bags.origin.group.tolist(), strict=True
            ):
                known = frame.iloc[row]
                features = known[["f0", "f1", "f2"]].to_numpy(np.float32)
                assert instances[0].numpy() == pytest.approx(features)
                assert names[group] == known["bag"]


def test_features_are_standardised_by_training_instances_alone(tmp_path: Path) -> None:
    split = ["test" if bag < 20 else "train" for bag in range(SHAPE[0])]
    path = write_table(tmp_path, split=split)
    frame = pd.read_csv(path, keep_default_na=False)
    problem = make(path, validation=0.0)
    train = frame.loc[frame["split"] == "train", ["f0", "f1", "f2"]]
    for name in ("mlp", "gated-attention"):
        network: Any = new_network(problem, name, head="sigmoid")
        stored = network.state_dict()  # who has the weights can read raw features
        mean, divisor = stored["standardise.mean"].numpy(), stored["standardise.divisor"].numpy()
        assert mean == pytest.approx(train.mean().to_numpy(), rel=1e-5)
        assert divisor == pytest.approx(train.std(ddof=0).to_numpy(), rel=1e-5)
        raw = torch.tensor([[[0.3, -1.0, 100.0], [2.0, 1.0, 99.0]]])
        inner = (raw - torch.from_numpy(mean)) / torch.from_numpy(divisor)
        assert torch.allclose(network(raw), network.forward(inner), atol=1e-5)


def test_instance_labels_are_evaluated_on_and_their_lack_asks_for_nothing(tmp_path: Path) -> None:
    def score(bags: Any) -> Scores:
        first = torch.stack(
            [bags.instances[..., 0] > 2.5, bags.instances[..., 1] > 2.5], dim=1
        ).float()
        background = (1 - first.amax(dim=1, keepdim=True)).clamp(min=0)
        instances = torch.cat([first, background], dim=1)
        presence = (
            first.masked_fill(~bags.mask.unsqueeze(1), 0).amax(dim=2)
            if bags.mask is not None
            else first.amax(2)
        )
        return Scores(presence, presence, instances / instances.sum(dim=1, keepdim=True))

    plain = make(write_table(tmp_path)).evaluate(score).metrics
    assert plain["test/set_error"] <= 0.1
    assert not {name for name in plain if "instance" in name or "posterior" in name}
    problem = make(write_table(tmp_path, truth=True))
    known = problem.evaluate(score).metrics
    trained = list(problem.train_batches(0, torch.Generator()))
    assert trained
    assert all(bags.truth is None for bags in trained), "no loss is trained on them"
    assert known["test/set_error"] == plain["test/set_error"]
    assert known["test/instance_error"] <= 0.1
    assert known["test/posterior_error"] <= 0.1


def test_an_evaluation_on_some_bags_is_on_bags_of_all_sizes(tmp_path: Path) -> None:
    path = write_table(tmp_path)

    def sizes(limit: int | None) -> list[int]:
        seen: list[int] = []

        def score(bags: Any) -> Scores:
            there = (
                torch.ones(len(bags), bags.instances.shape[1]) if bags.mask is None else bags.mask
            )
            seen.extend(there.sum(dim=1).int().tolist())
            presence = bags.labels.float() * 2 - 1
            return Scores(
                presence, presence, torch.full((len(bags), 3, bags.instances.shape[1]), 1 / 3)
            )

        loaded("feature-bags", limit=limit, table=str(path), validation=0.0).evaluate(score)
        return seen

    every, some = sizes(None), sizes(6)
    assert len(some) == 12, "six to test on, and six to fit the threshold on"
    assert max(some) > sorted(every)[len(every) // 2], "not the smallest ones alone"
    assert some == sizes(6)


def test_bags_that_are_no_use_are_refused_before_anything_runs(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    frame = pd.read_csv(path, keep_default_na=False)
    frame.loc[9, "f1"] = np.inf
    frame.to_csv(path, index=False)
    with pytest.raises(
        UsageError,
        match=r"features that are not finite: 1, the first in .*mine.csv, row 11: f1 is inf",
    ):
        load_task("feature-bags", table=str(path)).check_data(None)
    split = write_table(tmp_path, split=["test" if bag % 2 else "train" for bag in range(SHAPE[0])])
    with pytest.raises(
        UsageError, match=r"has a column 'split': task\.folds=3 would be another split"
    ):
        make(split, folds=3)


def test_a_stranger_compares_losses_on_a_table_with_one_command(
    tmp_path: Path, root: Path, milbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path)
    run = milbench(
        "run", "--loss", "exact,noisy-or", "--task", "feature-bags", "-p", "task.table=mine.csv", "-p", "task.folds=3",
        "-p", "recipe.lr=3e-2", "-p", "task.batch_bags=20", "--name", "mine", "-p", "recipe.epochs=30",
    )  # fmt: skip
    assert run.code == 0, run.err
    assert "all 6 cells are done" in run.out
    assert milbench("report", "mine").code == 0
    page = (root / "reports/mine/report.md").read_text("utf-8").replace("\\", "")
    assert "Seeds split the same data on mine" in page
    found = results(root, "mine")
    last = found.frame[found.frame["epoch"] == 30].pivot_table("value", "cell", "metric")
    assert len(last) == 6
    assert last["test/set_error"].mean() < 0.4, (
        "guessing the most frequent label set errs on two thirds"
    )
    assert last["test/nll"].max() < 20 * np.log(2)
    assert last["test/presence_ece"].notna().all()
    (info,) = found.plan.tasks.values()
    assert info.overlap == pytest.approx(20 / 34), "of 60 bags 20 are tested on, and 34 trained on"


def test_a_sample_of_instances_is_drawn_by_the_seed_and_all_are_evaluated(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), instances=3)
    every = make(tmp_path / "mine.csv").train_batches(0, generator(0))
    whole = {tuple(row) for bags in every for bag in bags.instances.tolist() for row in bag}
    first, again, other = ([*problem.train_batches(0, generator(seed))] for seed in (0, 0, 1))
    assert max(bags.instances.shape[1] for bags in first) == 3
    assert all(torch.equal(a.instances, b.instances) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a.instances, b.instances) for a, b in zip(first, other, strict=True))
    assert {
        tuple(row) for bags in first for bag in bags.instances.tolist() for row in bag
    } <= whole | {(0.0, 0.0, 0.0)}
    assert max(bags.instances.shape[1] for bags in problem.splits["test"].bags) > 3
    sampled = load_task("feature-bags", table=str(tmp_path / "mine.csv"), instances=3)
    assert "label sets hold for the whole bag" in sampled.check_data(None), "plan and report say it"
    with pytest.raises(
        UsageError, match=r"task\.instances=1 are fewer than the 2 classes of a bag"
    ):
        make(tmp_path / "mine.csv", instances=1)


def test_no_batch_has_more_instances_than_it_may_and_every_bag_is_in_one(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), batch_instances=12)
    trained = [*problem.train_batches(0, generator(0))]
    assert len(trained) == problem.steps_per_epoch == 21
    assert sum(map(len, trained)) == 42
    for bags in (*trained, *problem.splits["test"].bags):
        assert len(bags) * bags.instances.shape[1] <= 12
    assert sum(map(len, problem.splits["test"].bags)) == 12
    single = make(tmp_path / "mine.csv", batch_instances=1)
    assert all(len(bags) == 1 for bags in single.train_batches(0, generator(0)))


def test_where_instances_are_is_drawn_in_the_gallery_and_by_predict(
    tmp_path: Path, root: Path, milbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "h5_files").mkdir()
    rows = []
    for n in range(30):
        features = rng.normal(size=(20, 3))
        features[: 5 * (n % 2)] += 6
        with h5py.File(tmp_path / f"h5_files/s{n}.h5", "w") as file:
            file["features"], file["coords"] = (
                features.astype(np.float16),
                np.arange(40).reshape(20, 2) + n,
            )
        rows.append({"slide_id": f"s{n}", "label": "$t_$" * (n % 2)})
    pd.DataFrame(rows).to_csv("slides.csv", index=False)
    words = (
        "task.table=slides.csv",
        "task.bag=slide_id",
        "task.labels=label",
        "task.features=h5_files/*.h5",
    )
    settings = [word for value in words for word in ("-p", value)]
    run = milbench("run", "--loss", "exact", "--task", "feature-bags", *settings, "--seeds", "0",
                   "-p", "recipe.epochs=20", "-p", "recipe.lr=3e-2", "-p", "run.in_process=true")  # fmt: skip
    assert run.code == 0, run.err
    (path,) = root.rglob("gallery.npz")
    shown = gallery.load(path)
    assert shown.coords is not None
    assert shown.coords.shape == (len(shown), 20, 2)
    assert (np.diff(shown.coords[0, :, 0]) == 2).all()
    said = milbench(
        "predict",
        "h5_files/s1.h5",
        "h5_files/s2.h5",
        "--cell",
        path.parent.name,
        "--out",
        "found.csv",
        "--positions",
    )
    assert said.code == 0, said.err
    places = pd.read_csv("found-positions.csv")
    assert places["x"].tolist() == [*range(1, 41, 2), *range(2, 42, 2)]
    assert [path.name for path in sorted((tmp_path / "found-maps").iterdir())] == [
        "s1.png",
        "s2.png",
    ]
    with Image.open(tmp_path / "found-maps/s1.png") as picture:
        assert min(picture.size) > 300


def test_bags_with_more_classes_than_instances_are_left_out_of_every_part(tmp_path: Path) -> None:
    """Every fifth bag has one instance and two classes; seeds go through all folds."""
    table = tmp_path / "small.csv"
    rows = [
        f"{bag},a;b,{bag}" if bag % 5 == 0 else f"{bag},a,{bag}\n{bag},a,{bag + 0.5}"
        for bag in range(40)
    ]
    table.write_text("\n".join(["bag,labels,x", *rows]) + "\n")
    with pytest.raises(
        UsageError,
        match=r"8 have more classes than instances: 0, 5, .*-p task.small_bags=leave-out",
    ):
        load_task("feature-bags", table=str(table)).check_data(None)
    tested = []
    for seed in range(4):
        problem = make(table, seed, folds=4, small_bags="leave-out")
        assert all(
            bags.labels.sum() == len(bags) for bags in problem.train_batches(0, generator("t"))
        )
        tested += [
            float(x) for bags in problem.splits["test"].bags for x in bags.instances[:, 0, 0]
        ]
    assert sorted(tested) == [bag for bag in range(40) if bag % 5]


def test_a_baseline_is_evaluated_on_the_bags_of_the_losses(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    problem = make(path, seed=2)

    def score(bags: Bags) -> Scores:
        presence = bags.labels.float()
        maps = torch.zeros(len(bags), 3, bags.instances.shape[1])
        return Scores(presence, presence, maps, mask=bags.mask)

    evaluation = problem.evaluate(score)
    frame = pd.read_csv(path, keep_default_na=False)
    of_bags = frame.groupby("bag", sort=False)
    values = of_bags[["f0", "f1", "f2"]]
    pooled = np.hstack([values.mean(), values.max(), values.min()]).astype(np.float32)
    texts = of_bags["labels"].first()
    truth = np.array([["high" in text, "wide" in text] for text in texts])
    split = problem.split
    trees = ExtraTreesClassifier(n_estimators=100, random_state=2)
    trees.fit(pooled[split.train], truth[split.train])
    votes = np.stack([of_class[:, 1] for of_class in trees.predict_proba(pooled[split.test])], 1)
    area = roc_auc_score(truth[split.test], votes)
    assert evaluation.metrics["test/pooled_trees_auroc"] == pytest.approx(area)
    assert evaluation.predictions is not None
    assert evaluation.predictions.known["test/pooled_trees_auroc"] == pytest.approx(area)
    assert evaluation.metrics["test/set_error"] == 0, "metrics of the loss are its own"


def test_without_test_bags_there_is_no_baseline(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), test=0)
    assert problem._baseline == {}
