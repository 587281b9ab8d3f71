"""Lower and upper bounds of the log-likelihood, against its value computed with 80 digits.

`exact_labels` is the number of classes that are summed exactly; the others are only bounded.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from milbench import UsageError
from milbench.likelihood import bag_log_prob_bounds
from tests._helpers.likelihood_reference import (
    REGIMES,
    PreciseBag,
    RandomBag,
    random_bags,
    regime_log_probs,
)


def first_classes(size: int, classes: int) -> torch.Tensor:
    """Return the label set (1, C) of the first `size` of C classes."""
    return (torch.arange(classes) < size).unsqueeze(0)


@given(bag=random_bags(max_classes=7, max_positions=12), exact_labels=st.integers(0, 4))
def test_bounds_hold_for_any_bag(bag: RandomBag, exact_labels: int) -> None:
    label_set = bag.labels[0].nonzero().flatten().tolist()
    exact = PreciseBag(bag.log_probs[0], label_set).log_prob()
    lower, upper = bag_log_prob_bounds(*bag, exact_labels=exact_labels)
    assert lower.item() <= exact <= upper.item()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("regime", REGIMES)
def test_bounds_hold_and_are_finite_in_every_regime(regime: str, dtype: torch.dtype) -> None:
    log_probs = regime_log_probs(regime, classes=8, positions=40).to(dtype)
    exact = PreciseBag(log_probs, list(range(6))).log_prob()
    label_set = first_classes(6, classes=8)
    bounds = bag_log_prob_bounds(log_probs[None], label_set, exact_labels=3)
    assert bounds.lower.item() <= exact <= bounds.upper.item()
    assert bounds.lower.isfinite().all()
    assert bounds.upper.isfinite().all()


def test_bounds_are_tight_for_classes_that_all_but_certainly_occur() -> None:
    # Each of 500 positions shows one of 30 classes or the background, all with the same
    # probability. Given that only the 25 classes of the label set and background occur, one of
    # these classes is absent with the probability (25 / 26) ** 500 = 3e-9. By default 6 of them are
    # summed exactly. The bounds differ by the chance that one of the 19 others is absent: 6e-8.
    log_probs = regime_log_probs("uniform", classes=30, positions=500)[None]
    lower, upper = bag_log_prob_bounds(log_probs, first_classes(25, classes=30))
    assert (upper - lower).item() < 1e-6


def test_bounds_are_tight_where_all_classes_are_summed() -> None:
    # Background is much more probable than the classes, which are therefore rare. But all five
    # classes of the label set are summed exactly.
    log_probs = regime_log_probs("background+8", classes=30, positions=50)[None]
    label_set = first_classes(5, classes=30)
    lower, upper = bag_log_prob_bounds(log_probs, label_set, exact_labels=5)
    assert (upper - lower).item() < 1e-10


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_bounds_are_differentiable(side: str) -> None:
    logits = torch.randn(2, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    labels = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()

    def bound(logits: torch.Tensor) -> torch.Tensor:
        bounds = bag_log_prob_bounds(logits.log_softmax(1), labels, exact_labels=2)
        found: torch.Tensor = getattr(bounds, side)
        return found

    assert torch.autograd.gradcheck(bound, (logits,))


def test_bags_side_by_side_have_their_own_bounds() -> None:
    """A batch gives each bag the bounds that it has alone.

    milbench reads no values inside torch.func, since under vmap it could not. So it does not know
    the sizes of the label sets: the arrays for each bag are as large as a label set of `max_labels`
    needs, and the rest of them is padding.
    """
    labels = torch.tensor(
        [[0, 0, 0, 0, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]], dtype=torch.bool
    )
    logits = torch.randn(4, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # The last bag has three labels and two instances: its bounds are -inf.
    instances = torch.tensor([[7], [4], [7], [2]])
    mask = torch.arange(7) < instances

    def bounds(logits: torch.Tensor, bags: slice = slice(None)) -> torch.Tensor:
        """Return lower and upper bounds (2, B) of these bags."""
        log_probs = logits.log_softmax(dim=1)
        both = bag_log_prob_bounds(
            log_probs, labels[bags], mask[bags], exact_labels=3, max_labels=5
        )
        return torch.stack(both)

    def total(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum of the finite bounds, to be differentiated, and all bounds (2, B)."""
        found = bounds(logits)
        return found.masked_fill(found.isinf(), 0.0).sum(), found

    gradient, (_, together) = torch.func.grad_and_value(total, has_aux=True)(logits)
    assert gradient.isfinite().all()
    for b in range(4):
        one = slice(b, b + 1)
        alone = bounds(logits[one], one)
        torch.testing.assert_close(together[:, one], alone, rtol=1e-9, atol=1e-9)


def test_a_label_set_larger_than_max_labels_is_an_error() -> None:
    log_probs = torch.zeros(1, 4, 5).log_softmax(dim=1)
    with pytest.raises(UsageError, match=r"\|L\| = 3, above max_labels = 2"):
        bag_log_prob_bounds(log_probs, first_classes(3, classes=3), max_labels=2)


def test_a_label_set_larger_than_max_labels_gives_nan_inside_vmap() -> None:
    # There no value can be read, so that no error can be raised.
    def lower(log_probs: torch.Tensor) -> torch.Tensor:
        label_set = first_classes(3, classes=3)
        return bag_log_prob_bounds(log_probs, label_set, max_labels=2).lower

    batch_of_bags = torch.zeros(1, 1, 4, 5).log_softmax(dim=2)
    assert torch.func.vmap(lower)(batch_of_bags).isnan().all()
