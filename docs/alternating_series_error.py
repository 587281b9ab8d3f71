"""Draw docs/alternating_series_error.png: error of the log-likelihood against the background's confidence.

Run from the repository root: python docs/alternating_series_error.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import mpmath
import numpy as np
import seaborn as sns
import torch
from torch import Tensor

from milbench.cli.bench_losses import series_loop
from milbench.likelihood import bag_log_prob

POSITIONS, REQUIRED, BAGS = 64, 5, 12
BACKGROUND = range(0, 21, 2)


def precise(log_probs: Tensor) -> float:
    """Return log Prb of the first REQUIRED classes in 80 digits, by a recursion over the sets emitted so far."""
    with mpmath.workdps(80):
        emitted = [mpmath.mpf(0)] * 2**REQUIRED
        emitted[0] = mpmath.mpf(1)
        for column in log_probs.double().T.tolist():
            p = [mpmath.exp(mpmath.mpf(x)) for x in column]
            for s in reversed(range(2**REQUIRED)):
                inside = [i for i in range(REQUIRED) if s >> i & 1]
                stay = p[-1] + sum(p[i] for i in inside)
                emitted[s] = emitted[s] * stay + sum(p[i] * emitted[s ^ (1 << i)] for i in inside)
        return float(mpmath.log(emitted[-1]))


def errors(background: int, dtype: torch.dtype) -> tuple[list[float], list[float]]:
    """Return the absolute errors of the alternating series and of the package in nats, one a bag."""
    rng = torch.Generator().manual_seed(background)
    logits = torch.randn(BAGS, 11, POSITIONS, generator=rng, dtype=torch.float64)
    logits[:, -1] += background
    log_probs = logits.log_softmax(dim=1).to(dtype)
    labels = (torch.arange(10) < REQUIRED).expand(BAGS, 10)
    truth = np.array([precise(bag) for bag in log_probs[:, [*range(REQUIRED), 10]]])
    series, package = (f(log_probs, labels).double().numpy() for f in (series_loop, bag_log_prob))
    return abs(series - truth).tolist(), abs(package - truth).tolist()


def main() -> None:
    """Draw and save the figure."""
    sns.set_theme(style="whitegrid")
    figure, axes = plt.subplots(figsize=(8, 4.6))
    for dtype, dash in ((torch.float64, "-"), (torch.float32, "--")):
        pairs = [errors(b, dtype) for b in BACKGROUND]
        name = str(dtype).removeprefix("torch.")
        for side, colour, label in ((0, "C3", "alternating series"), (1, "C0", "milbench.likelihood")):
            worst = [max(1e-16, *pair[side]) for pair in pairs]
            axes.plot(list(BACKGROUND), worst, dash, color=colour, marker="o", ms=4, label=f"{label}, {name}")
    axes.set_xticks(range(0, 21, 4))
    axes.set_yscale("log")
    axes.set_xlabel("added to the background's logit")
    axes.set_ylabel("error of the log-likelihood (nats)")
    axes.set_title(f"{REQUIRED} required of 10 classes, {POSITIONS} positions: the worst of {BAGS} bags", fontsize=11)
    axes.legend(fontsize=9, loc="center right", bbox_to_anchor=(1.0, 0.32))
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)


if __name__ == "__main__":
    main()
