"""Reference implementations of the likelihood of a label set, and bags to compare them on.

Two recursions are simple and slow; one of them computes with 80 digits. PATHS has the ways in which
the package computes the likelihood, as far as a CPU can take them.
"""

import decimal
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import cache, partial
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from milbench.likelihood import (
    argument_checks,
    bag_log_prob,
    bounds,
    exact_likelihood,
    instance_posterior,
    levels,
)

_PRECISE = decimal.Context(prec=80, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def every_label_set(classes: int) -> Tensor:
    """Return every label set of C classes, (2^C, C) bool."""
    return torch.tensor(list(itertools.product([False, True], repeat=classes)))


def every_set_prob(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of each label set, (2^n,), that exactly its classes occur.

    Args:
        probs: (n+1, K), the probabilities of n classes, and last of the background.
    """
    classes = len(probs) - 1
    # Bit c of a set says whether class c is in it.
    sets = np.arange(2**classes)
    # The probability of each set, that exactly its classes occur at the positions so far. Before
    # the first position no class occurs.
    table = np.zeros(len(sets))
    table[0] = 1
    for column in probs.T:
        # For each class c: the probability that the position shows it, 0 for sets without it.
        shows = [np.where((sets >> c) & 1, column[c], 0.0) for c in range(classes)]
        nothing_new = table * (column[-1] + sum(shows))
        something_new = sum(table[sets & ~(1 << c)] * shows[c] for c in range(classes))
        table = nothing_new + something_new
    return table


@cache
def _exp(x: float) -> Decimal:
    """Return the exponential of a number in 80 digits, 0 for -inf."""
    return _PRECISE.exp(Decimal(x))


class PreciseBag:
    """The likelihood of a label set in 80 digits.

    Args:
        log_probs: (C+1, K), log-probabilities, which are read as exact numbers.
        label_set: the classes of the bag.
        normalised: `log_probs` may be logits: the probabilities of each position are divided by
            their sum.
    """

    def __init__(
        self, log_probs: Tensor, label_set: list[int], *, normalised: bool = False
    ) -> None:
        with decimal.localcontext(_PRECISE):
            background = log_probs.shape[0] - 1
            rows = [background, *label_set]
            values = log_probs.double().tolist()
            # For each position: the probabilities of the background and of the label set's classes.
            self.columns: list[list[Decimal]] = []
            for k in range(log_probs.shape[1]):
                total = Decimal(1)
                if normalised:
                    total = sum((_exp(row[k]) for row in values), start=Decimal(0))
                self.columns.append([_exp(values[r][k]) / total for r in rows])
            self.slots = len(label_set)
            self.prob = self._sum(self.columns)
            self._posteriors: dict[tuple[int, int], Decimal] = {}

    def _sum(self, columns: list[list[Decimal]]) -> Decimal:
        """Return the probability that all classes of the label set are emitted, and no other.

        The recursion is over positions and the sets of classes emitted so far. All its terms are
        positive, so that no digits are lost.
        """
        # Set of classes, a bit for each -> the probability that exactly these have been emitted.
        seen = {0: Decimal(1)}
        for column in columns:
            after: dict[int, Decimal] = {}
            for state, weight in seen.items():
                # The background, or a class once more, leaves the set as it is.
                stay = column[0]
                for i in range(self.slots):
                    bit = 1 << i
                    prob = column[i + 1]
                    if state & bit:
                        stay += prob
                    elif prob:
                        after[state | bit] = after.get(state | bit, 0) + weight * prob
                if stay:
                    after[state] = after.get(state, 0) + weight * stay
            seen = after
        every_class = (1 << self.slots) - 1
        return seen.get(every_class, Decimal(0))

    def log_prob(self) -> Decimal:
        """Return the logarithm of the likelihood, -inf if it is 0."""
        with decimal.localcontext(_PRECISE):
            if not self.prob:
                return Decimal("-inf")
            return self.prob.ln()

    def posterior(self, slot: int, position: int) -> Decimal:
        """Return the probability that a position emits a slot, given the label set.

        Slot 0 is the background, and slot i the i-th class of the label set.
        """
        if (slot, position) in self._posteriors:
            return self._posteriors[slot, position]
        with decimal.localcontext(_PRECISE):
            # A bag whose position can emit this slot alone.
            chosen = [Decimal(0)] * (self.slots + 1)
            chosen[slot] = self.columns[position][slot]
            columns = self.columns.copy()
            columns[position] = chosen
            posterior = self._sum(columns) / self.prob
        self._posteriors[slot, position] = posterior
        return posterior


BACKGROUND = [f"background+{b}" for b in (0, 4, 8, 16, 24, 40)]
REGIMES = ("uniform", *BACKGROUND, "dominant", "nearly-absent", "all-tiny", "crowded")
"""Kinds of bags, from easy ones to bags that are hard for floating point."""


def regime_log_probs(regime: str, classes: int, positions: int, seed: int = 0) -> Tensor:
    """Return log-probabilities (C+1, K) in float64, of one of REGIMES.

    In the regimes "dominant" and "nearly-absent" class 0 differs from the others.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(classes + 1, positions, generator=generator, dtype=torch.float64)
    if regime == "uniform":
        logits.zero_()
    elif regime.startswith("background+"):
        logits[-1] += float(regime.removeprefix("background+"))
    elif regime == "dominant":
        logits[0] += 20.0
    elif regime == "nearly-absent":
        logits[0] -= 690.0
    elif regime == "all-tiny":
        logits[:-1] -= 690.0
    elif regime == "crowded":
        # Every class is most probable at the same position.
        logits[:-1] -= 30.0
        logits[:-1, positions // 2] += 45.0
    return logits.log_softmax(dim=0)


class RandomBag(NamedTuple):
    """A batch of one bag: log_probs (1, C+1, K) float64, labels (1, C) bool."""

    log_probs: Tensor
    labels: Tensor


@st.composite
def random_bags(draw: st.DrawFn, max_classes: int = 4, max_positions: int = 8) -> RandomBag:
    """Return a strategy of Hypothesis for random bags.

    Their logits spread little or widely, the background is rare or frequent, and some probabilities
    may be 0.
    """
    classes = draw(st.integers(1, max_classes))
    positions = draw(st.integers(1, max_positions))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = torch.randn(1, classes + 1, positions, generator=generator, dtype=torch.float64)
    logits = logits * draw(st.sampled_from([0.0, 1.0, 5.0, 30.0]))
    logits[:, -1] += draw(st.sampled_from([-5.0, 0.0, 6.0, 20.0]))
    if draw(st.booleans()):
        ruled_out = torch.rand(logits.shape, generator=generator) < 0.3
        # One channel stays possible everywhere, so that each position has a distribution.
        ruled_out[:, draw(st.integers(0, classes))] = False
        logits = logits.masked_fill(ruled_out, -torch.inf)
    labels = torch.tensor([draw(st.lists(st.booleans(), min_size=classes, max_size=classes))])
    return RandomBag(logits.log_softmax(dim=1), labels)


Solver = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Type of the functions in PATHS."""


@contextmanager
def accelerator() -> Iterator[None]:
    """Let the package compute without looking at values.

    It does so on a GPU, where looking means waiting, and inside torch.compile and torch.func.
    """
    with ExitStack() as patches:
        for module in (argument_checks, bounds, exact_likelihood, levels):
            patches.enter_context(mock.patch.object(module, "tracing", return_value=True))
        yield


def derived(
    function: Callable[[Tensor, Tensor], Tensor], values: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the value of a function, and the gradient of its sum for `values`."""
    leaf = values.clone().requires_grad_()
    value = function(leaf, labels)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def _on_accelerator(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    largest = int(labels.sum(dim=1).max())
    with accelerator():
        return derived(partial(bag_log_prob, max_labels=largest), log_probs, labels)


PATHS: dict[str, Solver] = {
    "eager": partial(derived, bag_log_prob),
    "accelerator": _on_accelerator,
    "posterior": lambda log_probs, labels: (
        bag_log_prob(log_probs, labels),
        instance_posterior(log_probs, labels),
    ),
}
"""Name -> a function that computes the likelihood in one way of the package.

From log_probs (B, C+1, K) and labels (B, C) it returns the log-likelihoods (B,) and their gradient,
which is the posterior given the label set.
"""
