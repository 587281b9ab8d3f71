"""Every metric of a cell follows from its file of predictions.

The tests recompute all metrics without milbench's code, except for the choice of thresholds, which
tests/evaluation/test_thresholds.py tests.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

import milbench
from milbench import Comparison, Evaluation, UsageError
from milbench.contracts.predictions import Predictions, load_predictions
from milbench.evaluation.thresholds import choose_threshold
from milbench.experiment.cell import Cell
from milbench.store.cell_folder import CellFolder
from milbench.training import train as training
from milbench.training.checkpoint import Progress
from milbench.training.epoch_evaluation import evaluate
from milbench.training.training_setup import Setup
from tests._helpers.small_data import PARAMS
from tests._helpers.training import Stop, small_cell, stop_after, train

Arrays = dict[str, NDArray[Any]]
RECIPE = {"epochs": 2, "steps_per_epoch": 2, "evaluate_every": 1, "precision": "float32"}
DECODERS = ("columns", "strongest", "components")
"""The decoders of the task svhn: each reads a string of digits from the image of a house number.

If two are equally good, the first one is chosen.
"""
PATTERNS = ("no_detection", "orientation", "clustering", "edge_or_one", "substitution", "other")
"""Why a string was read wrongly. The file has the index of the pattern in this tuple.

`error_pattern` says what each pattern means.
"""
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, params) for name, params in PARAMS.items()},
    # Small batches keep these large networks quick. How well they are trained does not matter.
    "svhn": ("svhn", PARAMS["svhn"] | {"batch_bags": 8}),
    "extended-mnist": ("extended-mnist", PARAMS["extended-mnist"] | {"batch_bags": 8}),
    "synthetic-bags": ("synthetic-bags", {"bags_per_epoch": 64}),
    "classes-together": (
        "synthetic-bags",
        {"bags_per_epoch": 64, "num_classes": 4, "label_sets": "together"},
    ),
    "extended-digits": ("extended-digits", {"bags_per_epoch": 64}),
    "sets-of-all-digits": ("mnist-bags", PARAMS["mnist-bags"] | {"labels": "all", "bag_size": 3}),
}


def arrays_of(path: Path, epoch: str = "last") -> Arrays:
    """Return every array of an epoch, by its name without the prefix `epoch/`."""
    with np.load(path) as stored:
        prefix = f"{epoch}/"
        names = [name for name in stored.files if name.startswith(prefix)]
        return {name.removeprefix(prefix): stored[name] for name in names}


def recomputed(arrays: Arrays) -> dict[str, float]:
    """Return all metrics of validation and test bags that follow from these arrays."""
    chosen_by = "calibration" if "calibration/presence" in arrays else "validation"
    values = chosen_thresholds(arrays, chosen_by)
    for split in ("validation", "test"):
        if f"{split}/labels" not in arrays:
            continue
        of_split = of_label_sets(arrays, split, values)
        of_split |= of_instances(arrays, split)
        of_split |= of_the_task_itself(arrays, split)
        of_split |= of_probabilities(arrays, split)
        of_split |= of_constant_answers(arrays, split)
        if f"{chosen_by}/reading/true" in arrays:
            of_split |= of_reading(arrays, split, best_decoder(arrays, chosen_by))
        values |= {f"{split}/{name}": float(value) for name, value in of_split.items()}
    values |= known_and_differences(arrays, values)
    return {name: value for name, value in values.items() if not math.isnan(value)}


def chosen_thresholds(arrays: Arrays, chosen_by: str) -> dict[str, float]:
    """Return the thresholds that are chosen on the bags of a split, and the number of bags."""
    scores = arrays[f"{chosen_by}/presence"]
    labels = arrays[f"{chosen_by}/labels"]
    # Calibration bags were trained on, so that a wide gap of thresholds may be equally good. The
    # threshold nearest to 0 is taken.
    near = 0.0 if chosen_by == "calibration" else None
    return {
        "chosen/threshold": choose_threshold(scores, labels, by="sets", near=near),
        "chosen/label_threshold": choose_threshold(scores, labels, by="labels", near=near),
        "chosen/bags": len(labels),
    }


def best_decoder(arrays: Arrays, chosen_by: str) -> str:
    """Return the first of the decoders that read the fewest strings of a split wrongly."""
    wrong = {name: wrong_strings(arrays, chosen_by, name).sum() for name in DECODERS}
    return min(DECODERS, key=lambda name: wrong[name])


def known_and_differences(arrays: Arrays, values: dict[str, float]) -> dict[str, float]:
    """Return the metrics that are known without a network, and the network's distances to them."""
    found = {}
    for array in arrays:
        if not array.startswith("known/"):
            continue
        name = array.removeprefix("known/")
        value = float(arrays[array])
        found[name] = value
        # The error of the Bayes optimum.
        if "/bayes_" in name:
            own = values[name.replace("bayes_", "")]
            found[name.replace("bayes_", "excess_")] = own - value
        # The error of the best answer from one instance at a time.
        if "/reference_" in name:
            own = values[name.replace("reference_", "")]
            found[name.replace("reference_", "above_reference_")] = own - value
    return found


