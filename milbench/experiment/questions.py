"""What a spec asks of the results: metrics, differences of two variants, pass marks.

All of it is fixed before anything is computed.
"""

import re
from dataclasses import field
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, model_validator
from pydantic.dataclasses import dataclass

from milbench.contracts.spec_tables import TABLE

COMPARISON_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
"""The pattern of names of comparisons. Files and folders are named after comparisons."""
LONGEST_NAME = 200
"""The most characters of the name of a comparison.

Common file systems allow names of 255 bytes, and temporary files add some characters to the name.
"""

Selection = Literal["last", "validation"]
"""The epoch by which losses are compared.

It is the last epoch, or the one with the smallest set error on validation bags.
"""


class Table(BaseModel):
    """A table of a spec, in which an unknown key is an error."""

    model_config = TABLE


class Bound(NamedTuple):
    """The limit of a pass mark for one metric."""

    metric: str
    value: float
    is_upper: bool
    """Whether `value` is the largest that passes. Otherwise it is the smallest."""


@dataclass(frozen=True, config=TABLE)
class Mark:
    """A pass mark: bounds, stated in advance, for test metrics on a task.

    An axis of the task that `params` does not name keeps its values: the pass mark then holds for
    each of these values.
    """

    name: Annotated[str, Field(min_length=1)]
    """Name of the pass mark."""
    task: str
    """Task that the pass mark is for."""
    params: dict[str, Any] = field(default_factory=dict)
    """Parameters of the task that differ from its parameters in the spec."""
    at_most: dict[str, FiniteFloat] = field(default_factory=dict)
    """Metric -> the largest value that passes."""
    at_least: dict[str, FiniteFloat] = field(default_factory=dict)
    """Metric -> the smallest value that passes."""
    why: str = ""
    """The reason for the bounds, and what the pass mark tests."""

    @property
    def bounds(self) -> list[Bound]:
        """All bounds of the pass mark, the upper bounds first."""
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
    """The difference of two variants that a comparison is made for: the first minus the second."""

    name: Annotated[str, Field(min_length=1)]
    """What the difference shows."""
    first: str
    """A variant as reports name it: a loss, then the settings that set it apart, KEY=VALUE."""
    second: str
    """Another variant. Its mean is subtracted from the mean of the first."""


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
        f"expected at most {LONGEST_NAME} letters, digits and . _ + -, "
        "the first one a letter or a digit"
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
    """What the preset is, and how long it takes."""
    selection: Selection = "last"
    """Epoch by which losses are compared; no result depends on it."""
    margin: dict[str, Annotated[FiniteFloat, Field(gt=0)]] = Field(default_factory=dict)
    """Metric -> the largest difference that counts as no difference."""
    compare_by: list[str] = Field(default_factory=list)
    """Metrics by which losses are compared, the first in place of each task's primary metric."""
    contrasts: list[Contrast] = Field(default_factory=list)
    """Differences that the comparison is made for."""
    notes: list[str] = Field(default_factory=list)
    """Notes for the reader of the report, such as the limits of a preset."""
    differences: list[Difference] = Field(default_factory=list)
    """Differences between a publication and its code."""
