"""The loss `hard-em` against an enumeration of all label maps.

A label map gives each of the K positions a channel: one of the C classes or, last, the background.
The label set of a map is the set of its classes. Its probability is the product, over positions, of
the softmax of the logits. Hard EM assigns the positions of a bag to channels by the most probable
map with the label set of the bag. The loss is minus the log-probability of this map, which a
setting may divide by a size.
"""

import itertools
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests._helpers.label_maps import ALL_LABELS, C
from tests._helpers.losses import per_bag, random_logits

K = 5
"""The number of positions."""
ROUNDING = 1e-9
"""Two log-probabilities that differ by less are taken to be equal."""


def bag(seed: int, scale: float = 2.0, background: float = 0.0) -> Tensor:
    """Return the (C+1, K) logits of one bag, with a number added to those of the background.

    If the background is the most probable channel everywhere, the best label map must force the
    classes of the label set into some position.
    """
    logits = random_logits(C + 1, K, seed=seed, scale=scale)
    logits[-1] += background
    return logits


LabelMap = tuple[int, ...]
"""The channel of each position."""


class Best(NamedTuple):
    """The most probable label maps of a label set: several where they tie."""

    log_prob: float
    maps: list[LabelMap]


def best_maps(logits: Tensor) -> dict[frozenset[int], Best]:
    """Return the most probable label maps of every label set."""
    log_p = logits.double().log_softmax(dim=0).tolist()
    channels, positions = logits.shape
    background = channels - 1
    found: dict[frozenset[int], Best] = {}
    for label_map in itertools.product(range(channels), repeat=positions):
        log_prob = sum(log_p[c][k] for k, c in enumerate(label_map))
        label_set = frozenset(label_map) - {background}
        best = found.get(label_set)
        if best is None or log_prob > best.log_prob + ROUNDING:
            found[label_set] = Best(log_prob, [label_map])
        elif log_prob > best.log_prob - ROUNDING:
            best.maps.append(label_map)
    return found


def class_numbers(labels: Tensor) -> frozenset[int]:
    return frozenset(labels.nonzero().flatten().tolist())


def one_hot(label_map: LabelMap) -> Tensor:
    """Return (C+1, K), 1 for the channel that each position shows."""
    return torch.nn.functional.one_hot(torch.tensor(label_map), C + 1).T


