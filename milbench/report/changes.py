"""What changed between two comparisons, A and B: each loss on each task that both have, compared beyond noise.

A loss on a task is a row, and all rows are one family. Rows of one task whose bags are the same are compared as a
report compares losses, paired by seed and test bag and with a common level; each other row by Welch's interval. Of R
rows, k that are compared together hold together with probability 0.95^(k/R), so that all R hold with 0.95 where such
groups are independent, and at least as often where they share data (for the reasons in `milbench.report.contrasts`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from milbench.api.metric_info import Metric, describe
from milbench.api.results import Results
from milbench.errors import UsageError, unknown
from milbench.report.matching import Place, common_seeds, environment_changes, match, what_differs
from milbench.report.statistics import FEWEST_SEEDS, LEVEL, Difference, PairwiseComparison, compare, compare_unpaired
from milbench.report.study import SETS, Study, Variant
from milbench.report.verdicts import verdict_word

Key = tuple[Literal["A", "B"], Variant]
Pairing = Literal["seed and test bag", "seed", "unpaired"]
COLUMNS = [
    "task", "supervision", "loss", "recipe", "metric", "a", "b", "seeds_a", "seeds_b", "paired_by", "seeds",
    "test_bags", "difference", "low", "high", "verdict", "margin", "equivalent", "differs", "step_seconds_a",
    "step_seconds_b", "step_seconds_spread_a", "step_seconds_spread_b",
]  # fmt: skip
"""The columns of `Changes.frame`."""


@dataclass(frozen=True, slots=True)
class Row:
    """A loss on a task that both comparisons have.

    Args:
        a: where it is in A.
        b: where it is in B.
        name: the metric, without the split.
        differs: what differs between A and B; nothing where both have the results of the same runs.
        pairing: by what their values are paired.
        found: the rows that are compared together; None where nothing differs.
    """

    a: Place
    b: Place
    name: str
    differs: tuple[str, ...]
    pairing: Pairing
    found: PairwiseComparison[Key] | None = None

    @property
    def metric(self) -> Metric:
        """The description of the metric."""
        return describe(self.name)

    @property
    def keys(self) -> tuple[Key, Key]:
        """The keys of B and A in `found`."""
        return ("B", self.b.variant), ("A", self.a.variant)

    @property
    def difference(self) -> Difference | None:
        """B less A with its interval; None where one of them has no result, or nothing differs."""
        return self.found.differences.get(self.keys) if self.found else None

    @property
    def verdict(self) -> str:
        """What B is beside A: better, worse, unresolved, not ranked, the same runs or no result."""
        if not self.differs:
            return "the same runs"
        return verdict_word(self.found, *self.keys) if self.found and self.difference else "no result"

    @property
    def is_equivalent(self) -> bool:
        """Whether B is equivalent to A within the margin."""
        return bool(self.found and self.difference and self.found.equivalent(*self.keys))

    @property
    def is_lost(self) -> bool:
        """Whether A has a result and B has none."""
        return bool(len(self.a.sample(self.name).by_seed)) and not len(self.b.sample(self.name).by_seed)

    @property
    def failed_seeds(self) -> list[int]:
        """The seeds with a result in A that failed in B: a loss that begins to diverge is worse, whatever is left."""
        failed = self.b.cells.index[self.b.cells["status"] == "failed"]
        return sorted(int(seed) for seed in self.a.sample(self.name).by_seed.index.intersection(failed))

    @property
    def is_judged(self) -> bool:
        """Whether B could have come out as worse: there is an interval, or nothing differs."""
        return not self.differs or (self.difference is not None and not math.isnan(self.difference.interval[0]))


@dataclass(frozen=True)
class Changes:
    """What changed between two comparisons, A and B.

    Args:
        a: the results of A.
        b: the results of B.
        names: what A and B are called.
        rows: what is in both, compared.
        only_a: what is in A alone.
        only_b: what is in B alone.
        notes: what else differs, and what could not be read, a sentence each.
    """

    a: Results
    b: Results
    names: tuple[str, str]
    rows: list[Row]
    only_a: list[Place]
    only_b: list[Place]
    notes: list[str] = field(default_factory=list)

    @property
    def worse(self) -> list[Row]:
        """The rows in which B is worse beyond noise, has no result where A has one, or failed with such a seed."""
        return [row for row in self.rows if row.verdict == "worse" or row.is_lost or row.failed_seeds]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All rows as numbers, and what is in A or B alone, with the columns COLUMNS."""
        lines = [_line(row) for row in self.rows]
        for verdict, places in (("only in A", self.only_a), ("only in B", self.only_b)):
            lines += [_named(place) | {"verdict": verdict} for place in places]
        return pd.DataFrame(lines, columns=COLUMNS)


