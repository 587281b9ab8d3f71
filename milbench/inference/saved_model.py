"""Loads a network that was saved as an MLflow model: `mlflow.pyfunc.load_model(FOLDER).predict(instances)`."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from milbench.contracts.bags import Bags, NamedBags
from milbench.inference.predict_bags import bag_table, predict_bags
from milbench.inference.trained import Trained, load_trained
from milbench.store.cell_folder import CellFolder

BAGS_AT_ONCE = 64


class SavedModel:
    """A trained network with its loss, as MLflow calls it."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained

    def predict(
        self,
        instances: NDArray[np.float32],
        params: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> pd.DataFrame:
        """Return a row a bag: `labels`, `probability` of this label set by the map, and `presence CLASS`.

        The instances (B, *bag_shape) are as the task's bags have them, all of one size; `params` are ignored.
        """
        labels = torch.zeros(len(instances), self.trained.format.num_classes, dtype=torch.bool)
        bags = Bags(torch.from_numpy(np.asarray(instances, np.float32)), labels)
        tables = [
            bag_table(predict_bags([self.trained], [NamedBags("bag", [""] * len(part), part)]))
            for part in bags.parts(BAGS_AT_ONCE) or [bags]
        ]
        return pd.concat(tables, ignore_index=True).drop(
            columns=["bag", "log_probability", "positions"]
        )


def _load_pyfunc(path: str) -> SavedModel:
    """Return the network in a folder; the name is the one that MLflow calls."""
    folder = CellFolder(Path(path))
    cell = folder.cell()
    sources: dict[str, str] = {}
    for kind, choice in cell.choices.items():
        if ".py" in choice.source:
            sources[kind] = str(folder.path / choice.source)
    return SavedModel(load_trained(folder, torch.device("cpu"), cell.with_sources(sources)))
