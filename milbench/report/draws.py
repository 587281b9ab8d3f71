"""The draws of a search as values: what chose among them, and what each reached on test bags."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from milbench.contracts.metric_info import describe
from milbench.experiment.display_names import Label
from milbench.experiment.plan import Arm, Draw, Plan, SearchRecord
from milbench.report.statistics.selection import Search
from milbench.store.results import Results


def drawn_values(results: Results) -> pd.DataFrame:
    """Return the validation and test metrics of every trained draw at its last epoch.

    A row is a cell of the search, a column a metric with its split, such as "test/set_error"; and seed.
    """
    frame = results.frame[results.frame["draw"].notna()]
    names = frame["metric"].astype(str)
    frame = frame[names.str.startswith(("validation/", "test/")) & (frame["status"] == "done")]
    last = frame.sort_values("epoch").drop_duplicates(["cell", "metric"], keep="last")
    values = last.set_index(["cell", "metric"])["value"].astype(float)
    table = pd.DataFrame(values.unstack())
    seeds = last.drop_duplicates("cell").set_index("cell")["seed"]
    return table.assign(seed=seeds)


def arms_of_cells(plan: Plan) -> dict[str, str]:
    """Return the id of each compared cell -> the key of the arm whose search gave it its settings."""
    search = plan.search
    if search is None:
        return {}
    return {cell: _arm(label).key for cell, label in search.compared.items()}


def _arm(label: Label) -> Arm:
    return Arm(label.task, label.loss, label.network)


def draws_of_arms(search: SearchRecord) -> dict[str, dict[str, Draw]]:
    """Return the key of each arm -> the cells of its search, each with the draw that it trains."""
    by_arm: dict[str, dict[str, Draw]] = {}
    for cell, draw in search.draws.items():
        by_arm.setdefault(draw.arm.key, {})[cell] = draw
    return by_arm


def search_of(
    search: SearchRecord, cells: Mapping[str, Draw], values: pd.DataFrame, metric: str
) -> Search | None:
    """Return the search of an arm with the test values of a metric, None where no draw has any.

    Args:
        search: the search of the plan.
        cells: the cells of the arm, each with its draw.
        values: what `drawn_values` returns.
        metric: that losses are compared by, without its split.
    """
    tested = f"test/{metric}"
    if search.metric not in values or tested not in values:
        return None
    trained = [cell for cell in cells if cell in values.index]
    frame = pd.DataFrame(
        {
            "draw": [cells[cell].number for cell in trained],
            "seed": values.loc[trained, "seed"].to_numpy(),
            "validation": values.loc[trained, search.metric].to_numpy(),
            "test": values.loc[trained, tested].to_numpy(),
        }
    )
    if frame["test"].isna().all():
        return None
    if not describe(search.metric.partition("/")[2]).lower_is_better:
        frame["validation"] = -frame["validation"]
    # The first seed is the one that all draws have: it chose the finalists, which have more.
    draws_of_seed = frame.groupby("seed")["draw"].nunique()
    order = sorted(draws_of_seed.index, key=lambda seed: (-draws_of_seed[seed], seed))
    columns = {}
    for name in ("validation", "test"):
        table = frame.pivot(index="draw", columns="seed", values=name)
        columns[name] = np.asarray(table[order], float)
    return Search(columns["validation"], columns["test"])
