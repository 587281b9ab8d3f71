"""The spec: everything that a user can say of a comparison, in a TOML file, by flags or in Python."""

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from milbench.contracts.published import Published
from milbench.contracts.supervision import Supervision
from milbench.errors import UsageError
from milbench.experiment.questions import Mark, Questions, Table

DEFAULT = "default"
"""Stands for the first network of each task."""
MOST_DRAWS = 4096
"""More draws are a slip."""
MOST_SEEDS = 100_000
"""More seeds are a slip, and would not fit into memory."""

Settings = dict[str, Any]
"""Values by the names of parameters or of fields of a recipe; a list is an axis."""


class Range(Table):
    """The values of a setting between two ends."""

    low: float = Field(allow_inf_nan=False)
    """The least value."""
    high: float = Field(allow_inf_nan=False)
    """The largest value."""
    scale: Literal["linear", "log"] = "linear"
    """What is uniform: the value, or its logarithm."""

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low:g} must be less than high = {self.high:g}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(
                f"low = {self.low:g} has no logarithm; scale = log needs a low above 0"
            )
        return self

    def quantile(self, share: float) -> float:
        """Return the value below which `share` of the values are, to four digits."""
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + share * (self.high - self.low)
        return _rounded(value)


def _rounded(value: float) -> float:
    """Round a value to four significant digits."""
    return float(f"{value:.4g}")


Dimension = Range | list[Any]
"""A range, of which values are drawn, or a list of values, which are all tried."""


def _check_values(name: str, values: Any) -> None:
    """Raise ValueError where a setting is searched in a list that is empty or has a value twice."""
    if not isinstance(values, list):
        return
    if not values:
        raise ValueError(f"{name} = [] has no values")
    texts = [repr(value) for value in values]
    repeated = [text for text in texts if texts.count(text) > 1]
    if repeated:
        raise ValueError(
            f"{name} lists {repeated[0]} twice; expected every value once, since all are tried"
        )


class Search(Table):
    """How settings are searched: the table [tune] of a spec.

    Its field `draws` counts points. A point has a draw for each combination of the lists.
    """

    draws: int = Field(default=16, ge=1, le=MOST_DRAWS)
    """Points that are drawn from the ranges; each is tried with every combination of the lists."""
    search_seed: int = Field(default=0, ge=0)
    """Seed of the points: another one gives other points."""
    seeds: str | int | list[int] = "1000"
    """Seeds with which draws are trained, the smallest first; none of them is a seed of the comparison."""
    finalists: int | None = Field(default=None, ge=1)
    """Draws of each loss on each task that are trained with all seeds, the others with the first one; none: all."""
    metric: Literal["set_error", "label_error", "own_label_error", "instance_error"] = "set_error"
    """Metric of validation bags that chooses; the instance error is that of bags of one instance."""
    recipe: dict[str, Dimension | dict[str, Dimension]] = Field(default_factory=dict)
    """Setting -> its values; those in a table named after a task are for that task."""
    loss: dict[str, dict[str, Dimension]] = Field(default_factory=dict)
    """Name -> parameter of that loss -> its values."""
    draw_recipe: Settings = Field(default_factory=dict)
    """Changes to the recipe during the search, such as fewer epochs."""
    draw_task: dict[str, Settings] = Field(default_factory=dict)
    """Task -> changes to its parameters during the search."""

    @model_validator(mode="after")
    def _check_spaces(self) -> Self:
        if not self.recipe and not any(self.loss.values()):
            raise ValueError("there is nothing to search: add [tune.recipe] or [tune.loss.NAME]")
        task_spaces = [values for values in self.recipe.values() if isinstance(values, dict)]
        spaces: list[Any] = [self.recipe, *task_spaces, *self.loss.values()]
        for space in spaces:
            for name, values in space.items():
                _check_values(name, values)
                if name == "precision" and isinstance(values, list) and "auto" in values:
                    raise ValueError(
                        "precision = auto is float32 or bfloat16, whichever is quicker; list these two"
                    )
        return self


