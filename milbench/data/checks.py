"""Checks of bags before training: facts, warnings, and faults that make training impossible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from milbench.data.own_bags import Kind, OwnBags
from milbench.data.splits import apart_groups
from milbench.data.table import SPLITS, abbreviate
from milbench.data.table_files import row_name

Level = Literal["fact", "warning", "fatal"]
EXACT_LABEL_LIMIT = 16
"""The largest label set whose likelihood `exact` computes without a bound, as in `milbench.likelihood`; its torch would
make a check take three times as long."""
FAR = 5
"""A value is far from all others if its distance from the nearest is so many times what they span."""
TOO_SMALL = "bags with too few instances"
"""The finding of bags that have more classes than instances."""
STRIDE = 4
"""The frames of a position, in networks for sequences where nothing else is asked for."""
_FEWEST = 10
"""Of fewer other values nothing is said."""


class Finding(NamedTuple):
    """One line of the table of checks: a fact, a warning, or a fault that makes training impossible."""

    level: Level
    what: str
    found: str


def check_bags(bags: OwnBags, kind: Kind, *, quick: bool = False) -> list[Finding]:
    """Return the findings for the bags of a table; `quick` skips warnings that may need to read instances again."""
    about = {"features": _features, "images": _images, "sequences": _sequences}[kind](bags)
    far = _far_values(bags) if kind == "features" and not quick else ()
    sets = (*_large_sets(bags), *_too_small(bags, kind))
    same = _duplicates(bags, "bags" if kind == "features" else kind, "fatal" if kind == "sequences" else "warning")
    return [*about, *far, *_labels(bags), *_parts(bags), *_classes(bags), *sets, *same]


def _parts(bags: OwnBags) -> Iterator[Finding]:
    what, units = ("group", set(bags.groups)) if bags.groups else ("bag", set(bags.bags))
    if not bags.split and len(units) < 2:
        yield Finding("fatal", f"only one {what}", "it cannot be split into a part to train on and one to test on")
    elif not bags.split and len(units) == 2:
        yield Finding("warning", f"two {what}s", "one to train on and one to test on: training needs validation = 0")


def fatal(findings: Sequence[Finding]) -> list[str]:
    """Describe the faults that make training impossible."""
    return [f"{finding.what}: {finding.found}" for finding in findings if finding.level == "fatal"]


def _features(bags: OwnBags) -> Iterator[Finding]:
    store, sizes = bags.store, bags.store.sizes
    yield Finding("fact", "bags", f"{len(bags):,}, with {sizes.sum():,} instances")
    yield Finding("fact", "bag sizes", f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}")
    yield Finding("fact", "features", f"{store.width}: {abbreviate(bags.feature_names)}")
    if bags.coords is not None:
        yield Finding("fact", "coordinates", "of every instance: evidence is drawn in the plane")
    if bags.instance_classes is not None:
        labelled = int((bags.instance_classes < len(bags.class_names)).sum())
        yield Finding("fact", "instance labels", f"{labelled:,} of {len(bags.instance_classes):,} are not background")
    broken = np.flatnonzero(~np.isfinite(store.means).all(axis=1))
    if broken.size:
        bad = [~np.isfinite(store.single(bag)) for bag in broken.tolist()]
        instance, feature = (int(i[0]) for i in np.nonzero(bad[0]))
        place = bags.place(int(store.offsets[broken[0]]) + instance)
        value = store.single(int(broken[0]))[instance, feature]
        yield Finding(
            "fatal", "features that are not finite",
            f"{sum(int(b.sum()) for b in bad):,}, the first in {place}: {bags.feature_names[feature]} is {value} in "
            "single precision",
        )  # fmt: skip
        return
    yield from _constant(bags, bags.feature_names, "no instance differs from another one", "")


def _constant(bags: OwnBags, names: Sequence[str], nothing: str, counted: str) -> Iterator[Finding]:
    constant = bags.store.constant()
    if constant.all():
        yield Finding("fatal", "features", f"all are constant: {nothing}")
    elif constant.any():
        same = [name for name, is_same in zip(names, constant, strict=True) if is_same]
        yield Finding("warning", "constant features", f"{len(same):,}{counted}: {abbreviate(same)}")


def _far_values(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding for features with one value far from all others: -9999 often stands for a missing value."""
    if not np.isfinite(bags.store.means).all():
        return
    low, next_low, next_high, high = bags.store.ends.astype(np.float64)  # single precision has no differences of 1e38
    named = []
    for extreme, near, other in ((low, next_low, high), (high, next_high, low)):
        span = np.where(np.isfinite(near), abs(other - near), 0)
        is_far = (span > 0) & (abs(near - extreme) > FAR * span)
        named += [(feature, float(extreme[feature])) for feature in np.flatnonzero(is_far).tolist()]
    texts = []
    for feature, extreme in sorted(named):
        matches = np.concatenate([bags.store.single(bag)[:, feature] == extreme for bag in range(len(bags))])
        count = int(matches.sum())
        # A single value of this kind may well be true, unless it is as large as codes for missing values are.
        if len(matches) - count >= _FEWEST and (count > 1 or abs(extreme) >= 999):
            row = bags.place(int(matches.argmax())).rpartition(", ")[2]
            texts.append(f"{bags.feature_names[feature]} is {extreme:g} in {count:,} instances, the first in {row}")
        if len(texts) > 4:
            break
    if texts:
        yield Finding("warning", "values far from all others", f"{abbreviate(texts, 4)}; are they missing values?")


