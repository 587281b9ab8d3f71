"""The space in which settings are searched for each loss, and its draws: the same number for every loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Params = dict[str, Any]
MOST_DRAWS = 4096  # more draws are a slip
SCRAMBLE = 20190909
"""Seeds the scrambling of the Sobol sequence: the same draws in every search over spaces of as many dimensions."""


class Range(BaseModel):
    """The values of a setting between two ends.

    On a log scale the logarithm of the value is uniform, on a linear one the value. A whole number stands for all
    values that are rounded to it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)
    scale: Literal["linear", "log"] = "linear"
    integer: bool = False

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low:g} must be less than high = {self.high:g}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"low = {self.low:g} has no logarithm; scale = log needs a low above 0")
        if self.integer and math.ceil(self.low) > math.floor(self.high):
            raise ValueError(f"there is no whole number from {self.low:g} to {self.high:g}")
        return self

    def at(self, share: float) -> float | int:
        """Return the value below which `share` of the values are, to four digits."""
        least, most = math.ceil(self.low), math.floor(self.high)
        # Half a number is added at both ends, where whole numbers would otherwise have half the share of others.
        low, high = (least - 0.5, most + 0.5) if self.integer else (self.low, self.high)
        value = low * (high / low) ** share if self.scale == "log" else low + share * (high - low)
        return min(max(round(value), least), most) if self.integer else float(f"{value:.4g}")


Dimension = Range | list[Any]
"""A range, or a list of values, each as probable as it is often in the list."""


class Search(BaseModel):
    """How settings are searched: the table [tune] of a spec."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    draws: int = Field(default=16, ge=1, le=MOST_DRAWS)
    """Settings that are tried for each loss on each task."""
    seeds: str | int | list[int] = "1000"
    """Seeds with which each draw is trained; none of them is a seed of the comparison."""
    metric: Literal["set_error", "label_error", "own_label_error", "instance_error"] = "set_error"
    """Metric of validation bags that chooses; the instance error is that of bags of one instance."""
    recipe: dict[str, Dimension | dict[str, Dimension]] = Field(default_factory=dict)
    """Setting -> its values; those in a table named after a task are for that task."""
    loss: dict[str, dict[str, Dimension]] = Field(default_factory=dict)
    """Name -> parameter of that loss -> its values."""
    draw_recipe: Params = Field(default_factory=dict)
    """Changes to the recipe during the search, such as fewer epochs."""
    draw_task: dict[str, Params] = Field(default_factory=dict)
    """Task -> changes to its parameters during the search."""

    @model_validator(mode="after")
    def _something_to_search(self) -> Self:
        if not self.recipe and not any(self.loss.values()):
            raise ValueError("there is nothing to search: add [tune.recipe] or [tune.loss.NAME]")
        of_tasks = [values for values in self.recipe.values() if isinstance(values, dict)]
        spaces: list[Mapping[str, object]] = [self.recipe, *of_tasks, *self.loss.values()]
        for name, values in ((name, values) for space in spaces for name, values in space.items()):
            if values == []:
                raise ValueError(f"{name} = [] has no values")
        return self

    def recipe_of(self, task: str) -> dict[str, Dimension]:
        """Return the dimensions of the recipe on a task."""
        common = {k: v for k, v in self.recipe.items() if not isinstance(v, dict)}
        own = self.recipe.get(task, {})
        return common | own if isinstance(own, dict) else common


def draw(spaces: Sequence[Mapping[str, Dimension]], count: int, coordinates: int = 0) -> list[list[Params]]:
    """Return `count` draws from each of several spaces, such as those of the recipe and of a loss.

    The draws are points of one scrambled Sobol sequence (`scipy.stats.qmc`): they fill the space more evenly than
    independent ones, and more draws begin with the same ones. Coordinates belong to dimensions by their order; where
    points of all losses have as many `coordinates`, losses share the draws of the spaces that they have in common.
    """
    from scipy.stats import qmc

    dimensions = max(coordinates, sum(map(len, spaces)), 1)
    sequence = qmc.Sobol(dimensions, scramble=True, rng=SCRAMBLE)
    points = sequence.random_base2(max(0, math.ceil(math.log2(count))))  # its balance holds for powers of two
    return [
        [{name: _value(dimension, next(shares)) for name, dimension in space.items()} for space in spaces]
        for shares in map(iter, points[:count].tolist())
    ]


def _value(dimension: Dimension, share: float) -> Any:
    if isinstance(dimension, Range):
        return dimension.at(share)
    return dimension[min(int(share * len(dimension)), len(dimension) - 1)]
