"""A comparison as versions before the words of today wrote it: `tier` for supervision, `looks` for rescoring.

The plan and the id of its cell were written by version 0.1.0 before the renaming; nothing here comes from today's code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests._helpers.other_machine import client

CELL_ID = "6198a96611eacc49"
CELL: dict[str, Any] = {
    "loss": "exact", "loss_params": {"normalization": "paper"}, "loss_revision": "1", "tier": "set",
    "task": "house-numbers", "task_params": {}, "task_revision": "2", "data": "sha256:0f", "recipe": {"epochs": 2},
    "seed": 3, "loss_file": "", "task_file": "",
}  # fmt: skip
PLAN: dict[str, Any] = {
    "name": "old", "title": "", "source": "flags", "cells": [CELL],
    "tasks": {"house-numbers": {"primary": "transcription_error", "published": [], "chance": None}},
    "labels": {CELL_ID: ["exact", "house-numbers", ""]}, "preset": "", "notes": [], "differences": [],
}  # fmt: skip
METRICS = {
    "test/transcription_error": [(0.75, 1000, 1), (0.5, 2000, 2)],
    "test/transcription_error_looks": [(0.5, 1000, 1), (0.25, 2000, 2)],
}
"""Value, time and epoch, as the manifest of an export has them."""
LAUNCH_TAGS = {
    "milbench.kind": "launch", "milbench.source": "flags", "milbench.command": "milbench run --loss exact",
    "milbench.host": "old-box", "milbench.root": "/old", "mlflow.runName": "launch of old",
}  # fmt: skip
CELL_TAGS = {
    "milbench.kind": "cell", "milbench.cell": CELL_ID, "milbench.host": "old-box", "milbench.root": "/old",
    "milbench.device": "cpu", "mlflow.runName": "exact on house-numbers, seed 3",
}  # fmt: skip


def fill(root: Path) -> str:
    """Write the comparison into the database of a workspace with MLflow alone; return the id of the cell's run."""
    store = client(root)
    experiment = store.create_experiment("old", artifact_location=(root / "runs" / "artifacts").as_uri())
    launch = store.create_run(experiment, start_time=500, tags=LAUNCH_TAGS).info.run_id
    store.log_dict(launch, PLAN, "plan.json")
    store.set_terminated(launch, "FINISHED", 3000)
    run = store.create_run(experiment, start_time=600, tags=CELL_TAGS | {"mlflow.parentRunId": launch}).info.run_id
    for name, values in METRICS.items():
        for value, moment, epoch in values:
            store.log_metric(run, name, value, moment, epoch)
    store.set_terminated(run, "FINISHED", 2500)
    return str(run)
