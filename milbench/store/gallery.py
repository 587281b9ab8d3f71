"""Galleries: a few test bags with what a loss detects in them.

Each gallery is one .npz file, from which nothing is unpickled.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import stored_arrays

Kind = Literal["image", "sequence", "set"]

_ARRAY_TYPES = {
    "instances": np.float32,
    "labels": np.bool_,
    "presence": np.float32,
    "probs": np.float16,
    "mask": np.bool_,
    "classes": np.int64,
    "boxes": np.float32,
    "position_classes": np.int64,
    "coords": np.float32,
    "ys": np.float32,
    "xs": np.float32,
}
"""The types of the fields of a gallery that are arrays."""


@dataclass(frozen=True, slots=True)
class Gallery:
    """A few test bags with the detections of one loss.

    Positions are where the network gives logits. The shapes depend on the kind of bags, for B bags
    and C classes:

    - images: instances (B, channels, height, width) in [0, 1]; positions (rows, columns);
    - sequences: instances (B, channels, frames), NaN beyond the end of a shorter one; positions
      (K,) in time;
    - sets: instances (B, K, features); positions (K,) without an order.

    A field that is None is not known. Raises ValueError where shapes do not fit together.
    """

    kind: Kind
    instances: NDArray[np.float32]
    labels: NDArray[np.bool_]
    """(B, C), the true label sets."""
    presence: NDArray[np.float32]
    """(B, C), the presence scores of the loss, on any monotone scale."""
    probs: NDArray[np.float16]
    """(B, C+1, *positions), the probability of each class at each position, background last."""
    class_names: tuple[str, ...]
    """The C names of the classes, as pictures show them."""
    mask: NDArray[np.bool_] | None = None
    """(B, *positions), True where there is an instance; None: everywhere."""
    ys: NDArray[np.float32] | None = None
    """The middle of each row of positions, in pixels. A sequence has one row.

    None: the rows are spread evenly.
    """
    xs: NDArray[np.float32] | None = None
    """The middle of each column of positions in pixels, or of each position in frames.

    None: the columns or positions are spread evenly.
    """
    threshold: float | None = None
    """The presence from which a class counts as detected.

    None: a class counts as detected where it is the most probable one at some position.
    """
    frames_per_second: float | None = None
    """The frames of a sequence in a second, None where that is not known."""
    classes: NDArray[np.int64] | None = None
    """(B, M), the classes of the true instances, -1 where a bag has fewer than M."""
    boxes: NDArray[np.float32] | None = None
    """(B, M, 4), the boxes of the true instances, see `Truth`."""
    position_classes: NDArray[np.int64] | None = None
    """(B, K), the true class at each position of a set, C for background."""
    coords: NDArray[np.float32] | None = None
    """(B, K, 2), x and y of each position of a set in the plane."""

    def __post_init__(self) -> None:
        problems = self._misfits()
        if problems:
            bags, classes = self.labels.shape
            raise ValueError(
                f"a gallery of {bags} bags and {classes} classes does not fit together: "
                f"{', '.join(problems)}"
            )

    def _misfits(self) -> list[str]:
        """Return the names of the fields whose shapes or values do not fit.

        Scores and the mask were checked before: when the scores were computed.
        """
        bags, classes = self.labels.shape
        positions = self.probs.shape[2:]
        # A sequence has one row of positions.
        rows_and_columns = (1, *positions) if self.kind == "sequence" else positions
        dimensions = 4 if self.kind == "image" else 3
        problems = []
        if len(self.instances) != bags or self.instances.ndim != dimensions:
            problems.append("instances")
        if len(self.class_names) != classes:
            problems.append("class_names")
        if self.frames_per_second is not None and not 0 < self.frames_per_second < np.inf:
            problems.append("frames_per_second")
        if self.ys is not None and self.ys.shape != rows_and_columns[:1]:
            problems.append("ys")
        if self.xs is not None and self.xs.shape != rows_and_columns[1:]:
            problems.append("xs")
        if self.boxes is not None and not self._has_class_of_each_box(self.boxes):
            problems.append("boxes")
        of_positions = (bags, *positions)
        if self.position_classes is not None and self.position_classes.shape != of_positions:
            problems.append("position_classes")
        if self.coords is not None and self.coords.shape != (*of_positions, 2):
            problems.append("coords")
        return problems

    def _has_class_of_each_box(self, boxes: NDArray[np.float32]) -> bool:
        return self.classes is not None and boxes.shape == (*self.classes.shape, 4)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of batches of bags, with -1 for what may differ between batches."""
        if self.kind == "set":
            return (-1, -1, self.instances.shape[-1])
        channels = self.instances.shape[1]
        if self.kind == "sequence":
            return (-1, channels, -1)
        return (-1, channels, -1, -1)

    def one_bag(self) -> NDArray[np.float32]:
        """Return the instances of the first bag as a batch of one, without padding."""
        bag = self.instances[:1]
        if self.kind == "sequence":
            is_padding = np.isnan(bag[0]).any(axis=0)
            return bag[:, :, ~is_padding]
        if self.kind == "set" and self.mask is not None:
            return bag[:, self.mask[0]]
        return bag

    def class_map(self, bag: int) -> NDArray[np.int64]:
        """Return the most probable class of every position of a bag.

        It is C for background, and at positions without an instance.
        """
        probs = self.probs[bag].astype(np.float32)
        class_map: NDArray[np.int64] = probs.argmax(axis=0)
        if self.mask is not None:
            class_map[~self.mask[bag]] = len(self.class_names)
        return class_map

    def detected(self, bag: int) -> set[int]:
        """Return the classes that count as detected in a bag."""
        if self.threshold is not None:
            above = np.flatnonzero(self.presence[bag] >= self.threshold)
            return {int(c) for c in above}
        background = len(self.class_names)
        shown = np.unique(self.class_map(bag))
        return {int(c) for c in shown if c != background}

    def true(self, bag: int) -> set[int]:
        """Return the true label set of a bag."""
        return {int(c) for c in np.flatnonzero(self.labels[bag])}


def make(**values: Any) -> Gallery:
    """Return a gallery from arrays or lists, which are converted to the types of its fields."""
    converted = {}
    for name, value in values.items():
        if value is not None:
            converted[name] = _converted(name, value)
    return Gallery(**converted)


def _converted(name: str, value: Any) -> Any:
    """Return a value in the type of its field. Raises KeyError for a name that is no field."""
    if name == "kind":
        return str(value)
    if name == "class_names":
        return tuple(str(class_name) for class_name in value)
    if name in ("threshold", "frames_per_second"):
        return float(value)
    return np.asarray(value, dtype=_ARRAY_TYPES[name])


def write(path: Path, gallery: Gallery) -> None:
    """Write a gallery as one file."""
    values = {}
    for field in fields(gallery):
        value = getattr(gallery, field.name)
        if value is not None:
            values[field.name] = value
    # numpy adds .npz to a name that lacks it, but not to an open file.
    with path.open("wb") as file:
        np.savez_compressed(file, **values)


def load(path: Path) -> Gallery:
    """Read a gallery that `write` wrote.

    Raises UsageError if the file is missing, damaged or of another version.
    """
    with stored_arrays("gallery", path) as stored:
        return make(**stored)
