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

    A part of 60x60 pixels is kept, the channels are permuted, and height and width are resized to two sizes that are
    independent and uniform on 50..70. Boxes are moved with the pixels and clipped. As in the programs of X.-L. Li,
    arXiv:1811.12346: by the protocol `paper` pixel i of n has the value of the old one of number
    floor(i (60 - 1) / (n - 1)), by `ours` that of the old one at its centre. Both draw the same numbers, on the CPU.
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
    # Old pixel x is shown from new pixel x (n - 1) / (60 - 1) on, and the last one by the last new pixel alone.
    return changed, torch.minimum(moved * ((size - 1) / (CROP - 1)), size)


def _old_pixels(size: int, protocol: Protocol, device: torch.device) -> Tensor:
    """Return the old pixels, from 0 to CROP - 1, that `size` new ones in a row have the values of."""
    new = torch.arange(size, device=device)
    if protocol == "ours":
        return (2 * new + 1) * CROP // (2 * size)
    return new * (CROP - 1) // (size - 1)


def flip_and_crop(images: Tensor, rng: torch.Generator, *, flip: bool, crop: int) -> Tensor:
    """Return images (B, N, H, W), mirrored with probability 1/2, and shifted by up to `crop` pixels of repeated edges.

    Torchvision's functions are given what `rng` draws, as its classes draw from the global generator.
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
