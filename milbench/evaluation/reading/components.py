"""Connected components of positions that show the same class: decoders read them as digits, detections box them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial

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
    mass: Floats  # the sum of the class's probability over the component: how many positions are expected to show it
    y: Floats  # the row of the middle, weighted by the probability
    x: Floats  # its column
    top: Ints
    left: Ints
    bottom: Ints  # the row after the last one
    right: Ints  # the column after the last one

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, index: NDArray[np.bool_] | Ints) -> Components:
        return Components(*(getattr(self, f.name)[index] for f in fields(self)))


def find_components(probs: Tensor, classes: Tensor | None = None) -> Components:
    """Return the connected components of positions with the same class, corners included.

    `probs` is (B, C+1, h, w), background last; `classes` (B, h, w) int64, by default the most probable ones.
    """
    from scipy import ndimage

    probs = probs.cpu()
    classes = probs.argmax(dim=1) if classes is None else classes.cpu()
    background = probs.shape[1] - 1
    present = torch.zeros(len(classes), background + 1, dtype=torch.bool).scatter_(
        1, classes.flatten(1), True
    )
    image, cls = present[:, :-1].nonzero().unbind(dim=1)
    maps = classes[image] == cls[:, None, None]
    # One call labels all maps: the structure connects nothing along the first axis.
    structure = np.zeros((3, 3, 3), bool)
    structure[1] = True
    ids, count = ndimage.label(maps.numpy(), structure)
    inside = np.nonzero(ids)
    order = np.argsort(ids[inside], kind="stable")
    pair, row, column = (axis[order] for axis in inside)
    starts = np.searchsorted(ids[inside][order], np.arange(1, count + 1))
    weight = probs[image, cls].double().numpy()[pair, row, column]

    total, lowest = (
        partial(np.add.reduceat, indices=starts),
        partial(np.minimum.reduceat, indices=starts),
    )
    mass = total(weight)
    # A loss may find a class where its probability is 0: the middle of such a component is that of its positions.
    share = np.where(np.repeat(mass > 0, np.diff(starts, append=len(weight))), weight, 1.0)
    of = pair[starts]
    return Components(
        image=image.numpy()[of], cls=cls.numpy()[of], mass=mass,
        y=total(share * row) / total(share), x=total(share * column) / total(share),
        top=lowest(row), left=lowest(column), bottom=-lowest(-row) + 1, right=-lowest(-column) + 1,
    )  # fmt: skip


def strongest_positions(strength: Tensor, probs: Tensor, labels: Tensor) -> Components:
    """Return a component for each class of label sets (B, C): the position where its strength (B, C, h, w) is largest.

    Its mass is the probability of the class there, of `probs` (B, C+1, h, w).
    """
    image, cls = labels.cpu().nonzero().unbind(dim=1)
    place = strength.cpu()[image, cls].flatten(1).argmax(dim=1) if len(image) else image
    row, column = place // probs.shape[3], place % probs.shape[3]
    mass = probs.cpu()[image, cls, row, column].double()
    n, c, y, x = (values.numpy() for values in (image, cls, row, column))
    return Components(n, c, mass.numpy(), y.astype(float), x.astype(float), y, x, y + 1, x + 1)


def concatenate(parts: list[Components], sizes: list[int]) -> Components:
    """Return the components of batches of images of these sizes, numbered as one batch."""
    joined = Components(
        *(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Components))
    )
    first = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(part) for part in parts])
    return replace(joined, image=joined.image + first)
