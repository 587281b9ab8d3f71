"""What a spec asks before anything is computed: pass marks, and differences of two variants."""

from dataclasses import field
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, FiniteFloat, model_validator
from pydantic.dataclasses import dataclass

TABLE = ConfigDict(
    extra="forbid", use_attribute_docstrings=True
)  # of a class that is a table of a spec


@dataclass(frozen=True, config=TABLE)
class Mark:
    """A test: a task with certain parameters, and the values of its test metrics that pass.

    An axis of the task that `params` does not name keeps its values: the mark then holds for all of them.
    """

    name: Annotated[str, Field(min_length=1)]
    """Name of the test."""
    task: str
    """Task that the test is about."""
    params: dict[str, Any] = field(default_factory=dict)
    """Parameters that differ from those of the task in the spec."""
    at_most: dict[str, FiniteFloat] = field(default_factory=dict)
    """Metric -> the largest value that passes."""
    at_least: dict[str, FiniteFloat] = field(default_factory=dict)
    """Metric -> the smallest value that passes."""
    why: str = ""
    """The reason for the bounds, and what the test asks."""

    @property
    def bounds(self) -> list[tuple[str, float, bool]]:
        """Metrics with their bounds, and whether these are the largest values that pass."""
        at_most = [(metric, bound, True) for metric, bound in self.at_most.items()]
        return at_most + [(metric, bound, False) for metric, bound in self.at_least.items()]

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if not self.at_most and not self.at_least:
            raise ValueError("it has no bound: expected at_most or at_least = {METRIC = N}")
        return self


@dataclass(frozen=True, config=TABLE)
class Contrast:
    """The difference of two variants that a comparison is made for: the first less the second."""

    name: Annotated[str, Field(min_length=1)]
    """What the difference shows."""
    first: str
    """A variant as reports name it: a loss, then the settings that set it apart, KEY=VALUE."""
    second: str
    """Another variant, whose mean is taken from that of the first."""