def of_label_sets(arrays: Arrays, split: str, chosen: dict[str, float]) -> dict[str, float]:
    """Return the metrics of label sets, by the thresholds that were chosen."""
    labels = arrays[f"{split}/labels"]
    presence = arrays[f"{split}/presence"].astype(float)
    named = presence >= chosen["chosen/threshold"]
    named_by_labels = presence >= chosen["chosen/label_threshold"]
    values = {
        "set_error": (named != labels).any(axis=1).mean(),
        "label_error": (named != labels).mean(),
        "own_label_error": (named_by_labels != labels).mean(),
    }
    occurs = labels.any(axis=0)
    if occurs.any():
        f1 = partial(f1_score, zero_division=0)
        values["macro_f1"] = mean_over_classes(f1, labels, named, occurs)
        values["own_macro_f1"] = mean_over_classes(f1, labels, named_by_labels, occurs)
    # Bags cannot be ranked by a class that all of them have, or none.
    is_ranked = occurs & ~labels.all(axis=0)
    if is_ranked.any():
        # scikit-learn takes no infinite scores.
        finite = np.nan_to_num(presence, neginf=-1e30, posinf=1e30)
        values["average_precision"] = mean_over_classes(
            average_precision_score, labels, finite, is_ranked
        )
        values["auroc"] = mean_over_classes(roc_auc_score, labels, finite, is_ranked)
    return values


def mean_over_classes(
    score: Callable[..., float],
    labels: NDArray[Any],
    predicted: NDArray[Any],
    classes: Any,
) -> float:
    """Return the mean of a score over some classes.

    Labels and predictions have a column for each class; `classes` (C,) bool is True where the class
    counts.
    """
    of_classes = [score(labels[:, c], predicted[:, c]) for c in np.flatnonzero(classes)]
    return float(np.mean(of_classes))


def of_instances(arrays: Arrays, split: str) -> dict[str, float]:
    """Return the metrics of single instances: which class they show, and where a class is."""
    values = {}
    single = single_instance_split(arrays, split)
    if f"{single}/classes" in arrays:
        scores = arrays[f"{single}/classes"]
        is_other_class = scores.argmax(axis=1) != arrays[f"{single}/labels"].argmax(axis=1)
        names_none = scores.max(axis=1) == -np.inf
        values["instance_error"] = (is_other_class | names_none).mean()
    labels = arrays[f"{split}/labels"]
    if f"{split}/hits" in arrays and labels.any():
        values["hit_rate"] = arrays[f"{split}/hits"][labels].mean()
    if f"{split}/wrong" in arrays:
        values["posterior_error"] = arrays[f"{split}/wrong"].sum() / arrays[f"{split}/sizes"].sum()
    return values


def single_instance_split(arrays: Arrays, split: str) -> str:
    """Return the name of the split with the bags of one instance, perhaps the split itself."""
    if arrays[f"{split}/is_single_instance"]:
        return split
    return f"{split}_single"


def of_the_task_itself(arrays: Arrays, split: str) -> dict[str, float]:
    """Return the metrics that a task defines itself, each of which is a ratio of two sums."""
    values = {}
    prefix = f"{split}/ratios/"
    for name in arrays:
        if name.startswith(prefix) and name.endswith("/sums"):
            metric = name.removeprefix(prefix).removesuffix("/sums")
            weights = arrays[f"{prefix}{metric}/weights"]
            values[metric] = arrays[name].sum(dtype=float) / weights.sum(dtype=float)
    return values


