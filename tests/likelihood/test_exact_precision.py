"""The exact likelihood and its gradient against results in 80 digits.

Every regime of probabilities is tested with every path of computation, in float64 and float32.
"""

import itertools
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests._helpers.likelihood_reference import PATHS, REGIMES, PreciseBag, Solver, regime_log_probs

# |L|, the number of classes in the label set, and the number of positions.
SIZES = [(0, 7), (1, 1), (1, 50), (2, 2), (2, 300), (3, 3), (4, 100), (5, 60), (6, 40), (7, 20),
         (8, 30), (9, 16), (10, 12)]  # fmt: skip
LONG = [(1, 10_000), (2, 3_000), (5, 1_000)]
OF_LONG = ("uniform", "background+8", "background+40", "nearly-absent", "dominant")
"""The regimes in which bags of thousands of positions are tested."""
LIMITS = {torch.float64: (1e-12, 1e-9), torch.float32: (1e-5, 1e-4)}
"""The largest error of the value and of the gradient that is allowed."""


class Case(NamedTuple):
    """A bag, its likelihood in 80 digits, and where the gradient is compared with the truth."""

    log_probs: Tensor
    """(C+1, K)."""
    truth: PreciseBag
    compared: list[tuple[int, int]]
    """Slots and positions: slot 0 is the background, then come the classes of the label set."""


@cache
def case(regime: str, size: int, positions: int, dtype: torch.dtype) -> Case:
    log_probs = regime_log_probs(regime, size + 2, positions).to(dtype)
    truth = PreciseBag(log_probs, list(range(size)))
    middle = positions // 2
    # Only two entries are compared where positions are many, since the truth is slow there.
    compared = [(0, middle), (size, 0)]
    if positions < 1000:
        # A set, since in small bags some of these pairs are equal.
        slots_and_positions = set(itertools.product((0, size // 2, size), (0, middle)))
        compared = sorted(slots_and_positions)
    return Case(log_probs, truth, compared)


def errors(
    path: Solver, regime: str, size: int, positions: int, dtype: torch.dtype
) -> tuple[float, float]:
    """Return the errors of the value and of the gradient.

    The first is divided by max(1, |value|), the second by the largest entry of the gradient.
    """
    log_probs, truth, compared = case(regime, size, positions, dtype)
    labels = (torch.arange(size + 2) < size).unsqueeze(0)
    value, gradient = path(log_probs.unsqueeze(0), labels)
    assert torch.isfinite(gradient).all()
    exact = float(truth.log_prob())
    if not truth.prob:
        assert value.item() == -torch.inf
        assert not gradient.any()
        return 0.0, 0.0
    value_error = abs(value.item() - exact) / max(1.0, abs(exact))
    # The background is slot 0 of the truth, and the last row of the gradient.
    rows = [size + 2, *range(size)]
    differences = [
        abs(gradient[0, rows[slot], k].item() - float(truth.posterior(slot, k)))
        for slot, k in compared
    ]
    return value_error, max(differences) / float(gradient.abs().max())


CASES = [
    *((regime, *size) for regime in REGIMES for size in SIZES),
    *((regime, *size) for regime in OF_LONG for size in LONG),
]


@pytest.mark.parametrize("dtype", LIMITS, ids=["float64", "float32"])
@pytest.mark.parametrize(("regime", "size", "positions"), CASES)
def test_every_path_is_as_precise_as_its_type(
    regime: str, size: int, positions: int, dtype: torch.dtype
) -> None:
    """All paths are in one test, since the truth takes far longer than any of them."""
    largest_of_value, largest_of_gradient = LIMITS[dtype]
    for path, solve in PATHS.items():
        value, gradient = errors(solve, regime, size, positions, dtype)
        assert value <= largest_of_value, path
        assert gradient <= largest_of_gradient, path
