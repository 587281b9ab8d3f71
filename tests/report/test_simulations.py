"""How often intervals and verdicts are wrong, counted on losses whose errors are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from milbench.report.statistics import differences
from milbench.report.statistics.differences import Difference
from tests._helpers.simulated_losses import Design, Differences, Drawn, repeat

SCENES = ("equal losses", "equal, rare errors", "unequal errors", "unequal training")


def design(scene: str, losses: int, seeds: int, nested: bool) -> Design:
    """Return losses of 15 % error, of 0.9 % (3.6 of 400 items), of 1 to 15 %, or one that varies between seeds."""
    errors = {"equal, rare errors": [0.009] * losses, "unequal errors": list(np.linspace(0.01, 0.15, losses))}
    training = {"equal, rare errors": [0.0] * losses, "unequal training": [0.2] + [0.0] * (losses - 1)}
    return Design(seeds, tuple(errors.get(scene, [0.15] * losses)), tuple(training.get(scene, [0.02] * losses)), nested)


def most(repetitions: int, share: float) -> int:
    """Return how many failures a method that fails with this probability exceeds once in a thousand counts."""
    return int(stats.binom.isf(0.001, repetitions, share))


def bootstrap_of_seeds(found: Drawn) -> Differences:
    """Return percentile intervals from resampled seeds alone, as reports once had them."""
    rng = np.random.default_rng(0)
    values = found.wrong.mean(axis=2, dtype=float)
    intervals = {}
    for i, j in itertools.combinations(range(len(values)), 2):
        difference = values[i] - values[j]
        means = rng.choice(difference, size=(999, difference.size)).mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        intervals[i, j] = Difference(difference.size, float(difference.mean()), (float(low), float(high)))
    return intervals


@pytest.mark.parametrize(
    ("scene", "losses", "seeds", "nested"),
    [
        ("equal losses", 4, 3, False),
        ("equal losses", 2, 3, True),
        ("equal, rare errors", 3, 10, False),
        ("unequal training", 4, 3, True),
    ],
)
def test_no_more_than_one_comparison_in_twenty_is_wrong(
    scene: str, losses: int, seeds: int, nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 5 % more than 21 of 200 repetitions are wrong once in a thousand; the seed of the repetitions is fixed."""
    monkeypatch.setattr(differences, "DRAWS", 400)
    differences._normal_draws.cache_clear()
    counts = repeat(design(scene, losses, seeds, nested), 200)
    differences._normal_draws.cache_clear()
    assert max(counts.uncovered, counts.wrong) <= most(200, 0.05)


def test_the_count_exposes_a_bootstrap_of_three_seeds() -> None:
    """Its interval is the range of three differences, which all lie on one side of the truth once in four times."""
    counts = repeat(design("equal losses", 2, 3, True), 200, bootstrap_of_seeds)
    assert counts.uncovered > most(200, 0.05)
    assert counts.wrong > most(200, 0.05)


def test_the_count_exposes_intervals_that_ignore_the_draw_of_the_items() -> None:
    """More seeds do not help: the test items that all share are the same few."""

    def seeds_alone(found: Drawn) -> Differences:
        return differences.compare_all(found.wrong.mean(axis=2, dtype=float))

    counts = repeat(design("equal, rare errors", 2, 10, False), 200, seeds_alone)
    assert counts.wrong > most(200, 0.05)


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("scene", SCENES)
def test_every_design_in_full(scene: str, nested: bool) -> None:
    """Prints a line of the table in docs/reports.md for every number of seeds and losses."""
    repetitions, failed = 1000, []
    for seeds, losses in itertools.product((3, 5, 10), (2, 4, 8)):
        seed = (seeds, losses, nested, SCENES.index(scene))
        counts = repeat(design(scene, losses, seeds, nested), repetitions, seed=seed)
        wrong, covered = counts.wrong / repetitions, 1 - counts.uncovered / repetitions
        items = "own" if nested else "shared"
        print(f"| {scene} | {items} | {seeds} | {losses} | {wrong:.1%} | {covered:.1%} |", flush=True)
        if counts.wrong > most(repetitions, 0.05) or counts.uncovered > most(repetitions, 0.06):
            failed.append((seeds, losses, counts))
    assert not failed
