"""The spec: everything that a user can say of a comparison.

Users write it in a TOML file, by flags or in Python.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from milbench.contracts.published import Published
from milbench.contracts.supervision import Supervision
from milbench.errors import UsageError
from milbench.experiment.questions import Mark, Questions, Table

DEFAULT = "default"
"""The name that stands for the first network of each task."""
MOST_DRAWS = 4096
"""The most draws of a loss on a task. More are refused as a mistake."""
MOST_SEEDS = 100_000
"""The most seeds. More are refused as a mistake, before they fill the memory."""

Settings = dict[str, Any]
"""Name of a parameter, or of a field of a recipe -> its value. A list of values is an axis."""


class Range(Table):
    """The values of a setting between two ends."""

    low: float = Field(allow_inf_nan=False)
    """The least value."""
    high: float = Field(allow_inf_nan=False)
    """The largest value."""
    scale: Literal["linear", "log"] = "linear"
    """What is spread evenly: the value, or its logarithm."""

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
        """Return the value below which a `share` of the values lies, to four digits."""
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + share * (self.high - self.low)
        return _rounded(value)


def _rounded(value: float) -> float:
    """Round a value to four significant digits."""
    return float(f"{value:.4g}")


Dimension = Range | list[Any]
"""The values of a searched setting: a range, or a list of values, all of which are tried."""


def _check_values(name: str, values: Any) -> None:
    """Raise ValueError where the list of a setting to search is empty or has a value twice."""
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

    A point is a value for each range. The field `draws` counts points, and each point is tried with
    every combination of the values in the lists.
    """

    draws: int = Field(default=16, ge=1, le=MOST_DRAWS)
    """Points of the ranges to try, each with every combination of the lists."""
    search_seed: int = Field(default=0, ge=0)
    """Seed of the points: another one gives other points."""
    seeds: str | int | list[int] = "1000"
    """Seeds with which draws are trained, the smallest first. The comparison needs other seeds."""
    finalists: int | None = Field(default=None, ge=1)
    """Draws of each loss on each task that are trained with all seeds; the others are trained with
    the first seed only. none: all draws."""
    metric: Literal["set_error", "label_error", "own_label_error", "instance_error"] = "set_error"
    """Metric of validation bags by which draws are chosen. The instance error is the error on bags
    of one instance."""
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
                        "precision = auto is float32 or bfloat16, whichever is quicker; "
                        "list these two"
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
    """Name -> arguments, of which a list is an axis. The argument `networks` names the networks for
    this loss, in place of those of the spec."""
    task: dict[str, Settings | list[Settings]] = Field(default_factory=dict)
    """Name -> arguments, or a list of tables of arguments, one for each variant of the task. Each
    table in a list may have a short `name`."""
    network: dict[str, Settings] = Field(default_factory=dict)
    """Name -> arguments, of which a list is an axis."""
    recipe: Settings = Field(default_factory=dict)
    """Changes to the recipes of all tasks; a table named after a task is for that task alone."""
    supervision: list[Supervision] = Field(default_factory=list)
    """Kinds of supervision that are compared on purpose."""
    published: list[Published] = Field(default_factory=list)
    """Values from the literature, which reports show beside the results."""
    marks: list[Mark] = Field(default_factory=list)
    """Pass marks: bounds, stated in advance, for the test metrics of every loss."""
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
        """Return whether the key `name` in a table of a task is the name of a variant.

        That is so where the task has a list of tables. In a single table, `name` is a parameter.
        """
        return isinstance(self.task.get(task), list)


def for_task(recipe: Mapping[str, Any], task: str) -> Settings:
    """Return the entries of a recipe, or of a search of recipes, for one task.

    An entry in the table of the task replaces the entry for all tasks.
    """
    for_all = {key: value for key, value in recipe.items() if not isinstance(value, dict)}
    own: Settings = recipe.get(task, {})
    return for_all | own


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and any other value in a list."""
    if isinstance(value, list):
        return value
    return [value]


def parse_seeds(seeds: str | int | list[int] | None) -> list[int]:
    """Turn "0-9", "0,2,5-7", 3 or [0, 1] into a sorted list of seeds, and None into [0].

    Raises UsageError where the seeds are written in another way, or are too many.
    """
    if seeds is None:
        return [0]
    if seeds == []:
        raise UsageError("seeds = [] names no seed")
    parts = seeds if isinstance(seeds, list) else str(seeds).split(",")
    ranges = [_parse_range(str(part)) for part in parts]
    # Counted before they are listed, since a range may be too large for the memory.
    count = sum(len(numbers) for numbers in ranges)
    if count > MOST_SEEDS:
        raise UsageError(f"seeds: {count:,} seeds are too many, expected at most {MOST_SEEDS:,}")
    return sorted(set().union(*ranges))


def _parse_range(text: str) -> range:
    """Return the numbers of "3" or "0-9", with the last one. Raises UsageError for other texts."""
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
