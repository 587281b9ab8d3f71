"""The tables of a spec: named contrasts, pass marks, published values, and where a publication and its code differ."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from milbench.api.metric_info import METRICS
from milbench.api.plan import Mark

Finite = Annotated[float, Field(allow_inf_nan=False)]
Margin = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""The largest difference that counts as none, in the unit of a metric."""


class Table(BaseModel):
    """A table of a spec, without keys that are unknown."""

    model_config = ConfigDict(extra="forbid")


class Difference(Table):
    """A point in which a publication and its code differ."""

    topic: str
    paper: str
    code: str
    here: str  # the parameter that chooses between the two, and what this comparison uses


class NamedContrast(Table):
    """The difference of two variants that a comparison is made for: the first less the second."""

    name: str = Field(min_length=1)  # what the difference shows
    first: str  # as reports name a variant: a loss, and behind it the settings that set it apart, KEY=VALUE
    second: str
    margin: dict[str, Margin] = Field(default_factory=dict)  # in place of that of the spec


class PassMark(Table):
    """A test: a task with certain parameters, and the values of its test metrics that pass.

    An axis of the task that `params` does not name keeps its values: the mark then holds for all of them.
    """

    name: str = Field(min_length=1)
    task: str = ""  # one of the spec; "": the only one
    params: dict[str, Any] = Field(default_factory=dict)  # what differs from the task in the spec
    at_most: dict[str, Finite] = Field(default_factory=dict)  # metric -> the largest value that passes
    at_least: dict[str, Finite] = Field(default_factory=dict)
    why: str = ""  # the reason for the bounds, and what the test asks

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if not self.at_most and not self.at_least:
            raise ValueError("it has no bound: expected at_most or at_least = {METRIC = N}")
        return self

    def marks(self, task: str, task_params: dict[str, Any]) -> list[Mark]:
        """Return a mark for every bound, for one task with the parameters of its cells."""
        bounds = [(m, b, True) for m, b in self.at_most.items()] + [(m, b, False) for m, b in self.at_least.items()]
        return [Mark(self.name, task, task_params, metric, bound, least, self.why) for metric, bound, least in bounds]


class Literature(Table):
    """A published value of a method that is no loss here."""

    task: str
    params: dict[str, Any] = Field(default_factory=dict)  # that the value belongs to, such as `table`; empty: to all
    method: str = Field(min_length=1)
    metric: str  # without a split
    value: Finite  # as a share, not in percent; an error, not an accuracy
    spread: Annotated[Finite, Field(ge=0)] | None = None  # what the source prints behind ±, whatever it is
    source: str = Field(min_length=1)  # with the place in it
    note: str = ""  # in which points it was not measured as the results here

    @model_validator(mode="after")
    def _is_a_share(self) -> Self:
        if self.metric in METRICS and METRICS[self.metric].percent and not 0 <= self.value <= 1:
            raise ValueError(f"{self.metric} is a share between 0 and 1, got {self.value:g}")
        return self

    def entry(self) -> dict[str, Any]:
        """Return the fields of a `milbench.api.published.Published`, as a plan holds them."""
        return {"loss": "", **self.model_dump(exclude={"task", "params"})}
