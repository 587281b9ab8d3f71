"""The augmentation of crops of house numbers, one change a batch as in the paper, and of users' images."""

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench.data.crops import Protocol

CROP = 60
"""Side of the part of the crop that is kept, in pixels."""
SIZES = (50, 70)
"""Smallest and largest height and width that this part is resized to, in pixels."""


def augment(
    images: Tensor, boxes: Tensor, rng: torch.Generator, protocol: Protocol = "ours"
) -> tuple[Tensor, Tensor]:
    """Return images (B, 3, h, w) and boxes (B, M, 4) in pixels after one random change, the same for the batch.

    A part of 60x60 pixels is kept, the channels are permuted, and height and width are resized to
    two sizes that are independent and uniform on 50..70. Boxes are moved with the pixels and
    clipped.

    The two protocols differ in the old pixel that new pixel i of n takes its value from: by
    `paper`, as in the programs of X.-L. Li, arXiv:1811.12346, it is number floor(i (60 - 1) / (n -
    1)), by `ours` the one at the centre of the new pixel. Both draw the same numbers, on the CPU.
    """
    _, num_channels, old_height, old_width = images.shape
    smallest, largest = SIZES
    top = int(torch.randint(old_height - CROP + 1, (), generator=rng))
    left = int(torch.randint(old_width - CROP + 1, (), generator=rng))
    channels = torch.randperm(num_channels, generator=rng)
    height, width = torch.randint(smallest, largest + 1, (2,), generator=rng).tolist()

    rows = top + _old_pixels(height, protocol, images.device)
    columns = left + _old_pixels(width, protocol, images.device)
    permuted = images[:, to_device(channels, images.device)]
    changed = permuted[:, :, rows.unsqueeze(1), columns]

    # A box is left, top, right and bottom. Both rows go to the device in one copy.
    geometry = torch.tensor(
        [[left, top, left, top], [width, height, width, height]], dtype=boxes.dtype
    )
    corner, size = to_device(geometry, boxes.device)
    moved = (boxes - corner).clamp(0, CROP)
    if protocol == "ours":
        return changed, moved * (size / CROP)
    # Old pixel x is shown from new pixel x (n - 1) / (60 - 1) on, and the last one by the last new
    # pixel alone.
    return changed, torch.minimum(moved * ((size - 1) / (CROP - 1)), size)


def _old_pixels(size: int, protocol: Protocol, device: torch.device) -> Tensor:
    """Return the old pixel, from 0 to CROP - 1, that each of `size` new pixels in a row takes its value from."""
    new = torch.arange(size, device=device)
    if protocol == "ours":
        return (2 * new + 1) * CROP // (2 * size)
    return new * (CROP - 1) // (size - 1)


def flip_and_crop(images: Tensor, rng: torch.Generator, *, flip: bool, crop: int) -> Tensor:
    """Return images (B, N, H, W), mirrored with probability 1/2, and shifted by up to `crop` pixels of repeated edges.

    Torchvision's classes would draw from the global generator, so its functions are given what
    `rng` draws.
    """
    from torchvision.transforms.v2 import functional as F

    count, _, height, width = images.shape
    if flip:
        is_mirrored = torch.randint(2, (count, 1, 1, 1), generator=rng).bool()
        is_mirrored = to_device(is_mirrored, images.device)
        images = torch.where(is_mirrored, F.horizontal_flip(images), images)
    if crop:
        corners = torch.randint(2 * crop + 1, (count, 2), generator=rng).tolist()
        padded = F.pad(images, [crop], padding_mode="edge")
        cut = [
            F.crop(image, top, left, height, width)
            for image, (top, left) in zip(padded, corners, strict=True)
        ]
        images = torch.stack(cut)
    return images
