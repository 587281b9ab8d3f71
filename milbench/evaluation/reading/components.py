"""Connected components of positions that show the same class: decoders read them as digits, detections box them."""

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
    """N components of many images, sorted by image and by class; each field is (N,), and lengths are in positions."""

    image: Ints
    cls: Ints
    mass: Floats
    """The sum of the class's probability over the component: how many positions are expected to show it."""
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
    """Return the connected components of positions with the same class, corners included.

    `probs` is (B, C+1, h, w), background last; `classes` (B, h, w) int64, by default the most
    probable ones.
    """
    from scipy import ndimage

    probs = probs.cpu()
    classes = probs.argmax(dim=1) if classes is None else classes.cpu()
    background = probs.shape[1] - 1
    # A map for each image and each class that it shows, sorted by image and by class.
    is_shown = torch.zeros(len(classes), background + 1, dtype=torch.bool)
    is_shown.scatter_(1, classes.flatten(1), True)
    image, cls = is_shown[:, :-1].nonzero().unbind(dim=1)
    maps = classes[image] == cls[:, None, None]

    # One call labels all maps: the structure connects nothing along the first axis.
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
    # A loss may find a class where its probability is 0: the middle of such a component is that of
    # its positions.
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
    """Return a component for each class of label sets (B, C): the position where its strength (B, C, h, w) is largest.

    Its mass is the probability of the class there, of `probs` (B, C+1, h, w).
    """
    image, cls = labels.cpu().nonzero().unbind(dim=1)
    width = probs.shape[3]
    by_position = strength.cpu()[image, cls].flatten(1)
    # An argmax over no maps is an error. Without maps `image` is as empty as the places.
    place = by_position.argmax(dim=1) if len(image) else image
    row = place // width
    column = place % width
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
    """Return the components of batches of images of these sizes, numbered as one batch."""
    values = {}
    for field in fields(Components):
        values[field.name] = np.concatenate([getattr(part, field.name) for part in parts])
    first_images = np.cumsum([0, *sizes[:-1]])
    components_of_parts = [len(part) for part in parts]
    values["image"] = values["image"] + np.repeat(first_images, components_of_parts)
    return Components(**values)
