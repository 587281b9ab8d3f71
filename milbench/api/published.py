"""Results from the literature, as a task lists them and a report compares them with its own; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Rule = Literal["last", "validation", "test"]
"""How an epoch is chosen: the last one, the best on validation bags, or the best on test bags."""


@dataclass(frozen=True, slots=True)
class Published:
    """One published value of a metric on test bags.

    Args:
        loss: the loss it belongs to, by its name or its label with parameters; "" for another method.
        metric: a key of `milbench.api.metric_info.METRICS`.
        value: the mean over `runs` runs, or the best of them; a share, not a percentage, where the metric is one.
        source: where it was published.
        spread: the standard deviation between the runs (n - 1), None where it was not published.
        runs: the number of runs, None where it was not published.
        statistic: what `value` is of the runs.
        rule: how the source chose the epoch.
        protocol: parameters of the source, by the names of `Cell.params`: a run that differs in one of them is not
            comparable.
        minor: parameters of the source in which a run may differ and stay comparable; a report names the differences.
        data: the beginning of the data's name: a run on other data is not comparable.
        method: the name of a method that is no loss here, to be drawn as a line; `loss` is then "".
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
    minor: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    method: str = ""

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Published:
        """Return what a plan holds as a dict; a field that an older plan lacks has its default.

        Args:
            entry: the fields by their names; other keys, such as `task`, are left out.
        """
        return cls(**{known.name: entry[known.name] for known in fields(cls) if known.name in entry})
