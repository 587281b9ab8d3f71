"""Results from the literature, as a task lists them and a report compares them with its own; needs no torch."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Rule = Literal["last", "validation", "test"]
"""How an epoch is chosen: the last one, the best on validation bags, or the best on test bags."""


@dataclass(frozen=True, slots=True)
class Published:
    """One published value of a metric on test bags.

    Values are shares, not percentages, where the metric is one. Names of parameters are those of `Cell.params`, such as
    `recipe.lr`, `task.validation` or `loss.rule`.

    Args:
        loss: its loss, by the name or the label with parameters; "" for another method.
        metric: a key of `milbench.api.metric_info.METRICS`.
        value: the mean over `runs` runs, or the best of them, as the source prints it, or as its runs give it.
        source: where it was published.
        spread: the standard deviation between the runs, as the source prints it.
        runs: their number.
        statistic: what `value` is of the runs.
        rule: how the source chose the epoch.
        protocol: parameters of the source, each a value or several: a run with another value is not comparable.
        data: the beginning of the data's name: a run on other data is not comparable.
        method: the name of a method that milbench lacks, drawn as a line.
        values: the value of every run, where the source lists them: `mean`, `deviation` and `count` are then theirs.
        margin: the largest difference from `value`, either way, that counts as agreement; None: no run can agree.
        note: what a reader must know beside the verdict, and why the margin is what it is; one line.
    """

    loss: str
    metric: str
    value: float
    source: str
    spread: float | None = None
    runs: int | None = None
    statistic: Literal["mean", "best"] = "mean"
    rule: Rule = "test"
    protocol: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    method: str = ""
    values: tuple[float, ...] = ()
    margin: float | None = None
    note: str = ""

    @property
    def mean(self) -> float:
        """The mean of `values`, or `value` where they are not known."""
        return statistics.fmean(self.values) if self.values else self.value

    @property
    def deviation(self) -> float | None:
        """The standard deviation (n - 1) of `values`, or `spread` where they are fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else self.spread

    @property
    def count(self) -> int | None:
        """The number of `values`, or `runs` where they are not known."""
        return len(self.values) or self.runs
