"""The augmentation of one's own images: mirrored and shifted, each image by draws of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench._utils.devices import to_device


def flip_and_crop(images: Tensor, rng: torch.Generator, *, flip: bool, crop: int) -> Tensor:
    """Return images of the same size, each mirrored with probability 1/2 and cut out of its padded self.

    Torchvision's classes draw from the global generator; its functions are given what our generator draws, so that all
    losses are trained on the same images.

    Args:
        images: (B, N, H, W), of any type and on any device.
        rng: a generator on the CPU.
        flip: whether left and right are swapped in about half of the images.
        crop: pixels by which the edges are repeated on every side, before a part of the old size is cut out anywhere;
            0: images stay as they are.
    """
    from torchvision.transforms.v2 import functional as F

    count, _, height, width = images.shape
    if flip:
        mirrored = to_device(torch.randint(2, (count, 1, 1, 1), generator=rng).bool(), images.device)
        images = torch.where(mirrored, F.horizontal_flip(images), images)
    if crop:
        corners = torch.randint(2 * crop + 1, (count, 2), generator=rng).tolist()
        padded = F.pad(images, [crop], padding_mode="edge")
        cut = [F.crop(one, top, left, height, width) for one, (top, left) in zip(padded, corners, strict=True)]
        images = torch.stack(cut)
    return images
