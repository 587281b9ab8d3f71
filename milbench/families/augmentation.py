"""Random changes of training images: of crops of house numbers, and of users' images."""

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench.data.crops import Protocol

CROP = 60
"""The side in pixels of the part of a crop that is kept."""
SIZES = (50, 70)
"""The smallest and the largest side in pixels to which this part is resized."""


def augment(
    images: Tensor, boxes: Tensor, rng: torch.Generator, protocol: Protocol = "ours"
) -> tuple[Tensor, Tensor]:
    """Return crops of house numbers and their boxes after a random change.

    All crops of a batch are changed in the same way, as in X.-L. Li, arXiv:1811.12346. A part of
    60x60 pixels is kept, its channels are permuted, and it is resized to a height and a width that
    are independent and uniform on 50..70. Boxes are moved with the pixels and clipped.

    Each new pixel takes the value of one old pixel. By the protocol `paper`, as in the programs of
    that paper, new pixel i of n takes the value of old pixel

        floor(i (60 - 1) / (n - 1)).

    By `ours` it is the old pixel at the centre of the new one. Both protocols use the same random
    numbers, which are made on the CPU.

    Args:
        images: (B, 3, h, w).
        boxes: (B, M, 4) in pixels: left, top, right, bottom.
        rng: the generator of the random numbers.
        protocol: `paper` or `ours`.
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

    # The two rows are one tensor, so that they go to the device in one copy.
    geometry = torch.tensor(
        [[left, top, left, top], [width, height, width, height]], dtype=boxes.dtype
    )
    corner, size = to_device(geometry, boxes.device)
    moved = (boxes - corner).clamp(0, CROP)
    if protocol == "ours":
        return changed, moved * (size / CROP)
    # By `paper`, new pixel x (n - 1) / (60 - 1) is the first one with the value of old pixel x. The
    # right end of a box at the end of the old image must not be beyond the new image.
    return changed, torch.minimum(moved * ((size - 1) / (CROP - 1)), size)


def _old_pixels(size: int, protocol: Protocol, device: torch.device) -> Tensor:
    """Return (size,), the old pixel, from 0 to CROP - 1, of each new pixel along an axis."""
    new = torch.arange(size, device=device)
    if protocol == "ours":
        return (2 * new + 1) * CROP // (2 * size)
    return new * (CROP - 1) // (size - 1)


def flip_and_crop(images: Tensor, rng: torch.Generator, *, flip: bool, crop: int) -> Tensor:
    """Return images (B, N, H, W), each mirrored and shifted at random.

    With `flip` an image is mirrored with probability 1/2. It is shifted by up to `crop` pixels
    along each axis, and what is missing then is filled with the pixels at the edge.
    """
    # Torchvision's classes for such changes use the global random generator, its functions do not.
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
