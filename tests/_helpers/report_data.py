"""Made-up results in the form of real ones, for tests of reports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from milbench.contracts.published import Published
from milbench.contracts.supervision import Supervision
from milbench.experiment.cell import Cell
from milbench.experiment.plan import Plan, TaskInfo
from milbench.experiment.spec import Spec
from milbench.store import gallery
from milbench.store.results import COLUMNS, Results
from tests._helpers.cells import make_cell

LOSSES = {"exact": 0.006, "max-pooling": 0.08, "noisy-or": 0.007, "one-vs-rest": 0.021}
"""Loss -> its one-instance error after the last epoch."""
ONE = {"extended-digits": "instance_error"}
"""One task with its primary metric."""
TWO = {"extended-digits": "instance_error", "synthetic-bags": "set_error"}
"""Two tasks with their primary metrics."""
PUBLISHED = [
    Published("instance_error", 0.004, "Li 2018", "exact", spread=0.0004),
    Published("instance_error", 0.08, "Li 2018", "max-pooling"),
]


def make_results(
    folder: Path | None = None,
    losses: Mapping[str, float] | None = None,
    tasks: Mapping[str, str] | None = None,
    seeds: int = 3,
    epochs: int = 4,
    statuses: Mapping[tuple[str, str, int], tuple[str, str]] | None = None,
    supervision: Mapping[str, Supervision] | None = None,
    info: Mapping[str, Any] | None = None,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    **plan: Any,
) -> Results:
    """Return results of losses x tasks x seeds.

    Args:
        folder: where each done cell gets a folder with a gallery; without it there are none.
        losses: name -> one-instance error after the last epoch, by default LOSSES. The set error is
            1.6 times as large.
        tasks: name -> primary metric, by default TWO.
        seeds: the number of seeds.
        epochs: the number of epochs.
        statuses: loss, task and seed -> status and reason of the cells that are not done.
        supervision: loss -> its supervision; other losses learn from label sets.
        info: further fields of the `TaskInfo` of every task.
        params: task -> further parameters.
        plan: `notes` and `search` of the plan; all others are fields of its spec.
    """
    losses = losses or LOSSES
    tasks = tasks or TWO
    statuses = statuses or {}
    supervision = supervision or {}
    info = info or {}
    params = params or {}
    cells = []
    rows = []
    folders = {}
    infos = {}
    for task_number, (task, primary) in enumerate(tasks.items()):
        task_params = {"digits_per_bag": 2, **params.get(task, {})}
        for loss_number, (loss, error) in enumerate(losses.items()):
            for seed in range(seeds):
                cell = make_cell(
                    loss,
                    task,
                    task_params=task_params,
                    supervision=supervision.get(loss, "set"),
                    data=f"data {task_number}",
                    epochs=epochs,
                    seed=seed,
                )
                cells.append(cell)
                status, reason = statuses.get((loss, task, seed), ("done", ""))
                rows += _rows(cell, status, reason, error, task_number, loss_number)
                if status == "done" and folder is not None:
                    folders[cell.id] = folder / cell.id
                    _write_gallery(folders[cell.id], error, task_number)
        infos[cells[-1].task.key] = TaskInfo(primary, **info)
    notes = plan.pop("notes", [])
    search = plan.pop("search", None)
    spec_fields = {"name": "demo", "losses": list(losses), "tasks": list(tasks)} | plan
    made_plan = Plan(
        Spec(**spec_fields),
        cells,
        infos,
        notes=notes,
        search=search,
        command="milbench run demo",
        launched="2025-05-04 10:31 UTC",
    )
    return Results(made_plan, _frame(rows), folders)


def _rows(
    cell: Cell, status: str, reason: str, level: float, task_number: int, loss_number: int
) -> list[dict[str, Any]]:
    """Return the rows of a cell in the frame of results.

    Args:
        cell: the cell.
        status: its status.
        reason: why it has this status.
        level: the error of its loss.
        task_number: the number of its task, from 0.
        loss_number: the number of its loss, from 0.
    """
    seed = cell.seed
    epochs = cell.recipe.epochs
    of_cell = {
        "task": cell.task.name,
        "loss": cell.loss.name,
        "network": "",
        "recipe": "",
        "supervision": cell.loss.supervision,
        "seed": seed,
        "status": status,
        "reason": reason,
        "cell": cell.id,
        "run": "" if status == "missing" else f"{task_number}{loss_number}{seed}" * 8,
        "machine": "A processor",
        "code": "3f2c9e7a",
        "draw": None,
    }
    # A part of the error is common to all losses of a seed, since a seed may have hard bags.
    rng_of_seed = np.random.default_rng([task_number, seed])
    rng = np.random.default_rng([task_number, loss_number, seed])
    error = level * np.exp(0.15 * rng_of_seed.normal() + 0.1 * rng.normal())
    values = []
    for epoch in range(1, _last_epoch(status, epochs) + 1):
        values += _metrics(epoch, epochs, error, rng)
    if status == "done":
        for name, cost in _costs(loss_number, rng).items():
            values.append((epochs, f"cost/{name}", cost))
    if not values:
        return [of_cell | {"epoch": None, "metric": "", "value": np.nan}]
    return [
        of_cell | {"epoch": epoch, "metric": metric, "value": value}
        for epoch, metric, value in values
    ]


def _last_epoch(status: str, epochs: int) -> int:
    """Return the last epoch of which a cell has values, 0 if it has not begun."""
    if status == "done":
        return epochs
    if status == "missing":
        return 0
    # A cell that failed or is running has got half way.
    return epochs // 2


def _write_gallery(folder: Path, error: float, task_number: int) -> None:
    """Write the gallery of a cell: sets for the second task, images for the others."""
    folder.mkdir(parents=True)
    path = folder / "gallery.npz"
    if task_number == 1:
        write_sets(path, error=3 * error, seed=task_number)
    else:
        write_images(path, error=3 * error, seed=task_number)


def galleries_of(results: Results) -> list[Path]:
    """Return the galleries of all done cells."""
    return [folder / "gallery.npz" for folder in results.folders.values()]


def results_by_epoch(
    values: Mapping[tuple[str, int], list[tuple[float, float]]], **changes: Any
) -> Results:
    """Return results on one task, "t", with given set errors.

    Args:
        values: loss and seed -> the set error on (validation, test) bags after each epoch.
        changes: other arguments of `make_results`.
    """
    losses = {loss: 0.1 for loss, _ in values}
    seeds = 1 + max(seed for _, seed in values)
    made = make_results(None, losses, {"t": "set_error"}, seeds, epochs=1, **changes)
    cells: list[Any] = made.frame.drop_duplicates("cell").to_dict("records")
    by_loss_and_seed = {(row["loss"], row["seed"]): row for row in cells}
    rows = []
    for key, errors in values.items():
        row = by_loss_and_seed[key]
        for epoch, (validation, test) in enumerate(errors, start=1):
            rows += [
                row | {"epoch": epoch, "metric": "validation/set_error", "value": validation},
                row | {"epoch": epoch, "metric": "test/set_error", "value": test},
            ]
    return replace(made, frame=_frame(rows))


def results_by_seed(errors: Mapping[str, Sequence[float]], **changes: Any) -> Results:
    """Return results on one task, "t", with given set errors after the only epoch.

    Args:
        errors: loss -> the set error on test bags with each seed; on validation bags it is 0.5.
        changes: other arguments of `make_results`.
    """
    values = {}
    for loss, of_loss in errors.items():
        for seed, error in enumerate(of_loss):
            values[loss, seed] = [(0.5, error)]
    return results_by_epoch(values, **changes)


def with_test_metric(
    results: Results, metric: str, values: Mapping[str, Sequence[float]]
) -> Results:
    """Return results of `results_by_seed` with a further metric on test bags.

    Args:
        results: the results.
        metric: the name of the metric, without "test/".
        values: loss -> its value with each seed.
    """
    tested = results.frame[results.frame["metric"] == "test/set_error"]
    of_rows = [
        values[loss][seed] for loss, seed in zip(tested["loss"], tested["seed"], strict=True)
    ]
    return _with_rows(results, tested.assign(metric=f"test/{metric}", value=of_rows))


def with_line(results: Results, metric: str, values: Sequence[float]) -> Results:
    """Return results of `results_by_seed` with a line: a value on test bags that all losses share.

    Args:
        results: the results.
        metric: the name of the line, without "test/", such as no_skill_set_error.
        values: the value with each seed.
    """
    tested = results.frame[results.frame["metric"] == "test/set_error"]
    of_rows = [values[seed] for seed in tested["seed"]]
    return _with_rows(results, tested.assign(metric=f"test/{metric}", value=of_rows))


def _with_rows(results: Results, rows: pd.DataFrame) -> Results:
    return replace(results, frame=pd.concat([results.frame, rows], ignore_index=True))


def with_cells(results: Results, changed: Callable[[Cell], Cell]) -> Results:
    """Return results whose cells are changed by a function.

    Changed cells have new ids; the plan, the frame and the folders use these.
    """
    new_ids = {}
    cells = []
    tasks = {}
    for cell in results.plan.cells:
        new = changed(cell)
        new_ids[cell.id] = new.id
        cells.append(new)
        tasks[new.task.key] = results.plan.tasks[cell.task.key]
    plan = replace(results.plan, cells=cells, tasks=tasks)
    frame = results.frame.assign(cell=results.frame["cell"].map(new_ids))
    folders = {new_ids[old]: folder for old, folder in results.folders.items()}
    return replace(results, plan=plan, frame=frame, folders=folders)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)[list(COLUMNS)]
    return frame.astype({"epoch": "Int64", "draw": "Int64", "value": float})


def _metrics(
    epoch: int, epochs: int, level: float, rng: np.random.Generator
) -> list[tuple[int, str, float]]:
    """Return rows (epoch, metric, value) of an epoch; the error falls from 0.7 to `level`."""
    share_left = 1 - epoch / epochs
    error = (level + (0.7 - level) * share_left**6) * np.exp(rng.normal() * 0.02)
    metrics = {"instance_error": error, "set_error": min(1.0, 1.6 * error), "auroc": 1 - error / 5}
    rows = [(epoch, "train/loss", 4 * error)]
    for split in ("test", "validation"):
        rows += [(epoch, f"{split}/{name}", float(value)) for name, value in metrics.items()]
    return rows


def _costs(loss_number: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the costs of a training.

    The more losses stand before a loss, the slower it is. A busy machine slows everything down.
    """
    busy = 1 + 0.1 * rng.random()
    return {
        "step_seconds": 0.05 * (loss_number + 1) * busy,
        "step_seconds_min": 0.04 * (loss_number + 1),
        "loss_seconds": 6e-4 * busy,
        "loss_seconds_min": 6e-4,
        "peak_bytes": 4.1e8,
        "train_seconds": 71 * busy,
    }


