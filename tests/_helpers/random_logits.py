"""Random logits, the same in every run."""

from __future__ import annotations

import torch
from torch import Tensor


def random_logits(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    """Return float64 normal numbers of that shape and standard deviation; no two are equal."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)