def of_probabilities(arrays: Arrays, split: str) -> dict[str, float]:
    """Return the likelihood and the calibration errors of the probabilities."""
    values = {}
    labels = arrays[f"{split}/labels"]
    presence = arrays[f"{split}/presence"].astype(float)
    if f"{split}/log_prob" in arrays and np.isfinite(arrays[f"{split}/log_prob"]).all():
        values["nll"] = -arrays[f"{split}/log_prob"].mean(dtype=float)
    if arrays[f"{split}/presence_is_log_odds"]:
        # Where the exponential is too large for a float, the probability is 0.
        with np.errstate(over="ignore"):
            probabilities = 1 / (1 + np.exp(-presence.ravel()))
        values["presence_ece"] = calibration_error(probabilities, labels.ravel())
    if f"{split}/even_odds_log_prob" in arrays:
        right = ((presence >= 0) == labels).all(axis=1)
        # This is the log-probability of the set of all classes with a presence of 0 or more.
        # Probabilities that float32 cannot tell from 1 count as one number, so that these forecasts
        # share a bin.
        log_prob = arrays[f"{split}/even_odds_log_prob"].astype(float).clip(max=-(2.0**-24))
        values["set_ece"] = calibration_error(np.exp(log_prob), right)
    return values


def calibration_error(probabilities: NDArray[Any], happened: NDArray[Any]) -> float:
    """Return the mean distance of frequency and probability over 15 bins.

    Forecasts are put into bins by their rank; equal forecasts are put into the same bin.
    """
    ordered = sorted(probabilities.tolist())
    expected = [0.0] * 15
    observed = [0] * 15
    for probability, event in zip(probabilities.tolist(), happened.tolist(), strict=True):
        # Equal forecasts share the rank of the first of them.
        rank = ordered.index(probability)
        number_of_bin = 15 * rank // len(ordered)
        expected[number_of_bin] += probability
        observed[number_of_bin] += int(event)
    distances = [abs(e - o) for e, o in zip(expected, observed, strict=True)]
    return sum(distances) / len(ordered)


def of_constant_answers(arrays: Arrays, split: str) -> dict[str, float]:
    """Return the errors of no skill, which is the best answer that is the same for every bag."""
    if "training/class_shares" not in arrays:
        return {}
    labels = arrays[f"{split}/labels"]
    shares = arrays["training/class_shares"]
    values = {
        "no_skill_set_error": (labels != arrays["training/most_common_set"]).any(axis=1).mean(),
        "no_skill_label_error": (labels != (shares > 0.5)).mean(),
    }
    single = single_instance_split(arrays, split)
    if f"{single}/labels" in arrays:
        has_commonest_class = arrays[f"{single}/labels"][:, shares.argmax()]
        values["no_skill_instance_error"] = 1 - has_commonest_class.mean()
    # Training bags do not tell how many instances have each class, so this constant class is chosen
    # by the judged bags.
    if f"{split}/instance_classes" in arrays:
        counts = arrays[f"{split}/instance_classes"]
        values["no_skill_posterior_error"] = 1 - counts.max() / counts.sum()
    return values


def wrong_strings(arrays: Arrays, split: str, decoder: str) -> NDArray[np.bool_]:
    """Return whether a decoder reads another string than the true one, (n,) bool."""
    read = arrays[f"{split}/reading/{decoder}"]
    true = arrays[f"{split}/reading/true"]
    assert read.shape == true.shape
    return np.asarray((read != true).any(axis=1))


def of_reading(arrays: Arrays, split: str, decoder: str) -> dict[str, float]:
    """Return the metrics of reading; those without a decoder's name are of `decoder`."""
    values = {
        f"transcription_error_{name}": wrong_strings(arrays, split, name).mean()
        for name in DECODERS
    }
    values["transcription_error"] = values[f"transcription_error_{decoder}"]
    pattern = arrays[f"{split}/reading/pattern"]
    values |= {f"error_{name}": (pattern == number).mean() for number, name in enumerate(PATTERNS)}
    values["box_average_precision"] = box_average_precision(arrays, split)
    return values