def changes_between(
    a: Results, b: Results, names: tuple[str, str] = ("A", "B"), metric: str | None = None, margin: float | None = None
) -> Changes:
    """Compare two comparisons.

    Args:
        a: the results of A, such as those of an earlier version of one's code.
        b: the results of B.
        names: what they are called.
        metric: by which they are compared, without the split; None: the leading metric of each task.
        margin: the largest difference that counts as none, as a share for a metric in per cent; None: none is given.

    Raises:
        UsageError: they have no loss on a task in common, or not both have the metric.
    """
    studies, notes = (Study(a), Study(b)), []
    matched, only_a, only_b = match(*studies)
    if any(one.study.rule(one.task) != other.study.rule(other.task) for one, other in matched):
        notes.append("A and B choose the epoch by different rules: both are compared by the last epoch.")
        studies = (Study(replace(a, selection="last")), Study(replace(b, selection="last")))
        matched, only_a, only_b = match(*studies)
    if not matched:
        raise UsageError(
            f"{names[0]} and {names[1]} have no loss on a task in common: {names[0]} has {_listed(only_a)}; "
            f"{names[1]} has {_listed(only_b)}"
        )
    if metric is not None:
        _check_metric(metric, studies)
    rows = _compared([_row(one, other, metric or _leading(one, other)) for one, other in matched], margin)
    notes += [*environment_changes(a, b), *dict.fromkeys(problem for study in studies for problem in study.problems)]
    return Changes(a, b, names, rows, only_a, only_b, notes)


def _listed(places: list[Place]) -> str:
    return ", ".join(place.label for place in places[:5]) + (", ..." if len(places) > 5 else "")


def _check_metric(metric: str, studies: tuple[Study, Study]) -> None:
    one, other = ({name for task in s.tasks for name in (s.primary(task), *s.metrics(task))} for s in studies)
    if metric not in one & other:
        raise unknown("metric of both comparisons", metric, one & other)


def _leading(a: Place, b: Place) -> str:
    """Return the metric that leads on a task in both comparisons, else the primary one of A.

    The label error leads where nearly all label sets are wrong; here it does so if they are before and after.
    """
    one, other = (place.study.primary(place.task) for place in (a, b))
    return one if one == other else str(a.cells["primary"].iloc[0])


def _row(a: Place, b: Place, name: str) -> Row:
    return Row(a, b, name, what_differs(a, b, name), _pairing(a, b, name))


def _pairing(a: Place, b: Place, name: str) -> Pairing:
    """Return by what values can be paired: common seeds and, where outcomes were kept, the same test bags."""
    common = common_seeds(a, b, name)
    fewest = min(len(place.sample(name).by_seed) for place in (a, b))
    if len(common) < min(FEWEST_SEEDS, max(fewest, 1)):
        return "unpaired"
    one, other = ([found[seed].items if seed in found else "" for seed in common]
                  for found in (a.outcomes(name), b.outcomes(name)))  # fmt: skip
    if all(one) and all(other):
        return "seed and test bag" if one == other else "unpaired"
    return "seed" if a.data == b.data and _of_task(a) == _of_task(b) else "unpaired"


def _of_task(place: Place) -> dict[str, str]:
    return {name: value for name, value in place.params.items() if name == "task" or name.startswith("task.")}


