"""The likelihood of counts against the sum over all assignments of channels to positions."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from milbench import UsageError
from tests._helpers.losses import per_bag, random_logits

B, C, K = 4, 3, 6
COUNTS = torch.tensor([[2, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 3]])
MASK = torch.tensor([[1, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 0], [1] * 6, [1, 1, 1, 0, 1, 1]]).bool()
EVERYWHERE = torch.ones(B, K, dtype=torch.bool)


def probabilities(logits: Tensor, counts: list[int], mask: Tensor) -> tuple[float, float]:
    """Return the joint probability of the counts of one bag, and the product of those of each class alone."""
    p = logits[:, mask].double().softmax(dim=0).T.tolist()
    joint, alone = [], [[] for _ in range(C)]  # type: ignore[var-annotated]
    for shown in itertools.product(range(C + 1), repeat=len(p)):
        probability = math.prod(row[c] for row, c in zip(p, shown, strict=True))
        found = [shown.count(c) for c in range(C)]
        joint += [probability] * (found == counts)
        for c in range(C):
            alone[c] += [probability] * (found[c] == counts[c])
    return math.fsum(joint), math.prod(math.fsum(terms) for terms in alone)


@pytest.mark.parametrize("likelihood", ["joint", "marginal"])
@pytest.mark.parametrize("mask", [MASK, EVERYWHERE], ids=["masked", "full"])
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_it_is_the_sum_over_all_assignments(likelihood: str, mask: Tensor, scale: float) -> None:
    logits = scale * random_logits(B, C + 1, K, seed=1)
    value = per_bag("count", likelihood=likelihood)(logits, COUNTS > 0, mask, COUNTS)
    for b in range(B):
        expected = probabilities(logits[b], COUNTS[b].tolist(), mask[b])[likelihood == "marginal"]
        assert value[b].item() == pytest.approx(-math.log(expected), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("likelihood", ["joint", "marginal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_that_no_float_holds_keep_their_digits(
    likelihood: str, dtype: torch.dtype
) -> None:
    """A thousand positions that are sure of another class: e^-20,000, with finite gradients."""
    logits = (20 * random_logits(2, C + 1, 1000, seed=4)).to(dtype).requires_grad_()
    counts = torch.tensor([[3, 2, 5], [0, 0, 1]])
    loss = per_bag("count", likelihood=likelihood)
    value = loss(logits, counts > 0, None, counts)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    expected = loss(logits.detach().double(), counts > 0, None, counts)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-4)
    assert gradient.isfinite().all()


def test_counts_of_too_many_states_are_refused_with_the_alternative() -> None:
    target = torch.full((1, C), 20)
    with pytest.raises(
        UsageError, match=r"9,261 states are too many .* use loss.count.likelihood=marginal"
    ):
        per_bag("count")(random_logits(1, C + 1, 100), target > 0, None, target)
