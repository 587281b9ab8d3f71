"""Independent truth: enumeration, and a sum over subsets in 80 digits of mpmath. Nothing here uses the package."""

from __future__ import annotations

import itertools

import mpmath
import torch
from torch import Tensor

DIGITS = 80


def enumerate_bag(log_probs: Tensor, label_set: set[int]) -> tuple[float, Tensor]:
    """Return Prb and the joint probability with each emission, over all (C+1)^K ways; log_probs is (C+1, K)."""
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


class Precise:
    """One bag in 80 digits: `log_probs` (C+1, K), taken exactly as the floats they are."""

    def __init__(self, log_probs: Tensor, label_set: list[int]) -> None:
        with mpmath.workdps(DIGITS):
            background = log_probs.shape[0] - 1
            rows = [background, *label_set]
            values = log_probs.double().tolist()
            cache: dict[float, mpmath.mpf] = {}

            def exp(x: float) -> mpmath.mpf:
                if x not in cache:
                    cache[x] = mpmath.exp(mpmath.mpf(x)) if x > float("-inf") else mpmath.mpf(0)
                return cache[x]

            self.columns = [[exp(values[r][k]) for r in rows] for k in range(log_probs.shape[1])]
            self.slots = len(label_set)
            self.prob = self._sum(self.columns)
            self._posteriors: dict[tuple[int, int], mpmath.mpf] = {}

    def _sum(self, columns: list[list[mpmath.mpf]]) -> mpmath.mpf:
        """Sum over what has been emitted so far, position by position: positive terms alone."""
        seen = {0: mpmath.mpf(1)}
        for column in columns:
            after: dict[int, mpmath.mpf] = {}
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
        return seen.get((1 << self.slots) - 1, mpmath.mpf(0))

    def log_prob(self) -> mpmath.mpf:
        """Return log Prb."""
        with mpmath.workdps(DIGITS):
            return mpmath.log(self.prob) if self.prob else mpmath.mpf("-inf")

    def posterior(self, slot: int, position: int) -> mpmath.mpf:
        """Return Prb(position emits slot | L): slot 0 is the background, then the label set in order."""
        if (slot, position) in self._posteriors:
            return self._posteriors[slot, position]
        with mpmath.workdps(DIGITS):
            chosen = [mpmath.mpf(0)] * (self.slots + 1)
            chosen[slot] = self.columns[position][slot]
            joint = self._sum([*self.columns[:position], chosen, *self.columns[position + 1 :]])
            return self._posteriors.setdefault((slot, position), joint / self.prob)
