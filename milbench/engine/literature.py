"""Figures from the literature that a spec names, to stand beside the results of its comparison."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from milbench.api.metric_info import METRICS
from milbench.api.published import Published
from milbench.api.registry import constructor_parameters, tasks
from milbench.errors import UsageError, unknown

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Literature(BaseModel):
    """A published value of a method that is no loss here, in a table `[[published]]` of a spec.

    Args:
        task: the name of a task.
        params: parameters of the task that the value belongs to, such as `table`; empty: all of its variants.
        method: its name.
        metric: the name of the metric, without a split.
        value: as a share, not in percent, where the metric is one; an error, not an accuracy, where it is one.
        spread: what the source prints behind ±, whatever it is; None where it prints nothing.
        source: where it was published, with the place in it.
        note: in which points it was not measured as the results here.
    """

    model_config = ConfigDict(extra="forbid")

    task: str
    params: dict[str, Any] = Field(default_factory=dict)
    method: str = Field(min_length=1)
    metric: str
    value: Finite
    spread: Annotated[Finite, Field(ge=0)] | None = None
    source: str = Field(min_length=1)
    note: str = ""

    def check(self) -> None:
        """Raise UsageError where the task, one of its parameters or the metric is unknown."""
        cls = tasks().cls(self.task)
        known = constructor_parameters(cls)
        for name in self.params:
            if name not in known:
                raise unknown(f"parameter of task {cls.name} in [[published]]", name, known)
        if self.metric not in (names := {*METRICS, cls.primary}):
            raise unknown("metric in [[published]]", self.metric, names)
        if METRICS.get(self.metric) and METRICS[self.metric].percent and not 0 <= self.value <= 1:
            share = f"{self.metric} is a share between 0 and 1, got {self.value:g}"
            raise UsageError(f"[[published]] {self.method}: {share}")

    def entry(self) -> dict[str, Any]:
        """Return the fields of a `Published` as a plan stores them, with the task and its parameters."""
        value = Published(
            loss="", metric=self.metric, value=self.value, source=self.source, spread=self.spread,
            method=self.method, note=self.note,
        )  # fmt: skip
        return {"task": self.task, "params": self.params, **asdict(value)}
