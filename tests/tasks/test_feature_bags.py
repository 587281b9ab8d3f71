"""The task `feature-bags`, made from a user's own table: training, evaluation, folds, messages."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
from tests._helpers.command_line import Milbench, assignments
from tests._helpers.tasks import loaded, mask_of, new_network

BAGS = 60
FEATURES = ["f0", "f1", "f2"]
BACKGROUND = ""
"""The label of an instance without a class."""


def write_table(folder: Path, truth: bool = False, **columns: Any) -> Path:
    """Write a table of 60 bags of up to 6 instances and return its path.

    Every second bag has an instance of "high", whose first feature is about 5. Every third bag has
    an instance of "wide", whose second feature is about 5. All other instances are background, with
    first and second features of about 0. The third feature is about 100 everywhere, so that a
    network can hardly learn unless it standardises features. `columns` are further columns, with a
    value for each bag.
    """
    rng = np.random.default_rng(0)
    means = {"high": (5, 0, 100), "wide": (0, 5, 100), BACKGROUND: (0, 0, 100)}
    rows = []
    for bag in range(BAGS):
        classes = []
        if bag % 2 == 0:
            classes.append("high")
        if bag % 3 == 0:
            classes.append("wide")
        size = max(int(rng.integers(1, 7)), len(classes))
        kinds = classes + [BACKGROUND] * (size - len(classes))
        for kind in kinds:
            # Reversed, since the order of labels must not matter.
            row = {"bag": f"bag {bag}", "labels": ";".join(reversed(classes))}
            row |= dict(zip(FEATURES, rng.normal(means[kind]), strict=True))
            if truth:
                row["instance_label"] = kind
            row |= {name: values[bag] for name, values in columns.items()}
            rows.append(row)
    path = folder / "mine.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def make(table: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("feature-bags", data_dir=None, seed=seed, table=str(table), **params)


def one_by_one(batches: Iterable[Bags]) -> Iterator[Bags]:
    """Yield each bag of some batches as a batch of its own."""
    for bags in batches:
        for number in range(len(bags)):
            yield bags.selected(torch.tensor([number]))


def test_an_epoch_has_batches_of_the_size_asked_for(tmp_path: Path) -> None:
    """Of 60 bags 12 are for testing and 6 for validation, so 42 are left: six batches of 7."""
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
    for bag in one_by_one(problem.train_batches(0, generator(0))):
        content = tuple(bag.instances[mask_of(bag)].flatten().tolist())
        label_set = set(itertools.compress(problem.format.class_names, bag.labels[0].tolist()))
        assert label_set == in_table[content]
        seen.append(content)
    assert len(seen) == len(set(seen)) == 42


def test_padding_is_0(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), batch_bags=7)
    for bags in problem.train_batches(0, generator(0)):
        assert not bags.instances[~mask_of(bags)].any()


def label_sets_in(path: Path) -> dict[tuple[float, ...], set[str]]:
    """Return the label sets of a table's bags, by the features of all instances of a bag."""
    found = {}
    for _, rows in pd.read_csv(path, keep_default_na=False).groupby("bag"):
        features = rows[FEATURES].to_numpy(np.float32)
        names = rows["labels"].iloc[0].split(";")
        found[tuple(features.ravel().tolist())] = {name for name in names if name}
    return found


@dataclass(frozen=True)
class Written:
    """The rows of a table as they were written."""

    frame: pd.DataFrame

    @property
    def names(self) -> list[str]:
        """The names of bags in the order of their first rows, in which bags are numbered."""
        return [*self.frame["bag"].unique()]

    def rows_of(self, bag: int) -> pd.DataFrame:
        return self.frame[self.frame["bag"] == self.names[bag]]


def read_written(path: Path) -> Written:
    return Written(pd.read_csv(path, keep_default_na=False))


GROUPS = [f"patient {bag // 4}" for bag in range(BAGS)]


def test_an_evaluated_bag_knows_its_number_in_the_table(tmp_path: Path) -> None:
    path = write_table(tmp_path, truth=True, group=GROUPS)
    written = read_written(path)
    for split in make(path).splits.values():
        for bag in one_by_one(split.bags):
            assert bag.origin is not None
            own = written.rows_of(int(bag.origin.bag))
            features = own[FEATURES].to_numpy(np.float32)
            assert bag.instances[0, : len(own)].numpy() == pytest.approx(features)


