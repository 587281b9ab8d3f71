"""The draws of a search: the settings that it tries.

Some settings are searched in a range, others in a list of values. A point has a value for each
range. Each point is tried with every combination of the values in the lists, and each time this is
a draw. So a search with 16 points and one list of 3 values has 48 draws. The user gives the number
of points, in a field that is named `Search.draws`.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milbench.errors import UsageError
from milbench.experiment.plan import Arm, Draw
from milbench.experiment.spec import MOST_DRAWS, Dimension, Range, Search, Settings, for_task

MOST_RANGES = 64
"""How many ranges a search may have.

Points always have this many coordinates, of which a search uses the first ones. A range gets the
coordinate of its place in the order of ranges, see `space_of`. So a further range leaves the values
of the ranges before it as they are.
"""


@dataclass(frozen=True)
class Space:
    """The settings that are searched for one loss on one task, by name, such as recipe.lr."""

    ranges: dict[str, Range]
    lists: dict[str, list[Any]]


def space_of(search: Search, task: str, loss: str) -> Space:
    """Return the space of a loss on a task.

    Settings of the recipe come first, then parameters of the loss. The order matters: the first
    range gets the first coordinate of a point, and so on. So all losses that search the same ranges
    of the recipe try the same values in them, even if their own parameters differ.
    """
    dimensions: dict[str, Dimension] = {}
    for name, dimension in for_task(search.recipe, task).items():
        dimensions[f"recipe.{name}"] = dimension
    for name, dimension in search.loss.get(loss, {}).items():
        dimensions[f"loss.{name}"] = dimension
    space = Space(ranges={}, lists={})
    for name, dimension in dimensions.items():
        if isinstance(dimension, Range):
            space.ranges[name] = dimension
        else:
            space.lists[name] = dimension
    return space


def count_points(search: Search, space: Space) -> int:
    """Return how many points a space has. Without ranges there is one, which sets nothing."""
    if not space.ranges:
        return 1
    return search.draws


def count_draws(search: Search, space: Space) -> int:
    """Return how many draws a space has: its points times the combinations of its lists."""
    combinations = math.prod(len(values) for values in space.lists.values())
    return count_points(search, space) * combinations


def draws_of(search: Search, space: Space, arm: Arm) -> list[Draw]:
    """Return the draws of an arm.

    Draws are numbered point by point. A search with more points therefore begins with the same
    draws. Raises UsageError where there are too many.
    """
    count = count_draws(search, space)
    if count > MOST_DRAWS:
        raise UsageError(
            f"[tune] {count:,} draws of {arm.loss} on {arm.task} are too many, "
            f"expected at most {MOST_DRAWS:,}"
        )
    points = points_of(space.ranges, count_points(search, space), search.search_seed)
    draws: list[Draw] = []
    for number_of_point, point in enumerate(points):
        for combination in combinations_of(space.lists):
            draw = Draw(
                arm=arm,
                number=len(draws),
                settings=point | combination,
                point=number_of_point,
            )
            draws.append(draw)
    return draws


def points_of(ranges: Mapping[str, Range], count: int, seed: int) -> list[Settings]:
    """Return the first `count` points of a scrambled Sobol sequence.

    They fill the ranges evenly, and a larger count only adds points. The seed scrambles the
    sequence. Values are rounded to four digits, so two points may be equal. Raises UsageError where
    there are too many ranges.
    """
    # Imported only here, since scipy takes a while to import.
    from scipy.stats import qmc

    if len(ranges) > MOST_RANGES:
        raise UsageError(
            f"[tune] {len(ranges)} ranges are too many, expected at most {MOST_RANGES}"
        )
    # The number of dimensions is always MOST_RANGES, since scrambling depends on it: with another
    # number all coordinates would have other values.
    sequence = qmc.Sobol(MOST_RANGES, scramble=True, rng=seed)
    # scipy warns unless it is asked for a power of two, since only then the sequence is balanced.
    power = math.ceil(math.log2(count))
    points = sequence.random_base2(power)[:count].tolist()
    return [_values_at(ranges, coordinates) for coordinates in points]


def _values_at(ranges: Mapping[str, Range], coordinates: Sequence[float]) -> Settings:
    """Return the value of each range at a point of the unit cube."""
    # There are MOST_RANGES coordinates, from 0 to 1. The first ones are used, one for each range. A
    # coordinate says how far from the lower to the upper end of its range the value is.
    shares = dict(zip(ranges, coordinates, strict=False))
    return {name: ranges[name].quantile(share) for name, share in shares.items()}


def combinations_of(lists: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """Return every combination of the values of lists: without lists, an empty one."""
    combinations = itertools.product(*lists.values())
    return [dict(zip(lists, values, strict=True)) for values in combinations]