def box_average_precision(arrays: Arrays, split: str) -> float:
    """Return the average precision of detections, as a mean over the classes that occur.

    It is the area under the interpolated precision-recall curve.
    """
    true = arrays[f"{split}/reading/true"]
    detected = arrays[f"{split}/reading/detection_class"]
    mass = arrays[f"{split}/reading/detection_mass"]
    is_right = arrays[f"{split}/reading/detection_right"]
    areas = []
    for number in sorted(set(true[true >= 0].tolist())):
        own = np.flatnonzero(detected == number)
        # A stable sort: detections of equal mass stay in the order of the file.
        ranked = own[np.argsort(-mass[own], kind="stable")]
        right = is_right[ranked].tolist()
        precision = [sum(right[:count]) / count for count in range(1, len(right) + 1)]
        # At every right detection recall grows by one instance. The interpolated precision is the
        # highest precision from there on.
        area = sum(max(precision[n:]) for n, hit in enumerate(right) if hit)
        areas.append(area / (true == number).sum())
    return float(np.mean(areas))


def evaluation_bags(task: str) -> int:
    """Return how many bags of each split are evaluated: few if the network is large."""
    return 12 if task in ("cifar10", "extended-mnist", "mnist", "svhn") else 40


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("loss", ["exact", "max-pooling"])
def test_every_metric_follows_from_the_predictions(
    name: str, loss: str, data_of_all: Path, tmp_path: Path
) -> None:
    task, params = TASKS[name]
    cell = small_cell(
        loss,
        task_name=task,
        task={task: params},
        recipe=RECIPE | {"evaluation_bags": evaluation_bags(task)},
        data_dir=data_of_all,
    )
    trained = train(cell, tmp_path / "cell", data_dir=data_of_all)
    found = recomputed(arrays_of(trained.folder.predictions))
    expected = {}
    for (epoch, metric), value in trained.history.items():
        if epoch == RECIPE["epochs"] and not metric.startswith("train/"):
            expected[metric] = value
    assert sorted(found) == sorted(expected)
    for metric, value in expected.items():
        assert found[metric] == pytest.approx(value, rel=1e-5, abs=1e-6), metric


def scored_by_epoch(monkeypatch: pytest.MonkeyPatch, errors: list[float]) -> None:
    """Replace the set errors of the validation bags by these, one for each epoch.

    The number of the epoch is written into `group` of the test bags, so that a test can tell which
    epoch's predictions were kept.
    """
    original = evaluate

    def evaluated(setup: Setup, epoch: int, progress: Progress) -> Evaluation:
        found = original(setup, epoch, progress)
        predictions = found.predictions
        assert predictions is not None
        test = predictions["test"]
        with_epoch = replace(test, group=np.full(len(test), epoch))
        changed = replace(predictions, splits={**predictions.splits, "test": with_epoch})
        metrics = found.metrics | {"validation/set_error": errors[epoch - 1]}
        return replace(found, metrics=metrics, predictions=changed)

    monkeypatch.setattr(training, "evaluate", evaluated)


def epoch_of(predictions: Predictions) -> int:
    """Return the epoch that `scored_by_epoch` has written into predictions."""
    group = predictions["test"].group
    assert group is not None
    return int(group[0])


SYNTHETIC: dict[str, Any] = {
    "task_name": "synthetic-bags",
    "task": {"synthetic-bags": {"bags_per_epoch": 64}},
}


THREE_EPOCHS = RECIPE | {"epochs": 3, "evaluation_bags": 20}


@pytest.mark.parametrize(
    ("errors", "kept"),
    [
        pytest.param([0.5, 0.2, 0.4], {"last": 3, "best": 2}, id="the second"),
        pytest.param([0.2, 0.2, 0.4], {"last": 3, "best": 2}, id="the later of equals"),
        pytest.param([0.5, 0.4, 0.3], {"last": 3}, id="the last, which is kept anyway"),
    ],
)
def test_the_best_epoch_by_validation_is_kept(
    errors: list[float], kept: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored_by_epoch(monkeypatch, errors)
    trained = train(small_cell(recipe=THREE_EPOCHS, **SYNTHETIC), tmp_path / "cell")
    stored = load_predictions(trained.folder.predictions)
    assert {name: epoch for name, (epoch, _) in stored.items()} == kept
    assert {name: epoch_of(predictions) for name, (_, predictions) in stored.items()} == kept


def test_a_finished_cell_keeps_no_second_file_of_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored_by_epoch(monkeypatch, [0.5, 0.2, 0.4])
    trained = train(small_cell(recipe=THREE_EPOCHS, **SYNTHETIC), tmp_path / "cell")
    trained.folder.finish(trained.result)
    assert kept_best(trained.folder) == []


def kept_best(folder: CellFolder) -> list[Path]:
    return sorted(folder.path.glob("best-*.npz"))


def killed_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Cell, CellFolder]:
    """Return a cell of three epochs that was killed while its gallery was written.

    Its second epoch is the best.
    """

    def stop(*_: object) -> None:
        raise Stop

    scored_by_epoch(monkeypatch, [0.5, 0.2, 0.4])
    cell = small_cell(recipe=THREE_EPOCHS, **SYNTHETIC)
    with monkeypatch.context() as patch:
        patch.setattr("milbench.training.epoch_evaluation._save_gallery", stop)
        with pytest.raises(Stop):
            train(cell, tmp_path / "killed")
    return cell, CellFolder(tmp_path / "killed")


