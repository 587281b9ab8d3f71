"""Bags from uniform to almost certain: one for each regime that networks produce, and random ones for properties."""

from __future__ import annotations

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

BACKGROUND = (0, 4, 8, 16, 24, 40)
REGIMES = ("uniform", *(f"background+{b}" for b in BACKGROUND), "dominant", "nearly-absent", "all-tiny", "crowded")


def regime_log_probs(regime: str, classes: int, positions: int, seed: int = 0) -> Tensor:
    """Return (C+1, K) float64 log-probabilities; a regime that singles a class out does so with class 0."""
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
    elif regime == "crowded":  # every class is most probable at the same position
        logits[:-1] -= 30.0
        logits[:-1, positions // 2] += 45.0
    else:
        raise ValueError(regime)
    return logits.log_softmax(dim=0)


class RandomBag(NamedTuple):
    """A batch of one bag: log_probs (1, C+1, K) float64, labels (1, C) bool."""

    log_probs: Tensor
    labels: Tensor


@st.composite
def random_bags(draw: st.DrawFn, max_classes: int = 4, max_positions: int = 8) -> RandomBag:
    classes = draw(st.integers(1, max_classes))
    positions = draw(st.integers(1, max_positions))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = torch.randn(1, classes + 1, positions, generator=generator, dtype=torch.float64)
    logits = logits * draw(st.sampled_from([0.0, 1.0, 5.0, 30.0]))
    logits[:, -1] += draw(st.sampled_from([-5.0, 0.0, 6.0, 20.0]))
    if draw(st.booleans()):
        ruled_out = torch.rand(logits.shape, generator=generator) < 0.3
        ruled_out[:, draw(st.integers(0, classes))] = False
        logits = logits.masked_fill(ruled_out, -torch.inf)
    labels = torch.tensor([draw(st.lists(st.booleans(), min_size=classes, max_size=classes))])
    return RandomBag(logits.log_softmax(dim=1), labels)
