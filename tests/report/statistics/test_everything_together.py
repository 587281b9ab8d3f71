"""Seeds, test items that return and searches act at once: how often the best loss is left out, or a worse one found."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.clusters import clusters
from milbench.report.statistics.contenders import contenders
from milbench.report.statistics.pairs import compare_all, put_on_scale, searches_on_scale
from milbench.report.statistics.sampling import sampling_noise
from milbench.report.statistics.selection import Search
from tests.report.statistics.test_selection import Searched, limit, mean_choice, searches_of

Floats = NDArray[np.float64]

BAGS = 200
BAG_SIZE = 4
ITEM_VARIANCE = 0.3
"""How much the mean of a loss over all bags varies with the draw of the items; it varies by 1 between seeds."""
BAG_NOISE = 5.0
"""The standard deviation of what one network makes of one bag."""
WIDE = 4
"""A wide search has draws that spread so many times as much."""


@dataclass(frozen=True)
class Design:
    """What varies in a comparison, in standard deviations between the seeds of a usual loss."""

    spread: float
    """How much the draws of a search spread; what searches choose varies by about half of it."""
    uses: int
    """In how many test bags an item is."""
    wide_search: bool = False
    """The draws of the best loss spread WIDE times as much."""
    erratic_seeds: bool = False
    """The seeds of the best loss vary 4 times as much."""
    hopeless: bool = False
    """The last loss is 20 worse, its seeds vary 8 times as much, and its draws spread WIDE times as much."""


@dataclass(frozen=True)
class Comparison:
    """What one comparison found."""

    outcomes: list[list[Outcomes]]
    items: NDArray[np.int64]
    """(bags, items)."""
    searches: list[Search]

    @property
    def values(self) -> Floats:
        """(losses, seeds)."""
        return np.array([[of_cell.value for of_cell in row] for row in self.outcomes])


def drawn_items(rng: np.random.Generator, uses: int) -> NDArray[np.int64]:
    """Return the items of all bags, every item once before any again, (BAGS, BAG_SIZE)."""
    pool = BAGS * BAG_SIZE // uses
    rounds = [rng.permutation(pool) for _ in range(uses + 1)]
    return np.concatenate(rounds)[: BAGS * BAG_SIZE].reshape(BAGS, BAG_SIZE)


def is_wide(design: Design, losses: int) -> list[bool]:
    """Return which losses have a wide search."""
    return [
        (loss == 0 and design.wide_search) or (loss == losses - 1 and design.hopeless)
        for loss in range(losses)
    ]


def drawn(
    rng: np.random.Generator, design: Design, truths: Floats, seeds: int, centres: dict[bool, float]
) -> Comparison:
    """Return a comparison of losses with true means over searches, seeds and items.

    `centres` are the means of what usual searches choose, and wide ones.
    """
    losses = len(truths)
    searched: list[Searched] = []
    means = truths.copy()
    for loss, wide in enumerate(is_wide(design, losses)):
        spread = design.spread * (WIDE if wide else 1)
        one = searches_of(rng, "normal", spread, 1)[0]
        searched.append(one)
        means[loss] += one.chosen - centres[wide]
    deviations = np.ones(losses)
    if design.erratic_seeds:
        deviations[0] = 4
    if design.hopeless:
        deviations[-1] = 8
        means[-1] += 20
    of_seeds = means[:, None] + deviations[:, None] * rng.normal(size=(losses, seeds))

    items = drawn_items(rng, design.uses)
    deviation_of_items = np.sqrt(ITEM_VARIANCE * BAGS / (BAG_SIZE * design.uses))
    hardness = deviation_of_items * rng.normal(size=(losses, items.max() + 1))
    of_items = hardness[:, items].sum(axis=2)
    noise = BAG_NOISE * rng.normal(size=(losses, seeds, BAGS))
    # Far enough below zero that values are compared as they are.
    bags = of_seeds[:, :, None] + of_items[:, None, :] + noise - 30
    outcomes = [[Outcomes(of_cell, np.ones(BAGS), "bags") for of_cell in row] for row in bags]
    return Comparison(outcomes, items, [one.search for one in searched])


def excluded(comparison: Comparison) -> NDArray[np.bool_]:
    """Return which losses are no contenders, without the bounds, which take most of the time."""
    values = comparison.values
    of_bags = clusters(None, comparison.items)
    noise = sampling_noise(comparison.outcomes, {"bags": of_bags})
    on_scale = put_on_scale(values, True, noise)
    pairs = compare_all(on_scale, 0.0, searches_on_scale(comparison.searches, values, on_scale))
    return np.asarray((pairs.difference > pairs.widths()).any(axis=1))


def shares_excluded(design: Design, truths: Floats, seeds: int, repetitions: int) -> Floats:
    """Return how often each of some losses is no contender."""
    rng = np.random.default_rng([len(truths), seeds, design.uses, round(10 * design.spread)])
    centres = {
        False: mean_choice(rng, design.spread),
        True: mean_choice(rng, WIDE * design.spread),
    }
    count = np.zeros(len(truths))
    for _ in range(repetitions):
        count += excluded(drawn(rng, design, truths, seeds, centres))
    return count / repetitions


def missed(design: Design, losses: int, seeds: int, repetitions: int) -> float:
    """Return how often the first of equal losses is no contender."""
    return float(shares_excluded(design, np.zeros(losses), seeds, repetitions)[0])


def found(design: Design, worse: float, losses: int, seeds: int, repetitions: int) -> float:
    """Return how often the second loss is no contender, of which the first leads all by so much."""
    truths = np.full(losses, worse)
    truths[0] = 0
    return float(shares_excluded(design, truths, seeds, repetitions)[1])


def test_the_best_loss_is_seldom_left_out_where_everything_varies() -> None:
    assert missed(Design(spread=1.4, uses=3), losses=4, seeds=5, repetitions=120) <= limit(
        120, 0.05
    )


def test_a_far_worse_loss_is_found_where_everything_varies() -> None:
    share = found(Design(spread=1.4, uses=3), 8.0, losses=4, seeds=5, repetitions=40)
    assert share > 0.8


def test_without_a_search_and_with_unique_items_nothing_changes() -> None:
    rng = np.random.default_rng(0)
    comparison = drawn(rng, Design(spread=0.0, uses=1), np.arange(5.0), 4, {False: 0.0, True: 0.0})
    values = comparison.values
    plain = contenders(values, noise=sampling_noise(comparison.outcomes))
    unique = clusters(np.arange(BAGS), comparison.items)
    noise = sampling_noise(comparison.outcomes, {"bags": unique})
    with_arguments = contenders(values, noise=noise, searches=[None] * 5, level=0.95)
    np.testing.assert_array_equal(with_arguments.contender, plain.contender)
    np.testing.assert_array_equal(with_arguments.worse_by, plain.worse_by)
    assert with_arguments.resolution() == plain.resolution()
    assert with_arguments.seeds_to_separate(0, 1) == plain.seeds_to_separate(0, 1)


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "design",
    [
        Design(1.4, 10),
        Design(1.4, 3, wide_search=True),
        Design(1.4, 3, erratic_seeds=True),
        Design(1.4, 3, hopeless=True),
        Design(5.5, 10),
        Design(0.0, 10),
        Design(1.4, 1),
        Design(0.0, 1),
    ],
    ids=str,
)
def test_everything_together_in_full(design: Design) -> None:
    """Prints a line of a table: how often the best loss is left out."""
    shares = {}
    for seeds, losses in product((3, 5, 10), (2, 6, 20)):
        # Twenty losses take most of the time.
        repetitions = 200 if losses == 20 else 400
        share = missed(design, losses, seeds, repetitions)
        shares[losses, seeds] = share
        assert share <= limit(repetitions, 0.07 if seeds == 3 else 0.05)
    by_seeds = [
        "/".join(f"{100 * shares[losses, seeds]:.1f}" for losses in (2, 6, 20))
        for seeds in (3, 5, 10)
    ]
    print(f"|{design}|{'|'.join(by_seeds)}|", flush=True)


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize("worse", [2, 4, 8])
@pytest.mark.parametrize("spread", [0.0, 1.4])
def test_the_power_of_everything_together_in_full(spread: float, worse: float) -> None:
    """Prints a line of a table: how often a loss is excluded that is worse by so much than the best one."""
    design = Design(spread, uses=3)
    shares = {
        (losses, seeds): found(design, worse, losses, seeds, 100)
        for seeds, losses in product((3, 5, 10), (2, 6, 20))
    }
    by_seeds = [
        "/".join(f"{shares[losses, seeds]:.2f}" for losses in (2, 6, 20)) for seeds in (3, 5, 10)
    ]
    print(f"|{spread}, {worse}|{'|'.join(by_seeds)}|", flush=True)
    assert shares[6, 10] >= shares[6, 3]
