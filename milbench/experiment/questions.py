"""What a spec asks of the results, before anything is computed: metrics, differences of two variants, pass marks."""

import re
from dataclasses import field
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, model_validator
from pydantic.dataclasses import dataclass

from milbench.contracts.spec_tables import TABLE

COMPARISON_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
"""The names of comparisons: each is a file and a folder of that name."""
LONGEST_NAME = 200
"""The most characters of a name: common file systems hold 255 bytes, and names of temporary files are longer."""

Selection = Literal["last", "validation"]
"""The rules by which losses may be compared: the last epoch, or the one with the smallest validation set error."""


class Table(BaseModel):
    """A table of a spec, without unknown keys."""

    model_config = TABLE


class Bound(NamedTuple):
    """The limit of a mark for one metric."""

    metric: str
    value: float
    is_upper: bool
    """Whether `value` is the largest that passes. Otherwise it is the smallest."""


@dataclass(frozen=True, config=TABLE)
class Mark:
    """A test: a task with certain parameters, and the values of its test metrics that pass.

    An axis of the task that `params` does not name keeps its values: the mark then holds for all of
    them.
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
    def bounds(self) -> list[Bound]:
        """All bounds of the mark, the upper ones first."""
        upper = [Bound(metric, value, is_upper=True) for metric, value in self.at_most.items()]
        lower = [Bound(metric, value, is_upper=False) for metric, value in self.at_least.items()]
        return upper + lower

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


class Difference(Table):
    """A point in which a publication and its code differ."""

    topic: str
    """Point in which they differ."""
    paper: str
    """What the publication says."""
    code: str
    """What its code does."""
    here: str
    """The parameter that chooses between the two, and what this comparison uses."""


def _check_name(name: str) -> str:
    """Return the name of a comparison. Raises ValueError where files cannot be named after it."""
    if re.fullmatch(COMPARISON_NAME, name) and len(name) <= LONGEST_NAME:
        return name
    raise ValueError(
        f"expected at most {LONGEST_NAME} letters, digits and . _ + -, the first one a letter or a digit"
    )


class Questions(Table):
    """What a comparison asks of its results, and what its report says of it."""

    name: Annotated[str, AfterValidator(_check_name)]
    """Name of the comparison; a spec file, or else --task, provides one."""
    title: str = ""
    """Title of the report."""
    preset: str = ""
    """The preset that was chosen."""
    about: str = ""
    """What that preset is, and how long it takes."""
    selection: Selection = "last"
    """Epoch by which losses are compared; no result depends on it."""
    margin: dict[str, Annotated[FiniteFloat, Field(gt=0)]] = Field(default_factory=dict)
    """Metric -> the largest difference that counts as none."""
    compare_by: list[str] = Field(default_factory=list)
    """Metrics by which losses are compared, the first in place of each task's primary metric."""
    contrasts: list[Contrast] = Field(default_factory=list)
    """Differences that the comparison is made for."""
    notes: list[str] = Field(default_factory=list)
    """Notes for the reader of the report, such as the limits of a preset."""
    differences: list[Difference] = Field(default_factory=list)
    """Differences between a publication and its code."""
