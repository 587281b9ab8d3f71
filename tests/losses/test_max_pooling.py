"""The loss `max-pooling` against loops over its formula.

Its softmax is over the channels of each position, over each bag, or over the whole batch.
"""

import itertools
import math

import pytest
import torch
from torch import Tensor

from tests._helpers.losses import per_bag, random_logits

B = 4
C = 3
K = 5
LABELS = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
MASK = torch.tensor(
    [[1, 0, 1, 1, 1], [0, 0, 0, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool
)
MASKS = pytest.mark.parametrize(
    "mask", [MASK, torch.ones(B, K, dtype=torch.bool)], ids=["masked", "full"]
)


Probs = dict[tuple[int, int, int], float]
"""p[b, c, k] of every position that is not masked."""


def probabilities(logits: Tensor, mask: Tensor, groups: list[list[int]]) -> Probs:
    """Return probabilities that sum to 1 over all channels and positions of each group of bags."""
    p: Probs = {}
    for group in groups:
        odds = {}
        for b, c, k in itertools.product(group, range(C + 1), range(K)):
            if mask[b, k]:
                odds[b, c, k] = math.exp(logits[b, c, k])
        total = sum(odds.values())
        p |= {key: value / total for key, value in odds.items()}
    return p


EACH_BAG = [[b] for b in range(B)]


def log_odds(p: float) -> float:
    return math.log(p / (1 - p))


def of_class(p: Probs, bag: int, c: int) -> list[float]:
    """Return the probabilities of a class at the positions of a bag."""
    return [p[bag, c, k] for k in range(K) if (bag, c, k) in p]


def highest(p: Probs, bag: int, c: int) -> float:
    return max(of_class(p, bag, c))


def costs_of_classes(p: Probs, bag: int) -> list[float]:
    """Return -log of the largest probability of each class in the label set of a bag."""
    classes = LABELS[bag].nonzero().flatten().tolist()
    return [-math.log(highest(p, bag, c)) for c in classes]


@MASKS
def test_over_a_bag_the_loss_is_the_mean_of_costs(mask: Tensor) -> None:
    logits = random_logits(B, C + 1, K, seed=0)
    p = probabilities(logits, mask, groups=EACH_BAG)
    value = per_bag("max-pooling", normalization="bag")(logits, LABELS, mask)
    for b in range(B):
        costs = costs_of_classes(p, b)
        # The loss of an empty label set is 0.
        expected = sum(costs) / max(len(costs), 1)
        assert value[b].item() == pytest.approx(expected)


@MASKS
def test_over_the_batch_the_loss_is_the_sum_of_costs(mask: Tensor) -> None:
    logits = random_logits(B, C + 1, K, seed=0)
    p = probabilities(logits, mask, groups=[list(range(B))])
    value = per_bag("max-pooling", normalization="batch")(logits, LABELS, mask)
    for b in range(B):
        assert value[b].item() == pytest.approx(sum(costs_of_classes(p, b)))


@MASKS
def test_over_a_position_background_is_in_every_label_set(mask: Tensor) -> None:
    logits = random_logits(B, C + 1, K, seed=0)
    p: Probs = {}
    for b, k in mask.nonzero().tolist():
        odds = [math.exp(logits[b, c, k]) for c in range(C + 1)]
        p |= {(b, c, k): value / sum(odds) for c, value in enumerate(odds)}
    loss = per_bag("max-pooling", normalization="position")
    value = loss(logits, LABELS, mask)
    scores = loss.score(logits, mask)
    for b in range(B):
        costs = [*costs_of_classes(p, b), -math.log(highest(p, b, C))]
        assert value[b].item() == pytest.approx(sum(costs) / len(costs))
        expected = [log_odds(highest(p, b, c)) for c in range(C)]
        assert scores.presence[b].tolist() == pytest.approx(expected)
        assert scores.classes[b].tolist() == scores.presence[b].tolist()


@MASKS
def test_over_a_position_map_and_evidence_are_the_softmax(mask: Tensor) -> None:
    logits = random_logits(B, C + 1, K, seed=0)
    scores = per_bag("max-pooling", normalization="position").score(logits, mask)
    there = mask.unsqueeze(1)
    softmax = logits.softmax(dim=1)
    assert torch.equal(scores.instances * there, softmax * there)
    assert torch.equal(scores.evidence.masked_fill(~there, 0), softmax[:, :C] * there)


def test_the_bag_variant_scores_by_its_probabilities() -> None:
    logits = random_logits(B, C + 1, K, seed=1)
    p = probabilities(logits, MASK, groups=EACH_BAG)
    scores = per_bag("max-pooling").score(logits, MASK)
    for b in range(B):
        for c in range(C):
            assert float(scores.classes[b, c]) == pytest.approx(sum(of_class(p, b, c)))
            assert float(scores.presence[b, c]) == pytest.approx(log_odds(highest(p, b, c)))


def test_the_batch_variant_scores_by_the_largest_raw_score() -> None:
    background_wins = [[1.0, 0.0], [2.0, -1.0], [3.0, 9.0]]
    a_class_wins = [[1.0, 4.0], [2.0, -1.0], [3.0, 0.0]]
    a_tie = [[1.0, 3.0], [2.0, -1.0], [3.0, 0.0]]
    logits = torch.tensor([background_wins, background_wins, a_class_wins, a_tie])
    mask = torch.tensor([[True, True], [True, False], [True, True], [True, True]])
    scores = per_bag("max-pooling", normalization="batch").score(logits, mask)
    # Where the background has the largest score of a bag, no class has a score.
    unnamed = [-math.inf, -math.inf]
    assert scores.classes.tolist() == [unnamed, unnamed, [4.0, 2.0], [3.0, 2.0]]
    assert scores.presence.tolist() == [[1.0, 2.0], [1.0, 2.0], [4.0, 2.0], [3.0, 2.0]]


@pytest.mark.parametrize("normalization", ["bag", "batch"])
@MASKS
def test_the_map_compares_a_position_with_a_uniform_share(normalization: str, mask: Tensor) -> None:
    logits = random_logits(B, C + 1, K, seed=4)
    probs = per_bag("max-pooling", normalization=normalization).score(logits, mask).instances
    for b in range(B):
        positions = mask[b].nonzero().flatten().tolist()
        total = float(logits[b, :C, positions].exp().sum())
        for k in positions:
            # A class has a share of the sum over classes and positions. Its odds against the
            # background are this share divided by 1 / K.
            odds = [len(positions) * math.exp(logits[b, c, k]) / total for c in range(C)]
            weights = [*odds, 1.0]
            expected = [weight / sum(weights) for weight in weights]
            assert probs[b, :, k].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("normalization", ["bag", "batch"])
@MASKS
def test_the_evidence_is_the_logits_of_the_classes(normalization: str, mask: Tensor) -> None:
    logits = random_logits(B, C + 1, K, seed=4)
    evidence = per_bag("max-pooling", normalization=normalization).score(logits, mask).evidence
    there = mask.unsqueeze(1)
    assert torch.equal(evidence.masked_fill(~there, 0), logits[:, :C] * there)
