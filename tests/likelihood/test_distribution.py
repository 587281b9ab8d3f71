"""The probabilities of all label sets, and the most probable label set."""

import math

import pytest
import torch
from hypothesis import given

from milbench.likelihood import bag_log_prob, best_label_set, distribution, label_set_distribution
from tests._helpers.likelihood_reference import (
    PreciseBag,
    RandomBag,
    every_label_set,
    random_bags,
    regime_log_probs,
)


def index_of(labels: torch.Tensor) -> torch.Tensor:
    """Return the indices of label sets (B, C) in a table of all label sets: class c adds 2^c."""
    return (labels * 2 ** torch.arange(labels.shape[1])).sum(dim=1)


@given(random_bags(max_classes=6, max_positions=20))
def test_the_distribution_has_every_set_as_it_is_alone(bag: RandomBag) -> None:
    sets = every_label_set(bag.labels.shape[1])
    expected = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets)
    found = label_set_distribution(bag.log_probs)[0][index_of(sets)]
    # The difference of two infinities is NaN.
    is_equal = found == expected
    is_near = (found - expected).abs() <= 1e-12 * expected.abs().clamp(min=1)
    assert (is_equal | is_near).all()


def underflowing_bag() -> torch.Tensor:
    """Return log_probs (4, 5) by which a bag has all three classes with probability exp(-800)."""
    log_probs = torch.full((4, 5), -800.0, dtype=torch.float64)
    # Position 0 shows class 0 or 1, but not both. Position 1 shows class 2. All other positions
    # show background.
    log_probs[0, 0] = math.log(1 / 2)
    log_probs[1, 0] = math.log(1 / 2)
    log_probs[2, 1] = -1e-300
    log_probs[3, 2:] = 0.0
    return log_probs


def mixed_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return log_probs (7, 4, 5) and the mask (7, 5) of bags that need different treatment.

    In this order: an ordinary bag; a bag of one position; a bag of none; a bag without class 1; a
    bag whose probabilities underflow; a bag with rare classes; an ordinary bag of three positions.
    """
    regimes = ["background+4"] * 5 + ["all-tiny", "uniform"]
    seeds = [0, 1, 2, 3, 4, 0, 6]
    bags = [
        regime_log_probs(regime, 3, 5, seed=seed)
        for regime, seed in zip(regimes, seeds, strict=True)
    ]
    without_class_1 = bags[3]
    without_class_1[1] = -torch.inf
    bags[3] = without_class_1.log_softmax(dim=0)
    bags[4] = underflowing_bag()
    log_probs = torch.stack(bags)
    sizes = torch.tensor([5, 1, 0, 4, 3, 5, 3])
    return log_probs, torch.arange(5) < sizes.unsqueeze(1)


@pytest.fixture(scope="module")
def precise() -> torch.Tensor:
    """Return the log probabilities (7, 8) of all label sets of the mixed batch, in 80 digits."""
    log_probs, mask = mixed_batch()
    rows = []
    for bag, kept in zip(log_probs, mask, strict=True):
        row = []
        for index in range(8):
            # Bit c of the index says whether class c is in the set.
            labels = [c for c in range(3) if index >> c & 1]
            row.append(float(PreciseBag(bag[:, kept], labels).log_prob()))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def test_the_mixed_batch_has_a_probability_below_every_float(precise: torch.Tensor) -> None:
    all_classes = 7
    assert -math.inf < precise[4, all_classes] < -750


GROUPS = [
    pytest.param(1, id="a bag at a time"),
    pytest.param(100, id="two bags at a time"),
    pytest.param(1 << 20, id="all at a time"),
]


@pytest.mark.parametrize("group", GROUPS)
def test_bags_of_every_kind_in_one_batch(
    precise: torch.Tensor, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "GROUP", group)
    found = label_set_distribution(*mixed_batch())
    torch.testing.assert_close(found, precise, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("group", GROUPS)
def test_the_best_sets_of_bags_of_every_kind(
    precise: torch.Tensor, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "GROUP", group)
    labels, log_prob = best_label_set(*mixed_batch())
    torch.testing.assert_close(log_prob, precise.amax(dim=1), rtol=1e-12, atol=1e-12)
    of_labels = precise[torch.arange(7), index_of(labels)]
    torch.testing.assert_close(of_labels, log_prob, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sharpness", [0.3, 3.0, 30.0])
@pytest.mark.parametrize(
    ("classes", "shape"),
    [
        (1, (1,)),
        (3, (2,)),
        (7, (5, 8)),
        (10, (300,)),
        (4, (70, 70)),
        (13, (3,)),
        (14, (4,)),
    ],
)
def test_the_best_set_is_the_largest_of_the_table(
    classes: int, shape: tuple[int, ...], sharpness: float
) -> None:
    rng = torch.Generator().manual_seed(round(10 * sharpness))
    logits = sharpness * torch.randn(2, classes + 1, *shape, generator=rng, dtype=torch.float64)
    # With more positions the background is made likelier, so that not every class is in every set.
    logits[:, -1] += math.log(math.prod(shape)) + 2
    log_probs = logits.log_softmax(dim=1)
    labels, log_prob = best_label_set(log_probs)
    table = label_set_distribution(log_probs)
    largest = table.amax(dim=1)
    torch.testing.assert_close(log_prob, largest, rtol=0, atol=1e-9)
    of_labels = table[torch.arange(2), index_of(labels)]
    torch.testing.assert_close(of_labels, largest, rtol=0, atol=1e-9)


def test_the_best_of_many_classes_at_a_single_position() -> None:
    # Up to LISTED_CLASSES all label sets are listed; with one class more, the best set is searched
    # for. The logits have no dimension for positions.
    classes = distribution.LISTED_CLASSES + 1
    logits = torch.zeros(2, classes + 1, dtype=torch.float64)
    logits[0, 3] = 5.0
    logits[1, -1] = 5.0
    log_probs = logits.log_softmax(dim=1)
    labels, log_prob = best_label_set(log_probs)
    only_class_3 = torch.arange(classes) == 3
    assert labels.tolist() == [only_class_3.tolist(), [False] * classes]
    torch.testing.assert_close(log_prob, torch.stack([log_probs[0, 3], log_probs[1, -1]]))
