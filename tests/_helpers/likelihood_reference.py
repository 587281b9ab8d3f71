"""The likelihood of small bags without the package: by enumeration, and by recursions, one of them in 80 digits."""

from __future__ import annotations

import decimal
import itertools
from decimal import Decimal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DIGITS = 80
_PRECISE = decimal.Context(prec=DIGITS, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def enumerate_bag(log_probs: Tensor, label_set: set[int]) -> tuple[float, Tensor]:
    """Sum over all (C+1)^K label maps of one bag.

    Returns:
        Prb(label_set | P), and (C+1, K), the probability of the label set and of that emission together.
    """
    classes, positions = log_probs.shape
    probs = log_probs.double().exp()
    total, joint = 0.0, torch.zeros(classes, positions, dtype=torch.float64)
    for emitted in itertools.product(range(classes), repeat=positions):
        if set(emitted) - {classes - 1} == label_set:
            weight = 1.0
            for k, c in enumerate(emitted):
                weight *= float(probs[c, k])
            total += weight
            for k, c in enumerate(emitted):
                joint[c, k] += weight
    return total, joint


def every_label_set(classes: int) -> Tensor:
    """Return (2^C, C) bool, every label set of C classes."""
    return torch.tensor(list(itertools.product([False, True], repeat=classes)))


def every_set_prob(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (2^n,) the probability that exactly these classes occur, from probabilities (n+1, K), background last."""
    classes = len(probs) - 1
    sets = np.arange(2**classes)
    table = np.zeros(len(sets))
    table[0] = 1
    for column in probs.T:
        shows = [np.where(sets >> c & 1, column[c], 0.0) for c in range(classes)]
        table = table * (column[-1] + sum(shows)) + sum(table[sets & ~(1 << c)] * shows[c] for c in range(classes))
    return table


class PreciseBag:
    """The likelihood of a label set in 80 digits, from log-probabilities (C+1, K) that are read as exact numbers.

    With `normalised` they may be logits: the probabilities of each position are divided by their sum.
    """

    def __init__(self, log_probs: Tensor, label_set: list[int], *, normalised: bool = False) -> None:
        with decimal.localcontext(_PRECISE):
            background = log_probs.shape[0] - 1
            rows = [background, *label_set]
            values = log_probs.double().tolist()
            cache: dict[float, Decimal] = {}

            def exp(x: float) -> Decimal:
                if x not in cache:
                    cache[x] = Decimal(x).exp()  # 0 for -inf
                return cache[x]

            one = Decimal(1)
            sums = [sum(exp(row[k]) for row in values) if normalised else one for k in range(log_probs.shape[1])]
            self.columns = [[exp(values[r][k]) / total for r in rows] for k, total in enumerate(sums)]
            self.slots = len(label_set)
            self.prob = self._sum(self.columns)
            self._posteriors: dict[tuple[int, int], Decimal] = {}

    def _sum(self, columns: list[list[Decimal]]) -> Decimal:
        """Return the probability by a recursion over positions and the sets emitted so far; all terms are positive."""
        seen = {0: Decimal(1)}
        for column in columns:
            after: dict[int, Decimal] = {}
            for state, weight in seen.items():
                stay = column[0]
                for i in range(self.slots):
                    bit = 1 << i
                    if state & bit:
                        stay += column[i + 1]
                    elif column[i + 1]:
                        after[state | bit] = after.get(state | bit, 0) + weight * column[i + 1]
                if stay:
                    after[state] = after.get(state, 0) + weight * stay
            seen = after
        return seen.get((1 << self.slots) - 1, Decimal(0))

    def log_prob(self) -> Decimal:
        """Return log Prb."""
        with decimal.localcontext(_PRECISE):
            return self.prob.ln() if self.prob else Decimal("-inf")

    def posterior(self, slot: int, position: int) -> Decimal:
        """Return Prb(position emits slot | L): slot 0 is the background, then the label set in order."""
        if (slot, position) in self._posteriors:
            return self._posteriors[slot, position]
        with decimal.localcontext(_PRECISE):
            chosen = [Decimal(0)] * (self.slots + 1)
            chosen[slot] = self.columns[position][slot]
            joint = self._sum([*self.columns[:position], chosen, *self.columns[position + 1 :]])
            return self._posteriors.setdefault((slot, position), joint / self.prob)