def write_images(path: Path, error: float, seed: int = 0) -> None:
    """Write a gallery of images with two squares each; a share `error` of squares is misnamed."""
    rng = np.random.default_rng(seed)
    # Mistakes have a generator of their own, so that losses of any error see the same squares.
    rng_of_mistakes = np.random.default_rng(int(error * 1e4))
    bags = 6
    digits = 10
    size = 24
    blob = 8
    positions = 9
    instances = np.zeros((bags, 1, size, size), np.float32)
    labels = np.zeros((bags, digits), bool)
    logits = np.zeros((bags, digits + 1, positions, positions))
    background = 5
    logits[:, -1] = background
    classes = rng.integers(0, digits, (bags, 2))
    boxes = np.zeros((bags, 2, 4))
    centres = np.linspace(3, size - 4, positions)
    for bag in range(bags):
        upper_left = (int(rng.integers(0, 4)), 2)
        lower_right = (int(rng.integers(10, 16)), 13)
        for number, (top, left) in enumerate([upper_left, lower_right]):
            digit = int(classes[bag, number])
            instances[bag, 0, top : top + blob, left : left + blob] = 0.5 + digit / 20
            boxes[bag, number] = (left, top, left + blob, top + blob)
            labels[bag, digit] = True
            is_wrong = rng_of_mistakes.random() < error
            named = (digit + 1) % digits if is_wrong else digit
            rows_away = centres[:, None] - top - blob // 2
            columns_away = centres[None] - left - blob // 2
            distance = np.hypot(rows_away, columns_away)
            logits[bag, named] += 10 * np.exp(-((distance / 4) ** 2))
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs = odds / odds.sum(axis=1, keepdims=True)
    made = gallery.make(
        kind="image",
        instances=instances,
        labels=labels,
        presence=probs[:, :-1].max(axis=(2, 3)),
        probs=probs,
        class_names=[str(digit) for digit in range(digits)],
        ys=centres,
        xs=centres,
        threshold=0.5,
        classes=classes,
        boxes=boxes,
    )
    gallery.write(path, made)


