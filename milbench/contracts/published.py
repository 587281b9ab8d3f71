"""Results from the literature, which a task or a spec lists and a report shows.

This module does not import torch.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, FiniteFloat, model_validator
from pydantic.dataclasses import dataclass

from milbench.contracts.metric_info import METRICS
from milbench.contracts.spec_tables import TABLE

Rule = Literal["last", "validation", "test"]
"""How an epoch is chosen: the last one, the best on validation bags, or the best on test bags."""


@dataclass(frozen=True, slots=True, config=TABLE)
class Published:
    """One published value of a metric on test bags, for a loss or for a method milbench lacks."""

    metric: str
    """Metric, without a split."""
    value: FiniteFloat
    """The mean over the runs of the source, or the best of them. A share is a number from 0 to 1,
    not a percentage."""
    source: Annotated[str, Field(min_length=1)]
    """The publication, with the page, section or table."""
    loss: str = ""
    """Loss whose value it is: its name, or its label with parameters."""
    method: str = ""
    """Method whose value it is, where milbench has no such loss."""
    task: str = ""
    """Task that the value was measured on; a spec has to name it."""
    spread: Annotated[FiniteFloat, Field(ge=0)] | None = None
    """The standard deviation between the runs, or whatever the source prints after ±."""
    runs: Annotated[int, Field(ge=1)] | None = None
    """Number of runs behind the value."""
    statistic: Literal["mean", "best"] = "mean"
    """Whether the value is the mean of these runs or the best of them."""
    rule: Rule = "test"
    """How the source chose the epoch."""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the source, such as `recipe.lr`, `task.KEY` or `loss.KEY`, each with a value or
    a list of values: that of the source, then others that are accepted in its place. Runs of a loss
    with other parameters are not comparable. The value of a method is shown only on tasks that have
    these values of `task.KEY`."""
    data: str = ""
    """The beginning of the name of the data; a run on other data is not comparable."""
    values: tuple[float, ...] = ()
    """The value of every run, where the source lists them. `mean`, `deviation` and `count` are then
    computed from this list."""
    margin: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """The largest difference from `value`, above or below, that counts as agreement; none: no run
    can agree."""
    note: str = ""
    """What a reader must know besides the verdict, and why the margin is what it is; one line."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [name for name in (self.loss, self.method) if name]
        if len(names) != 1:
            raise ValueError("expected the name of a loss or of a method, one of the two")
        # A number above 1 is most likely a percentage.
        is_share = self.metric in METRICS and METRICS[self.metric].percent
        if is_share and not 0 <= self.value <= 1:
            raise ValueError(f"{self.metric} is a share between 0 and 1, got {self.value:g}")
        return self

    @property
    def mean(self) -> float:
        """The mean of `values`, or `value` where they are not known."""
        return statistics.fmean(self.values) if self.values else self.value

    @property
    def deviation(self) -> float | None:
        """The standard deviation of `values`, with divisor n - 1; `spread` for fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else self.spread

    @property
    def count(self) -> int | None:
        """The number of `values`, or `runs` where they are not known."""
        return len(self.values) or self.runs

    def accepted(self, name: str) -> Sequence[Any]:
        """Return the values that a comparable run may have for a parameter of the protocol."""
        value = self.protocol[name]
        return value if isinstance(value, tuple | list) else [value]

    def deviations(self, params: Mapping[str, Any]) -> list[str]:
        """Return the names of the parameters that differ between a run and the protocol."""
        known = [name for name in self.protocol if name in params]
        return [name for name in known if params[name] not in self.accepted(name)]

    def belongs_to(self, task_params: Mapping[str, Any], data: str) -> bool:
        """Return whether a report may show it beside results on its task.

        The task has these parameters, and its data this name. The value of a loss may always be
        shown, since reports name every deviation from its protocol. For the value of a method,
        reports name no deviations. So it is shown only on the task with the same parameters and
        data.
        """
        if self.loss:
            return True
        params = {f"task.{key}": value for key, value in task_params.items()}
        is_same_task = not self.deviations(params)
        return is_same_task and data.startswith(self.data)
