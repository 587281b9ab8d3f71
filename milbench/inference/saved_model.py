"""A trained network that was saved as an MLflow model.

Users call it by `mlflow.pyfunc.load_model(FOLDER).predict(instances)`.
"""

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
"""How many bags are predicted at once, as the maps of all bags may not fit into memory."""


class SavedModel:
    """A trained network with its loss, as MLflow calls it."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained

    def predict(
        self,
        instances: NDArray[np.float32],
        params: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> pd.DataFrame:
        """Return a table with a row for each bag.

        Its columns are `labels`, the `probability` of this label set, and `presence CLASS` for each
        class; `bag_table` describes them.

        Args:
            instances: (B, *bag_shape), instances as in the bags of the task, all bags of one size.
            params: ignored; MLflow passes it.
        """
        no_labels = torch.zeros(len(instances), self.trained.format.num_classes, dtype=torch.bool)
        bags = Bags(torch.from_numpy(np.asarray(instances, np.float32)), no_labels)
        # Without any bags, `parts` returns nothing. The empty batch then gives an empty table with
        # the usual columns.
        parts = bags.parts(BAGS_AT_ONCE) or [bags]
        tables = []
        for part in parts:
            no_names = [""] * len(part)
            batch = NamedBags("bag", no_names, part)
            tables.append(bag_table(predict_bags([self.trained], [batch])))
        table = pd.concat(tables, ignore_index=True)
        return table.drop(columns=["bag", "log_probability", "positions"])


def _load_pyfunc(path: str) -> SavedModel:
    """Return the network that was saved in a folder.

    MLflow finds this function by its name.
    """
    folder = CellFolder(Path(path))
    cell = folder.cell()
    # The folder has copies of the code that users wrote, with paths relative to the folder.
    sources: dict[str, str] = {}
    for kind, choice in cell.choices.items():
        if ".py" in choice.source:
            sources[kind] = str(folder.path / choice.source)
    return SavedModel(load_trained(folder, torch.device("cpu"), cell.with_sources(sources)))
