"""The tables `[[marks]]` of a spec: tests that every loss takes, each with the values that pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from milbench.api.marks import Mark
from milbench.api.registry import Registry
from milbench.api.validation import validated
from milbench.errors import UsageError, unknown

Params = dict[str, Any]
Bounds = dict[str, Annotated[float, Field(allow_inf_nan=False)]]


class PassMark(BaseModel):
    """A test: a task with certain parameters, and the values of its test metrics that pass.

    The cells that it is about are planned, whether or not the tasks of the spec have them too.

    Args:
        name: of the test.
        task: the name of one of the tasks of the spec; "": the only one.
        params: what differs from the parameters of the task in the spec. An axis of the task that is not named here
            keeps its values: the mark then holds for all of them.
        at_most: metric -> the largest value that passes.
        at_least: metric -> the smallest value that passes.
        why: the reason for the bounds, and what the test asks.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    task: str = ""
    params: Params = Field(default_factory=dict)
    at_most: Bounds = Field(default_factory=dict)
    at_least: Bounds = Field(default_factory=dict)
    why: str = ""

    def marks(self, task: str, task_params: Params) -> Iterator[Mark]:
        """Yield a mark for every bound, for one task with the parameters of its cells."""
        for bounds, at_most in ((self.at_most, True), (self.at_least, False)):
            for metric, bound in bounds.items():
                yield Mark(self.name, task, task_params, metric, bound, at_most, self.why)


def checked_marks(given: Any, owner: str) -> list[Params]:
    """Return the marks of a spec as they were given, each of them checked by itself.

    Raises:
        UsageError: they are no tables, or one of them has a key or a value that is wrong; the message names it.
    """
    if not isinstance(given, Sequence) or isinstance(given, str) or not all(isinstance(m, Mapping) for m in given):
        raise UsageError(f"{owner}: marks are tables, [[marks]]")
    names = [str(mark.get("name", f"number {k}")) for k, mark in enumerate(given, start=1)]
    found: list[PassMark] = [
        validated(f"mark {name!r} of {owner}", PassMark, mark) for name, mark in zip(names, given, strict=True)
    ]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{owner}: two marks are named {twice!r}")
    for mark in found:
        if not mark.at_most and not mark.at_least:
            raise UsageError(
                f"mark {mark.name!r} of {owner} has no bound: expected at_most or at_least = {{METRIC = N}}"
            )
    return [mark.model_dump() for mark in found]


def check_metrics(marks: Sequence[PassMark], known: set[str]) -> None:
    """Raise UsageError where a mark is on a metric that is not `known`."""
    for mark in marks:
        for metric in (*mark.at_most, *mark.at_least):
            if metric not in known:
                raise unknown(f"metric of mark {mark.name!r}", metric, known)


def with_tasks(marks: Sequence[PassMark], tasks: Sequence[str]) -> list[Params]:
    """Return marks as they were given, each with its task, which a flag that chooses other tasks does not change.

    Args:
        marks: of a spec as its file has it.
        tasks: those of the file.

    Raises:
        UsageError: a mark names no task, and there are several.
    """
    if unnamed := next((mark.name for mark in marks if not mark.task and len(tasks) > 1), None):
        raise UsageError(f"mark {unnamed!r} names no task, and there are several: {', '.join(tasks)}")
    return [mark.model_dump() | {"task": mark.task or tasks[0]} for mark in marks]


def task_of(mark: PassMark, chosen: Sequence[str], registry: Registry[Any]) -> str | None:
    """Return the task of a mark as the spec names it, one of the `chosen` ones; None where a flag has left it out.

    Args:
        mark: the mark of a spec.
        chosen: the tasks that a launch has, as they were given.
        registry: of the tasks.

    Raises:
        UsageError: there is no such task, or the mark names none and the spec has several.
    """
    by_name = {registry.entry(given).name: given for given in chosen}
    if not mark.task:
        if len(by_name) > 1:
            raise UsageError(f"mark {mark.name!r} names no task, and there are several: {', '.join(by_name)}")
        return chosen[0]
    return by_name.get(registry.entry(mark.task).name)
