"""Every metric of a cell follows from its predictions: recomputed here without milbench.

The choice of thresholds alone is milbench's own; tests/evaluation/test_thresholds.py has its tests.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

import milbench
from milbench import Evaluation, UsageError
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
PATTERNS = ("no_detection", "orientation", "clustering", "edge_or_one", "substitution", "other")
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, params) for name, params in PARAMS.items()},
    # Metrics do not depend on how well these large networks are trained, and small batches are quick.
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
    """Every array of an epoch, by its name below it."""
    with np.load(path) as stored:
        prefix = f"{epoch}/"
        names = [name for name in stored.files if name.startswith(prefix)]
        return {name.removeprefix(prefix): stored[name] for name in names}


def recomputed(arrays: Arrays) -> dict[str, float]:
    """Every metric of validation and test bags that can be computed from these arrays."""
    chosen_by = "calibration" if "calibration/presence" in arrays else "validation"
    scores = arrays[f"{chosen_by}/presence"]
    labels = arrays[f"{chosen_by}/labels"]
    near = 0.0 if chosen_by == "calibration" else None
    values = {
        "chosen/threshold": choose_threshold(scores, labels, by="sets", near=near),
        "chosen/label_threshold": choose_threshold(scores, labels, by="labels", near=near),
        "chosen/bags": len(labels),
    }
    decoder = ""
    if f"{chosen_by}/reading/true" in arrays:
        wrong = {name: wrong_strings(arrays, chosen_by, name).sum() for name in DECODERS}
        decoder = min(DECODERS, key=lambda name: wrong[name])
    for split in ("validation", "test"):
        if f"{split}/labels" not in arrays:
            continue
        of_split = of_label_sets(arrays, split, values)
        of_split |= of_instances(arrays, split)
        of_split |= of_probabilities(arrays, split)
        of_split |= of_constant_answers(arrays, split)
        if decoder:
            of_split |= of_reading(arrays, split, decoder)
        values |= {f"{split}/{name}": float(value) for name, value in of_split.items()}
    known = {
        name.removeprefix("known/"): float(arrays[name])
        for name in arrays
        if name.startswith("known/")
    }
    for name, value in known.items():
        values[name] = value
        for prefix, difference in (("bayes_", "excess_"), ("reference_", "above_reference_")):
            if f"/{prefix}" in name:
                own = values[name.replace(prefix, "")]
                values[name.replace(prefix, difference)] = own - value
    return {name: value for name, value in values.items() if not math.isnan(value)}


def of_label_sets(arrays: Arrays, split: str, chosen: dict[str, float]) -> dict[str, float]:
    labels = arrays[f"{split}/labels"]
    presence = arrays[f"{split}/presence"].astype(float)
    named = presence >= chosen["chosen/threshold"]
    named_by_labels = presence >= chosen["chosen/label_threshold"]
    occurs = labels.any(axis=0)
    ranked = np.flatnonzero(occurs & ~labels.all(axis=0))
    # scikit-learn takes no infinite scores.
    finite = np.nan_to_num(presence, neginf=-1e30, posinf=1e30)
    values = {
        "set_error": np.mean([(a != b).any() for a, b in zip(named, labels, strict=True)]),
        "label_error": (named != labels).mean(),
        "own_label_error": (named_by_labels != labels).mean(),
    }
    if occurs.any():
        for name, predicted in (("macro_f1", named), ("own_macro_f1", named_by_labels)):
            by_class = [
                f1_score(labels[:, c], predicted[:, c], zero_division=0)
                for c in np.flatnonzero(occurs)
            ]
            values[name] = np.mean(by_class)
    if len(ranked):
        values["average_precision"] = np.mean(
            [average_precision_score(labels[:, c], finite[:, c]) for c in ranked]
        )
        values["auroc"] = np.mean([roc_auc_score(labels[:, c], finite[:, c]) for c in ranked])
    return values


def of_instances(arrays: Arrays, split: str) -> dict[str, float]:
    values = {}
    single = split if arrays[f"{split}/is_single_instance"] else f"{split}_single"
    if f"{single}/classes" in arrays:
        scores = arrays[f"{single}/classes"]
        wrong = (scores.argmax(axis=1) != arrays[f"{single}/labels"].argmax(axis=1)) | (
            scores.max(axis=1) == -np.inf
        )
        values["instance_error"] = wrong.mean()
    labels = arrays[f"{split}/labels"]
    if f"{split}/hits" in arrays and labels.any():
        values["hit_rate"] = arrays[f"{split}/hits"][labels].mean()
    if f"{split}/wrong" in arrays:
        values["posterior_error"] = arrays[f"{split}/wrong"].sum() / arrays[f"{split}/sizes"].sum()
    prefix = f"{split}/ratios/"
    for name in arrays:
        if name.startswith(prefix) and name.endswith("/sums"):
            metric = name.removeprefix(prefix).removesuffix("/sums")
            values[metric] = arrays[name].sum(dtype=float) / arrays[
                f"{prefix}{metric}/weights"
            ].sum(dtype=float)
    return values


def of_probabilities(arrays: Arrays, split: str) -> dict[str, float]:
    values = {}
    labels = arrays[f"{split}/labels"]
    presence = arrays[f"{split}/presence"].astype(float)
    if f"{split}/log_prob" in arrays and np.isfinite(arrays[f"{split}/log_prob"]).all():
        values["nll"] = -arrays[f"{split}/log_prob"].mean(dtype=float)
    if arrays[f"{split}/presence_is_log_odds"]:
        with np.errstate(over="ignore"):
            values["presence_ece"] = calibration_error(
                1 / (1 + np.exp(-presence.ravel())), labels.ravel()
            )
    if f"{split}/even_odds_log_prob" in arrays:
        right = ((presence >= 0) == labels).all(axis=1)
        log_prob = arrays[f"{split}/even_odds_log_prob"].astype(float).clip(max=-(2.0**-24))
        values["set_ece"] = calibration_error(np.exp(log_prob), right)
    return values


def calibration_error(probabilities: NDArray[Any], happened: NDArray[Any]) -> float:
    """The mean distance of frequency and probability over 15 bins by rank, in which equal forecasts stay together."""
    ordered = sorted(probabilities.tolist())
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, event in zip(probabilities.tolist(), happened.tolist(), strict=True):
        bins.setdefault(15 * ordered.index(probability) // len(ordered), []).append(
            (probability, event)
        )
    distances = [abs(sum(p for p, _ in part) - sum(e for _, e in part)) for part in bins.values()]
    return sum(distances) / len(ordered)


def of_constant_answers(arrays: Arrays, split: str) -> dict[str, float]:
    if "training/class_shares" not in arrays:
        return {}
    labels = arrays[f"{split}/labels"]
    shares = arrays["training/class_shares"]
    values = {
        "no_skill_set_error": (labels != arrays["training/most_common_set"]).any(axis=1).mean(),
        "no_skill_label_error": (labels != (shares > 0.5)).mean(),
    }
    single = split if arrays[f"{split}/is_single_instance"] else f"{split}_single"
    if f"{single}/labels" in arrays:
        values["no_skill_instance_error"] = (
            1 - arrays[f"{single}/labels"][:, shares.argmax()].mean()
        )
    if f"{split}/instance_classes" in arrays:
        counts = arrays[f"{split}/instance_classes"]
        values["no_skill_posterior_error"] = 1 - counts.max() / counts.sum()
    return values


def wrong_strings(arrays: Arrays, split: str, decoder: str) -> NDArray[np.bool_]:
    rows = zip(
        arrays[f"{split}/reading/{decoder}"].tolist(),
        arrays[f"{split}/reading/true"].tolist(),
        strict=True,
    )
    return np.array([read != true for read, true in rows])


def of_reading(arrays: Arrays, split: str, decoder: str) -> dict[str, float]:
    values = {
        f"transcription_error_{name}": wrong_strings(arrays, split, name).mean()
        for name in DECODERS
    }
    values["transcription_error"] = values[f"transcription_error_{decoder}"]
    pattern = arrays[f"{split}/reading/pattern"]
    values |= {f"error_{name}": (pattern == number).mean() for number, name in enumerate(PATTERNS)}
    precisions = []
    true = arrays[f"{split}/reading/true"]
    for c in sorted({*true[true >= 0].tolist()}):
        own = np.flatnonzero(arrays[f"{split}/reading/detection_class"] == c)
        ranked = sorted(own, key=lambda d: -arrays[f"{split}/reading/detection_mass"][d])
        right = [bool(arrays[f"{split}/reading/detection_right"][d]) for d in ranked]
        precision = [sum(right[: n + 1]) / (n + 1) for n in range(len(right))]
        area = sum(max(precision[n:]) for n in range(len(right)) if right[n])
        precisions.append(area / (true == c).sum())
    values["box_average_precision"] = np.mean(precisions)
    return values


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
        recipe=RECIPE | {"evaluation_bags": 40},
        data_dir=data_of_all,
    )
    trained = train(cell, tmp_path / "cell", data_dir=data_of_all)
    found = recomputed(arrays_of(trained.folder.predictions))
    history = {metric: value for (epoch, metric), value in trained.history.items() if epoch == 2}
    expected = {
        metric: value for metric, value in history.items() if not metric.startswith("train/")
    }
    assert sorted(found) == sorted(expected)
    for metric, value in expected.items():
        assert found[metric] == pytest.approx(value, rel=1e-5, abs=1e-6), metric


def scored_by_epoch(monkeypatch: pytest.MonkeyPatch, errors: list[float]) -> None:
    """Let the set error of validation bags be these, epoch by epoch.

    The epoch is written into `group` of the test bags, so that a test can tell whose predictions were kept.
    """
    original = evaluate

    def evaluated(setup: Setup, epoch: int, progress: Progress) -> Evaluation:
        found = original(setup, epoch, progress)
        assert found.predictions is not None
        test = replace(
            found.predictions["test"], group=np.full(len(found.predictions["test"]), epoch)
        )
        predictions = replace(found.predictions, splits={**found.predictions.splits, "test": test})
        metrics = found.metrics | {"validation/set_error": errors[epoch - 1]}
        return replace(found, metrics=metrics, predictions=predictions)

    monkeypatch.setattr(training, "evaluate", evaluated)


def group_of(predictions: Predictions) -> NDArray[Any]:
    group = predictions["test"].group
    assert group is not None
    return group


SYNTHETIC: dict[str, Any] = {
    "task_name": "synthetic-bags",
    "task": {"synthetic-bags": {"bags_per_epoch": 64}},
}


@pytest.mark.parametrize(
    ("errors", "best"),
    [
        pytest.param([0.5, 0.2, 0.4], 2, id="the second"),
        pytest.param([0.2, 0.2, 0.4], 2, id="the later of equals"),
        pytest.param([0.5, 0.4, 0.3], None, id="the last, which is kept anyway"),
    ],
)
def test_the_best_epoch_by_validation_is_kept(
    errors: list[float], best: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored_by_epoch(monkeypatch, errors)
    recipe = RECIPE | {"epochs": 3, "evaluation_bags": 20}
    trained = train(small_cell(recipe=recipe, **SYNTHETIC), tmp_path / "cell")
    kept = load_predictions(trained.folder.predictions)
    epochs = {name: (epoch, int(group_of(found)[0])) for name, (epoch, found) in kept.items()}
    expected = {"last": (3, 3)} | ({"best": (best, best)} if best else {})
    assert epochs == expected
    trained.folder.finish(trained.result)
    assert kept_best(trained.folder) == []


def kept_best(folder: CellFolder) -> list[Path]:
    return sorted(folder.path.glob("best-*.npz"))


def killed_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Cell, CellFolder]:
    """A cell of three epochs, the second one the best, that was killed while its gallery was written."""

    def stop(*_: object) -> None:
        raise Stop

    scored_by_epoch(monkeypatch, [0.5, 0.2, 0.4])
    cell = small_cell(recipe=RECIPE | {"epochs": 3, "evaluation_bags": 20}, **SYNTHETIC)
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


def test_damaged_predictions_of_the_best_epoch_let_training_start_anew(
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
    cell = small_cell(recipe=RECIPE | {"epochs": 3, "evaluation_bags": 20}, **SYNTHETIC)
    unbroken = train(cell, tmp_path / "unbroken").folder.predictions.read_bytes()
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(Stop):
            train(cell, tmp_path / "killed")
    assert train(cell, tmp_path / "killed").folder.predictions.read_bytes() == unbroken


def test_average_precision_of_a_cell_from_its_file_alone(tmp_path: Path) -> None:
    """The example of docs/predictions.md, from the file alone."""
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


def test_a_comparison_has_the_predictions_of_its_cells(tmp_path: Path) -> None:
    comparison = milbench.compare(
        ["exact", "one-vs-rest"],
        {"synthetic-bags": {"bags_per_epoch": 64}},
        seeds=[0, 1],
        recipe=RECIPE | {"evaluation_bags": 30},
        root=tmp_path,
        progress=False,
        in_process=True,
    )
    found = comparison.predictions("synthetic-bags")
    assert set(found) == {("exact", 0), ("exact", 1), ("one-vs-rest", 0), ("one-vs-rest", 1)}
    test = found["exact", 1]["test"]
    assert test.labels.shape == test.presence.shape == (30, 5)
    assert found["exact", 1].class_names == ["0", "1", "2", "3", "4"]
    with pytest.raises(UsageError, match="unknown task of this comparison"):
        comparison.predictions("birds")
