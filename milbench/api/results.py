"""The results of a comparison as plain pandas frames, from which reports are rendered."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from milbench.api.contrast import Contrast
from milbench.api.folds import Folds
from milbench.api.marks import Mark
from milbench.api.plan import SearchRecord, Selection

STATUSES = ("done", "failed", "interrupted", "running", "missing")
"""What may have become of a planned cell. interrupted: it was stopped before its end, and the next launch continues it;
missing: it was never started."""

COSTS = (
    "step_seconds", "step_seconds_min", "step_seconds_spread", "loss_seconds", "loss_seconds_min",
    "loss_seconds_spread", "loss_peak_bytes", "peak_bytes", "train_seconds", "busy",
)  # fmt: skip
"""Metrics of a run, below "cost/", that are the columns of `Results.costs`."""


@dataclass(frozen=True)
class Results:
    """Every planned cell of one named comparison, with its status and what was measured.

    Args:
        name: of the comparison.
        cells: one row a planned cell, index `cell` (its content hash), columns
            loss (name), loss_label (name and the parameters in which variants differ, such as "max-pooling batch"),
            supervision, task (name), task_label, recipe_label ("" unless the spec sweeps the recipe), seed (int),
            status (one of STATUSES), reason (one line; why it failed, "" otherwise), run_id (MLflow, "" where missing),
            primary (the task's primary metric without split, such as "instance_error"),
            data_digest, epochs (int, planned).
        params: cell -> flat dict of all parameters ("loss.normalization", "task.bag_size", "recipe.lr", ...).
        provenance: cell -> dict of tags (code version, dirty flag, device, library versions, started, duration, ...).
        history: long frame with columns cell, epoch (int, from 1), metric ("train/loss", "validation/instance_error",
            "test/set_error", ...), value; one row a cell, epoch and metric.
        costs: frame indexed by cell with the columns COSTS: step_seconds (training step, its mean over an epoch, the
            median of the epochs), loss_seconds (loss forward and backward alone on one training batch, the median of
            its calls), both with the least (_min) and the width of the middle half (_spread) of what the median is of;
            loss_peak_bytes (memory the loss alone allocates), peak_bytes (the whole process or device), train_seconds,
            busy (the share of the machine's cores that other processes used meanwhile); NaN where not measured.
        published: list of dicts with the key task (name) and fields of `milbench.api.published.Published`; a field that
            an older plan lacks has its default.
        galleries: cell -> path of an .npz file (see `milbench.api.gallery`) or absent.
        outcomes: cell -> path of an .npz file (see `milbench.api.outcomes`); absent for a cell that is not done, or was
            computed by a version of milbench that kept none.
        reliability: cell -> path of a .json file (see `milbench.api.reliability`); absent likewise, and where the loss
            has no probabilities of label sets.
        folds: cell -> the cross-validation in which its seed is a fold, absent where seeds are no folds.
        overlaps: cell -> how many bags are tested on for each that is trained on, see `Task.overlap`; absent where
            seeds do not split the same bags differently.
        chance: label of a task -> the value of its primary metric that guessing gives, absent where it is not known.
        amounts: task -> the parameter that is the number of training bags, absent where there is none.
        preset: the preset of the spec, "" for none.
        notes: remarks for the reader of the report, such as the limits of a preset.
        differences: where a publication and its code differ, dicts with the keys topic, paper, code, here.
        search: for a tuned comparison, the search for settings; its draws are no cells of the comparison.
        draws: one row a draw and seed of the search, columns cell, those of `cells`, arm and draw (int, from 0) and
            settings (dict); the history has their metrics too.
        selection: the rule that chooses the epoch by which losses are compared, see `milbench.api.plan.Selection`.
        margin: metric -> the largest difference that counts as none, given in advance; absent where none was given.
        compare_by: the metrics that losses are compared by, the first of which is `primary`; empty: `primary` alone.
        contrasts: the differences that the comparison is made for.
        before_contrasts: how many cells began before the plan of any launch had these contrasts; None where that is not
            known.
        marks: task_label -> what passes there, given in advance; absent for a task without marks.
        title: of the comparison, "" for none.
        tracking_uri: the address of the store.
        launched: when the comparison was launched last, in UTC.
        command: the command line of that launch.
    """

    name: str
    cells: pd.DataFrame
    params: dict[str, dict[str, Any]]
    provenance: dict[str, dict[str, str]]
    history: pd.DataFrame
    costs: pd.DataFrame
    published: list[dict[str, Any]] = field(default_factory=list)
    galleries: dict[str, Path] = field(default_factory=dict)
    outcomes: dict[str, Path] = field(default_factory=dict)
    reliability: dict[str, Path] = field(default_factory=dict)
    folds: dict[str, Folds] = field(default_factory=dict)
    overlaps: dict[str, float] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    amounts: dict[str, str] = field(default_factory=dict)
    preset: str = ""
    notes: list[str] = field(default_factory=list)
    differences: list[dict[str, str]] = field(default_factory=list)
    search: SearchRecord | None = None
    draws: pd.DataFrame = field(default_factory=pd.DataFrame)
    selection: Selection = "last"
    margin: dict[str, float] = field(default_factory=dict)
    compare_by: list[str] = field(default_factory=list)
    contrasts: list[Contrast] = field(default_factory=list)
    before_contrasts: int | None = None
    marks: dict[str, list[Mark]] = field(default_factory=dict)
    title: str = ""
    tracking_uri: str = ""
    launched: str = ""
    command: str = ""
