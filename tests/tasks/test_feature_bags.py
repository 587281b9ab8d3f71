"""One's own table as a task: what is trained on, what is evaluated, and that a stranger's table runs unaided."""

import itertools
from collections.abc import Callable, Iterable
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
from tests._helpers.command_line import assignments
from tests._helpers.tasks import loaded, mask_of, new_network

BAGS = 60
FEATURES = ["f0", "f1", "f2"]


def write_table(folder: Path, truth: bool = False, **columns: Any) -> Path:
    """Write a table of 60 bags of up to 6 instances, with values of further columns for each bag.

    Every second bag has an instance of "high", whose first feature is about 5, and every third one of "wide", whose
    second feature is. All other instances are background, with first and second features about 0.
    """
    rng = np.random.default_rng(0)
    means = {"high": (5, 0, 100), "wide": (0, 5, 100), "": (0, 0, 100)}
    rows = []
    for bag in range(BAGS):
        kinds = []
        if bag % 2 == 0:
            kinds.append("high")
        if bag % 3 == 0:
            kinds.append("wide")
        labels = ";".join(reversed(kinds))
        size = int(rng.integers(1, 7))
        while len(kinds) < size:
            kinds.append("")
        for kind in kinds:
            row = {"bag": f"bag {bag}", "labels": labels}
            row |= dict(zip(FEATURES, rng.normal(means[kind]), strict=True))
            if truth:
                row["instance_label"] = kind
            row |= {name: values[bag] for name, values in columns.items()}
            rows.append(row)
    path = folder / "mine.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def make(table: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("feature-bags", None, seed, table=str(table), **params)


def test_an_epoch_has_batches_of_the_size_asked_for(tmp_path: Path) -> None:
    """60 bags without 12 to test on and 6 to validate on."""
    problem = make(write_table(tmp_path), batch_bags=7)
    assert problem.steps_per_epoch == 6
    batches = list(problem.train_batches(0, generator(0)))
    assert [len(bags) for bags in batches] == [7] * 6


def test_an_epoch_has_every_training_bag_once(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    in_table = label_sets_in(path)
    problem = make(path, batch_bags=7)
    assert problem.format.class_names == ("high", "wide")
    seen = []
    for bags in problem.train_batches(0, generator(0)):
        for instances, mask, labels in zip(
            bags.instances, mask_of(bags), bags.labels.tolist(), strict=True
        ):
            content = tuple(instances[mask].flatten().tolist())
            label_set = set(itertools.compress(problem.format.class_names, labels))
            assert label_set == in_table[content]
            seen.append(content)
    assert len(seen) == len(set(seen)) == 42


def test_padding_is_0(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), batch_bags=7)
    for bags in problem.train_batches(0, generator(0)):
        assert not bags.instances[~mask_of(bags)].any()


def label_sets_in(path: Path) -> dict[tuple[float, ...], set[str]]:
    """Return the label set of each bag of a table by the features of its instances, one after the other."""
    found = {}
    for _, rows in pd.read_csv(path, keep_default_na=False).groupby("bag"):
        features = rows[FEATURES].to_numpy(np.float32)
        names = rows["labels"].iloc[0].split(";")
        found[tuple(features.ravel().tolist())] = {name for name in names if name}
    return found


def test_an_evaluated_bag_has_its_row_and_its_group(tmp_path: Path) -> None:
    groups = [f"patient {bag // 4}" for bag in range(BAGS)]
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
    split = ["test" if bag < 20 else "train" for bag in range(BAGS)]
    path = write_table(tmp_path, split=split)
    frame = pd.read_csv(path, keep_default_na=False)
    problem = make(path, validation=0.0)
    train = frame.loc[frame["split"] == "train", ["f0", "f1", "f2"]]
    for name in ("mlp", "gated-attention"):
        network: Any = new_network(problem, name, head="sigmoid")
        # They are stored with the weights: whoever has these can give the network raw features.
        stored = network.state_dict()
        mean = stored["standardise.mean"].numpy()
        divisor = stored["standardise.divisor"].numpy()
        assert mean == pytest.approx(train.mean().to_numpy(), rel=1e-5)
        assert divisor == pytest.approx(train.std(ddof=0).to_numpy(), rel=1e-5)
        raw = torch.tensor([[[0.3, -1.0, 100.0], [2.0, 1.0, 99.0]]])
        inner = (raw - torch.from_numpy(mean)) / torch.from_numpy(divisor)
        assert torch.allclose(network(raw), network.forward(inner), atol=1e-5)


def scores_by_features(bags: Bags) -> Scores:
    """Find an instance of "high" where the first feature is nearer to 5 than to 0, and of "wide" by the second."""
    is_class = (bags.instances[..., :2] > 2.5).float().transpose(1, 2)
    is_background = 1 - is_class.amax(dim=1, keepdim=True)
    shown = torch.cat([is_class, is_background], dim=1)
    presence = is_class.masked_fill(~mask_of(bags).unsqueeze(1), 0).amax(dim=2)
    # An instance that is found to be of both classes is half of each.
    return Scores(presence, presence, shown / shown.sum(dim=1, keepdim=True))


