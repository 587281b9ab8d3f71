"""Made-up results with the shape of real ones, from which the tests of the report render."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from milbench.api import gallery
from milbench.api.results import Results

LOSSES = {"exact": 0.006, "max-pooling": 0.08, "noisy-or": 0.007, "one-vs-rest": 0.021}
"""Where the error of each loss ends."""
TWO = {"exact": 0.006, "max-pooling": 0.08}
ONE = {"extended-digits": "instance_error"}


def make_results(
    folder: Path | None = None,
    losses: dict[str, float] | None = None,
    tasks: dict[str, str] | None = None,
    seeds: int = 3,
    epochs: int = 20,
    statuses: dict[tuple[str, str, int], tuple[str, str]] | None = None,
    validation: bool = True,
    supervision: str = "set",
    **fields: Any,
) -> Results:
    """Return results of losses x tasks x seeds.

    folder: where to write galleries, none without; losses: name -> final error; tasks: name -> primary metric;
    statuses: (loss, task, seed) -> (status, reason) of the cells that are not done; fields: what to replace.
    """
    losses = LOSSES if losses is None else losses
    tasks = {"extended-digits": "instance_error", "synthetic-bags": "set_error"} if tasks is None else tasks
    cells, history, costs, galleries = [], [], {}, {}
    for t, (task, primary) in enumerate(tasks.items()):
        for k, (loss, level) in enumerate(losses.items()):
            for seed in range(seeds):
                cell = f"{t:02x}{k:02x}{seed:04x}c0ffee00"
                status, reason = (statuses or {}).get((loss, task, seed), ("done", ""))
                rng = np.random.default_rng([t, seed])  # a shared share of luck: seeds are paired
                own = np.random.default_rng([t, k, seed, 7])
                cells.append({
                    "cell": cell, "loss": loss.split()[0], "loss_label": loss, "supervision": supervision, "task": task,
                    "task_label": task, "recipe_label": "", "seed": seed, "status": status, "reason": reason,
                    "run_id": "" if status == "missing" else f"{t}{k}{seed}" + "5f3a9c" * 5, "primary": primary,
                    "data_digest": f"sha256:{t}d41d8cd98f00b204e9800998ecf8427e", "epochs": epochs,
                })  # fmt: skip
                if status == "missing":
                    continue
                luck = rng.normal() * 0.15 + own.normal() * 0.1
                last = epochs if status == "done" else epochs // 2
                history += _history(cell, level * np.exp(luck), last, epochs, own, validation, synthetic=t == 1)
                if status == "done":
                    busy = 1 + 0.1 * own.random()
                    costs[cell] = [0.045 * busy + 0.004 * k, 0.0006 * busy * 4.0**k, 3e5 * 3.0**k, 4.1e8, 71 * busy]
                    if folder is not None:
                        galleries[cell] = folder / f"{cell}.npz"
                        (sets if t == 1 else images)(galleries[cell], error=3 * level, seed=t)
    names = ["step_seconds", "loss_seconds", "loss_peak_bytes", "peak_bytes", "train_seconds"]
    ids = [c["cell"] for c in cells if c["status"] != "missing"]
    values: dict[str, Any] = {
        "name": "demo",
        "cells": pd.DataFrame(cells).set_index("cell"),
        "params": {c["cell"]: _params(c) for c in cells},
        "provenance": {cell: _tags() for cell in ids},
        "history": pd.DataFrame(history, columns=["cell", "epoch", "metric", "value"]),
        "costs": pd.DataFrame.from_dict(costs, orient="index", columns=names).astype(float),
        "published": [
            {"task": "extended-digits", "loss": "exact", "metric": "instance_error", "value": 0.004, "spread": 0.0004,
             "source": "Li 2018, Supplementary A"},
            {"task": "extended-digits", "loss": "max-pooling", "metric": "instance_error", "value": 0.08,
             "spread": None, "source": "Li 2018, Supplementary A"},
        ],
        "galleries": galleries,
        "tracking_uri": "sqlite:///runs/mlflow.db",
        "launched": "2025-05-04 10:31:00 UTC",
        "command": "milbench run demo",
    }  # fmt: skip
    return Results(**(values | fields))


def constant(values: dict[tuple[str, int], list[tuple[float, float]]], **changes: Any) -> Results:
    """Return results with given (validation, test) errors by epoch for every loss and seed."""
    names = list(dict.fromkeys(loss for loss, _ in values))
    results = make_results(None, dict.fromkeys(names, 0.1), ONE, 1 + max(seed for _, seed in values), 2, **changes)
    rows = []
    for (loss, seed), errors in values.items():
        cells = results.cells
        cell = cells.index[(cells["loss_label"] == loss) & (cells["seed"] == seed)][0]
        for epoch, (validation, test) in enumerate(errors, start=1):
            rows += [(cell, epoch, "validation/instance_error", validation), (cell, epoch, "test/instance_error", test)]
    return replace(results, history=pd.DataFrame(rows, columns=["cell", "epoch", "metric", "value"]))


def by_set_error(results: Results) -> Results:
    """Return results of `constant` whose validation errors are those of label sets."""
    metric = results.history["metric"].replace("validation/instance_error", "validation/set_error")
    return replace(results, history=results.history.assign(metric=metric))


def _history(cell: str, level: float, last: int, epochs: int, rng: Any, validation: bool, synthetic: bool) -> list[Any]:
    rows = []
    for epoch in range(1, last + 1):
        left = (1 - epoch / epochs) ** 2
        error = round((level + (0.7 - level) * left**3) * np.exp(rng.normal() * 0.08) * 2000) / 2000
        values = {"instance_error": error, "set_error": min(1, 1.6 * error), "average_precision": 1 - error / 3,
                  "auroc": 1 - error / 5, "hit_rate": 1 - error / 2}  # fmt: skip
        if synthetic:
            values |= {"bayes_set_error": 0.007, "excess_set_error": values["set_error"] - 0.007}
        rows.append((cell, epoch, "train/loss", 0.02 + 2.3 * left + 4 * level))
        rows += [(cell, epoch, f"test/{name}", value) for name, value in values.items()]
        if validation:
            rows += [(cell, epoch, f"validation/{n}", v * np.exp(rng.normal() * 0.1)) for n, v in values.items()]
    return rows


def _params(cell: dict[str, Any]) -> dict[str, Any]:
    return {"loss": cell["loss"], "task": cell["task"], "seed": cell["seed"], "recipe.optimizer": "adamw",
            "recipe.lr": 5e-4, "recipe.epochs": cell["epochs"], "recipe.head_init": "prior",
            "task.digits_per_bag": 2}  # fmt: skip


def _tags() -> dict[str, str]:
    return {"version": "0.1.0", "code": "3f2c9e7a" * 5, "dirty": "no", "python": "3.11.9", "platform": "Linux-6.1",
            "device": "cpu", "device_name": "A processor", "threads": "2", "pid": "4711", "library.torch": "2.8.0",
            "library.numpy": "2.3.1"}  # fmt: skip


def images(path: Path, error: float, seed: int = 0) -> None:
    """Write a gallery of blobs on canvases; a share `error` of them is named wrongly."""
    rng, luck = np.random.default_rng(seed), np.random.default_rng(int(error * 1e4))
    bags, size, positions = 6, 24, 9
    canvas = np.zeros((bags, 1, size, size), np.float32)
    labels = np.zeros((bags, 10), bool)
    logits = np.zeros((bags, 11, positions, positions))
    logits[:, -1] = 5
    classes, boxes = np.zeros((bags, 2), int), np.zeros((bags, 2, 4))
    centres = np.linspace(3, size - 4, positions)
    yy, xx = np.mgrid[:8, :8] - 3.5
    for b in range(bags):
        for m, (corner_y, corner_x) in enumerate(((int(rng.integers(0, 4)), 2), (int(rng.integers(10, 16)), 13))):
            digit = int(rng.integers(10))
            ring = np.exp(-((np.hypot(yy, xx * (1 + digit / 10)) - 2.4) ** 2))
            canvas[b, 0, corner_y : corner_y + 8, corner_x : corner_x + 8] += ring
            classes[b, m], boxes[b, m] = digit, (corner_x, corner_y, corner_x + 8, corner_y + 8)
            labels[b, digit] = True
            named = (digit + 1) % 10 if luck.random() < error else digit
            near = np.hypot(centres[:, None] - corner_y - 4, centres[None] - corner_x - 4)
            logits[b, named] += 10 * np.exp(-((near / 4) ** 2))
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    made = gallery.make(kind="image", instances=canvas, labels=labels, presence=probs[:, :-1].max(axis=(2, 3)),
                 probs=probs, class_names=[str(d) for d in range(10)], centres=(centres, centres), threshold=0.5,
                 classes=classes, boxes=boxes)  # fmt: skip
    gallery.write(path, made)


def sets(path: Path, error: float, seed: int = 0) -> None:
    """Write a gallery of points in the plane, in bags of different sizes."""
    rng, luck = np.random.default_rng(seed), np.random.default_rng(int(error * 1e4))
    bags, most, kinds = 6, 20, 5
    means = 4 * np.stack([np.cos(np.arange(kinds) * 1.257), np.sin(np.arange(kinds) * 1.257)], axis=1)
    mask = np.arange(most) < rng.integers(8, most + 1, size=(bags, 1))
    truth = np.where(mask & (rng.random((bags, most)) < 0.25), rng.integers(0, kinds, (bags, most)), kinds)
    points = rng.normal(size=(bags, most, 2)) * 0.8
    points += np.concatenate([means, np.zeros((1, 2))])[truth]
    guess = np.where(luck.random((bags, most)) < error, kinds, truth)
    probs = np.full((bags, kinds + 1, most), 0.02)
    np.put_along_axis(probs, guess[:, None], 0.9, axis=1)
    labels = (truth[..., None] == np.arange(kinds)).any(axis=1)
    made = gallery.make(kind="set", instances=points, labels=labels, presence=probs[:, :-1].max(axis=2), probs=probs,
                 class_names=list("ABCDE"), mask=mask, position_classes=truth)  # fmt: skip
    gallery.write(path, made)