def write_sets(path: Path, error: float, seed: int = 0) -> None:
    """Write a gallery of points in the plane, in bags of different sizes.

    A share `error` of the points is taken for background.
    """
    rng = np.random.default_rng(seed)
    # Mistakes have a generator of their own, so that losses of any error see the same points.
    rng_of_mistakes = np.random.default_rng(int(error * 1e4))
    bags = 6
    most_points = 20
    classes = 5
    # The means of the classes are the corners of a pentagon: 1.257 is a fifth of a circle. The mean
    # of the background is in the middle.
    angles = np.arange(classes) * 1.257
    corners = 4 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    means = np.concatenate([corners, np.zeros((1, 2))])
    sizes = rng.integers(8, most_points + 1, size=(bags, 1))
    mask = np.arange(most_points) < sizes
    # A quarter of the points shows a class.
    shows_class = mask & (rng.random((bags, most_points)) < 0.25)
    truth = np.where(shows_class, rng.integers(0, classes, (bags, most_points)), classes)
    points = rng.normal(size=(bags, most_points, 2)) * 0.8 + means[truth]
    is_missed = rng_of_mistakes.random((bags, most_points)) < error
    guess = np.where(is_missed, classes, truth)
    probs = np.full((bags, classes + 1, most_points), 0.02)
    np.put_along_axis(probs, guess[:, None], 0.9, axis=1)
    labels = (truth[..., None] == np.arange(classes)).any(axis=1)
    made = gallery.make(
        kind="set",
        instances=points,
        labels=labels,
        presence=probs[:, :-1].max(axis=2),
        probs=probs,
        class_names=list("ABCDE"),
        mask=mask,
        position_classes=truth,
    )
    gallery.write(path, made)
