"""Prints the worst errors of the exact likelihood over the grids of its tests, which docs/likelihood.md has as tables.

python -m tests.likelihood.print_errors
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from milbench.likelihood import bag_log_prob
from tests._helpers.likelihood_reference import PreciseBag
from tests._helpers.likelihood_regimes import REGIMES, regime_log_probs
from tests._helpers.random_logits import random_logits
from tests.likelihood import test_exact_precision, test_from_logits
from tests.likelihood.test_exact_precision import LONG, PATHS, derived, errors

Solver = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

OF_LONG = ("uniform", "background+8", "background+40", "nearly-absent", "dominant")
"""The regimes in which bags of thousands of positions are tested."""


def of_probabilities(path: str, dtype: torch.dtype) -> tuple[float, float]:
    """Return the worst relative errors of value and gradient by one path from log-probabilities."""
    sizes = [(n, k) for n, k in test_exact_precision.SIZES if path != "traceable" or n <= 7]  # as in the tests
    cases = [(regime, *size) for regime in REGIMES for size in sizes]
    cases += [(regime, *size) for regime in OF_LONG for size in LONG]
    found = [errors(PATHS[path], *case, dtype) for case in cases]
    return max(value for value, _ in found), max(gradient for _, gradient in found)


def by_softmax(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value and its gradient by the log-softmax in the precision of the logits."""
    return derived(lambda z, y: bag_log_prob(z.log_softmax(dim=1), y), logits, labels)


def of_logits(solve: Solver, dtype: torch.dtype) -> tuple[float, float]:
    """Return the worst errors from logits: of the value over max(1, |value|), and of the gradient as it is."""
    worst_value = worst_gradient = 0.0
    for regime in REGIMES:
        for size, positions in test_from_logits.SIZES:
            shift = 5 * random_logits(1, positions, seed=size)
            logits = (regime_log_probs(regime, size + 2, positions) + shift).to(dtype)
            truth = PreciseBag(logits, list(range(size)), normalised=True)
            if not truth.prob:
                continue
            value, gradient = solve(logits[None], torch.arange(size + 2)[None] < size)
            exact, softmax, k = float(truth.log_prob()), logits.double().softmax(0), positions // 2
            worst_value = max(worst_value, abs(value.item() - exact) / max(1.0, abs(exact)))
            for slot in {0, (size + 1) // 2, size}:
                row = slot - 1 if slot else size + 2
                expected = float(truth.posterior(slot, k)) - softmax[row, k].item()
                worst_gradient = max(worst_gradient, abs(gradient[0, row, k].item() - expected))
    return worst_value, worst_gradient


def main() -> None:
    """Print a line for every path and precision: the worst error of the value, and that of the gradient."""
    for dtype in (torch.float64, torch.float32):
        for path in PATHS:
            print(f"{dtype} {path:10}", *(f"{error:.1e}" for error in of_probabilities(path, dtype)))
        for name, solve in (("logits", test_from_logits.solved), ("softmax", by_softmax)):
            print(f"{dtype} {name:10}", *(f"{error:.1e}" for error in of_logits(solve, dtype)))


if __name__ == "__main__":
    main()
