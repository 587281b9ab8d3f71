"""The resolution of a comparison: a difference of this size is shown in 80 % of comparisons."""

import math

import numpy as np
import pytest
from scipy import special

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.contenders import Contenders, contenders
from milbench.report.statistics.sampling import sampling_noise
from tests._helpers.scenes import SPREAD, many_contenders, sample_logits
from tests._helpers.simulated_searches import searches_of


def excluded_by_seeds(difference: float, losses: int, seeds: int) -> float:
    """Return how often the second loss is excluded.

    The best loss has an error of 10 %, and the error of each other loss is larger by `difference`.
    """
    worse = special.logit(0.1 + difference) - special.logit(0.1)
    # SPREAD is the standard deviation between seeds, the unit of these means.
    means = np.full(losses, worse / SPREAD)
    means[0] = 0
    is_contender = many_contenders(sample_logits("normal", means, seeds, 1000))[:, 1]
    return float((~is_contender).mean())


def median_resolution(losses: int, seeds: int, comparisons: int = 60) -> float:
    """Return the median of the resolutions of equal losses."""
    logits = sample_logits("normal", np.zeros(losses), seeds, comparisons)
    resolutions = [contenders(errors).resolution() for errors in special.expit(logits)]
    return float(np.median(resolutions))


@pytest.mark.parametrize(
    ("losses", "seeds", "least"),
    [
        # From few seeds of two losses the variance is often found too small, and so is the
        # resolution: a difference of this size then shows less often.
        pytest.param(2, 5, 0.55, id="two losses"),
        pytest.param(6, 5, 0.65, id="six losses"),
        pytest.param(6, 10, 0.65, id="ten seeds"),
    ],
)
def test_a_difference_of_this_size_is_shown_by_seeds(losses: int, seeds: int, least: float) -> None:
    resolution = median_resolution(losses, seeds)
    # The share should be near 80 %. Far more would mean that the resolution is too large.
    assert least < excluded_by_seeds(resolution, losses, seeds) < 0.93
    assert excluded_by_seeds(resolution / 2, losses, seeds) < 0.5


def compared_on_items(rng: np.random.Generator, errors: list[float], items: int) -> Contenders:
    """Return a comparison of losses whose seeds make the same mistakes, so that only items vary."""
    seeds = 3
    chances = rng.random((len(errors), items))
    wrong = (chances < np.array(errors)[:, None]).astype(float)
    outcomes = []
    for of_loss in wrong:
        of_each_seed = Outcomes(sums=of_loss, weights=np.ones(items), items="bags")
        outcomes.append([of_each_seed] * seeds)
    values = wrong.mean(axis=1, keepdims=True).repeat(seeds, axis=1)
    return contenders(values, noise=sampling_noise(outcomes))


def test_a_difference_of_this_size_is_shown_by_items() -> None:
    rng = np.random.default_rng(0)
    found = [compared_on_items(rng, [0.2, 0.2], 400).resolution() for _ in range(60)]
    resolution = float(np.median(found))
    shown = 0
    for _ in range(300):
        compared = compared_on_items(rng, [0.2, 0.2 + resolution], 400)
        if not compared.contender[1]:
            shown += 1
    assert 0.7 < shown / 300 < 0.9


def compared_with_searches(rng: np.random.Generator, worse: float) -> Contenders:
    """Return a comparison of six losses with five seeds, whose settings a search chose.

    All losses but the first are worse by `worse`.
    """
    # In a simulated search each draw has a true value. The unit of `spread`, the standard deviation
    # of these values, is the standard deviation between seeds.
    searched = searches_of(rng, shape="normal", spread=2.0, losses=6)
    # `chosen` is the true value of the draw that the search chose. `search` holds what the search
    # saw of its draws.
    chosen = np.array([one.chosen for one in searched])
    chosen[1:] += worse
    # Values between 0 and 1 would be compared as logits, and other positive values as logarithms.
    # Values below zero are compared as they are.
    values = chosen[:, None] + rng.normal(size=(6, 5)) - 1000
    return contenders(values, searches=[one.search for one in searched])


def test_a_difference_of_this_size_is_shown_in_spite_of_searches() -> None:
    """The variance of a search is on the large side, and so is the resolution."""
    rng = np.random.default_rng(1)
    found = [compared_with_searches(rng, 0.0).resolution() for _ in range(60)]
    resolution = float(np.median(found))
    shown = 0
    for _ in range(200):
        if not compared_with_searches(rng, resolution).contender[1]:
            shown += 1
    assert 0.7 < shown / 200 < 0.97


def test_scores_and_errors_have_the_same_resolution() -> None:
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


def test_the_resolution_is_the_median_of_what_losses_would_show() -> None:
    """Of the nine losses other than the best, four would show a smaller difference."""
    logits = sample_logits("another varies 8 times as much", np.zeros(10), 5, 1)[0]
    # The values are logits already, and are compared as they are.
    found = contenders(logits, scale="")
    best = int(logits.mean(axis=1).argmin())
    others = [loss for loss in range(10) if loss != best]
    shown = np.array([found.pairs.shown_difference(loss, best) for loss in others])
    rounding = 1e-9
    assert np.count_nonzero(shown < found.resolution() - rounding) == 4


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