def test_instance_labels_are_evaluated_on(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path, truth=True))
    metrics = problem.evaluate(scores_by_features).metrics
    assert metrics["test/set_error"] <= 0.1
    assert metrics["test/instance_error"] <= 0.1
    assert metrics["test/posterior_error"] <= 0.1


def test_instance_labels_are_not_trained_on(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path, truth=True))
    truths = [bags.truth for bags in problem.train_batches(0, torch.Generator())]
    assert truths == [None] * problem.steps_per_epoch


def test_without_instance_labels_their_metrics_are_left_out(tmp_path: Path) -> None:
    plain = make(write_table(tmp_path)).evaluate(scores_by_features).metrics
    assert not {name for name in plain if "instance" in name or "posterior" in name}
    known = make(write_table(tmp_path, truth=True)).evaluate(scores_by_features).metrics
    assert plain["test/set_error"] == known["test/set_error"]


def evaluated_sizes(path: Path, limit: int | None) -> list[int]:
    """Return the sizes of the bags that a problem without validation bags is evaluated on."""
    sizes: list[int] = []

    def score(bags: Bags) -> Scores:
        sizes.extend(mask_of(bags).sum(dim=1).tolist())
        presence = bags.labels.float() * 2 - 1
        uniform = torch.full((len(bags), 3, bags.instances.shape[1]), 1 / 3)
        return Scores(presence, presence, uniform)

    loaded("feature-bags", limit=limit, table=str(path), validation=0.0).evaluate(score)
    return sizes


def test_a_limited_evaluation_is_on_bags_of_all_sizes(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    all_sizes = sorted(evaluated_sizes(path, limit=None))
    some = evaluated_sizes(path, limit=6)
    # Six to test on, and six to choose the threshold by.
    assert len(some) == 12
    median = all_sizes[len(all_sizes) // 2]
    assert max(some) > median


def test_a_limited_evaluation_is_always_on_the_same_bags(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    assert evaluated_sizes(path, limit=6) == evaluated_sizes(path, limit=6)


def test_a_feature_that_is_not_finite_is_named(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    frame = pd.read_csv(path, keep_default_na=False)
    frame.loc[9, "f1"] = np.inf
    frame.to_csv(path, index=False)
    with pytest.raises(
        UsageError,
        match=r"features that are not finite: 1, the first in .*mine.csv, row 11: f1 is inf",
    ):
        load_task("feature-bags", table=str(path)).check_data(None)


def test_folds_beside_a_column_split_are_refused(tmp_path: Path) -> None:
    split = ["test" if bag % 2 else "train" for bag in range(BAGS)]
    path = write_table(tmp_path, split=split)
    with pytest.raises(
        UsageError, match=r"has a column 'split': task\.folds=3 would be another split"
    ):
        make(path, folds=3)


def test_a_stranger_compares_losses_on_a_table_with_one_command(
    tmp_path: Path, root: Path, milbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path)
    settings = assignments(
        {
            "task.table": "mine.csv",
            "task.folds": 3,
            "task.batch_bags": 20,
            "recipe.lr": 3e-2,
            "recipe.epochs": 30,
        }
    )
    asked = ["--loss", "exact,noisy-or", "--task", "feature-bags", "--name", "mine"]
    run = milbench("run", *asked, *settings)
    assert run.code == 0, run.err
    assert "all 6 cells are done" in run.out
    assert milbench("report", "mine").code == 0
    page = (root / "reports/mine/report.md").read_text("utf-8").replace("\\", "")
    assert "Seeds split the same data on mine" in page
    found = results(root, "mine")
    last = found.frame[found.frame["epoch"] == 30].pivot_table("value", "cell", "metric")
    assert len(last) == 6
    # The most frequent label set as the answer for every bag errs on two thirds.
    assert last["test/set_error"].mean() < 0.4
    assert last["test/nll"].max() < 20 * np.log(2)
    assert last["test/presence_ece"].notna().all()
    (info,) = found.plan.tasks.values()
    assert info.overlap == pytest.approx(20 / 34), "of 60 bags 20 are tested on, and 34 trained on"


def instances_in(batches: Iterable[Bags]) -> set[tuple[float, ...]]:
    """Return the features of all instances of some batches, without padding."""
    found = set[tuple[float, ...]]()
    for bags in batches:
        instances = bags.instances[mask_of(bags)]
        found.update(tuple(features) for features in instances.tolist())
    return found


def test_a_sample_has_instances_of_the_training_bags(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    sampled = list(make(path, instances=3).train_batches(0, generator(0)))
    whole = make(path).train_batches(0, generator(0))
    assert max(bags.instances.shape[1] for bags in sampled) == 3
    assert instances_in(sampled) < instances_in(whole)


def test_a_sample_is_drawn_by_the_seed(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), instances=3)

    def drawn(seed: int) -> list[Any]:
        return [bags.instances.tolist() for bags in problem.train_batches(0, generator(seed))]

    assert drawn(seed=0) == drawn(seed=0)
    assert drawn(seed=0) != drawn(seed=1)


def test_all_instances_are_evaluated_where_training_samples_them(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), instances=3)
    assert max(bags.instances.shape[1] for bags in problem.splits["test"].bags) > 3


def test_the_name_of_the_data_says_that_instances_are_sampled(tmp_path: Path) -> None:
    """Plan and report show it."""
    task = load_task("feature-bags", table=str(write_table(tmp_path)), instances=3)
    assert "label sets hold for the whole bag" in task.check_data(None)


def test_a_sample_smaller_than_a_label_set_is_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    with pytest.raises(
        UsageError, match=r"task\.instances=1 are fewer than the 2 classes of a bag"
    ):
        make(path, instances=1)


def test_no_batch_has_more_instances_than_it_may(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), batch_instances=12)
    for bags in (*problem.train_batches(0, generator(0)), *problem.splits["test"].bags):
        assert len(bags) * bags.instances.shape[1] <= 12


def test_every_bag_is_in_one_of_the_small_batches(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), batch_instances=12)
    trained = [len(bags) for bags in problem.train_batches(0, generator(0))]
    assert len(trained) == problem.steps_per_epoch == 21
    assert sum(trained) == 42
    assert sum(len(bags) for bags in problem.splits["test"].bags) == 12


def test_a_bag_larger_than_a_batch_is_one_itself(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), batch_instances=1)
    assert {len(bags) for bags in problem.train_batches(0, generator(0))} == {1}


