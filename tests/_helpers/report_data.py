"""Made-up results with the shape of real ones, from which the tests of the report render."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from milbench.contracts.published import Published
from milbench.contracts.supervision import Supervision
from milbench.experiment.plan import Plan, TaskInfo
from milbench.experiment.spec import Spec
from milbench.store import gallery
from milbench.store.results import COLUMNS, Results
from tests._helpers.cells import make_cell

LOSSES = {"exact": 0.006, "max-pooling": 0.08, "noisy-or": 0.007, "one-vs-rest": 0.021}
"""Where the error of each loss ends."""
ONE = {"extended-digits": "instance_error"}
TWO = {"extended-digits": "instance_error", "synthetic-bags": "set_error"}
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
    """Return results of losses (name -> error) x tasks (name -> primary metric) x seeds, with galleries in `folder`.

    `statuses` (status, reason) are of the cells that are not done, `plan` fields of the spec and of the plan.
    """
    losses, tasks = losses or LOSSES, tasks or TWO
    cells, rows, folders, infos = [], [], {}, {}
    for t, (task, primary) in enumerate(tasks.items()):
        own_params = {"digits_per_bag": 2, **(params or {}).get(task, {})}
        for k, (loss, level) in enumerate(losses.items()):
            for seed in range(seeds):
                kind: Supervision = (supervision or {}).get(loss, "set")
                cell = make_cell(
                    loss,
                    task,
                    task_params=own_params,
                    supervision=kind,
                    data=f"data {t}",
                    epochs=epochs,
                    seed=seed,
                )
                cells.append(cell)
                status, reason = (statuses or {}).get((loss, task, seed), ("done", ""))
                said = {
                    "task": task, "loss": loss, "network": "", "recipe": "", "supervision": kind, "seed": seed,
                    "status": status, "reason": reason, "cell": cell.id,
                    "run": "" if status == "missing" else f"{t}{k}{seed}" * 8,
                    "machine": "A processor", "code": "3f2c9e7a", "draw": None,
                }  # fmt: skip
                own = np.random.default_rng([t, k, seed])
                error = level * np.exp(
                    0.15 * np.random.default_rng([t, seed]).normal() + 0.1 * own.normal()
                )
                last = {"done": epochs, "missing": 0}.get(status, epochs // 2)
                values = [
                    row
                    for epoch in range(1, last + 1)
                    for row in _values(epoch, epochs, error, own)
                ]
                if status == "done":
                    values += [
                        (epochs, f"cost/{name}", value) for name, value in _costs(k, own).items()
                    ]
                    if folder is not None:
                        folders[cell.id] = folder / cell.id
                        folders[cell.id].mkdir(parents=True)
                        (sets if t == 1 else images)(
                            folders[cell.id] / "gallery.npz", error=3 * level, seed=t
                        )
                rows += [said | {"epoch": e, "metric": m, "value": v} for e, m, v in values]
                if not values:
                    rows.append(said | {"epoch": None, "metric": "", "value": np.nan})
        infos[cells[-1].task.key] = TaskInfo(primary, **(info or {}))
    fields = {name: plan.pop(name) for name in ("notes", "search") if name in plan}
    made = Plan(
        Spec(**({"name": "demo", "losses": list(losses), "tasks": list(tasks)} | plan)),
        cells,
        infos,
        command="milbench run demo",
        launched="2025-05-04 10:31 UTC",
        **fields,
    )
    return Results(made, _frame(rows), folders)


def galleries_of(results: Results) -> list[Path]:
    return [folder / "gallery.npz" for folder in results.folders.values()]


def constant(
    values: Mapping[tuple[str, int], list[tuple[float, float]]], **changes: Any
) -> Results:
    """Return results with given (validation, test) set errors by epoch for every loss and seed, on one task."""
    names = dict.fromkeys(loss for loss, _ in values)
    seeds = 1 + max(seed for _, seed in values)
    made = make_results(None, dict.fromkeys(names, 0.1), {"t": "set_error"}, seeds, 1, **changes)
    cells: list[Any] = made.frame.drop_duplicates("cell").to_dict("records")
    said = {(row["loss"], row["seed"]): row for row in cells}
    rows = [
        said[key] | {"epoch": epoch, "metric": metric, "value": value}
        for key, errors in values.items()
        for epoch, pair in enumerate(errors, start=1)
        for metric, value in zip(("validation/set_error", "test/set_error"), pair, strict=True)
    ]
    return replace(made, frame=_frame(rows))


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)[list(COLUMNS)]
    return frame.astype({"epoch": "Int64", "draw": "Int64", "value": float})


def _values(
    epoch: int, epochs: int, level: float, rng: np.random.Generator
) -> list[tuple[int, str, float]]:
    error = (level + (0.7 - level) * (1 - epoch / epochs) ** 6) * np.exp(rng.normal() * 0.02)
    metrics = {"instance_error": error, "set_error": min(1.0, 1.6 * error), "auroc": 1 - error / 5}
    return [(epoch, "train/loss", 4 * error)] + [
        (epoch, f"{split}/{name}", float(value))
        for split in ("test", "validation")
        for name, value in metrics.items()
    ]


def _costs(k: int, rng: np.random.Generator) -> dict[str, float]:
    busy = 1 + 0.1 * rng.random()
    return {"step_seconds": 0.05 * (k + 1) * busy, "step_seconds_min": 0.04 * (k + 1), "loss_seconds": 6e-4 * busy,
            "loss_seconds_min": 6e-4, "peak_bytes": 4.1e8, "train_seconds": 71 * busy}  # fmt: skip


def images(path: Path, error: float, seed: int = 0) -> None:
    """Write a gallery of blobs on canvases; a share `error` of them is named wrongly."""
    rng, luck = np.random.default_rng(seed), np.random.default_rng(int(error * 1e4))
    bags, size, positions = 6, 24, 9
    canvas, labels = np.zeros((bags, 1, size, size), np.float32), np.zeros((bags, 10), bool)
    logits = np.zeros((bags, 11, positions, positions))
    logits[:, -1] = 5
    classes, boxes = rng.integers(0, 10, (bags, 2)), np.zeros((bags, 2, 4))
    centres = np.linspace(3, size - 4, positions)
    for b in range(bags):
        for m, (top, left) in enumerate(
            ((int(rng.integers(0, 4)), 2), (int(rng.integers(10, 16)), 13))
        ):
            digit = int(classes[b, m])
            canvas[b, 0, top : top + 8, left : left + 8] = 0.5 + digit / 20
            boxes[b, m], labels[b, digit] = (left, top, left + 8, top + 8), True
            named = (digit + 1) % 10 if luck.random() < error else digit
            near = np.hypot(centres[:, None] - top - 4, centres[None] - left - 4)
            logits[b, named] += 10 * np.exp(-((near / 4) ** 2))
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    made = gallery.make(kind="image", instances=canvas, labels=labels, presence=probs[:, :-1].max(axis=(2, 3)),
                 probs=probs, class_names=[str(d) for d in range(10)], ys=centres, xs=centres, threshold=0.5,
                 classes=classes, boxes=boxes)  # fmt: skip
    gallery.write(path, made)


def sets(path: Path, error: float, seed: int = 0) -> None:
    """Write a gallery of points in the plane, in bags of different sizes."""
    rng, luck = np.random.default_rng(seed), np.random.default_rng(int(error * 1e4))
    bags, most, kinds = 6, 20, 5
    means = 4 * np.stack(
        [np.cos(np.arange(kinds) * 1.257), np.sin(np.arange(kinds) * 1.257)], axis=1
    )
    mask = np.arange(most) < rng.integers(8, most + 1, size=(bags, 1))
    truth = np.where(
        mask & (rng.random((bags, most)) < 0.25), rng.integers(0, kinds, (bags, most)), kinds
    )
    points = rng.normal(size=(bags, most, 2)) * 0.8
    points += np.concatenate([means, np.zeros((1, 2))])[truth]
    guess = np.where(luck.random((bags, most)) < error, kinds, truth)
    probs = np.full((bags, kinds + 1, most), 0.02)
    np.put_along_axis(probs, guess[:, None], 0.9, axis=1)
    labels = (truth[..., None] == np.arange(kinds)).any(axis=1)
    made = gallery.make(kind="set", instances=points, labels=labels, presence=probs[:, :-1].max(axis=2), probs=probs,
                 class_names=list("ABCDE"), mask=mask, position_classes=truth)  # fmt: skip
    gallery.write(path, made)
