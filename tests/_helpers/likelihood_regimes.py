"""Log-probabilities of one bag in the regimes that networks produce, from uniform to almost certain."""

from __future__ import annotations

import torch
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
