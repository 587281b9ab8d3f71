"""Prepared tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from milbench import load_task


def prepared(name: str, data_dir: Path | None = None, seed: int = 0, limit: int | None = None, **params: Any) -> Any:
    """Return a task on the CPU whose data are checked and loaded, with `limit` bags of each kind to evaluate on."""
    task: Any = load_task(name, **params)
    task.seed, task.evaluation_limit = seed, limit
    task.check_data(data_dir)
    task.prepare(data_dir, torch.device("cpu"))
    return task