def _images(bags: OwnBags) -> Iterator[Finding]:
    sizes = np.zeros((1, 2), np.int32) if bags.sizes is None else bags.sizes
    areas = sizes.prod(axis=1)
    small, large = ("x".join(map(str, sizes[image])) for image in (areas.argmin(), areas.argmax()))
    yield Finding("fact", "images", f"{len(bags):,}, of {small} to {large} pixels")
    if bags.marks is not None:
        known = int(bags.marked().sum())
        yield Finding("fact", "boxes", f"{known:,} of {len(bags):,} images have a box of every class")
        rows = _with_rows(bags)
        outside = [
            f"{rows[row]} has {width} x {height} pixels"
            for row, (boxes, (width, height)) in enumerate(zip(bags.marks, sizes.tolist(), strict=True))
            if any(box[0] >= width or box[1] >= height or box[2] <= 0 or box[3] <= 0 for _, box in boxes)
        ]
        yield from _listed("fatal", "boxes outside their image", outside, 4)
    plain = [bags.bags[image] for image in np.flatnonzero(bags.store.identical_instances())]
    if len(plain) == len(bags):
        yield Finding("fatal", "images", "all are of one colour: nothing can be told from them")
    else:
        yield from _listed("warning", "images of one colour", plain)


def _sequences(bags: OwnBags) -> Iterator[Finding]:
    lengths, rate, rows = bags.store.sizes, bags.frames_per_second, _with_rows(bags)
    low, high, middle = lengths.min(), lengths.max(), np.median(lengths)
    yield Finding("fact", "sequences", f"{len(bags):,}, of {low:,} to {high:,} frames, median {middle:,.0f}")
    yield Finding("fact", "time", f"{low / rate:.3g} to {high / rate:.3g} seconds, {rate:g} frames a second")
    yield Finding("fact", "features", f"{bags.store.width} in every frame")
    if bags.marks is not None:
        marked = int(bags.marked().sum())
        yield Finding("fact", "events", f"{marked:,} of {len(bags):,} sequences have an event of every class")
        late = [
            f"{rows[row]} lasts {end:.3g} seconds and has {bags.class_names[cls]!r} from {start:g}"
            for row, (events, end) in enumerate(zip(bags.marks, lengths / rate, strict=True))
            for cls, (start, *_) in events
            if start >= end
        ]
        yield from _listed("fatal", "events after the end", late, 4)
    broken = [rows[n] for n in np.flatnonzero(~np.isfinite(bags.store.means).all(axis=1))]
    yield from _listed("fatal", "sequences with values that are not finite", broken, 20)
    numbers = [str(number) for number in range(bags.store.width)]
    yield from _constant(bags, numbers, "no frame differs from another one", ", counted from 0")
    if not bags.store.constant().all():
        unchanged = [rows[n] for n in np.flatnonzero(bags.store.identical_instances())]
        yield from _listed("warning", "sequences that never change", unchanged)


def _with_rows(bags: OwnBags) -> list[str]:
    return [f"{name} ({row_name(bags.path, row).rpartition(', ')[2]})" for row, name in enumerate(bags.bags)]