def value_and_gradient(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each bag, not divided by anything, and its gradient by the logits."""
    leaf = logits.clone().requires_grad_()
    value = per_bag("hard-em", divide_by="none")(leaf, labels)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


# Each case: logits in float64, and the relative and the absolute error that a value may have.
PRECISE = [
    pytest.param(bag(seed, background=b), 1e-12, 1e-12, id=f"random {seed}, background +{b:g}")
    for seed in range(2)
    for b in (0.0, 3.0, 30.0)
]
# The same for logits in float32. They are so far apart that probabilities are 0 or 1, in the range
# that the tests of all losses use: see `EXTREME` in tests/_helpers/label_maps.py. A value of almost
# 0 is exact to a few times the rounding error of the number 1 in float32, which is about 1e-7.
SINGLE = [
    pytest.param(bag(seed, scale=100).clamp(-200, 200).float(), 1e-5, 1e-6, id=f"wide {seed}")
    for seed in range(3)
]


@pytest.mark.parametrize(("logits", "relative", "absolute"), PRECISE + SINGLE)
def test_value_and_gradient_agree_with_the_best_assignment(
    logits: Tensor, relative: float, absolute: float
) -> None:
    found = best_maps(logits)
    value, gradient = value_and_gradient(logits.repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    for i, labels in enumerate(ALL_LABELS):
        best = found[class_numbers(labels)]
        # With random logits no label maps tie.
        (label_map,) = best.maps
        assert value[i].item() == pytest.approx(-best.log_prob, rel=relative, abs=absolute)
        # The gradient of minus a log-softmax: softmax minus 1 at the channel that the map chooses.
        assert_close(gradient[i], logits.softmax(dim=0) - one_hot(label_map))


# Logits for which several label maps are equally probable. There are four positions, and a row for
# each of the three classes and the background.
TIED = pytest.mark.parametrize(
    "logits",
    [
        pytest.param(torch.zeros(C + 1, 4), id="all equal"),
        pytest.param(
            torch.tensor([[0.0], [0.0], [1.0], [5.0]]).expand(-1, 4), id="equal positions"
        ),
        pytest.param(
            torch.tensor(
                [
                    [2.0, 2.0, 0.0, 0.0],
                    [2.0, 2.0, 0.0, 0.0],
                    [-9.0, -9.0, -9.0, -9.0],
                    [0.0, 0.0, 3.0, 3.0],
                ]
            ),
            id="two pairs",
        ),
    ],
)


def shares_of(logits: Tensor) -> Tensor:
    """Return the share of each channel at each position for every label set, (2^C, C+1, positions).

    Where the best label maps tie, a position is divided between the channels that it has in these
    maps. The gradient is the softmax minus the shares, as it is without ties, where shares are 0 or
    1.
    """
    logits = logits.double()
    _, gradient = value_and_gradient(logits.repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    return logits.softmax(dim=0) - gradient


@TIED
def test_where_label_maps_tie_the_value_is_the_same_for_each(logits: Tensor) -> None:
    found = best_maps(logits)
    value, _ = value_and_gradient(logits.double().repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    expected = [-found[class_numbers(labels)].log_prob for labels in ALL_LABELS]
    assert value.tolist() == pytest.approx(expected, rel=1e-12)


@TIED
def test_where_label_maps_tie_only_best_ones_have_shares(logits: Tensor) -> None:
    found = best_maps(logits)
    for labels, shares in zip(ALL_LABELS, shares_of(logits), strict=True):
        maps = [one_hot(label_map) for label_map in found[class_numbers(labels)].maps]
        is_in_best_map = torch.stack(maps).any(dim=0)
        assert (shares[~is_in_best_map].abs() < 1e-12).all()


@TIED
def test_where_label_maps_tie_every_class_has_at_least_one_position(logits: Tensor) -> None:
    for labels, shares in zip(ALL_LABELS, shares_of(logits), strict=True):
        assert_close(shares.sum(dim=0), torch.ones(4, dtype=torch.float64))
        of_classes = shares[:-1].sum(dim=1)
        assert (of_classes[labels] >= 1 - 1e-12).all()


@TIED
def test_positions_with_equal_logits_have_equal_shares(logits: Tensor) -> None:
    for first, second in itertools.combinations(range(4), 2):
        if torch.equal(logits[:, first], logits[:, second]):
            shares = shares_of(logits)
            assert_close(shares[:, :, first], shares[:, :, second])


def test_label_sets_have_no_limit() -> None:
    """Of thirty classes, each gets the one of thirty positions where its logit was raised.

    The label maps of so many classes could not be enumerated.
    """
    classes = 30
    positions = torch.arange(classes)
    # Position -> the class whose logit is raised there.
    planted = torch.randperm(classes, generator=torch.Generator().manual_seed(0))
    logits = random_logits(classes + 1, classes, scale=0.1)
    logits[planted, positions] += 1.0
    # The background is the most probable channel everywhere, but all classes are in the label set.
    logits[-1] += 10.0
    every_class = torch.ones(1, classes, dtype=torch.bool)
    value, gradient = value_and_gradient(logits.unsqueeze(0), every_class)
    # The gradient is below 0 only for the channel that a position is assigned to.
    assert torch.equal(gradient[0].argmin(dim=0), planted)
    expected = -logits.log_softmax(dim=0)[planted, positions].sum()
    assert_close(value[0], expected)


RANDOM_BAGS = pytest.mark.parametrize(
    "logits",
    [
        # The background is rarely, sometimes or often the most probable channel.
        pytest.param(bag(seed, background=b), id=f"random {seed}, background {b:+g}")
        for seed in range(3)
        for b in (-3.0, 0.0, 3.0)
    ],
)


def best_log_probs(logits: Tensor) -> dict[frozenset[int], float]:
    """Return label set -> the log-probability of its most probable label map."""
    return {label_set: best.log_prob for label_set, best in best_maps(logits).items()}


@RANDOM_BAGS
def test_presence_compares_best_assignments_with_and_without_a_class(logits: Tensor) -> None:
    best = best_log_probs(logits)
    presence = per_bag("hard-em").score(logits.unsqueeze(0)).presence[0]
    for c in range(C):
        with_class = max(value for label_set, value in best.items() if c in label_set)
        without = max(value for label_set, value in best.items() if c not in label_set)
        assert presence[c].item() == pytest.approx(with_class - without, rel=1e-9)


@RANDOM_BAGS
def test_scores_compare_a_class_alone_with_the_empty_bag(logits: Tensor) -> None:
    # The score of a class is the log-probability of the best map of this class and background, less
    # that of the map of background alone.
    best = best_log_probs(logits)
    scores = per_bag("hard-em").score(logits.unsqueeze(0)).classes[0]
    empty = best[frozenset()]
    expected = [best[frozenset({c})] - empty for c in range(C)]
    assert scores.tolist() == pytest.approx(expected, rel=1e-9)


@RANDOM_BAGS
def test_positive_presence_is_the_label_set_of_the_best_assignment(logits: Tensor) -> None:
    best = best_log_probs(logits)
    presence = per_bag("hard-em").score(logits.unsqueeze(0)).presence[0]
    assert class_numbers(presence > 0) == max(best, key=lambda label_set: best[label_set])
