"""The choice of a threshold for presence, against a search over all thresholds.

It is chosen for the fewest wrong label sets ("sets") or the fewest wrong classes ("labels").
"""

import itertools
import math
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.evaluation.thresholds import choose_threshold, predicted_sets

Array = NDArray[Any]
By = Literal["sets", "labels"]
INF = math.inf


def error_rate(presence: Array, labels: Array, threshold: float, by: By) -> float:
    """Return the share of wrong label sets, or of wrong pairs of a bag and a class, by a loop."""
    wrong_pairs = []
    for scores, classes in zip(presence.tolist(), labels.tolist(), strict=True):
        wrong_of_bag = []
        for score, is_present in zip(scores, classes, strict=True):
            is_named = score >= threshold
            wrong_of_bag.append(is_named != is_present)
        wrong_pairs.append(wrong_of_bag)
    if by == "sets":
        return float(np.mean([any(wrong_of_bag) for wrong_of_bag in wrong_pairs]))
    return float(np.mean(wrong_pairs))


def every_threshold(presence: Array) -> list[float]:
    """Return thresholds at all finite scores, between any two of them, and beyond both ends."""
    scores = sorted({*presence[np.isfinite(presence)].tolist()})
    between = [(a + b) / 2 for a, b in itertools.pairwise(scores)]
    return [scores[0] - 1, *scores, *between, INF]


def sample_bags(
    rng: np.random.Generator, bags: int, classes: int, distance: float
) -> tuple[Array, Array]:
    """Return presence scores and label sets.

    The scores of present classes are `distance` standard deviations higher on average.
    """
    labels = rng.random((bags, classes)) < 0.25
    presence = rng.normal(size=labels.shape)
    presence[labels] += distance
    return presence, labels


@pytest.mark.parametrize("by", ["sets", "labels"])
def test_separated_scores_are_separated(by: By) -> None:
    rng = np.random.default_rng(0)
    labels = rng.random((40, 3)) < 0.4
    presence = np.where(labels, 2.0, -1.0) + rng.random(labels.shape)
    threshold = choose_threshold(presence, labels, by=by)
    assert error_rate(presence, labels, threshold, by) == 0


@pytest.mark.parametrize("by", ["sets", "labels"])
def test_from_many_bags_the_choice_is_nearly_the_best_of_all(by: By) -> None:
    presence, labels = sample_bags(np.random.default_rng(1), bags=2000, classes=4, distance=2.5)
    threshold = choose_threshold(presence, labels, by=by)
    tried = np.quantile(presence, np.linspace(0, 1, 300))
    least = min(error_rate(presence, labels, t, by) for t in tried)
    assert error_rate(presence, labels, threshold, by) <= least + 0.01


