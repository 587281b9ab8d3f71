"""Galleries: a few test bags with what a loss detects in them, and test bags that it misreads.

A gallery is stored as one .npz file, which is written and read with numpy alone; nothing in it is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import stored_arrays
from milbench.errors import UsageError

Kind = Literal["image", "sequence", "set"]
_AXES: dict[str, tuple[int, int]] = {"image": (4, 2), "sequence": (3, 1), "set": (3, 1)}
"""By kind, the dimensions of the instances and of the positions."""
GALLERY_FORMAT = 1
_TYPES = {
    "instances": np.float32, "labels": np.bool_, "presence": np.float32, "probs": np.float16, "mask": np.bool_,
    "classes": np.int64, "boxes": np.float32, "position_classes": np.int64, "coords": np.float32,
    "sensitivity": np.uint8, "sensitivity_of": np.int64,
}  # fmt: skip
"""The types of the arrays."""
_PREFIX = "misread_"


@dataclass(frozen=True, slots=True)
class Misread:
    """How many test bags a network misreads, by error pattern, with E examples.

    Args:
        bags: how many test bags were read.
        counts: in how many of them each pattern occurs (see `milbench.evaluation.reading.strings`), in the order
            of display, without patterns that occur in none.
        patterns: the pattern of each of the E examples, a key of `counts`.
        truth: the E true strings.
        read: the same as they were read.
        images: (E, N, H, W) uint8.
        class_maps: (E, h, w) uint8, the most probable class of every position, C for background.
        strengths: (E, h, w) float16, the probability of that class.
    """

    bags: int
    counts: dict[str, int]
    patterns: tuple[str, ...]
    truth: tuple[str, ...]
    read: tuple[str, ...]
    images: NDArray[np.uint8]
    class_maps: NDArray[np.uint8]
    strengths: NDArray[np.float16]

    def __post_init__(self) -> None:
        examples = len(self.patterns)
        fits = {
            "counts": min(self.counts.values(), default=1) > 0 and sum(self.counts.values()) <= self.bags,
            "patterns": set(self.patterns) <= set(self.counts),
            "truth": len(self.truth) == examples,
            "read": len(self.read) == examples,
            "images": self.images.ndim == 4 and len(self.images) == examples,
            "class_maps": self.class_maps.ndim == 3 and len(self.class_maps) == examples,
            "strengths": self.strengths.shape == self.class_maps.shape,
        }
        wrong = [name for name, good in fits.items() if not good]
        if wrong:
            raise ValueError(f"{examples} examples of misread bags do not fit together: {', '.join(wrong)}")

    def __len__(self) -> int:
        return len(self.patterns)

    def of(self, pattern: str) -> list[int]:
        """Return the indices of the examples of a pattern."""
        return [i for i, name in enumerate(self.patterns) if name == pattern]

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that `from_arrays` reads."""
        arrays = {  # "winners" is what files call class maps
            "bags": self.bags, "names": np.asarray(list(self.counts), np.str_),
            "counts": np.asarray(list(self.counts.values()), np.int64), "patterns": np.asarray(self.patterns, np.str_),
            "truth": np.asarray(self.truth, np.str_), "read": np.asarray(self.read, np.str_),
            "images": self.images, "winners": self.class_maps, "strengths": self.strengths,
        }  # fmt: skip
        return {_PREFIX + name: value for name, value in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Misread | None:
        """Return the misread bags among the arrays of a stored gallery, None where it has none."""
        if _PREFIX + "bags" not in arrays:
            return None
        counts = dict(zip(arrays[_PREFIX + "names"].tolist(), arrays[_PREFIX + "counts"].tolist(), strict=True))
        patterns, truth, read = (tuple(arrays[_PREFIX + name].tolist()) for name in ("patterns", "truth", "read"))
        images, class_maps, strengths = (arrays[_PREFIX + name] for name in ("images", "winners", "strengths"))
        return cls(int(arrays[_PREFIX + "bags"]), counts, patterns, truth, read, images, class_maps, strengths)


@dataclass(frozen=True, slots=True)
class Gallery:
    """A few test bags with the detections of one loss; ValueError where shapes do not fit together.

    Args:
        kind: "image", instances (B, N, H, W) in [0, 1] and positions (rows, columns); "sequence", instances (B, F, T),
            NaN where a sequence is shorter, and positions (K,) in time; or "set", instances (B, K, D) and positions
            (K,) without an order.
        instances: the bags' instances, float32.
        labels: (B, C) bool, the true label sets.
        presence: (B, C), the loss's presence scores, on any monotone scale.
        probs: (B, C+1, *positions) float16, the probability of each class in each position, background last.
        class_names: C names to show.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        centres: for images, y of every row and x of every column of positions in pixels; for sequences, y of the one
            row and x of every position in frames; None: spread evenly.
        threshold: the presence score from which a class counts as detected; None: where it is the most probable one in
            some position.
        frames_per_second: for sequences; None: not known.
        classes: (B, M), the classes of the true instances, -1 where a bag has fewer than M.
        boxes: (B, M, 4), their boxes (left, top, right, bottom) in pixels, or (start, 0, end, F) in frames.
        position_classes: for sets, (B, K), the true class of each position, C for background.
        coords: for sets, (B, K, 2), x and y in the plane of each position; None: not known.
        sensitivity: for images, (S, H, W) uint8, how much each pixel matters to a class detected in a bag, 255 where
            that is most; see `milbench.evaluation.saliency`.
        sensitivity_of: (S, 2), the bag and the class of each map.
        misread: what was misread, in all test bags; None where nothing is read.
    """

    kind: Kind
    instances: NDArray[np.float32]
    labels: NDArray[np.bool_]
    presence: NDArray[np.float32]
    probs: NDArray[np.float16]
    class_names: tuple[str, ...]
    mask: NDArray[np.bool_] | None = None
    centres: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    threshold: float | None = None
    frames_per_second: float | None = None
    classes: NDArray[np.int64] | None = None
    boxes: NDArray[np.float32] | None = None
    position_classes: NDArray[np.int64] | None = None
    coords: NDArray[np.float32] | None = None
    sensitivity: NDArray[np.uint8] | None = None
    sensitivity_of: NDArray[np.int64] | None = None
    misread: Misread | None = None

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of batches of bags, with -1 for what may differ between batches."""
        first, last = self.instances.shape[1], self.instances.shape[-1]
        return {"set": (-1, -1, last), "sequence": (-1, first, -1), "image": (-1, first, -1, -1)}[self.kind]

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
        axes = _AXES.get(self.kind, (0, 0))
        fits = {
            "kind": self.kind in get_args(Kind),
            "instances": len(self.instances) == bags and self.instances.ndim == axes[0],
            "presence": self.presence.shape == (bags, classes),
            "probs": self.probs.shape[:2] == (bags, classes + 1) and len(positions) == axes[1],
            "class_names": len(self.class_names) == classes,
            "frames_per_second": self.frames_per_second is None or 0 < self.frames_per_second < np.inf,
            "mask": self.mask is None or self.mask.shape == (bags, *positions),
            "centres": self.centres is None or tuple(map(len, self.centres)) == grid,
            "boxes": self.boxes is None or (self.classes is not None and self.boxes.shape == (*self.classes.shape, 4)),
            "position_classes": self.position_classes is None or self.position_classes.shape == (bags, *positions),
            "coords": self.coords is None or self.coords.shape == (bags, *positions, 2),
            "sensitivity": self.sensitivity is None
            or (self.sensitivity_of is not None and self.sensitivity.shape[1:] == self.instances.shape[2:]),
            "sensitivity_of": self.sensitivity_of is None
            or (self.sensitivity is not None and self.sensitivity_of.shape == (len(self.sensitivity), 2)),
            "misread": self.misread is None
            or (self.misread.images.shape[1:], self.misread.class_maps.shape[1:])
            == (self.instances.shape[1:], positions),
        }
        wrong = [name for name, good in fits.items() if not good]
        if wrong:
            raise ValueError(
                f"a gallery of {bags} bags and {classes} classes does not fit together: {', '.join(wrong)}"
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

    def sensitivities(self, bag: int) -> dict[int, NDArray[np.float32]]:
        """Return how much each pixel (H, W) of a bag's image matters to each detected class, from 0 to 1."""
        if self.sensitivity is None or self.sensitivity_of is None:
            return {}
        maps = zip(self.sensitivity_of.tolist(), self.sensitivity, strict=True)
        return {cls: values.astype(np.float32) / 255 for (of, cls), values in maps if of == bag}

    def true(self, bag: int) -> set[int]:
        """Return the true label set of a bag."""
        return {int(c) for c in np.flatnonzero(self.labels[bag])}


def make(*, class_names: Sequence[str], **fields: Any) -> Gallery:
    """Return a gallery from arrays of any type, such as lists, which are converted to the types of its fields."""
    for name, dtype in _TYPES.items():
        if fields.get(name) is not None:
            fields[name] = np.asarray(fields[name], dtype)
    if (centres := fields.get("centres")) is not None:
        fields["centres"] = tuple(np.asarray(axis, np.float32) for axis in centres)
    return Gallery(class_names=tuple(map(str, class_names)), **fields)


def write(path: Path, gallery: Gallery) -> None:
    """Write a gallery as one file."""
    arrays: dict[str, Any] = {
        "format": GALLERY_FORMAT, "kind": gallery.kind, "class_names": np.asarray(gallery.class_names, np.str_),
        "threshold": np.nan if gallery.threshold is None else gallery.threshold,
    }  # fmt: skip
    given = {name: getattr(gallery, name) for name in (*_TYPES, "frames_per_second")}
    arrays |= {name: value for name, value in given.items() if value is not None}
    if gallery.centres is not None:
        arrays["ys"], arrays["xs"] = gallery.centres
    if gallery.misread is not None:
        arrays |= gallery.misread.arrays()
    with path.open("wb") as file:  # numpy adds .npz to a name that lacks it, but not to an open file
        np.savez_compressed(file, **arrays)


def load(path: Path) -> Gallery:
    """Read a gallery that `write` wrote. Raises UsageError if the file is missing, damaged or of another format."""
    with stored_arrays("gallery", path) as stored:
        if int(stored["format"]) != GALLERY_FORMAT:
            raise UsageError(f"gallery {path} has format {int(stored['format'])}, this version reads {GALLERY_FORMAT}")
        threshold = float(stored["threshold"])
        return make(
            kind=str(stored["kind"]),
            class_names=stored["class_names"],
            centres=(stored["ys"], stored["xs"]) if "ys" in stored else None,
            threshold=None if np.isnan(threshold) else threshold,
            frames_per_second=float(stored["frames_per_second"]) if "frames_per_second" in stored else None,
            misread=Misread.from_arrays(stored),
            **{name: stored[name] for name in _TYPES if name in stored},
        )
