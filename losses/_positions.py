"""What the losses that look at logits position by position share."""

from __future__ import annotations

import torch
from torch import Tensor


def exclude_masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C+1, K) logits that are -inf where there is no instance: no share of a sum of exp, never a maximum."""
    return logits if mask is None else logits.masked_fill(~mask.unsqueeze(1), -torch.inf)
