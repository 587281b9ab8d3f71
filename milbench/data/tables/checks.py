"""What is worth knowing of bags before anything is trained on them: facts, what is odd, and what makes them useless."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from milbench.data.tables.bag_table import BagTable
from milbench.data.tables.image_table import ImageTable
from milbench.data.tables.labels import SPLITS, LabelledBags, apart_groups
from milbench.data.tables.pixel_cache import Pixels
from milbench.data.tables.reading import row_name, shown
from milbench.data.tables.sequence_files import LoadedFrames
from milbench.data.tables.sequence_table import SequenceTable

Level = Literal["fact", "warning", "fatal"]
FAR = 5
"""A value is far from all others if its distance from the nearest is so many times what they span."""
_FEWEST = 10
"""Of fewer other values nothing is said."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table of checks.

    Args:
        level: fact; warning, for what may be meant; fatal, for what makes training impossible.
        what: was looked at.
        found: in words.
    """

    level: Level
    what: str
    found: str


def check_bags(table: BagTable, exact_limit: int) -> list[Finding]:
    """Return what is to be known of a table of bags.

    Args:
        table: the bags.
        exact_limit: the largest label set whose likelihood `exact` computes without a bound.
    """
    return [
        *_instances(table),
        *_labels(table),
        *_parts(table),
        *_classes(table),
        *_large_sets(table, exact_limit),
        *_too_small(table),
        *_duplicates(table, table.bags, [table.bag_digest(bag) for bag in range(len(table))], "bags"),
        *_features(table),
    ]


def check_images(table: ImageTable, pixels: Pixels, exact_limit: int) -> list[Finding]:
    """Return what is to be known of a table of images, each of which is a bag.

    Args:
        table: the images.
        pixels: of the same images.
        exact_limit: as for `check_bags`.
    """
    return [
        *_images(table, pixels),
        *_labels(table),
        *_parts(table),
        *_classes(table),
        *_large_sets(table, exact_limit),
        *_duplicates(table, table.bags, [pixels.image_digest(image) for image in range(len(table))], "images"),
    ]


def check_sequences(
    table: SequenceTable, loaded: LoadedFrames, positions: NDArray[np.int64], exact_limit: int
) -> list[Finding]:
    """Return what is to be known of a table of sequences, each of which is a bag.

    Args:
        table: the sequences.
        loaded: their frames.
        positions: (B,), how many positions a network has in each of them.
        exact_limit: as for `check_bags`.
    """
    rows = [f"{name} ({row_name(table.path, row).rpartition(', ')[2]})" for row, name in enumerate(table.bags)]
    contents = [loaded.digest(number) for number in range(len(table))]
    return [
        *_sequences(table, loaded, rows),
        *_labels(table),
        *_parts(table),
        *_classes(table),
        *_large_sets(table, exact_limit),
        *_too_short(table, loaded, positions, rows),
        *_duplicates(table, rows, contents, "sequences", across="fatal"),
    ]


def _parts(table: LabelledBags) -> Iterator[Finding]:
    """Yield a finding where there are too few bags, or groups, for the parts of a split that the seed draws."""
    what, units = ("group", set(table.groups)) if table.groups else ("bag", set(table.bags))
    if not table.split and len(units) < 2:
        yield Finding("fatal", f"only one {what}", "it cannot be split into a part to train on and one to test on")
    elif not table.split and len(units) == 2:
        yield Finding("warning", f"two {what}s", "one to train on and one to test on: training needs validation = 0")


def fatal(findings: Sequence[Finding]) -> list[str]:
    """Return what makes training impossible, in words."""
    return [f"{finding.what}: {finding.found}" for finding in findings if finding.level == "fatal"]


def _instances(table: BagTable) -> Iterator[Finding]:
    sizes = table.sizes
    yield Finding("fact", "bags", f"{len(table):,}, with {len(table.features):,} instances")
    yield Finding("fact", "bag sizes", f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}")
    yield Finding("fact", "features", f"{len(table.feature_names)}: {shown(table.feature_names)}")
    if table.instance_classes is not None:
        known = int((table.instance_classes < len(table.class_names)).sum())
        yield Finding("fact", "instance labels", f"{known:,} of {len(table.instance_classes):,} are not background")


def _images(table: ImageTable, pixels: Pixels) -> Iterator[Finding]:
    areas = pixels.sizes.prod(axis=1)
    small, large = ("x".join(map(str, pixels.sizes[image])) for image in (areas.argmin(), areas.argmax()))
    yield Finding("fact", "images", f"{len(table):,}, of {small} to {large} pixels")
    if table.boxes is not None:
        known = int(table.boxed().sum())
        yield Finding("fact", "boxes", f"{known:,} of {len(table):,} images have a box of every class")
        outside = [
            f"{name} ({row_name(table.path, row).rpartition(', ')[2]}) has {width} x {height} pixels"
            for row, (name, (_, boxes), (width, height)) in enumerate(
                zip(table.bags, table.boxes, pixels.sizes.tolist(), strict=True)
            )
            if ((boxes[:, :2] >= [width, height]) | (boxes[:, 2:] <= 0)).any()
        ]
        if outside:
            yield Finding("fatal", "boxes outside their image", f"{len(outside):,}: {shown(outside, 4)}")
    plain = [name for name, image in zip(table.bags, pixels.images, strict=True) if (image == image[:, :1, :1]).all()]
    if len(plain) == len(table):
        yield Finding("fatal", "images", "all are of one colour: nothing can be told from them")
    elif plain:
        yield Finding("warning", "images of one colour", f"{len(plain):,}: {shown(plain)}")


def _sequences(table: SequenceTable, loaded: LoadedFrames, rows: Sequence[str]) -> Iterator[Finding]:
    lengths = loaded.lengths
    low, high, middle = lengths.min(), lengths.max(), np.median(lengths)
    seconds = f"{low / loaded.frames_per_second:.3g} to {high / loaded.frames_per_second:.3g} seconds"
    yield Finding("fact", "sequences", f"{len(table):,}, of {low:,} to {high:,} frames, median {middle:,.0f}")
    yield Finding("fact", "time", f"{seconds}, {loaded.frames_per_second:g} frames a second")
    yield Finding("fact", "features", f"{len(loaded.frames[0])} in every frame")
    if table.events is not None:
        known = int(table.timed().sum())
        yield Finding("fact", "events", f"{known:,} of {len(table):,} sequences have an event of every class")
        ends = lengths / loaded.frames_per_second
        late = [
            f"{rows[row]} lasts {end:.3g} seconds and has {table.class_names[event.cls]!r} from {event.start:g}"
            for row, (events, end) in enumerate(zip(table.events, ends, strict=True))
            for event in events
            if event.start >= end
        ]
        if late:
            yield Finding("fatal", "events after the end", f"{len(late):,}: {shown(late, 4)}")
    still = [name for name, one in zip(rows, loaded.frames, strict=True) if bool((one == one[:, :1]).all())]
    constant = np.all([(one == loaded.frames[0][:, :1]).all(dim=1).numpy() for one in loaded.frames], axis=0)
    if constant.all():
        yield Finding("fatal", "features", "all are constant: no frame differs from another one")
        return
    if constant.any():
        names = [str(number) for number in np.flatnonzero(constant)]
        yield Finding("warning", "constant features", f"{len(names):,}, counted from 0: {shown(names)}")
    if still:
        yield Finding("warning", "sequences that never change", f"{len(still):,}: {shown(still)}")


def _labels(table: LabelledBags) -> Iterator[Finding]:
    empty = int((~table.labels.any(axis=1)).sum())
    if table.ignored:
        yield Finding("fact", "columns not used", shown(table.ignored))
    yield Finding("fact", "classes", f"{len(table.class_names)}, a bag has {_span(table.labels.sum(axis=1))}")
    yield Finding("fact", "empty label sets", f"{empty:,} of {len(table):,} bags")
    if table.groups:
        yield Finding("fact", "groups", f"{len(set(table.groups)):,}, each wholly in one part of a split")
        if table.split and (apart := apart_groups(table, table.split)):
            yield Finding("fatal", "groups in two parts of the split", f"{len(apart):,}: {shown(apart)}")
    if table.split:
        yield Finding("fact", "split", ", ".join(f"{part} {table.split.count(part):,} bags" for part in SPLITS))


def _classes(table: LabelledBags) -> Iterator[Finding]:
    alike: dict[str, list[str]] = {}
    for name in table.class_names:
        alike.setdefault(name.casefold(), []).append(name)
    if twins := [" and ".join(names) for names in alike.values() if len(names) > 1]:
        yield Finding("warning", "classes that differ in case alone", shown(twins))
    if set(table.class_names) == {"0", "1"}:
        yield Finding(
            "warning", "the classes are 0 and 1",
            "a bag with 0 has the class 0, and none is without a class; a column that says whether one class is there "
            "is read so by a semicolon behind its name, such as task.labels='positive;'",
        )  # fmt: skip
    for c, name in enumerate(table.class_names):
        there = table.labels[:, c]
        yield Finding("fact", f"class {name}", f"in {int(there.sum()):,} of {len(table):,} bags")
        if there.all():
            yield Finding("warning", f"class {name}", "is in every bag: label sets say nothing of where it is")
        if table.split:
            absent = [p for p in ("train", "test") if not there[np.array(table.split) == p].any()]
            for part in absent:
                yield Finding("warning", f"class {name}", f"is in no bag of {part}")


def _large_sets(table: LabelledBags, limit: int) -> Iterator[Finding]:
    counts = table.labels.sum(axis=1)
    if many := int((counts > limit).sum()):
        yield Finding(
            "warning", "large label sets",
            f"{many:,} bags have more than {limit} classes: exact trains on its certified lower bound there "
            "(method=auto), and method=exact refuses them",
        )  # fmt: skip


def _too_small(table: BagTable) -> Iterator[Finding]:
    if small := np.flatnonzero(table.labels.sum(axis=1) > table.sizes).tolist():
        yield Finding(
            "fatal", "bags with too few instances",
            f"{len(small):,} have more classes than instances: {shown([table.bags[b] for b in small])}",
        )  # fmt: skip


def _too_short(
    table: SequenceTable, loaded: LoadedFrames, positions: NDArray[np.int64], rows: Sequence[str]
) -> Iterator[Finding]:
    counts = table.labels.sum(axis=1)
    if short := np.flatnonzero(counts > positions).tolist():
        first = f"{rows[short[0]]} has {counts[short[0]]} classes and {positions[short[0]]} positions in its"
        yield Finding(
            "fatal", "sequences with too few positions",
            f"{len(short):,}: {first} {loaded.lengths[short[0]]} frames, expected a position for every class, as with "
            "a smaller stride" + (f"; likewise {shown([rows[b] for b in short[1:]])}" if short[1:] else ""),
        )  # fmt: skip


def _duplicates(
    table: LabelledBags, names: Sequence[str], contents: Sequence[str], what: str, across: Level = "warning"
) -> Iterator[Finding]:
    """Compare bags by the digests of their contents.

    Args:
        table: the bags.
        names: of the bags, for messages.
        contents: their digests.
        what: the bags are, such as "images".
        across: how bad it is where equal bags are in two parts of a split; where it is fatal, so is it that no group
            keeps them from getting there.
    """
    same: dict[str, list[int]] = {}
    for bag, content in enumerate(contents):
        same.setdefault(content, []).append(bag)
    twins = [bags for bags in same.values() if len(bags) > 1]
    named = [" = ".join(names[b] for b in bags) for bags in twins]
    if twins:
        yield Finding("warning", f"{what} of equal content", f"{len(twins):,}: {shown(named, 4)}")
    differing = [name for bags, name in zip(twins, named, strict=True) if len({*map(bytes, table.labels[bags])}) > 1]
    if differing:
        yield Finding("warning", f"equal {what}, other labels", f"{len(differing):,}: {shown(differing, 4)}")
    if table.split or across == "fatal":
        parts = table.split or table.groups or table.bags
        apart = [name for bags, name in zip(twins, named, strict=True) if len({parts[b] for b in bags}) > 1]
        if apart:
            where = "in two parts" if table.split else "that may get into two parts, being in no common group"
            yield Finding(across, f"equal {what} {where}", f"{len(apart):,}: {shown(apart, 4)}")


def _features(table: BagTable) -> Iterator[Finding]:
    bad = ~np.isfinite(table.features)
    if bad.any():
        instance, which = (int(i[0]) for i in np.nonzero(bad))
        place = row_name(table.path, int(table.rows[instance]))
        value = table.features[instance, which]
        yield Finding(
            "fatal", "features that are not finite",
            f"{int(bad.sum()):,}, the first in {place}: {table.feature_names[which]} is {value} in single precision",
        )  # fmt: skip
        return
    constant = (table.features == table.features[:1]).all(axis=0)
    if constant.all():
        yield Finding("fatal", "features", "all are constant: no instance differs from another one")
    elif constant.any():
        names = [name for name, same in zip(table.feature_names, constant, strict=True) if same]
        yield Finding("warning", "constant features", f"{len(names):,}: {shown(names)}")
    yield from _far_values(table)


def _far_values(table: BagTable) -> Iterator[Finding]:
    """Yield a finding for features with one value far from all others: -9999 often stands for a missing value."""
    named = []
    for which, name in enumerate(table.feature_names):
        values = table.features[:, which].astype(np.float64)  # single precision has no differences of 1e38
        for extreme in (values.min(), values.max()):
            there = values == extreme
            others = values[~there]
            if len(others) < _FEWEST or not (span := np.ptp(others)):
                continue
            gap = abs(others - extreme).min()
            # A single value of this kind may well be true, unless it is as large as codes for missing values are.
            if gap > FAR * span and (there.sum() > 1 or abs(extreme) >= 999):
                row = row_name(table.path, int(table.rows[there.argmax()])).rpartition(", ")[2]
                named.append(f"{name} is {extreme:g} in {int(there.sum()):,} instances, the first in {row}")
    if named:
        yield Finding("warning", "values far from all others", f"{shown(named, 4)}; are they missing values?")


def _span(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low} of them" if low == high else f"{low} to {high} of them"
