"""Galleries: a few test bags with what a loss detects in them, each one .npz file; nothing in it is unpickled."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import stored_arrays

Kind = Literal["image", "sequence", "set"]
_TYPES = {
    "instances": np.float32, "labels": np.bool_, "presence": np.float32, "probs": np.float16, "mask": np.bool_,
    "classes": np.int64, "boxes": np.float32, "position_classes": np.int64, "coords": np.float32, "ys": np.float32,
    "xs": np.float32,
}  # fmt: skip
_READ: dict[str, Callable[[Any], Any]] = {
    "kind": str, "class_names": lambda names: tuple(map(str, names)), "threshold": float, "frames_per_second": float,
    **{name: partial(np.asarray, dtype=dtype) for name, dtype in _TYPES.items()},
}  # fmt: skip
"""What converts a value, given or stored, to the type of its field."""


@dataclass(frozen=True, slots=True)
class Gallery:
    """A few test bags with the detections of one loss; ValueError where shapes do not fit together.

    An image has instances (B, N, H, W) in [0, 1] and positions (rows, columns); a sequence has instances (B, F, T), NaN
    where it is shorter, and positions (K,) in time; a set has instances (B, K, D) and positions (K,) without an order.
    What is None is not known.
    """

    kind: Kind
    instances: NDArray[np.float32]
    labels: NDArray[np.bool_]  # (B, C), the true label sets
    presence: NDArray[np.float32]  # (B, C), the loss's presence scores, on any monotone scale
    probs: NDArray[
        np.float16
    ]  # (B, C+1, *positions), of each class in each position, background last
    class_names: tuple[str, ...]  # C names to show
    mask: NDArray[np.bool_] | None = (
        None  # (B, *positions), True where there is an instance; None: everywhere
    )
    ys: NDArray[np.float32] | None = (
        None  # of rows of positions in pixels, of a sequence one; None: spread evenly
    )
    xs: NDArray[np.float32] | None = (
        None  # of columns of positions in pixels, or of positions in frames
    )
    threshold: float | None = None
    """The presence from which a class counts as detected; None: where it is the most probable one in some position."""
    frames_per_second: float | None = None
    classes: NDArray[np.int64] | None = (
        None  # (B, M), of the true instances, -1 where a bag has fewer than M
    )
    boxes: NDArray[np.float32] | None = None  # (B, M, 4), see `Truth`
    position_classes: NDArray[np.int64] | None = None  # of sets, (B, K), C for background
    coords: NDArray[np.float32] | None = (
        None  # of sets, (B, K, 2), x and y in the plane of each position
    )

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of batches of bags, with -1 for what may differ between batches."""
        channels, features = self.instances.shape[1], self.instances.shape[-1]
        return {
            "set": (-1, -1, features),
            "sequence": (-1, channels, -1),
            "image": (-1, channels, -1, -1),
        }[self.kind]

    def one_bag(self) -> NDArray[np.float32]:
        """Return the instances of the first bag as a batch of one, without padding."""
        bag = self.instances[:1]
        if self.kind == "sequence":
            return bag[:, :, ~np.isnan(bag[0]).any(axis=0)]
        return bag[:, self.mask[0]] if self.kind == "set" and self.mask is not None else bag

    def __post_init__(self) -> None:
        bags, classes = self.labels.shape
        positions = self.probs.shape[2:]
        grid = (1, *positions) if self.kind == "sequence" else positions
        fits = {  # scores and masks were checked by the loss
            "instances": len(self.instances) == bags
            and self.instances.ndim == (4 if self.kind == "image" else 3),
            "class_names": len(self.class_names) == classes,
            "frames_per_second": self.frames_per_second is None
            or 0 < self.frames_per_second < np.inf,
            "ys": self.ys is None or self.ys.shape == grid[:1],
            "xs": self.xs is None or self.xs.shape == grid[1:],
            "boxes": self.boxes is None
            or (self.classes is not None and self.boxes.shape == (*self.classes.shape, 4)),
            "position_classes": self.position_classes is None
            or self.position_classes.shape == (bags, *positions),
            "coords": self.coords is None or self.coords.shape == (bags, *positions, 2),
        }
        if problems := ", ".join(name for name, is_valid in fits.items() if not is_valid):
            raise ValueError(
                f"a gallery of {bags} bags and {classes} classes does not fit together: {problems}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def class_map(self, bag: int) -> NDArray[np.int64]:
        """Return the most probable class of every position of a bag, C for background and where the mask excludes."""
        class_map: NDArray[np.int64] = self.probs[bag].astype(np.float32).argmax(axis=0)
        if self.mask is not None:
            class_map[~self.mask[bag]] = len(self.class_names)
        return class_map

    def detected(self, bag: int) -> set[int]:
        """Return the classes that count as detected in a bag."""
        if self.threshold is not None:
            return {int(c) for c in np.flatnonzero(self.presence[bag] >= self.threshold)}
        return {int(c) for c in np.unique(self.class_map(bag))} - {len(self.class_names)}

    def true(self, bag: int) -> set[int]:
        """Return the true label set of a bag."""
        return {int(c) for c in np.flatnonzero(self.labels[bag])}


def make(**values: Any) -> Gallery:
    """Return a gallery from arrays of any type, such as lists, which are converted to the types of its fields."""
    return Gallery(
        **{name: _READ[name](value) for name, value in values.items() if value is not None}
    )


def write(path: Path, gallery: Gallery) -> None:
    """Write a gallery as one file."""
    values = {field.name: getattr(gallery, field.name) for field in fields(gallery)}
    with path.open(
        "wb"
    ) as file:  # numpy adds .npz to a name that lacks it, but not to an open file
        np.savez_compressed(
            file, **{name: value for name, value in values.items() if value is not None}
        )


def load(path: Path) -> Gallery:
    """Read a gallery that `write` wrote. Raises UsageError if the file is missing, damaged or of another version."""
    with stored_arrays("gallery", path) as stored:
        return make(**stored)
