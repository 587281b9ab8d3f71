"""Simulated searches for settings, with the true value of the draw that each of them chose.

The unit of all values is the standard deviation between seeds.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milbench.report.statistics.selection import Search

Floats = NDArray[np.float64]

DRAWS = 16
FINALISTS = 4
SELECTION_SEEDS = 3
"""The number of seeds of a finalist; all other draws have one seed."""

SHAPES = ("normal", "one side", "same settings", "pairs")
"""How the true values of draws spread.

- "normal": to both sides alike;
- "one side": towards bad values alone;
- "same settings": to both sides alike; half of the variance is common to all losses, since they
  tried the same settings;
- "pairs": to both sides alike; two draws at a time are at one point of the ranges and have the same
  true value, since the listed setting in which they differ has no effect.
"""


@dataclass(frozen=True)
class Searched:
    """One search of a loss, and the true value of the draw that it chose."""

    search: Search
    chosen: float


def search_of(
    rng: np.random.Generator, truths: Floats, groups: NDArray[np.int64] | None = None
) -> Searched:
    """Return a search among draws with these true values and groups, both (draws,).

    Seeds add errors with a standard deviation of 1. The validation and test errors of one network
    have a correlation of 0.7.
    """
    errors = rng.normal(size=(len(truths), SELECTION_SEEDS))
    validation = truths[:, None] + errors
    own_errors = rng.normal(size=errors.shape)
    test = truths[:, None] + 0.7 * errors + math.sqrt(1 - 0.7**2) * own_errors
    finalists = validation[:, 0].argsort()[:FINALISTS]
    is_dropped = np.ones(len(truths), bool)
    is_dropped[finalists] = False
    validation[is_dropped, 1:] = np.nan
    test[is_dropped, 1:] = np.nan
    chosen = finalists[validation[finalists].mean(axis=1).argmin()]
    return Searched(Search(validation, test, groups), float(truths[chosen]))


def searches_of(rng: np.random.Generator, shape: str, spread: float, losses: int) -> list[Searched]:
    """Return the searches of losses whose draws spread alike.

    Args:
        rng: gives the true values and the errors.
        shape: one of SHAPES.
        spread: the standard deviation of the true values of draws.
        losses: the number of losses.
    """
    own = rng.normal(size=(losses, DRAWS))
    if shape == "one side":
        own = rng.exponential(size=(losses, DRAWS))
    if shape == "same settings":
        own = math.sqrt(0.5) * (own + rng.normal(size=DRAWS))
    groups = None
    if shape == "pairs":
        groups = np.repeat(np.arange(DRAWS // 2), 2)
        own = own[:, groups]
    return [search_of(rng, spread * truths, groups) for truths in own]


def mean_choice(rng: np.random.Generator, spread: float) -> float:
    """Return the mean true value of the chosen draws over 4,000 searches."""
    return float(np.mean([searches_of(rng, "normal", spread, 1)[0].chosen for _ in range(4000)]))
