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
"""How many bags are predicted at once, so that the maps of all bags need not fit into memory."""


class SavedModel:
    """A trained network with its loss, as MLflow calls it."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained

    def predict(
        self,
        instances: NDArray[np.float32],
        params: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> pd.DataFrame:
        """Return a row for each bag: `labels`, `probability` of this label set by the map, and `presence CLASS`.

        The instances (B, *bag_shape) are as the task's bags have them, all of one size. MLflow
        passes `params`, which are ignored.
        """
        no_labels = torch.zeros(len(instances), self.trained.format.num_classes, dtype=torch.bool)
        bags = Bags(torch.from_numpy(np.asarray(instances, np.float32)), no_labels)
        # Without any bag there is no part; the empty table has the columns of every other.
        parts = bags.parts(BAGS_AT_ONCE) or [bags]
        tables = []
        for part in parts:
            no_names = [""] * len(part)
            batch = NamedBags("bag", no_names, part)
            tables.append(bag_table(predict_bags([self.trained], [batch])))
        table = pd.concat(tables, ignore_index=True)
        return table.drop(columns=["bag", "log_probability", "positions"])


def _load_pyfunc(path: str) -> SavedModel:
    """Return the network that was saved in a folder. MLflow calls a function of this name."""
    folder = CellFolder(Path(path))
    cell = folder.cell()
    # The folder holds copies of the code that users wrote: its paths are relative to the folder.
    sources: dict[str, str] = {}
    for kind, choice in cell.choices.items():
        if ".py" in choice.source:
            sources[kind] = str(folder.path / choice.source)
    return SavedModel(load_trained(folder, torch.device("cpu"), cell.with_sources(sources)))