def test_a_training_killed_at_its_end_keeps_its_best_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, folder = killed_at_its_end(tmp_path, monkeypatch)
    trained = train(cell, folder.path)
    unbroken = train(cell, tmp_path / "unbroken")
    assert trained.folder.predictions.read_bytes() == unbroken.folder.predictions.read_bytes()
    assert set(load_predictions(trained.folder.predictions)) == {"last", "best"}


def test_damaged_predictions_of_the_best_epoch_let_training_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, folder = killed_at_its_end(tmp_path, monkeypatch)
    (best,) = kept_best(folder)
    best.write_bytes(best.read_bytes()[:100])
    trained = train(cell, folder.path)
    unbroken = train(cell, tmp_path / "unbroken")
    assert trained.folder.predictions.read_bytes() == unbroken.folder.predictions.read_bytes()


def test_a_killed_training_leaves_the_predictions_of_the_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = small_cell(recipe=THREE_EPOCHS, **SYNTHETIC)
    unbroken = train(cell, tmp_path / "unbroken").folder.predictions.read_bytes()
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(Stop):
            train(cell, tmp_path / "killed")
    assert train(cell, tmp_path / "killed").folder.predictions.read_bytes() == unbroken


def test_average_precision_of_a_cell_from_its_file_alone(tmp_path: Path) -> None:
    # The example of docs/predictions.md.
    comparison = milbench.compare(
        "exact",
        {"synthetic-bags": {"bags_per_epoch": 64}},
        recipe=RECIPE | {"evaluation_bags": 100},
        root=tmp_path,
        progress=False,
        in_process=True,
    )
    (file,) = tmp_path.glob("runs/cells/*/predictions.npz")
    with np.load(file) as stored:
        labels = stored["last/test/labels"]
        presence = stored["last/test/presence"]
    judged = labels.any(axis=0) & ~labels.all(axis=0)
    macro = average_precision_score(labels[:, judged], presence[:, judged], average="macro")
    assert macro == pytest.approx(comparison.table(metric="average_precision")["mean"].item())


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Return a comparison of two losses and two seeds."""
    with pytest.MonkeyPatch.context() as patch:
        # MLflow takes seconds to import. The fixture `unmirrored`, which leaves it out, lives for
        # one test only, so a fixture of the module cannot use it.
        patch.setattr("milbench.store.mirror.Mirror.start", lambda self: None)
        patch.setattr("milbench.store.mirror.Mirror.finish", lambda self: "")
        return milbench.compare(
            ["exact", "one-vs-rest"],
            {"synthetic-bags": {"bags_per_epoch": 64}},
            seeds=[0, 1],
            recipe=RECIPE | {"evaluation_bags": 30},
            root=tmp_path_factory.mktemp("compared"),
            progress=False,
            in_process=True,
        )


def test_a_comparison_has_the_predictions_of_its_cells(compared: Comparison) -> None:
    found = compared.predictions("synthetic-bags")
    assert set(found) == {("exact", 0), ("exact", 1), ("one-vs-rest", 0), ("one-vs-rest", 1)}


def test_predictions_have_a_row_for_each_evaluated_bag(compared: Comparison) -> None:
    predictions = compared.predictions("synthetic-bags")["exact", 1]
    bags, classes = 30, 5
    assert predictions["test"].labels.shape == (bags, classes)
    assert predictions["test"].presence.shape == (bags, classes)
    assert predictions.class_names == ["0", "1", "2", "3", "4"]


def test_predictions_of_a_task_that_was_not_compared_are_refused(compared: Comparison) -> None:
    with pytest.raises(UsageError, match="unknown task of this comparison"):
        compared.predictions("birds")
