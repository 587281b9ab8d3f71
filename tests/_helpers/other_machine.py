"""Reads a store with MLflow alone, and names the comparison that the tests run on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from tests._helpers.command_line import PLUGINS, TINY

BREAKING = str(PLUGINS / "breaking_loss.py")
WORDS = ("run", "--loss", f"exact,{BREAKING}", "--task", TINY, "--name", "mine", "--threads", "1", "--in-process")


def client(root: Path) -> MlflowClient:
    """Return MLflow's own client of a store, without the code under test."""
    return MlflowClient(f"sqlite:///{root / 'runs' / 'mlflow.db'}")


def runs_of(root: Path) -> dict[str, Run]:
    """Return all runs of a store by name."""
    store = client(root)
    experiments = [e.experiment_id for e in store.search_experiments()]
    runs = store.search_runs(experiments)
    assert len({run.info.run_name for run in runs}) == len(runs)
    return {run.info.run_name: run for run in runs}


def content(root: Path, run: Run) -> dict[str, Any]:
    """Return what a run has in common with its copies in other stores."""
    store = client(root)
    folder = root / "runs" / "artifacts" / run.info.run_id / "artifacts"
    return {
        "info": (run.info.status, run.info.start_time, run.info.end_time, run.info.lifecycle_stage),
        "params": run.data.params,
        "inputs": [(i.dataset.name, i.dataset.digest) for i in run.inputs.dataset_inputs],
        "last": {k: repr(v) for k, v in run.data.metrics.items() if not k.startswith("system/")},
        "metrics": {
            k: sorted((m.step, m.timestamp, repr(m.value)) for m in store.get_metric_history(run.info.run_id, k))
            for k in run.data.metrics
            if not k.startswith("system/")
        },
        "artifacts": {path.name: path.read_bytes() for path in folder.iterdir()},
    }
