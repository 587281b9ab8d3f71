"""What a report is made from: plain pandas frames, read from the store by `milbench.store.mlflow_store`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

STATUSES = ("done", "failed", "interrupted", "running", "missing")
"""interrupted: stopped before its end, the next launch continues it; missing: planned, never started."""


@dataclass(frozen=True)
class Results:
    """Every planned cell of one named comparison and what became of it.

    cells: one row a planned cell, index `cell` (its content hash), columns
        loss (name), loss_label (name and the parameters that tell variants apart, such as "max-pooling batch"),
        supervision, task (name), task_label, recipe_label ("" unless the spec sweeps the recipe), seed (int),
        status (one of STATUSES), reason (one line; why it failed, "" otherwise), run_id (MLflow, "" where missing),
        primary (the task's primary metric without split, such as "instance_error"),
        data_digest, data_name (how to call the data), epochs (int, planned).
    params: cell -> flat dict of all parameters ("loss.normalization", "task.bag_size", "recipe.lr", ...).
    provenance: cell -> dict of tags (code version, dirty flag, device, library versions, started, duration, ...).
    history: long frame with columns cell, epoch (int, from 1), metric ("train/loss", "validation/instance_error",
        "test/set_error", ...), value; one row a cell, epoch and metric.
    costs: frame indexed by cell with columns step_seconds (median training step), loss_seconds (loss forward and
        backward alone, one training batch), loss_peak_bytes (memory the loss alone allocates), peak_bytes
        (the whole process or device), train_seconds; NaN where not measured.
    published: list of dicts with the key task (name) and fields of `milbench.api.published.Published`; a field that an
        older plan lacks has its default.
    chance: task -> the value of its primary metric that guessing gives, absent where it is not known.
    galleries: cell -> path of an .npz file (see `milbench.api.gallery`) or absent.
    """

    name: str
    cells: pd.DataFrame
    params: dict[str, dict[str, Any]]
    provenance: dict[str, dict[str, str]]
    history: pd.DataFrame
    costs: pd.DataFrame
    published: list[dict[str, Any]] = field(default_factory=list)
    galleries: dict[str, Path] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    preset: str = ""
    notes: list[str] = field(default_factory=list)
    differences: list[dict[str, str]] = field(default_factory=list)
    """Where a publication and its code differ, keys topic, paper, code, here."""
    title: str = ""
    tracking_uri: str = ""
    launched: str = ""
    command: str = ""