def test_evaluated_bags_of_a_group_have_the_index_of_the_group(tmp_path: Path) -> None:
    path = write_table(tmp_path, truth=True, group=GROUPS)
    numbers_of = dict[str, set[int]]()
    for split in make(path).splits.values():
        for bag in one_by_one(split.bags):
            assert bag.origin is not None
            assert bag.origin.group is not None
            group = GROUPS[int(bag.origin.bag)]
            numbers_of.setdefault(group, set()).add(int(bag.origin.group))
    assert all(len(numbers) == 1 for numbers in numbers_of.values())
    assert len(set.union(*numbers_of.values())) == len(numbers_of)


def test_an_evaluated_instance_is_in_the_group_of_its_bag(tmp_path: Path) -> None:
    """Without a column of groups, each bag of the table is a group.

    An instance is evaluated as a bag of its own, whose number is that of its row.
    """
    path = write_table(tmp_path, truth=True)
    written = read_written(path)
    for split in make(path).splits.values():
        for instance in one_by_one(split.single_instance):
            assert instance.origin is not None
            assert instance.origin.group is not None
            row = written.frame.iloc[int(instance.origin.bag)]
            features = row[FEATURES].to_numpy(np.float32)
            assert instance.instances[0, 0].numpy() == pytest.approx(features)
            assert written.names[int(instance.origin.group)] == row["bag"]


# These tests use the head "sigmoid", since gated attention has no other head.
NETWORKS = pytest.mark.parametrize("name", ["mlp", "gated-attention"])


@NETWORKS
def test_features_are_standardised_by_training_instances_alone(tmp_path: Path, name: str) -> None:
    split = ["test" if bag < 20 else "train" for bag in range(BAGS)]
    path = write_table(tmp_path, split=split)
    frame = pd.read_csv(path, keep_default_na=False)
    train = frame.loc[frame["split"] == "train", FEATURES]
    stored = new_network(make(path, validation=0.0), name, head="sigmoid").state_dict()
    mean = stored["standardise.mean"].numpy()
    divisor = stored["standardise.divisor"].numpy()
    assert mean == pytest.approx(train.mean().to_numpy(), rel=1e-5)
    assert divisor == pytest.approx(train.std(ddof=0).to_numpy(), rel=1e-5)


@NETWORKS
def test_a_network_takes_raw_features(tmp_path: Path, name: str) -> None:
    """Means and divisors are stored with the weights, so that nothing else is needed."""
    network: Any = new_network(make(write_table(tmp_path)), name, head="sigmoid")
    stored = network.state_dict()
    raw = torch.tensor([[[0.3, -1.0, 100.0], [2.0, 1.0, 99.0]]])
    standardised = (raw - stored["standardise.mean"]) / stored["standardise.divisor"]
    # Calling the network standardises features first; calling its `forward` does not.
    assert torch.allclose(network(raw), network.forward(standardised), atol=1e-5)


def scores_by_features(bags: Bags) -> Scores:
    """Return scores of a rule that knows how `write_table` makes instances.

    An instance is "high" if its first feature is nearer to 5 than to 0, "wide" if its second is.
    """
    is_class = (bags.instances[..., :2] > 2.5).float().transpose(1, 2)
    is_background = 1 - is_class.amax(dim=1, keepdim=True)
    shown = torch.cat([is_class, is_background], dim=1)
    presence = is_class.masked_fill(~mask_of(bags).unsqueeze(1), 0).amax(dim=2)
    # An instance that is taken for both classes counts as half of each.
    shares = shown / shown.sum(dim=1, keepdim=True)
    return Scores(classes=presence, presence=presence, instances=shares)


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
        return Scores(classes=presence, presence=presence, instances=uniform)

    loaded("feature-bags", limit=limit, table=str(path), validation=0.0).evaluate(score)
    return sizes


