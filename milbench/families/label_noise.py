"""Wrong label sets to train on: classes left out, and classes named that do not occur."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench._utils.devices import to_device


def noisy_labels(labels: Tensor, sizes: Tensor, dropped: float, added: float, rng: torch.Generator) -> Tensor:
    """Return label sets (B, C) without a present class at the rate `dropped`, with an absent one at the rate `added`.

    Errors are independent. No bag gets more labels than it has instances, `sizes` (B,): where there is room for some of
    the wrong ones alone, chance decides.
    """
    uniform = to_device(torch.rand(labels.shape, generator=rng), labels.device)
    kept = labels & (uniform >= dropped)
    wrong = ~labels & (uniform < added)
    room = sizes - kept.sum(dim=1)
    rank = uniform.masked_fill(~wrong, torch.inf).argsort(dim=1).argsort(dim=1)
    return kept | (wrong & (rank < room.unsqueeze(1)))
