"""How the paper varies crops of house numbers: one draw a batch."""

from __future__ import annotations

import torch
from torch import Tensor

CROP = 60
"""Side of the part of the crop that is kept, in pixels."""
SIZES = (50, 70)
"""Smallest and largest height and width that it is resized to."""


def augment(images: Tensor, boxes: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return images (B, 3, h, w) and boxes (B, M, 4) after one change of crop, colour and size, the same for all.

    A part of 60x60 pixels, any permutation of the channels, then height and width resized to sizes independent and
    uniform on 50..70, every new pixel taking the value of the one at its centre (X.-L. Li, arXiv:1811.12346, as its
    author's programs do it). Boxes go with the pixels, clipped: one that is cut away has no area. Draws come from `rng`
    on the CPU, the work is done where the images are.
    """
    places = images.shape[2] - CROP + 1, images.shape[3] - CROP + 1
    top, left = (int(torch.randint(count, (), generator=rng)) for count in places)
    channels = torch.randperm(images.shape[1], generator=rng)
    height, width = torch.randint(SIZES[0], SIZES[1] + 1, (2,), generator=rng).tolist()
    rows, columns = (_nearest(size, images.device) for size in (height, width))
    seen = images[:, channels.to(images.device)][:, :, (top + rows).unsqueeze(1), left + columns]
    scale = torch.tensor([width, height, width, height], dtype=boxes.dtype, device=boxes.device) / CROP
    moved = (boxes - torch.tensor([left, top, left, top], device=boxes.device)).clamp(0, CROP) * scale
    return seen, moved


def _nearest(size: int, device: torch.device) -> Tensor:
    """Return for each of `size` new pixels which of the 60 old ones holds its centre."""
    return (2 * torch.arange(size, device=device) + 1) * CROP // (2 * size)
