"""Loads a network that was saved as an MLflow model: `mlflow.pyfunc.load_model(FOLDER).predict(instances)`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from milbench.api.bags import Bags
from milbench.api.named_bags import NamedBags
from milbench.api.plan import Cell
from milbench.engine.cell import CellFolder
from milbench.engine.mlflow_model import CELL_FILE
from milbench.inference.load import Trained, assemble
from milbench.inference.predict_bags import predict_bags

BAGS_AT_ONCE = 64


class SavedModel:
    """A trained network with its loss, as MLflow calls it."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained

    def predict(self, instances: NDArray[np.float32], params: dict[str, Any] | None = None) -> pd.DataFrame:  # noqa: ARG002
        """Return a row a bag: `labels`, `probability` of this label set by the map, and `presence CLASS`.

        Args:
            instances: (B, *bag_shape) float32 as the task's bags have them, all of one size.
            params: is ignored.
        """
        batch = torch.from_numpy(np.asarray(instances, np.float32))
        labels = torch.zeros(len(batch), self.trained.task.num_classes, dtype=torch.bool)
        parts = Bags(batch, labels).parts(BAGS_AT_ONCE)
        found = predict_bags(self.trained, [NamedBags("bag", [""] * len(part), part) for part in parts])
        return found.drop(columns=["bag", "log_probability", "positions"])


def _load_pyfunc(path: str) -> SavedModel:
    """Return the network in a folder; the name is the one that MLflow calls."""
    folder = Path(path)
    about = json.loads((folder / CELL_FILE).read_text("utf-8"))
    cell = about["cell"]
    for kind in ("loss_file", "task_file"):
        if cell[kind].endswith(".py"):
            cell[kind] = str(folder / cell[kind])
    trained = assemble(f"in {folder}", Cell(**cell), CellFolder(folder), torch.device("cpu"))
    return SavedModel(replace(trained, threshold=about["threshold"]))
