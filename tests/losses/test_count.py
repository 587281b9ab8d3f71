"""The loss `count` against a sum over all assignments of channels to positions.

The channels are the C classes and, last, the background.
"""

import itertools
import math

import pytest
import torch
from torch import Tensor

from milbench import UsageError
from tests._helpers.losses import per_bag, random_logits

B = 4
C = 3
K = 6
COUNTS = torch.tensor([[2, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 3]])
MASK = torch.tensor([
    [1, 1, 1, 0, 1, 1],
    [0, 0, 1, 0, 0, 0],
    [1, 1, 1, 1, 1, 1],
    [1, 1, 1, 0, 1, 1],
]).bool()  # fmt: skip
EVERYWHERE = torch.ones(B, K, dtype=torch.bool)


def probability_of_counts(logits: Tensor, wanted: dict[int, int], mask: Tensor) -> float:
    """Return the probability that each class c is at exactly wanted[c] positions of a bag.

    The sum runs over all assignments. `logits` are (C+1, K), `mask` is (K,).
    """
    p = logits[:, mask].double().softmax(dim=0).T.tolist()
    assignments = itertools.product(range(C + 1), repeat=len(p))
    probs = [
        probability_of_assignment(p, shown) for shown in assignments if has_counts(shown, wanted)
    ]
    return math.fsum(probs)


def has_counts(shown: tuple[int, ...], wanted: dict[int, int]) -> bool:
    return all(shown.count(c) == count for c, count in wanted.items())


def probability_of_assignment(p: list[list[float]], shown: tuple[int, ...]) -> float:
    return math.prod(at_position[c] for at_position, c in zip(p, shown, strict=True))


MASKS = pytest.mark.parametrize("mask", [MASK, EVERYWHERE], ids=["masked", "full"])
SCALES = pytest.mark.parametrize("scale", [1.0, 6.0])


@MASKS
@SCALES
def test_joint_is_the_sum_over_all_assignments(mask: Tensor, scale: float) -> None:
    logits = scale * random_logits(B, C + 1, K, seed=1)
    value = per_bag("count", likelihood="joint")(logits, COUNTS > 0, mask, COUNTS)
    for b, counts in enumerate(COUNTS.tolist()):
        expected = probability_of_counts(logits[b], dict(enumerate(counts)), mask[b])
        assert value[b].item() == pytest.approx(-math.log(expected), rel=1e-10, abs=1e-10)


@MASKS
@SCALES
def test_marginal_is_a_product_of_one_sum_for_each_class(mask: Tensor, scale: float) -> None:
    logits = scale * random_logits(B, C + 1, K, seed=1)
    value = per_bag("count", likelihood="marginal")(logits, COUNTS > 0, mask, COUNTS)
    for b, counts in enumerate(COUNTS.tolist()):
        probs = [probability_of_counts(logits[b], {c: n}, mask[b]) for c, n in enumerate(counts)]
        expected = -math.log(math.prod(probs))
        assert value[b].item() == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("likelihood", ["joint", "marginal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_that_no_float_holds_keep_their_digits(
    likelihood: str, dtype: torch.dtype
) -> None:
    """Where a thousand positions are sure of other classes, the probability is about e^-20,000."""
    logits = (20 * random_logits(2, C + 1, 1000, seed=4)).to(dtype).requires_grad_()
    counts = torch.tensor([[3, 2, 5], [0, 0, 1]])
    loss = per_bag("count", likelihood=likelihood)
    value = loss(logits, counts > 0, None, counts)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    expected = loss(logits.detach().double(), counts > 0, None, counts)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-4)
    assert gradient.isfinite().all()


def test_counts_of_too_many_states_are_refused_with_the_alternative() -> None:
    # (20 + 1)^3 = 9,261 states.
    target = torch.full((1, C), 20)
    with pytest.raises(
        UsageError, match=r"9,261 states are too many .* use loss.count.likelihood=marginal"
    ):
        per_bag("count")(random_logits(1, C + 1, 100), target > 0, None, target)
