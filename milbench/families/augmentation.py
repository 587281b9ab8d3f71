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
    places = images.shape[2] - CROP + 1, images.shape[3] - CROP + 1
    top, left = (int(torch.randint(count, (), generator=rng)) for count in places)
    channels = torch.randperm(images.shape[1], generator=rng)
    height, width = torch.randint(SIZES[0], SIZES[1] + 1, (2,), generator=rng).tolist()
    rows, columns = (_old_pixels(size, protocol, images.device) for size in (height, width))
    changed = images[:, to_device(channels, images.device)][
        :, :, (top + rows).unsqueeze(1), left + columns
    ]
    geometry = torch.tensor([[left, top] * 2, [width, height] * 2], dtype=boxes.dtype)
    corner, size = to_device(geometry, boxes.device)
    moved = (boxes - corner).clamp(0, CROP)
    if protocol == "ours":
        return changed, moved * (size / CROP)
    # Old pixel x is shown from new pixel x (n - 1) / (60 - 1) on, and the last one by the last new pixel alone.
    return changed, torch.minimum(moved * ((size - 1) / (CROP - 1)), size)


def _old_pixels(size: int, protocol: Protocol, device: torch.device) -> Tensor:
    new = torch.arange(size, device=device)
    return (
        (2 * new + 1) * CROP // (2 * size) if protocol == "ours" else new * (CROP - 1) // (size - 1)
    )


def flip_and_crop(images: Tensor, rng: torch.Generator, *, flip: bool, crop: int) -> Tensor:
    """Return images (B, N, H, W), mirrored with probability 1/2, and shifted by up to `crop` pixels of repeated edges.

    Torchvision's functions are given what `rng` draws, as its classes draw from the global generator.
    """
    from torchvision.transforms.v2 import functional as F

    count, _, height, width = images.shape
    if flip:
        mirrored = to_device(
            torch.randint(2, (count, 1, 1, 1), generator=rng).bool(), images.device
        )
        images = torch.where(mirrored, F.horizontal_flip(images), images)
    if crop:
        corners = torch.randint(2 * crop + 1, (count, 2), generator=rng).tolist()
        padded = F.pad(images, [crop], padding_mode="edge")
        cut = [
            F.crop(image, top, left, height, width)
            for image, (top, left) in zip(padded, corners, strict=True)
        ]
        images = torch.stack(cut)
    return images
