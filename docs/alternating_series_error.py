"""Draw docs/alternating_series_error.png and print how often the published rule of the log-likelihood is far off.

The published rule (X.-L. Li, arXiv:1811.12346, and its programs) is the logarithm of the absolute value of the
alternating series plus 1e-16. Run from the repository root: python docs/alternating_series_error.py
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import mpmath
import numpy as np
import seaborn as sns
import torch
from torch import Tensor

from milbench.likelihood import bag_log_prob

POSITIONS, REQUIRED, BAGS = 64, 5, 12
BACKGROUND = range(0, 21, 2)
CASES, FAR = 400, 0.01
DTYPES = (torch.float64, torch.float32)


def published_rule(log_probs: Tensor, required: int) -> float:
    """Return log Prb of the first `required` classes by the alternating series, in the precision of `log_probs`.

    The series is relative to the probability that there is nothing but these classes and background.
    """
    p = log_probs.exp()
    log_all = (p[:required].sum(dim=0) + p[-1]).log().sum()
    series = torch.zeros((), dtype=p.dtype)
    for size in range(required + 1):
        for some in combinations(range(required), size):
            log_part = (p[list(some)].sum(dim=0) + p[-1]).log().sum()
            series += (-1) ** (required - size) * (log_part - log_all).exp()
    return float(log_all + (series.abs() + 1e-16).log())


def package(log_probs: Tensor, required: int) -> float:
    """Return the same by `milbench.likelihood`."""
    labels = torch.arange(len(log_probs) - 1) < required
    return float(bag_log_prob(log_probs[None], labels[None]))


def precise(log_probs: Tensor, required: int) -> float:
    """Return the same in 80 digits, by a recursion over the sets emitted so far."""
    with mpmath.workdps(80):
        emitted = [mpmath.mpf(0)] * 2**required
        emitted[0] = mpmath.mpf(1)
        for column in log_probs[[*range(required), -1]].double().T.tolist():
            p = [mpmath.exp(mpmath.mpf(x)) for x in column]
            for s in reversed(range(2**required)):
                inside = [i for i in range(required) if s >> i & 1]
                stay = p[-1] + sum(p[i] for i in inside)
                emitted[s] = emitted[s] * stay + sum(p[i] * emitted[s ^ (1 << i)] for i in inside)
        return float(mpmath.log(emitted[-1]))


def random_log_probs(positions: int, background: float, rng: torch.Generator) -> Tensor:
    """Return (11, positions) float64, of normal logits with `background` added to that of the background."""
    logits = torch.randn(11, positions, generator=rng, dtype=torch.float64)
    logits[-1] += background
    return logits.log_softmax(dim=0)


def errors(background: int, dtype: torch.dtype) -> tuple[list[float], list[float]]:
    """Return the absolute errors of the published rule and of the package in nats, one a bag."""
    rng = torch.Generator().manual_seed(background)
    bags = [random_log_probs(POSITIONS, background, rng).to(dtype) for _ in range(BAGS)]
    truth = np.array([precise(bag, REQUIRED) for bag in bags])
    found = [np.array([rule(bag, REQUIRED) for bag in bags]) for rule in (published_rule, package)]
    return abs(found[0] - truth).tolist(), abs(found[1] - truth).tolist()


def draw() -> None:
    """Draw and save the figure."""
    sns.set_theme(style="whitegrid")
    figure, axes = plt.subplots(figsize=(8, 4.6))
    for dtype, dash in zip(DTYPES, ("-", "--"), strict=True):
        pairs = [errors(b, dtype) for b in BACKGROUND]
        name = str(dtype).removeprefix("torch.")
        for side, colour, label in (
            (0, "C3", "alternating series"),
            (1, "C0", "milbench.likelihood"),
        ):
            worst = [max(1e-16, *pair[side]) for pair in pairs]
            axes.plot(
                list(BACKGROUND),
                worst,
                dash,
                color=colour,
                marker="o",
                ms=4,
                label=f"{label}, {name}",
            )
    axes.set_xticks(range(0, 21, 4))
    axes.set_yscale("log")
    axes.set_xlabel("added to the background's logit")
    axes.set_ylabel("error of the log-likelihood (nats)")
    axes.set_title(
        f"{REQUIRED} required of 10 classes, {POSITIONS} positions: the worst of {BAGS} bags",
        fontsize=11,
    )
    axes.legend(fontsize=9, loc="center right", bbox_to_anchor=(1.0, 0.32))
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)


def count() -> None:
    """Print in how many random cases, of 1 to 5 classes and 50 to 800 positions, each rule is off by more than FAR."""
    rng, cases = torch.Generator().manual_seed(0), []
    for _ in range(CASES):
        required, positions = (
            int(torch.randint(low, high, (), generator=rng)) for low, high in ((1, 6), (50, 801))
        )
        background = 16 * float(torch.rand((), generator=rng))
        cases.append(
            (required, positions, background, random_log_probs(positions, background, rng))
        )
    for dtype in DTYPES:
        for rule in (published_rule, package):
            off = [abs(rule(x.to(dtype), n) - precise(x.to(dtype), n)) for n, _, _, x in cases]
            far = [(n, b) for error, (n, _, b, _) in zip(off, cases, strict=True) if error > FAR]
            print(
                f"{dtype}, {rule.__name__}: {len(far)} of {CASES} off by more than {FAR}, worst {max(off):.2g}"
            )
            for size in sorted({n for n, _ in far}):
                least = min(b for n, b in far if n == size)
                share = (
                    f"{sum(n == size for n, _ in far)} of {sum(case[0] == size for case in cases)}"
                )
                print(f"  |L| = {size}: {share}, all with background +{least:.1f} or more")


if __name__ == "__main__":
    draw()
    count()
