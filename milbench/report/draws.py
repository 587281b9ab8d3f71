"""The validation and test values of the draws of a search.

A draw is one try of settings. Validation values choose among the draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.contracts.metric_info import describe
from milbench.experiment.plan import Arm, Draw, Plan, SearchRecord
from milbench.report.statistics.selection import Search
from milbench.store.results import Results

Floats = NDArray[np.float64]

FEWEST_POINTS = 8
"""With fewer points of the ranges it is not known what another search would have chosen.

`milbench.report.statistics.selection` learns this from halves of a search. Half of a small search
has two or three points, and if half of all settings fail, such a half often has none that works.
"""


def values_of_draws(results: Results) -> pd.DataFrame:
    """Return the validation and test metrics of every trained draw at its last epoch.

    A row is a cell of the search. A column is a metric with its split, such as "test/set_error";
    the last column is the seed.
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
    """Return compared cell -> the key of the arm whose search gave the cell its settings."""
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


def groups_of(draws: Sequence[Draw]) -> NDArray[np.int64]:
    """Return the number of the group of each draw. Draws of one group are not independent.

    A search takes points from the ranges of its settings, and tries each point with every value of
    its lists. The draws at one point are one group. Each draw is a group of its own if the plan
    does not name the points, or if there is only one point: a search without ranges has lists
    alone, all of whose values it tries.
    """
    points = [draw.point for draw in draws if draw.point is not None]
    are_all_known = len(points) == len(draws)
    is_one_point = len(set(points)) == 1
    if are_all_known and not is_one_point:
        return np.array(points)
    return np.array([draw.number for draw in draws], np.int64)


class SearchSize(NamedTuple):
    """How much the search of an arm tried."""

    draws: int
    points: int
    """The points of the ranges at which these draws are; see `groups_of`."""

    @property
    def is_small(self) -> bool:
        """Whether it is too small to know what another search would have chosen."""
        return self.points < FEWEST_POINTS


@dataclass(frozen=True, eq=False)
class Searches:
    """The searches of a comparison, one for each arm."""

    search: SearchRecord | None
    values: pd.DataFrame
    """What `values_of_draws` returns."""

    @cached_property
    def _trained(self) -> dict[str, _TrainedCells]:
        """The trained cells of each arm, by the key of the arm."""
        if self.search is None:
            return {}
        row_of_cell = {str(cell): row for row, cell in enumerate(self.values.index)}
        seed_of_row = self.values["seed"].to_numpy()
        found = {}
        for arm, draws_by_cell in draws_of_arms(self.search).items():
            found[arm] = _trained_cells(draws_by_cell, row_of_cell, seed_of_row)
        return found

    def size_of(self, arm: str) -> SearchSize | None:
        """Return how many draws of an arm were trained, and at how many points; None: none was."""
        trained = self._trained.get(arm)
        if trained is None or not len(trained.groups):
            return None
        return SearchSize(draws=len(trained.groups), points=len(set(trained.groups.tolist())))

    def of(self, arm: str, metric: str) -> Search | None:
        """Return the search of an arm, given by its key, with the test values of a metric.

        None if draws at fewer than FEWEST_POINTS points of the ranges have a test value.
        """
        search = self.search
        trained = self._trained.get(arm)
        tested = f"test/{metric}"
        if search is None or trained is None:
            return None
        if search.metric not in self.values or tested not in self.values:
            return None
        test = trained.table(self.values[tested].to_numpy())
        has_value = np.isfinite(test).any(axis=1)
        if len(set(trained.groups[has_value])) < FEWEST_POINTS:
            return None
        validation = trained.table(self.values[search.metric].to_numpy())
        choosing_metric = describe(search.metric.partition("/")[2])
        if not choosing_metric.lower_is_better:
            validation = -validation
        return Search(validation, test, trained.groups)


@dataclass(frozen=True, slots=True, eq=False)
class _TrainedCells:
    """Where the k trained cells of an arm are in a column, and in a table of draws and seeds."""

    rows: NDArray[np.int64]
    """(k,), the row of each cell in `Searches.values`."""
    draws: NDArray[np.int64]
    """(k,), the row of each cell in the table."""
    seeds: NDArray[np.int64]
    """(k,), the column of each cell in the table."""
    groups: NDArray[np.int64]
    """The group of each row of the table: see `groups_of`."""

    def table(self, column: Floats) -> Floats:
        """Return a column of `Searches.values` as (draws, seeds), NaN where a draw lacks a seed."""
        size = (1 + self.draws.max(initial=-1), 1 + self.seeds.max(initial=-1))
        table = np.full(size, np.nan)
        table[self.draws, self.seeds] = column[self.rows]
        return table


def _trained_cells(
    draws_by_cell: Mapping[str, Draw],
    row_of_cell: Mapping[str, int],
    seed_of_row: NDArray[np.int64],
) -> _TrainedCells:
    """Return where to find the cells of an arm that were trained: those with a row of values."""
    trained = [cell for cell in draws_by_cell if cell in row_of_cell]
    rows = [row_of_cell[cell] for cell in trained]
    numbers = [draws_by_cell[cell].number for cell in trained]
    seeds = [int(seed_of_row[row]) for row in rows]
    # A draw without any trained cell has no row in the table.
    numbers_in_table = sorted(set(numbers))
    seeds_in_table = _most_common_first(seeds)
    draw_of_number = {draws_by_cell[cell].number: draws_by_cell[cell] for cell in trained}
    return _TrainedCells(
        rows=np.array(rows, np.int64),
        draws=np.array([numbers_in_table.index(number) for number in numbers], np.int64),
        seeds=np.array([seeds_in_table.index(seed) for seed in seeds], np.int64),
        groups=groups_of([draw_of_number[number] for number in numbers_in_table]),
    )


def _most_common_first(seeds: Sequence[int]) -> list[int]:
    """Return the different seeds, the seed of most draws first.

    All draws are trained with this seed, by which the finalists are chosen. Only the finalists are
    trained with further seeds.
    """
    draws_of_seed = Counter(seeds)
    return sorted(draws_of_seed, key=lambda seed: (-draws_of_seed[seed], seed))
