"""The resolution: a difference of this size is shown in 80 % of comparisons."""

import math

import numpy as np
import pytest
from scipy import special

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.contenders import Contenders, contenders
from milbench.report.statistics.sampling import sampling_noise
from tests._helpers.scenes import draw, many_contenders
from tests.report.statistics.test_selection import searches_of


def excluded_by_seeds(difference: float, losses: int, seeds: int) -> float:
    """Return how often one loss is excluded where the best leads all by so much of the error, 10 %."""
    worse = special.logit(0.1 + difference) - special.logit(0.1)
    means = np.full(losses, worse / 0.1)
    means[0] = 0
    return float((~many_contenders(draw("normal", means, seeds, 1000))[:, 1]).mean())


def median_resolution(losses: int, seeds: int, comparisons: int = 60) -> float:
    """Return the median of the resolutions of equal losses."""
    logits = draw("normal", np.zeros(losses), seeds, comparisons)
    return float(np.median([contenders(special.expit(of_one)).resolution() for of_one in logits]))


@pytest.mark.parametrize(("losses", "seeds"), [(2, 5), (6, 5), (6, 10)])
def test_a_difference_of_this_size_is_shown_by_seeds(losses: int, seeds: int) -> None:
    resolution = median_resolution(losses, seeds)
    # Few seeds of two losses show variances badly.
    assert (0.55 if losses == 2 else 0.65) < excluded_by_seeds(resolution, losses, seeds) < 0.93
    assert excluded_by_seeds(resolution / 2, losses, seeds) < 0.5


def compared_on_items(rng: np.random.Generator, errors: list[float], items: int) -> Contenders:
    """Return a comparison of losses whose seeds make the same mistakes, so that only items vary."""
    wrong = (rng.random((len(errors), items)) < np.array(errors)[:, None]).astype(float)
    outcomes = [[Outcomes(of_loss, np.ones(items), "bags")] * 3 for of_loss in wrong]
    values = wrong.mean(axis=1, keepdims=True).repeat(3, axis=1)
    return contenders(values, noise=sampling_noise(outcomes))


def test_a_difference_of_this_size_is_shown_by_items() -> None:
    rng = np.random.default_rng(0)
    found = [compared_on_items(rng, [0.2, 0.2], 400).resolution() for _ in range(60)]
    resolution = float(np.median(found))
    shown = [
        not compared_on_items(rng, [0.2, 0.2 + resolution], 400).contender[1] for _ in range(300)
    ]
    assert 0.7 < np.mean(shown) < 0.9


def compared_with_searches(rng: np.random.Generator, worse: float) -> Contenders:
    """Return a comparison of six searched losses, of which the first leads all by so much."""
    searched = searches_of(rng, "normal", 2.0, 6)
    chosen = np.array([one.chosen for one in searched])
    chosen[1:] += worse
    values = chosen[:, None] + rng.normal(size=(6, 5)) - 1000
    return contenders(values, searches=[one.search for one in searched])


def test_a_difference_of_this_size_is_shown_in_spite_of_searches() -> None:
    """The variance of a search is on the large side, and so is the resolution."""
    rng = np.random.default_rng(1)
    found = [compared_with_searches(rng, 0.0).resolution() for _ in range(60)]
    resolution = float(np.median(found))
    shown = [not compared_with_searches(rng, resolution).contender[1] for _ in range(200)]
    assert 0.7 < np.mean(shown) < 0.97


def test_the_larger_value_as_the_better_one_has_the_same_resolution() -> None:
    errors = np.array([[0.10, 0.11, 0.12, 0.10], [0.13, 0.12, 0.14, 0.15], [0.3, 0.29, 0.31, 0.3]])
    mirrored = contenders(1 - errors, lower_is_better=False).resolution()
    assert mirrored == pytest.approx(contenders(errors).resolution())


def test_one_erratic_loss_does_not_make_the_resolution_large() -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(8, 5)) * 0.1 - 2
    erratic = rng.normal(size=(1, 5)) * 3
    alone = contenders(special.expit(logits)).resolution()
    with_erratic = contenders(special.expit(np.vstack([logits, erratic]))).resolution()
    assert with_erratic < 1.5 * alone


def test_half_of_the_losses_would_show_a_smaller_difference() -> None:
    logits = draw("another varies 8 times as much", np.zeros(10), 5, 1)[0]
    found = contenders(logits, scale="")
    best = int(logits.mean(axis=1).argmin())
    shown = [found.pairs.shown_difference(loss, best) for loss in range(10) if loss != best]
    smaller = sum(difference < found.resolution() - 1e-9 for difference in shown)
    assert smaller == 4


def test_one_seed_has_no_resolution() -> None:
    assert math.isnan(contenders([[0.1], [0.2]]).resolution())


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_resolution_in_full(seeds: int) -> None:
    """Prints a line of a table: how often a difference of the median resolution is shown."""
    shares = []
    for losses in (2, 6, 20):
        resolution = median_resolution(losses, seeds, 300)
        shares.append(excluded_by_seeds(resolution, losses, seeds))
    print(f"|{seeds} seeds|{'|'.join(f'{share:.2f}' for share in shares)}|", flush=True)
    assert all(0.5 < share < 0.95 for share in shares)
