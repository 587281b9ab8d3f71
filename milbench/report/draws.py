"""The draws of a search as values: what chose among them, and what each reached on test bags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.contracts.metric_info import describe
from milbench.experiment.plan import Arm, Draw, Plan, SearchRecord
from milbench.report.statistics.selection import Search
from milbench.store.results import Results

Floats = NDArray[np.float64]

FEWEST_DRAWS = 8
"""With fewer draws nobody knows what another search would have chosen. What is known comes from halves of a search, and
two or three draws are a search of another kind: where half of the settings fail, a half often has none that works."""


def values_of_draws(results: Results) -> pd.DataFrame:
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
    if plan.search is None:
        return {}
    arms = {}
    for cell, label in plan.search.compared.items():
        arms[cell] = Arm(label.task, label.loss, label.network).key
    return arms


def draws_of_arms(search: SearchRecord) -> dict[str, dict[str, Draw]]:
    """Return the key of each arm -> the cells of its search, each with the draw that it trains."""
    by_arm: dict[str, dict[str, Draw]] = {}
    for cell, draw in search.draws.items():
        by_arm.setdefault(draw.arm.key, {})[cell] = draw
    return by_arm


@dataclass(frozen=True, eq=False)
class Searches:
    """The searches of a comparison, one for each arm."""

    search: SearchRecord | None
    values: pd.DataFrame
    """What `values_of_draws` returns."""

    @cached_property
    def _places(self) -> dict[str, _Places]:
        """The trained cells of each arm, by its key."""
        if self.search is None:
            return {}
        rows = {str(cell): row for row, cell in enumerate(self.values.index)}
        seeds = self.values["seed"].to_numpy()
        found = {}
        for arm, cells in draws_of_arms(self.search).items():
            found[arm] = _places(cells, rows, seeds)
        return found

    def draws_of(self, arm: str) -> int:
        """Return how many draws of an arm were trained."""
        places = self._places.get(arm)
        return 0 if places is None else len(set(places.draw.tolist()))

    def of(self, arm: str, metric: str) -> Search | None:
        """Return the search of an arm, by its key, with the test values of a metric.

        None where no draw has any, and with fewer than FEWEST_DRAWS.
        """
        search = self.search
        places = self._places.get(arm)
        tested = f"test/{metric}"
        if search is None or places is None:
            return None
        if search.metric not in self.values or tested not in self.values:
            return None
        test = places.table(self.values[tested].to_numpy())
        draws_with_value = int(np.isfinite(test).any(axis=1).sum())
        if draws_with_value < FEWEST_DRAWS:
            return None
        validation = places.table(self.values[search.metric].to_numpy())
        chose_by = describe(search.metric.partition("/")[2])
        return Search(validation if chose_by.lower_is_better else -validation, test)


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where the values of an arm's cells stand: in the rows of a column, and in a table of draws and seeds."""

    row: NDArray[np.int64]
    draw: NDArray[np.int64]
    seed: NDArray[np.int64]

    def table(self, column: Floats) -> Floats:
        """Return the values of an arm as (draws, seeds), NaN where a draw lacks a seed."""
        size = (1 + self.draw.max(initial=-1), 1 + self.seed.max(initial=-1))
        table = np.full(size, np.nan)
        table[self.draw, self.seed] = column[self.row]
        return table


def _places(
    cells: Mapping[str, Draw], rows: Mapping[str, int], seeds: NDArray[np.int64]
) -> _Places:
    trained = [cell for cell in cells if cell in rows]
    row = [rows[cell] for cell in trained]
    own_seeds = [int(seeds[place]) for place in row]
    # The first seed is the one that all draws have: it chose the finalists, which have more.
    draws_of_seed = Counter(own_seeds)
    order = sorted(draws_of_seed, key=lambda seed: (-draws_of_seed[seed], seed))
    numbers = sorted({cells[cell].number for cell in trained})
    return _Places(
        row=np.array(row, np.int64),
        draw=np.array([numbers.index(cells[cell].number) for cell in trained], np.int64),
        seed=np.array([order.index(seed) for seed in own_seeds], np.int64),
    )