class Spec(Questions):
    """A comparison: every loss on every task with every seed, under one recipe or several."""

    losses: list[str] = Field(min_length=1)
    """Names, modules or paths of files."""
    tasks: list[str] = Field(min_length=1)
    """Names, modules or paths of files."""
    networks: list[str] = Field(default=[DEFAULT], min_length=1)
    """Names, modules or paths of files; default: the first network of each task."""
    seeds: str | int | list[int] | None = None
    """Such as "0-9" or "0,2,5"; none: seed 0, or all folds of a task."""
    loss: dict[str, Settings] = Field(default_factory=dict)
    """Name -> arguments, of which a list is an axis; `networks` among them replaces those of the spec."""
    task: dict[str, Settings | list[Settings]] = Field(default_factory=dict)
    """Name -> arguments, or a list of tables of arguments, one per variant, which may have a short `name`."""
    network: dict[str, Settings] = Field(default_factory=dict)
    """Name -> arguments, of which a list is an axis."""
    recipe: Settings = Field(default_factory=dict)
    """Changes to the recipes of all tasks; those in a table named after a task are for that task."""
    supervision: list[Supervision] = Field(default_factory=list)
    """Kinds of supervision that are compared on purpose."""
    published: list[Published] = Field(default_factory=list)
    """Values from the literature, to stand beside the results."""
    marks: list[Mark] = Field(default_factory=list)
    """Tests that every loss takes, with the values that pass."""
    tune: Search | None = None
    """How settings are searched before losses are compared."""

    def networks_for(self, loss: str) -> list[str]:
        """Return the networks that are asked for with a loss of this name."""
        own: list[str] = as_list(self.loss.get(loss, {}).get("networks", self.networks))
        return own

    def variants_of(self, task: str) -> list[Settings]:
        """Return the tables of arguments of a task of this name, one for each of its variants."""
        tables: list[Settings] = as_list(self.task.get(task, {}))
        return tables

    def has_named_variants(self, task: str) -> bool:
        """Return whether `name` in a table of a task names a variant: in a list of tables. Else it is a parameter."""
        return isinstance(self.task.get(task), list)


def for_task(recipe: Mapping[str, Any], task: str) -> Settings:
    """Return the entries of a recipe, or of its spaces, for one task: those for all, changed by those of its table."""
    for_all = {key: value for key, value in recipe.items() if not isinstance(value, dict)}
    own: Settings = recipe.get(task, {})
    return for_all | own


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and any other value in a list."""
    if isinstance(value, list):
        return value
    return [value]


def parse_seeds(seeds: str | int | list[int] | None) -> list[int]:
    """Turn "0-9", "0,2,5-7", 3 or [0, 1] into a sorted list of seeds, None into seed 0. Raises UsageError."""
    if seeds is None:
        return [0]
    if seeds == []:
        raise UsageError("seeds = [] names no seed")
    parts = seeds if isinstance(seeds, list) else str(seeds).split(",")
    ranges = [_parse_range(str(part)) for part in parts]
    # Counted before they are listed: a range may be too large for memory.
    count = sum(len(numbers) for numbers in ranges)
    if count > MOST_SEEDS:
        raise UsageError(f"seeds: {count:,} seeds are too many, expected at most {MOST_SEEDS:,}")
    return sorted(set().union(*ranges))


def _parse_range(text: str) -> range:
    """Return the range that "3" or "0-9" names, with its last number. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", text)
    if not match:
        raise UsageError(
            f"seeds: {text[:40]!r} is neither a number of at most 18 digits nor a range such as 0-9"
        )
    first = int(match[1])
    last = int(match[2] or match[1])
    if last < first:
        raise UsageError(f"seeds: the range {text!r} runs backwards; did you mean {last}-{first}?")
    return range(first, last + 1)