def test_a_limited_evaluation_is_on_bags_of_all_sizes(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    all_sizes = sorted(evaluated_sizes(path, limit=None))
    some = evaluated_sizes(path, limit=6)
    # Six test bags are evaluated, and six training bags, which choose the threshold since there are
    # no validation bags.
    assert len(some) == 12
    median = all_sizes[len(all_sizes) // 2]
    assert max(some) > median


def test_a_limited_evaluation_is_always_on_the_same_bags(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    assert evaluated_sizes(path, limit=6) == evaluated_sizes(path, limit=6)


def test_a_feature_that_is_not_finite_is_named(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    frame = pd.read_csv(path, keep_default_na=False)
    # This is row 11 of the file: its rows are counted from 1, and row 1 has the names of columns.
    frame.loc[9, "f1"] = np.inf
    frame.to_csv(path, index=False)
    complaint = r"features that are not finite: 1, the first in .*mine.csv, row 11: f1 is inf"
    with pytest.raises(UsageError, match=complaint):
        load_task("feature-bags", table=str(path)).check_data(None)


def test_folds_beside_a_column_split_are_refused(tmp_path: Path) -> None:
    split = ["test" if bag % 2 else "train" for bag in range(BAGS)]
    path = write_table(tmp_path, split=split)
    with pytest.raises(
        UsageError, match=r"has a column 'split': task\.folds=3 would be another split"
    ):
        make(path, folds=3)


def compare_losses(folder: Path, milbench: Milbench, epochs: int) -> str:
    """Run a comparison as a user would who has only a table, and return what is printed."""
    write_table(folder)
    settings = assignments(
        {
            "task.table": "mine.csv",
            "task.folds": 3,
            "task.batch_bags": 20,
            "recipe.lr": 3e-2,
            "recipe.epochs": epochs,
        }
    )
    asked = ["--loss", "exact,noisy-or", "--task", "feature-bags", "--name", "mine"]
    return milbench("run", *asked, *settings).done()


def test_a_stranger_compares_losses_on_a_table_with_one_command(
    tmp_path: Path, root: Path, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The six cells are two losses on three folds.
    assert "all 6 cells are done" in compare_losses(tmp_path, milbench, epochs=30)
    frame = results(root, "mine").frame
    last = frame[frame["epoch"] == 30].pivot_table("value", "cell", "metric")
    assert len(last) == 6
    # Answering every bag with the most frequent label set would err on two thirds of the bags.
    assert last["test/set_error"].mean() < 0.4
    # Even odds for each of the two classes have a negative log-likelihood of 2 log 2. The bound is
    # ten times larger; it shows that no training has diverged.
    assert last["test/nll"].max() < 20 * np.log(2)
    assert last["test/presence_ece"].notna().all()


def test_a_report_says_that_folds_share_training_bags(
    tmp_path: Path, root: Path, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compare_losses(tmp_path, milbench, epochs=1)
    milbench("report", "mine").done()
    page = (root / "reports/mine/report.md").read_text("utf-8").replace("\\", "")
    assert "Seeds split the same data on mine" in page
    (info,) = results(root, "mine").plan.tasks.values()
    # Nadeau and Bengio's correction for overlapping training sets needs this ratio. Each of the
    # three folds tests on 20 of the 60 bags and validates on 6, so 34 are left to train on.
    assert info.overlap == pytest.approx(20 / 34), "test bags for each training bag"


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


def test_the_sample_of_instances_depends_on_the_seed(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), instances=3)

    def drawn(seed: int) -> list[Any]:
        return [bags.instances.tolist() for bags in problem.train_batches(0, generator(seed))]

    assert drawn(seed=0) == drawn(seed=0)
    assert drawn(seed=0) != drawn(seed=1)


def test_all_instances_are_evaluated_where_training_samples_them(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), instances=3)
    assert max(bags.instances.shape[1] for bags in problem.splits["test"].bags) > 3


def test_the_name_of_the_data_says_that_instances_are_sampled(tmp_path: Path) -> None:
    """Plans and reports show the name of the data."""
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
    # Of 60 bags 12 are for testing and 6 for validation, so 42 are left. The largest bag has 6
    # instances, so a batch has 12 / 6 = 2 bags, and 42 training bags make 42 / 2 = 21 batches.
    assert len(trained) == problem.steps_per_epoch == 21
    assert sum(trained) == 42
    assert sum(len(bags) for bags in problem.splits["test"].bags) == 12


def test_a_bag_larger_than_a_batch_may_be_is_a_batch_of_its_own(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), batch_instances=1)
    assert {len(bags) for bags in problem.train_batches(0, generator(0))} == {1}


def write_slides(folder: Path) -> None:
    """Write slides.csv and 30 files of 20 instances each.

    The coordinates of file n begin at n, and every second number is an x.
    """
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
        # Matplotlib could take this label for a formula.
        rows.append({"slide_id": f"s{number}", "label": "$t_$" if has_class else ""})
    pd.DataFrame(rows).to_csv(folder / "slides.csv", index=False)


@pytest.fixture
def trained_on_slides(
    tmp_path: Path, root: Path, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of a cell that was trained on slides, whose table is in the working directory."""
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
    milbench("run", *asked, *settings).done()
    (path,) = root.rglob("gallery.npz")
    return path.parent


def test_coordinates_of_instances_are_in_the_gallery(trained_on_slides: Path) -> None:
    shown = gallery.load(trained_on_slides / "gallery.npz")
    assert shown.coords is not None
    assert shown.coords.shape == (len(shown), 20, 2)
    x = shown.coords[0, :, 0]
    assert (np.diff(x) == 2).all()


def test_coordinates_of_instances_are_in_predictions(
    tmp_path: Path, trained_on_slides: Path, milbench: Milbench
) -> None:
    files = ["h5_files/s1.h5", "h5_files/s2.h5"]
    cell = trained_on_slides.name
    milbench("predict", *files, "--cell", cell, "--out", "found.csv", "--positions").done()
    places = pd.read_csv(tmp_path / "found-positions.csv")
    x_of_s1 = [*range(1, 41, 2)]
    x_of_s2 = [*range(2, 42, 2)]
    assert places["x"].tolist() == x_of_s1 + x_of_s2
    maps = sorted((tmp_path / "found-maps").iterdir())
    assert [path.name for path in maps] == ["s1.png", "s2.png"]
    with Image.open(maps[0]) as picture:
        assert min(picture.size) > 300


def write_small_bags(folder: Path) -> Path:
    """Write 40 bags, of which every fifth has fewer instances than classes: one and two.

    All other bags have two instances and one class.
    """
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
    """The test knows a bag by the feature of its first instance, which is the bag's number."""
    path = write_small_bags(tmp_path)
    tested: list[float] = []
    for seed in range(4):
        problem = make(path, seed, folds=4, small_bags="leave-out")
        for bags in problem.splits["test"].bags:
            tested += bags.instances[:, 0, 0].tolist()
    assert sorted(tested) == [bag for bag in range(40) if bag % 5]


def knows_label_sets(bags: Bags) -> Scores:
    """Return scores that make no errors in label sets, and know nothing of instances."""
    presence = bags.labels.float()
    nothing = torch.zeros(len(bags), 3, bags.instances.shape[1])
    return Scores(classes=presence, presence=presence, instances=nothing, mask=bags.mask)


def area_of_pooled_trees(path: Path, train: Any, test: Any, seed: int) -> float:
    """Return the area under the ROC curve of trees on pooled features.

    They are the mean, maximum and minimum of each feature in a bag.
    """
    of_bags = pd.read_csv(path, keep_default_na=False).groupby("bag", sort=False)
    values = of_bags[FEATURES]
    pooled = np.hstack([values.mean(), values.max(), values.min()]).astype(np.float32)
    texts = of_bags["labels"].first()
    truth = np.array([["high" in text, "wide" in text] for text in texts])
    trees = ExtraTreesClassifier(n_estimators=100, random_state=seed)
    trees.fit(pooled[train], truth[train])
    # For each class an array (bags, 2): how probable its absence and its presence are.
    votes = [of_class[:, 1] for of_class in trees.predict_proba(pooled[test])]
    return float(roc_auc_score(truth[test], np.stack(votes, axis=1)))


def test_a_baseline_is_evaluated_on_the_bags_of_the_losses(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    problem = make(path, seed=2)
    evaluation = problem.evaluate(knows_label_sets)
    area = area_of_pooled_trees(path, problem.split.train, problem.split.test, seed=2)
    assert evaluation.metrics["test/pooled_trees_auroc"] == pytest.approx(area)
    assert evaluation.predictions is not None
    # The area does not depend on the loss, so the predictions keep it as a known value.
    assert evaluation.predictions.known["test/pooled_trees_auroc"] == pytest.approx(area)


def test_a_baseline_leaves_the_metrics_of_the_loss(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path))
    assert problem.evaluate(knows_label_sets).metrics["test/set_error"] == 0


def test_without_test_bags_there_is_no_baseline(tmp_path: Path) -> None:
    problem = make(write_table(tmp_path), test=0)
    assert problem._baseline == {}
