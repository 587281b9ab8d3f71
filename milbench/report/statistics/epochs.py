"""The choice of the epoch whose values count."""

from __future__ import annotations

import numpy as np
import pandas as pd

from milbench.api.published import Rule

RULES: dict[Rule, str] = {
    "last": "last epoch",
    "validation": "chosen on validation",
    "test": "best on test (the rule of the paper's program)",
}
SELECTED_BY = "set_error"
"""The metric of validation bags by which epochs are chosen: it needs no more than label sets."""


def select_epochs(history: pd.DataFrame, rule: Rule, metric: str, lower_is_better: bool = True) -> pd.Series[int]:
    """Return the epoch that a rule chooses for each cell from its history.

    "last" takes the last epoch, whatever its values. "validation" takes the one with the smallest validation set error,
    and "test" the one with the best test value of a metric; of equals the latest, since learning rates fall towards the
    end. Values that are not finite are ignored.

    Args:
        history: columns cell, epoch (int), metric ("test/<metric>", "validation/set_error") and value.
        rule: how the epoch is chosen, a key of `RULES`.
        metric: the metric of interest, without the split. Only epochs with a test value of it are candidates.
        lower_is_better: whether the smallest value of it is the best.

    Returns:
        The epochs, indexed by cell; a cell without a finite value to choose by is absent.
    """
    tested = history.loc[history["metric"] == f"test/{metric}", ["cell", "epoch"]].drop_duplicates()
    if rule == "last":
        last: pd.Series[int] = tested.groupby("cell")["epoch"].max()
        return last
    name = f"test/{metric}" if rule == "test" else f"validation/{SELECTED_BY}"
    judged = history.loc[history["metric"] == name, ["cell", "epoch", "value"]]
    judged = judged[np.isfinite(judged["value"])].merge(tested, on=["cell", "epoch"])
    judged = judged.sort_values(["cell", "epoch"], ascending=[True, False]).reset_index(drop=True)
    by_cell = judged.groupby("cell")["value"]
    best = by_cell.idxmax() if rule == "test" and not lower_is_better else by_cell.idxmin()  # the first of equals
    chosen: pd.Series[int] = judged.loc[best].set_index("cell")["epoch"]
    return chosen