def write_slides(folder: Path) -> None:
    """Write slides.csv, and 30 files of 20 instances whose coordinates begin with the number of the file."""
    rng = np.random.default_rng(0)
    (folder / "h5_files").mkdir()
    rows = []
    for number in range(30):
        features = rng.normal(size=(20, 3))
        has_class = number % 2 == 1
        if has_class:
            features[:5] += 6
        with h5py.File(folder / f"h5_files/s{number}.h5", "w") as file:
            file["features"] = features.astype(np.float16)
            file["coords"] = np.arange(40).reshape(20, 2) + number
        # A label that a drawing could take for a formula.
        rows.append({"slide_id": f"s{number}", "label": "$t_$" if has_class else ""})
    pd.DataFrame(rows).to_csv(folder / "slides.csv", index=False)


def test_places_of_instances_are_in_gallery_and_predictions(
    tmp_path: Path, root: Path, milbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_slides(tmp_path)
    settings = assignments(
        {
            "task.table": "slides.csv",
            "task.bag": "slide_id",
            "task.labels": "label",
            "task.features": "h5_files/*.h5",
            "recipe.epochs": 20,
            "recipe.lr": 3e-2,
            "run.in_process": "true",
        }
    )
    asked = ["--loss", "exact", "--task", "feature-bags", "--seeds", "0"]
    run = milbench("run", *asked, *settings)
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


def write_small_bags(folder: Path) -> Path:
    """Write 40 bags: every fifth has one instance and two classes, the others two instances and one class."""
    rows = ["bag,labels,x"]
    for bag in range(40):
        if bag % 5 == 0:
            rows.append(f"{bag},a;b,{bag}")
        else:
            rows += [f"{bag},a,{bag}", f"{bag},a,{bag + 0.5}"]
    path = folder / "small.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_bags_with_more_classes_than_instances_are_refused(tmp_path: Path) -> None:
    task = load_task("feature-bags", table=str(write_small_bags(tmp_path)))
    complaint = r"8 have more classes than instances: 0, 5, .*-p task.small_bags=leave-out"
    with pytest.raises(UsageError, match=complaint):
        task.check_data(None)


def test_small_bags_are_left_out_of_training(tmp_path: Path) -> None:
    path = write_small_bags(tmp_path)
    for seed in range(4):
        problem = make(path, seed, folds=4, small_bags="leave-out")
        for bags in problem.train_batches(0, generator("t")):
            assert (bags.labels.sum(dim=1) == 1).all()


def test_small_bags_are_left_out_of_every_fold(tmp_path: Path) -> None:
    """The first instance of a bag has the number of the bag for its feature."""
    path = write_small_bags(tmp_path)
    tested: list[float] = []
    for seed in range(4):
        problem = make(path, seed, folds=4, small_bags="leave-out")
        for bags in problem.splits["test"].bags:
            tested += bags.instances[:, 0, 0].tolist()
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
