"""Simulated searches for settings, with the true value of what each of them chose."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milbench.report.statistics.selection import Search

Floats = NDArray[np.float64]

DRAWS = 16
FINALISTS = 4
SELECTION_SEEDS = 3
"""Finalists have so many seeds, all other draws have one."""

SHAPES = ("normal", "one side", "same settings")
"""How the true values of draws spread.

- "normal": alike to both sides;
- "one side": towards bad values alone;
- "same settings": to both sides, and half of the variance is common to all losses, which tried the
  same settings.
"""


@dataclass(frozen=True)
class Searched:
    """One search of a loss, and the true value of what it chose."""

    search: Search
    chosen: float


def search_of(rng: np.random.Generator, truths: Floats) -> Searched:
    """Return a search of draws with true values, (draws,), with an error of 1 between seeds.

    Validation and test values of one network have a correlation of 0.7.
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
    return Searched(Search(validation, test), float(truths[chosen]))


def searches_of(rng: np.random.Generator, shape: str, spread: float, losses: int) -> list[Searched]:
    """Return searches of losses of which the draws spread alike."""
    own = rng.normal(size=(losses, DRAWS))
    if shape == "one side":
        own = rng.exponential(size=(losses, DRAWS))
    if shape == "same settings":
        own = math.sqrt(0.5) * (own + rng.normal(size=DRAWS))
    return [search_of(rng, spread * truths) for truths in own]


def mean_choice(rng: np.random.Generator, spread: float) -> float:
    """Return the mean of what a search chooses."""
    return float(np.mean([searches_of(rng, "normal", spread, 1)[0].chosen for _ in range(4000)]))
