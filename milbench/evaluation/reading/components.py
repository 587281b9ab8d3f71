"""Connected components of positions that show the same class.

A decoder reads them as digits, and a detection is a box around one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Components:
    """N components of many images, sorted by image and by class.

    Each field is (N,). Rows and columns are counted in the grid of positions.
    """

    image: Ints
    """The index of the image that holds the component."""
    cls: Ints
    mass: Floats
    """The sum of the class's probability over the positions of the component."""
    y: Floats
    """The row of the middle, weighted by the probability."""
    x: Floats
    """The column of the middle."""
    top: Ints
    left: Ints
    bottom: Ints
    """The row after the last one."""
    right: Ints
    """The column after the last one."""

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, index: NDArray[np.bool_] | Ints) -> Components:
        chosen = {field.name: getattr(self, field.name)[index] for field in fields(self)}
        return Components(**chosen)


def find_components(probs: Tensor, classes: Tensor | None = None) -> Components:
    """Return the connected components of positions that show the same class.

    Positions that touch at a corner are connected. Background makes no components.

    Args:
        probs: (B, C+1, h, w), the probability of each class at each position, background last.
        classes: (B, h, w) int64, the class that each position shows; by default the most probable.
    """
    from scipy import ndimage

    probs = probs.cpu()
    classes = probs.argmax(dim=1) if classes is None else classes.cpu()
    background = probs.shape[1] - 1
    # `maps` has a map (h, w) for each image and each class that it shows, in this order.
    is_shown = torch.zeros(len(classes), background + 1, dtype=torch.bool)
    is_shown.scatter_(1, classes.flatten(1), True)
    image, cls = is_shown[:, :-1].nonzero().unbind(dim=1)
    maps = classes[image] == cls[:, None, None]

    # One call numbers the components of all maps: the structure connects nothing along the first
    # axis, the axis of maps.
    structure = np.zeros((3, 3, 3), bool)
    structure[1] = True
    numbers, count = ndimage.label(maps.numpy(), structure)

    # The positions of all components, one component after the other.
    inside = np.nonzero(numbers)
    number_of_position = numbers[inside]
    order = np.argsort(number_of_position, kind="stable")
    of_map, row, column = (axis[order] for axis in inside)
    starts = np.searchsorted(number_of_position[order], np.arange(1, count + 1))
    probability = probs[image, cls].double().numpy()[of_map, row, column]

    mass = np.add.reduceat(probability, starts)
    # `classes` may hold a class whose probability is 0 there. All positions of such a component
    # count alike for its middle.
    sizes = np.diff(starts, append=len(probability))
    has_mass = np.repeat(mass > 0, sizes)
    weight = np.where(has_mass, probability, 1.0)
    total = np.add.reduceat(weight, starts)
    map_of_component = of_map[starts]
    return Components(
        image=image.numpy()[map_of_component],
        cls=cls.numpy()[map_of_component],
        mass=mass,
        y=np.add.reduceat(weight * row, starts) / total,
        x=np.add.reduceat(weight * column, starts) / total,
        top=np.minimum.reduceat(row, starts),
        left=np.minimum.reduceat(column, starts),
        bottom=np.maximum.reduceat(row, starts) + 1,
        right=np.maximum.reduceat(column, starts) + 1,
    )


def strongest_positions(strength: Tensor, probs: Tensor, labels: Tensor) -> Components:
    """Return one position as a component for each class of each label set.

    It is the position where the strength of the class is largest, and its mass is the probability
    of the class at that position.

    Args:
        strength: (B, C, h, w), larger where a position speaks more strongly for a class.
        probs: (B, C+1, h, w), the probability of each class at each position, background last.
        labels: (B, C) bool, the label sets.
    """
    image, cls = labels.cpu().nonzero().unbind(dim=1)
    width = probs.shape[3]
    by_position = strength.cpu()[image, cls].flatten(1)
    # An argmax over no maps is an error. Where all label sets are empty, so is `image`.
    position = by_position.argmax(dim=1) if len(image) else image
    row = position // width
    column = position % width
    mass = probs.cpu()[image, cls, row, column].double()
    top = row.numpy()
    left = column.numpy()
    return Components(
        image=image.numpy(),
        cls=cls.numpy(),
        mass=mass.numpy(),
        y=top.astype(float),
        x=left.astype(float),
        top=top,
        left=left,
        bottom=top + 1,
        right=left + 1,
    )


def concatenate(parts: list[Components], sizes: list[int]) -> Components:
    """Return the components of all batches of images, with the images numbered as in one batch.

    `sizes` says how many images each batch has.
    """
    values = {}
    for field in fields(Components):
        values[field.name] = np.concatenate([getattr(part, field.name) for part in parts])
    first_images = np.cumsum([0, *sizes[:-1]])
    components_of_parts = [len(part) for part in parts]
    values["image"] = values["image"] + np.repeat(first_images, components_of_parts)
    return Components(**values)