def _labels(bags: OwnBags) -> Iterator[Finding]:
    empty = int((~bags.labels.any(axis=1)).sum())
    if bags.ignored:
        yield Finding("fact", "columns not used", abbreviate(bags.ignored))
    low, high = (int(end(bags.labels.sum(axis=1))) for end in (np.min, np.max))
    span = f"{low}" if low == high else f"{low} to {high}"
    yield Finding("fact", "classes", f"{len(bags.class_names)}, a bag has {span} of them")
    yield Finding("fact", "empty label sets", f"{empty:,} of {len(bags):,} bags")
    if bags.groups:
        yield Finding("fact", "groups", f"{len(set(bags.groups)):,}, each wholly in one part of a split")
        yield from _listed("fatal", "groups in two parts of the split", apart_groups(bags, bags.split or []))
    if bags.split:
        yield Finding("fact", "split", ", ".join(f"{part} {bags.split.count(part):,} bags" for part in SPLITS))


def _classes(bags: OwnBags) -> Iterator[Finding]:
    alike: dict[str, list[str]] = {}
    for name in bags.class_names:
        alike.setdefault(name.casefold(), []).append(name)
    if twins := [" and ".join(names) for names in alike.values() if len(names) > 1]:
        yield Finding("warning", "classes that differ in case alone", abbreviate(twins))
    if set(bags.class_names) == {"0", "1"}:
        reading = "a bag with 0 has the class 0, and none is without a class; a column that says whether one class is"
        remedy = "there is read so by a semicolon behind its name, such as task.labels='positive;'"
        yield Finding("warning", "the classes are 0 and 1", f"{reading} {remedy}")
    for c, name in enumerate(bags.class_names):
        present = bags.labels[:, c]
        yield Finding("fact", f"class {name}", f"in {int(present.sum()):,} of {len(bags):,} bags")
        if present.all():
            yield Finding("warning", f"class {name}", "is in every bag: label sets say nothing of where it is")
        if bags.split:
            for part in ("train", "test"):
                if not present[np.array(bags.split) == part].any():
                    yield Finding("warning", f"class {name}", f"is in no bag of {part}")


def _large_sets(bags: OwnBags) -> Iterator[Finding]:
    if many := int((bags.labels.sum(axis=1) > EXACT_LABEL_LIMIT).sum()):
        does = "exact trains on its certified lower bound there (method=auto), and method=exact refuses them"
        yield Finding(
            "warning", "large label sets", f"{many:,} bags have more than {EXACT_LABEL_LIMIT} classes: {does}"
        )


def _too_small(bags: OwnBags, kind: Kind) -> Iterator[Finding]:
    counts, sizes = bags.labels.sum(axis=1), bags.store.sizes
    if kind == "features" and (small := [bags.bags[b] for b in np.flatnonzero(counts > sizes)]):
        text = f"{len(small):,} have more classes than instances: {abbreviate(small)}"
        yield Finding("fatal", TOO_SMALL, f"{text} (small_bags = leave-out leaves them out)")
    if kind == "sequences":
        rows, positions = _with_rows(bags), -(-sizes // STRIDE)
        named = [f"{rows[b]} has {counts[b]} classes and {sizes[b]:,} frames" for b in range(len(rows))]
        short, none = np.flatnonzero((counts > positions) & (counts <= sizes)), np.flatnonzero(counts > sizes)
        yield from _listed("fatal", "sequences with too few frames", [named[b] for b in none], 4)
        what = f"sequences with too few positions of {STRIDE} frames (network.stride=1 gives more)"
        yield from _listed("warning", what, [named[b] for b in short], 4)


def _duplicates(bags: OwnBags, what: str, across: Level) -> Iterator[Finding]:
    _, number, count = np.unique(bags.store.digests, axis=0, return_inverse=True, return_counts=True)
    content, groups = number.ravel(), defaultdict[int, list[int]](list)
    for bag in np.flatnonzero(count[content] > 1).tolist():
        groups[int(content[bag])].append(bag)
    twins = [*groups.values()]
    names = _with_rows(bags) if across == "fatal" else bags.bags
    named = [" = ".join(names[b] for b in twin) for twin in twins]
    yield from _listed("warning", f"{what} of equal content", named, 4)
    differing = [name for twin, name in zip(twins, named, strict=True) if len({*map(bytes, bags.labels[twin])}) > 1]
    yield from _listed("warning", f"equal {what}, other labels", differing, 4)
    if bags.split or across == "fatal":
        parts = bags.split or bags.groups or bags.bags
        split_twins = [name for twin, name in zip(twins, named, strict=True) if len({parts[b] for b in twin}) > 1]
        where = "in two parts" if bags.split else "that may get into two parts, being in no common group"
        yield from _listed(across, f"equal {what} {where}", split_twins, 4)


def _listed(level: Level, what: str, names: Sequence[str], most: int = 8) -> Iterator[Finding]:
    if names:
        yield Finding(level, what, f"{len(names):,}: {abbreviate(names, most)}")
