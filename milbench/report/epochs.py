"""Choose the epoch whose values a report shows: the last one, or another one by a rule."""

from __future__ import annotations

import numpy as np
import pandas as pd

from milbench.contracts.published import Rule

RULES: dict[Rule, str] = {
    "last": "last epoch",
    "validation": "chosen on validation",
    "test": "best on test (the rule of the paper's program)",
}
"""Each rule in words."""

SELECTED_BY = "set_error"
"""The metric of validation bags by which epochs are chosen: it needs label sets alone."""


def select_epochs(
    history: pd.DataFrame, rule: Rule, metric: str, lower_is_better: bool = True
) -> pd.Series[int]:
    """Return the epoch that a rule chooses, by cell.

    "validation" takes the epoch with the smallest validation set error, and "test" the one with the
    best test value of the metric. Of equal values the latest epoch is taken, since learning rates
    fall towards the end. A cell without a finite value to choose by has no epoch in the result.

    Args:
        history: the values, with the columns cell, epoch, metric and value.
        rule: which epoch counts.
        metric: the metric, without its split. Only epochs with a test value of it are candidates.
        lower_is_better: whether the smallest value of the metric is the best.
    """
    is_tested = history["metric"] == f"test/{metric}"
    tested = history.loc[is_tested, ["cell", "epoch"]].drop_duplicates()
    if rule == "last":
        return pd.Series(tested.groupby("cell")["epoch"].max())

    choosing = f"test/{metric}" if rule == "test" else f"validation/{SELECTED_BY}"
    candidates = history.loc[history["metric"] == choosing, ["cell", "epoch", "value"]]
    candidates = candidates[np.isfinite(candidates["value"])]
    candidates = candidates.merge(tested, on=["cell", "epoch"])
    # idxmin and idxmax return the first of equal values. The latest epoch has to come first.
    candidates = candidates.sort_values(["cell", "epoch"], ascending=[True, False])
    candidates = candidates.reset_index(drop=True)
    values = candidates.groupby("cell")["value"]
    largest_is_best = rule == "test" and not lower_is_better
    best = values.idxmax() if largest_is_best else values.idxmin()
    return pd.Series(candidates.loc[best].set_index("cell")["epoch"])
