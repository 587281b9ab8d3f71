"""Prints the worst errors of the exact likelihood over the grids of its tests, which docs/likelihood.md has as a table.

python -m tests.likelihood.print_errors
"""

from __future__ import annotations

import torch

from tests._helpers.likelihood_bags import REGIMES
from tests._helpers.likelihood_paths import PATHS
from tests.likelihood import test_exact_precision, test_from_logits


def main() -> None:
    """Print a line for every path and precision: the worst error of the value, and that of the gradient."""
    for dtype in (torch.float64, torch.float32):
        for path, solve in PATHS.items():
            cases = [(regime, *size) for regime in REGIMES for size in test_exact_precision.SIZES]
            cases += [(regime, *size) for regime in test_exact_precision.OF_LONG for size in test_exact_precision.LONG]
            _say(dtype, path, [test_exact_precision.errors(solve, *case, dtype) for case in cases])
        sizes = [(regime, *size) for regime in REGIMES for size in test_from_logits.SIZES]
        _say(dtype, "logits", [test_from_logits.errors(*case, dtype)[:2] for case in sizes])


def _say(dtype: torch.dtype, path: str, errors: list[tuple[float, float]]) -> None:
    print(dtype, f"{path:10}", *(f"{max(side):.1e}" for side in zip(*errors, strict=True)))


if __name__ == "__main__":
    main()