def _compared(rows: list[Row], margin: float | None) -> list[Row]:
    """Return rows with their comparisons; those in which nothing differs are no part of the family."""
    groups: dict[Hashable, list[int]] = {}
    changed = [number for number, row in enumerate(rows) if row.differs]
    for number in changed:
        row = rows[number]
        together = number if row.pairing == "unpaired" else (row.a.task, row.b.task, row.name)
        groups.setdefault(together, []).append(number)
    found: dict[int, PairwiseComparison[Key]] = {}
    for numbers in groups.values():
        group, level = [rows[number] for number in numbers], LEVEL ** (len(numbers) / len(changed))
        comparison = (_unpaired if group[0].pairing == "unpaired" else _paired)(group, level, margin)
        found |= dict.fromkeys(numbers, comparison)
    return [replace(row, found=found.get(number)) for number, row in enumerate(rows)]


def _paired(rows: list[Row], level: float, margin: float | None) -> PairwiseComparison[Key]:
    """Compare rows of one task and metric whose bags are the same, with intervals that hold together."""
    name, places = rows[0].name, _places(rows)
    return compare(
        {key: place.sample(name).by_seed for key, place in places.items()},
        {key: place.outcomes(name) for key, place in places.items()},
        describe(name).lower_is_better,
        margin,
        level,
        max(place.study.overlap(place.task) for place in places.values()),
        [row.keys for row in rows],
        _unranked(name, places),
    )


def _unpaired(rows: list[Row], level: float, margin: float | None) -> PairwiseComparison[Key]:
    """Compare the one row of a group whose seeds or bags are not the same."""
    (row,) = rows
    b, a = row.b.sample(row.name).by_seed, row.a.sample(row.name).by_seed
    found: dict[tuple[Key, Key], Difference] = {}
    if len(a) and len(b):
        outcomes = row.b.outcomes(row.name), row.a.outcomes(row.name)
        overlaps = row.b.study.overlap(row.b.task), row.a.study.overlap(row.a.task)
        found[row.keys] = compare_unpaired(b, a, outcomes, level, overlaps)
    return PairwiseComparison(None, found, row.metric.lower_is_better, margin, _unranked(row.name, _places(rows)))


def _places(rows: list[Row]) -> dict[Key, Place]:
    return {key: place for row in rows for key, place in zip(row.keys, (row.b, row.a), strict=True)}


def _unranked(name: str, places: dict[Key, Place]) -> frozenset[Key]:
    """Return what the set error does not tell apart, as in a report: where nearly all label sets are wrong."""
    wrong = (key for key, place in places.items() if place.variant in place.study.nearly_all_wrong(place.task))
    return frozenset(wrong if name == SETS else ())


def _named(place: Place) -> dict[str, Any]:
    found = place.variant
    return {"task": place.task, "supervision": found.supervision, "loss": found.loss, "recipe": found.recipe}


def _line(row: Row) -> dict[str, Any]:
    line = _named(row.b) | {
        "metric": row.name, "paired_by": row.pairing, "verdict": row.verdict, "equivalent": row.is_equivalent,
        "margin": row.found.margin if row.found else None, "differs": "; ".join(row.differs),
    }  # fmt: skip
    for side, place in (("a", row.a), ("b", row.b)):
        sample, (duration, spread) = place.sample(row.name), step_seconds(place)
        line |= {side: sample.mean, f"seeds_{side}": len(sample.by_seed)}
        line |= {f"step_seconds_{side}": duration, f"step_seconds_spread_{side}": spread}
    if found := row.difference:
        line |= {"seeds": found.seeds, "test_bags": found.items, "difference": found.difference}
        line |= {"low": found.interval[0], "high": found.interval[1]}
    return line


def step_seconds(place: Place) -> tuple[float, float]:
    """Return the median duration of a training step over the finished seeds, and its spread; nan where not measured."""
    cells = place.cells
    costs = place.study.results.costs.reindex(cells.loc[cells["status"] == "done", "cell"])
    found = costs.reindex(columns=["step_seconds", "step_seconds_spread"]).median()
    return float(found["step_seconds"]), float(found["step_seconds_spread"])
