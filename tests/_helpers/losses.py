"""Losses by name that give one value a bag, as training has them, and random logits, the same in every run."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from milbench import load_loss

per_bag = partial(load_loss, reduction="none")


def random_logits(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    """Return float64 normal numbers of that shape and standard deviation; no two are equal."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)