@pytest.mark.parametrize("by", ["sets", "labels"])
def test_from_few_bags_the_choice_errs_less_than_the_best_candidate(by: By) -> None:
    """The best candidate is the threshold with the fewest errors on the 26 bags themselves.

    On new bags the choice makes fewer errors on average, and fewer in the unluckiest tenth of 40
    repetitions.
    """
    rng = np.random.default_rng(2)
    new_presence, new_labels = sample_bags(rng, bags=4000, classes=5, distance=3.0)
    chosen = []
    best = []
    for _ in range(40):
        presence, labels = sample_bags(rng, bags=26, classes=5, distance=3.0)
        threshold = choose_threshold(presence, labels, by=by)
        chosen.append(error_rate(new_presence, new_labels, threshold, by))
        tried = every_threshold(presence)
        errors = np.array([error_rate(presence, labels, t, by) for t in tried])
        equally_good = np.flatnonzero(errors == errors.min())
        middle = tried[equally_good[len(equally_good) // 2]]
        best.append(error_rate(new_presence, new_labels, middle, by))
    assert np.mean(chosen) < np.mean(best)
    assert np.quantile(chosen, 0.9) < np.quantile(best, 0.9)


@pytest.mark.parametrize("by", ["sets", "labels"])
def test_without_a_preferred_value_monotone_changes_change_no_decision(by: By) -> None:
    presence, labels = sample_bags(np.random.default_rng(3), bags=30, classes=4, distance=2.0)
    changed = np.exp(presence / 2) - 7
    before = predicted_sets(presence, choose_threshold(presence, labels, by=by))
    after = predicted_sets(changed, choose_threshold(changed, labels, by=by))
    assert (before == after).all()


@pytest.mark.parametrize("shift", [0.0, -9.0, 9.0])
@pytest.mark.parametrize("by", ["sets", "labels"])
@pytest.mark.parametrize("are_present", [False, True], ids=["no class", "every class"])
def test_bags_without_any_class_or_with_all_are_right(
    are_present: bool, by: By, shift: float
) -> None:
    presence = np.array([[5.0, 1.0], [4.0, 3.0]]) + shift
    labels = np.full((2, 2), are_present)
    threshold = choose_threshold(presence, labels, by=by)
    assert error_rate(presence, labels, threshold, by) == 0


def test_of_a_gap_between_the_classes_the_middle_is_taken() -> None:
    """Other bags may have scores in the gap, so its middle is the safest threshold."""
    labels = np.array([[True, False]] * 20)
    presence = np.array([[3.0, 1.0]] * 20)
    assert choose_threshold(presence, labels, by="sets") == 2.0


def test_well_separated_classes_are_told_apart_on_other_bags() -> None:
    rng = np.random.default_rng(7)
    new_presence, new_labels = sample_bags(rng, bags=4000, classes=5, distance=7.0)
    chosen = []
    for _ in range(40):
        presence, labels = sample_bags(rng, bags=26, classes=5, distance=7.0)
        threshold = choose_threshold(presence, labels, by="sets")
        chosen.append(error_rate(new_presence, new_labels, threshold, "sets"))
    middle_of_means = 7.0 / 2
    best_possible = error_rate(new_presence, new_labels, middle_of_means, "sets")
    assert np.mean(chosen) < best_possible + 0.01


@pytest.mark.parametrize("shift", [0.0, -9.0])
@pytest.mark.parametrize("near", [None, 0.0])
def test_naming_nothing_is_a_finite_threshold(shift: float, near: float | None) -> None:
    """The only bag with the class has the lowest score, so naming nothing errs least."""
    labels = np.array([[True], [False], [False]])
    presence = np.array([[0.0], [1.0], [2.0]]) + shift
    threshold = choose_threshold(presence, labels, by="sets", near=near)
    assert presence.max() < threshold < INF


def test_a_score_of_minus_infinity_names_no_class() -> None:
    labels = np.array([[True, False], [True, True], [False, False]])
    presence = np.array([[5.0, 1.0], [4.0, 3.0], [2.0, -INF]])
    threshold = choose_threshold(presence, labels, by="sets")
    assert 2 < threshold <= 3


@pytest.mark.parametrize(
    ("near", "expected"),
    [
        pytest.param(2.5, 2.5, id="in the gap"),
        pytest.param(0.0, 2.0, id="below it"),
        pytest.param(9.0, 2.0, id="above it"),
    ],
)
def test_a_gap_gives_the_preferred_value_or_its_middle(near: float, expected: float) -> None:
    labels = np.array([[True, False]] * 20)
    presence = np.array([[3.0, 1.0]] * 20)
    assert choose_threshold(presence, labels, by="sets", near=near) == expected


# Bags without the class have the higher score. So the best threshold names the class in all bags,
# which is right for one half, or in none, which is right for the other half.
UNDECIDED_PRESENCE = np.array([[1.0], [2.0]] * 20)
UNDECIDED_LABELS = np.array([[True], [False]] * 20)


def threshold_where(is_heavy: Array) -> float:
    """Return the threshold for the undecided bags where some of them weigh nine times as much."""
    weights = np.where(is_heavy, 9.0, 1.0)
    return choose_threshold(UNDECIDED_PRESENCE, UNDECIDED_LABELS, by="sets", weights=weights)


def test_where_bags_with_the_class_are_heavier_all_are_named() -> None:
    has_class = UNDECIDED_LABELS[:, 0]
    assert threshold_where(has_class) <= UNDECIDED_PRESENCE.min()


def test_where_bags_without_the_class_are_heavier_none_is_named() -> None:
    has_class = UNDECIDED_LABELS[:, 0]
    assert threshold_where(~has_class) > UNDECIDED_PRESENCE.max()


def test_equal_weights_change_no_threshold() -> None:
    presence, labels = sample_bags(np.random.default_rng(6), bags=50, classes=3, distance=1.0)
    weighted = choose_threshold(presence, labels, by="sets", weights=np.full(50, 3.0))
    assert weighted == choose_threshold(presence, labels, by="sets")


def test_the_choice_is_repeatable() -> None:
    presence, labels = sample_bags(np.random.default_rng(5), bags=50, classes=3, distance=1.0)
    first = choose_threshold(presence.copy(), labels.copy(), by="sets")
    second = choose_threshold(presence.copy(), labels.copy(), by="sets")
    assert first == second
