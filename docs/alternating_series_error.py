"""Draw docs/alternating_series_error.png: the errors of a published rule of the log-likelihood.

The published rule (X.-L. Li, arXiv:1811.12346, and its programs) is the logarithm of the absolute
value of an alternating series plus 1e-16. The program also prints how often the rule is far off.
Run it from the root of the repository:

    python docs/alternating_series_error.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import mpmath
import seaborn as sns
import torch
from torch import Tensor

from milbench.likelihood import bag_log_prob

CLASSES = 10
POSITIONS = 64
REQUIRED = 5
"""The number of classes in the label set of every bag of the figure."""
BAGS = 12
"""A point of the figure is the largest error over this number of bags."""
BACKGROUND = range(0, 21, 2)
"""The numbers that are added to the background's logit in the figure."""
CASES = 400
"""The number of random cases in which errors are counted."""
FAR = 0.01
"""An error in nats above which a case counts as far off."""
DTYPES = (torch.float64, torch.float32)
Rule = Callable[[Tensor, int], float]
"""A function that computes the log-likelihood of the label set of the first `required` classes.

Its arguments are log-probabilities (11, positions), background last, and `required`.
"""


def published_rule(log_probs: Tensor, required: int) -> float:
    """Return the log-likelihood by the alternating series, in the precision of `log_probs`.

    The terms are divided by the probability that every position shows one of the required classes
    or background.
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
    """Return the log-likelihood by `milbench.likelihood`."""
    labels = torch.arange(len(log_probs) - 1) < required
    return float(bag_log_prob(log_probs[None], labels[None]))


def precise(log_probs: Tensor, required: int) -> float:
    """Return the log-likelihood, computed in 80 digits.

    It is a recursion over positions, with the probability of each set of classes that have occurred
    so far. Set s contains class c if bit c of s is 1.
    """
    with mpmath.workdps(80):
        occurred = [mpmath.mpf(0)] * 2**required
        occurred[0] = mpmath.mpf(1)
        for column in log_probs[[*range(required), -1]].double().T.tolist():
            p = [mpmath.exp(mpmath.mpf(x)) for x in column]
            # From the largest set down: smaller sets then still have their values from before this
            # position.
            for s in reversed(range(2**required)):
                inside = [c for c in range(required) if s >> c & 1]
                stay = p[-1] + sum(p[c] for c in inside)
                join = sum(p[c] * occurred[s ^ (1 << c)] for c in inside)
                occurred[s] = occurred[s] * stay + join
        return float(mpmath.log(occurred[-1]))


RULES: dict[str, Rule] = {"alternating series": published_rule, "milbench.likelihood": package}
COLOURS = {"alternating series": "C3", "milbench.likelihood": "C0"}


def random_log_probs(positions: int, background: float, rng: torch.Generator) -> Tensor:
    """Return log-probabilities (11, positions) float64 of normal logits.

    `background` is added to the background's logit.
    """
    logits = torch.randn(CLASSES + 1, positions, generator=rng, dtype=torch.float64)
    logits[-1] += background
    return logits.log_softmax(dim=0)


def worst_errors(background: int, dtype: torch.dtype) -> dict[str, float]:
    """Return the largest absolute error of each rule over BAGS bags, in nats."""
    rng = torch.Generator().manual_seed(background)
    bags = [random_log_probs(POSITIONS, background, rng).to(dtype) for _ in range(BAGS)]
    truth = [precise(bag, REQUIRED) for bag in bags]
    worst = {}
    for name, rule in RULES.items():
        errors = [abs(rule(bag, REQUIRED) - true) for bag, true in zip(bags, truth, strict=True)]
        # The axis is logarithmic and has no 0.
        worst[name] = max(1e-16, *errors)
    return worst


def draw() -> None:
    """Draw and save the figure."""
    sns.set_theme(style="whitegrid")
    figure, axes = plt.subplots(figsize=(8, 4.6))
    dashes = {torch.float64: "-", torch.float32: "--"}
    for dtype in DTYPES:
        points = [worst_errors(background, dtype) for background in BACKGROUND]
        for name in RULES:
            axes.plot(
                list(BACKGROUND),
                [worst[name] for worst in points],
                dashes[dtype],
                color=COLOURS[name],
                marker="o",
                ms=4,
                label=f"{name}, {name_of(dtype)}",
            )
    axes.set_xticks(range(0, 21, 4))
    axes.set_yscale("log")
    axes.set_xlabel("added to the background's logit")
    axes.set_ylabel("error of the log-likelihood (nats)")
    axes.set_title(
        f"{REQUIRED} required of {CLASSES} classes, {POSITIONS} positions: "
        f"the worst of {BAGS} bags",
        fontsize=11,
    )
    axes.legend(fontsize=9, loc="center right", bbox_to_anchor=(1.0, 0.32))
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Case:
    """A random bag."""

    required: int
    """The number of classes in its label set."""
    background: float
    """What is added to the background's logit."""
    log_probs: Tensor


def random_cases() -> list[Case]:
    """Return cases of 1 to 5 required classes and 50 to 800 positions."""
    rng = torch.Generator().manual_seed(0)
    cases = []
    for _ in range(CASES):
        required = int(torch.randint(1, 6, (), generator=rng))
        positions = int(torch.randint(50, 801, (), generator=rng))
        background = 16 * float(torch.rand((), generator=rng))
        log_probs = random_log_probs(positions, background, rng)
        cases.append(Case(required, background, log_probs))
    return cases


def error_of(rule: Rule, case: Case, dtype: torch.dtype) -> float:
    """Return the absolute error of a rule in nats."""
    log_probs = case.log_probs.to(dtype)
    return abs(rule(log_probs, case.required) - precise(log_probs, case.required))


def count() -> None:
    """Print in how many random cases each rule is off by more than FAR."""
    cases = random_cases()
    for dtype in DTYPES:
        for rule in RULES.values():
            errors = [error_of(rule, case, dtype) for case in cases]
            far = [case for case, error in zip(cases, errors, strict=True) if error > FAR]
            share = f"{len(far)} of {CASES}"
            print(
                f"{dtype}, {rule.__name__}: {share} off by more than {FAR}, worst {max(errors):.2g}"
            )
            print_by_size(cases, far)


def print_by_size(cases: list[Case], far: list[Case]) -> None:
    """Print for each number of required classes how many of the cases are far off."""
    for size in sorted({case.required for case in far}):
        far_of_size = [case for case in far if case.required == size]
        cases_of_size = [case for case in cases if case.required == size]
        share = f"{len(far_of_size)} of {len(cases_of_size)}"
        least = min(case.background for case in far_of_size)
        print(f"  |L| = {size}: {share}, all with background +{least:.1f} or more")


if __name__ == "__main__":
    draw()
    count()
