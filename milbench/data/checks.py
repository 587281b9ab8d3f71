"""Checks of bags before training: facts, warnings, and faults that make training impossible."""

import itertools
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from milbench.data.own_bags import OwnBags
from milbench.data.splits import BagSplit, count_folds, divided_groups, split_bags
from milbench.data.table import SPLITS, abbreviate, is_group_name, is_id_name, words_of
from milbench.data.table_files import row_name
from milbench.data.table_options import FeatureOptions, Kind, TableOptions

Level = Literal["fact", "warning", "fatal"]
EXACT_LABEL_LIMIT = (
    16  # as in `milbench.likelihood`, whose torch would make a check take three times as long
)
FAR = 5  # a value is far from all others if its distance from the nearest is so many times what they span
STRIDE = 4  # the frames of a position, in networks for sequences where nothing else is asked for
_FEWEST = 10  # of fewer other values nothing is said
_RARE = 30  # a class that as many bags or groups have, and lack, is in every part of a drawn split
_NOTHING = {
    "nan", "na", "n/a", "n.a.", "#n/a", "<na>", "nat", "none", "null", "nil", "-", "--", "?", "...", "#value!",
    "unknown", "undefined", "missing", "unlabeled", "unlabelled", "empty", "no label", "not available",
}  # fmt: skip
"""Labels that stand for no label in the files of many programs, in lower case."""
_NO_FEATURES = {
    "index",
    "class",
    "target",
    "fold",
    "y",
}  # columns that are labels or numbers of rows
_NO_FEATURE_WORDS = {"label", "labels", "coord", "coords", "coordinate", "coordinates"}


class Finding(NamedTuple):
    """One line of the table of checks: a fact, a warning, or a fault that makes training impossible."""

    level: Level
    what: str
    detail: str
    setting: str = ""  # what mends it


def check_bags(
    bags: OwnBags, options: TableOptions, *, quick: bool = False, splits: Sequence[BagSplit] = ()
) -> list[Finding]:
    """Return findings on bags and some of their splits, see `checked_splits`; `quick`: without reading them again."""
    facts = {"features": _features, "images": _images, "sequences": _sequences}[options.kind](bags)
    far_values = _far_values(bags) if options.kind == "features" and not quick else ()
    ids = [*_id_like_classes(bags)] or _split_gaps(bags, splits)
    sizes, duplicates = _sizes_of_sets(bags, options), _duplicates(bags, options.kind)
    return [
        *facts,
        *far_values,
        *_labels(bags, options),
        *_classes(bags),
        *ids,
        *sizes,
        *duplicates,
    ]


def checked_splits(
    bags: OwnBags, options: TableOptions, seeds: Sequence[int] | None = None
) -> list[BagSplit]:
    """Return the splits of some seeds, None: all folds, or 0 to 9; none where no class is rare. Raises UsageError."""
    units = np.unique(bags.groups or bags.bags, return_inverse=True)[1]
    if bags.split or (units.max() < 2 and not (options.folds or options.splits)):
        return (
            [split_bags(bags, options, 0)] if bags.split else []
        )  # two bags are too few to validate on one
    if seeds is None:
        seeds = range(math.prod(count_folds(bags, options) or (10,)))
    sets = np.concatenate([bags.labels, ~bags.labels], axis=1).T
    is_rare = min(len(np.unique(units[has])) for has in sets) < _RARE
    return [split_bags(bags, options, seed) for seed in seeds] if is_rare or options.splits else []


def _id_like_classes(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding where classes seem to be names of bags, or measured numbers."""
    names, labelled = bags.class_names, int(bags.labels.any(axis=1).sum())
    numbers = pd.to_numeric(pd.Series(names), errors="coerce")
    share = 4 if numbers.notna().all() and len(names) > _FEWEST else 2
    is_measured = (numbers % 1 > 0).any() or share * len(names) > labelled
    if bags.labels.sum(axis=1).max() <= 1 and len(names) > 4 and is_measured:
        what = f"{len(names)} classes in {labelled} bags with a class: {abbreviate(names, 3)}"
        yield Finding(
            "warning",
            "classes that read like ids or measured numbers",
            f"{what}; a class is in many bags",
        )


def _split_gaps(bags: OwnBags, splits: Sequence[BagSplit]) -> Iterator[Finding]:
    """Yield findings for classes that no bag of a part of a split has, or every one, and for bags in no part."""
    if bags.split and not splits:
        splits = [BagSplit(*(np.flatnonzero(np.array(bags.split) == part) for part in SPLITS))]
    varied = ~bags.labels.all(axis=0) & bags.labels.any(
        axis=0
    )  # of other classes more is said than that
    places = defaultdict[str, Counter[tuple[str, str]]](Counter)
    blind = 0
    for split, part in itertools.product(splits, SPLITS):
        labels = bags.labels[getattr(split, part)]
        if len(labels):
            none, every = varied & ~labels.any(axis=0), varied & labels.all(axis=0)
            blind += part == "validation" and bool(labels.all() or not labels.any())
            where = (
                "missing from a part of the split"
                if none.any()
                else "in every bag of a part of the split"
            )
            places[where].update(
                (bags.class_names[c], part) for c in np.flatnonzero(none if none.any() else every)
            )
    total = f" of {len(splits)} splits"
    for where, counts in places.items():
        word, several = "from" if "missing" in where else "in", len(splits) > 1
        named = [
            f"{name} {word} {part}" + f" ({n}{total})" * several
            for (name, part), n in counts.items()
        ]
        yield from _list_names("warning", f"classes {where}", named)
    if blind:
        what = "the validation bags" + f" of {blind}{total}" * (len(splits) > 1)
        detail = f"{what} have no class, or all classes: label sets are read off at even odds"
        yield Finding("warning", "no threshold can be chosen", detail)
    outside = np.setdiff1d(np.arange(len(bags)), np.concatenate(splits[0])) if splits else ()
    yield from _list_names(
        "warning", "bags in no part of the split", [bags.bags[b] for b in outside], 4
    )


def fatal(findings: Sequence[Finding]) -> list[str]:
    """Describe the faults that make training impossible."""
    return [f"{finding.what}: {finding.detail}" for finding in findings if finding.level == "fatal"]


def _features(bags: OwnBags) -> Iterator[Finding]:
    store, sizes = bags.store, bags.store.sizes
    yield Finding("fact", "bags", f"{len(bags):,}, with {sizes.sum():,} instances")
    yield Finding(
        "fact", "bag sizes", f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}"
    )
    yield Finding("fact", "features", f"{store.width}: {abbreviate(bags.feature_names)}")
    if bags.coords is not None:
        yield Finding("fact", "coordinates", "of every instance: evidence is drawn in the plane")
    if bags.instance_classes is not None:
        labelled = int((bags.instance_classes < len(bags.class_names)).sum())
        yield Finding(
            "fact",
            "instance labels",
            f"{labelled:,} of {len(bags.instance_classes):,} are not background",
        )
    broken = np.flatnonzero(~np.isfinite(store.means).all(axis=1)).tolist()
    if not broken:
        yield from _constant_features(bags, bags.feature_names)
        odd = [
            name
            for name in bags.feature_names
            if _is_no_feature(name) and name != bags.likely_group
        ]
        remedy = "are they features? task.features names the columns to take"
        yield from _list_names(
            "warning", f"features that read like ids, labels or places ({remedy})", odd
        )
        return
    count = sum(int((~np.isfinite(store.single(bag))).sum()) for bag in broken)
    values = store.single(broken[0])
    instance, feature = (int(i[0]) for i in np.nonzero(~np.isfinite(values)))
    place, name = bags.place(int(store.offsets[broken[0]]) + instance), bags.feature_names[feature]
    first = f"the first in {place}: {name} is {values[instance, feature]} in single precision"
    yield Finding("fatal", "features that are not finite", f"{count:,}, {first}")


def _is_no_feature(name: str) -> bool:
    is_named_so = name.casefold() in _NO_FEATURES or not _NO_FEATURE_WORDS.isdisjoint(
        words_of(name)
    )
    return is_named_so or is_id_name(name) or is_group_name(name)


def _constant_features(bags: OwnBags, names: Sequence[str], counted: str = "") -> Iterator[Finding]:
    constant = [
        name for name, is_constant in zip(names, bags.store.constant(), strict=True) if is_constant
    ]
    if len(constant) == len(names):
        yield Finding("fatal", "features", "all are constant: no instance differs from another one")
    else:
        yield from _list_names("warning", f"constant features{counted}", constant)


def _far_values(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding for features with one value far from all others: -9999 often stands for a missing value."""
    if not np.isfinite(bags.store.means).all():
        return
    low, next_low, next_high, high = bags.store.ends().astype(
        np.float64
    )  # single precision has no differences of 1e38
    far_values = list[tuple[int, float]]()
    for extreme, near, other in ((low, next_low, high), (high, next_high, low)):
        span = np.where(np.isfinite(near), abs(other - near), 0)
        is_far = (span > 0) & (abs(near - extreme) > FAR * span)
        far_values += [
            (feature, float(extreme[feature])) for feature in np.flatnonzero(is_far).tolist()
        ]
    texts = []
    for feature, value in sorted(far_values):
        matches = np.concatenate([block[:, feature] == value for block in bags.store.blocks()])
        count = int(matches.sum())
        # A single value of this kind may well be true, unless it is as large as codes for missing values are.
        if len(matches) - count >= _FEWEST and (count > 1 or abs(value) >= 999):
            row = bags.place(int(matches.argmax())).rpartition(", ")[2]
            texts.append(
                f"{bags.feature_names[feature]} is {value:g} in {count:,} instances, the first in {row}"
            )
        if len(texts) > 4:
            break
    if texts:
        yield Finding(
            "warning",
            "values far from all others",
            f"{abbreviate(texts, 4)}; are they missing values?",
        )


def _images(bags: OwnBags) -> Iterator[Finding]:
    sizes = np.zeros((1, 2), np.int32) if bags.sizes is None else bags.sizes
    areas = sizes.prod(axis=1)
    small, large = ("x".join(map(str, sizes[image])) for image in (areas.argmin(), areas.argmax()))
    yield Finding("fact", "images", f"{len(bags):,}, of {small} to {large} pixels")
    if bags.marks is not None:
        boxed = f"{bags.marked().sum():,} of {len(bags):,} images"
        yield Finding("fact", "boxes", f"{boxed} have a box of every class")
        outside = [
            f"{row} has {width} x {height} pixels"
            for row, boxes, (width, height) in zip(
                _with_rows(bags), bags.marks, sizes.tolist(), strict=True
            )
            if any(
                box[0] >= width or box[1] >= height or box[2] <= 0 or box[3] <= 0
                for _, box in boxes
            )
        ]
        yield from _list_names("fatal", "boxes outside their image", outside, 4)
    plain = [bags.bags[image] for image in np.flatnonzero((bags.store.squares == 0).all(axis=1))]
    if len(plain) == len(bags):
        yield Finding("fatal", "images", "all are of one colour: nothing can be told from them")
    else:
        yield from _list_names("warning", "images of one colour", plain)


def _sequences(bags: OwnBags) -> Iterator[Finding]:
    lengths, rate, rows = bags.store.sizes, bags.frames_per_second, _with_rows(bags)
    low, high, middle = lengths.min(), lengths.max(), np.median(lengths)
    yield Finding(
        "fact", "sequences", f"{len(bags):,}, of {low:,} to {high:,} frames, median {middle:,.0f}"
    )
    yield Finding(
        "fact", "time", f"{low / rate:.3g} to {high / rate:.3g} seconds, {rate:g} frames a second"
    )
    yield Finding("fact", "features", f"{bags.store.width} in every frame")
    if bags.marks is not None:
        marked = int(bags.marked().sum())
        yield Finding(
            "fact", "events", f"{marked:,} of {len(bags):,} sequences have an event of every class"
        )
        late = [
            f"{row} lasts {end:.3g} seconds and has {bags.class_names[cls]!r} from {start:g}"
            for row, events, end in zip(rows, bags.marks, lengths / rate, strict=True)
            for cls, (start, *_) in events
            if start >= end
        ]
        yield from _list_names("fatal", "events after the end", late, 4)
    broken = [rows[n] for n in np.flatnonzero(~np.isfinite(bags.store.means).all(axis=1))]
    yield from _list_names("fatal", "sequences with values that are not finite", broken, 20)
    numbers = [str(number) for number in range(bags.store.width)]
    yield from _constant_features(bags, numbers, " (counted from 0)")
    if not bags.store.constant().all():
        unchanged = [rows[n] for n in np.flatnonzero((bags.store.squares == 0).all(axis=1))]
        yield from _list_names("warning", "sequences that never change", unchanged)


def _with_rows(bags: OwnBags) -> list[str]:
    return [
        f"{name} ({row_name(bags.path, row).rpartition(', ')[2]})"
        for row, name in enumerate(bags.bags)
    ]


def _labels(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    empty = int((~bags.labels.any(axis=1)).sum())
    if bags.ignored:
        yield Finding("fact", "columns not used", abbreviate(bags.ignored))
    if name := bags.likely_group:
        use = ", and it is taken for a feature" * (name in bags.feature_names)
        detail = f"{name}: several bags share a value{use}; task.group={name} keeps them in one part of a split"
        yield Finding("warning", "a column that reads like a group", detail)
    if (name := bags.likely_split) and not options.splits:
        detail = f"{name} holds parts of a split, and bags are split by other means; task.split={name} takes it"
        yield Finding("warning", "a column that reads like a split", detail)
    low, high = bags.labels.sum(axis=1).min(), bags.labels.sum(axis=1).max()
    span = f"{low}" if low == high else f"{low} to {high}"
    yield Finding("fact", "classes", f"{len(bags.class_names)}, a bag has {span} of them")
    yield Finding("fact", "empty label sets", f"{empty:,} of {len(bags):,} bags")
    if bags.groups:
        yield Finding(
            "fact", "groups", f"{len(set(bags.groups)):,}, each wholly in one part of a split"
        )
        divided = divided_groups(bags.groups, bags.split or [])
        yield from _list_names("fatal", "groups in two parts of the split", divided)
    what, units = ("group", set(bags.groups)) if bags.groups else ("bag", set(bags.bags))
    if bags.split:
        yield Finding(
            "fact", "split", ", ".join(f"{part} {bags.split.count(part):,} bags" for part in SPLITS)
        )
    elif len(units) < 2:
        yield Finding(
            "fatal",
            f"only one {what}",
            "it cannot be split into a part to train on and one to test on",
        )
    elif len(units) == 2 and options.validation:
        yield Finding(
            "warning",
            f"two {what}s",
            "one to train on and one to test on: training needs validation = 0",
        )


def _classes(bags: OwnBags) -> Iterator[Finding]:
    variants = defaultdict[str, list[str]](list)
    for name in bags.class_names:
        words = re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", unicodedata.normalize("NFKC", name).casefold())
        variants[words.rstrip(".")].append(name)
    if twins := [" and ".join(names) for names in variants.values() if len(names) > 1]:
        yield Finding("warning", "classes that differ in case or spaces alone", abbreviate(twins))
    if {*map(str.casefold, bags.class_names)} in ({"0", "1"}, {"0.0", "1.0"}, {"false", "true"}):
        absent = min(bags.class_names)
        reading = f"a bag with {absent} has the class {absent}, and none has no class; a column that says whether one"
        remedy = (
            "is there is read so by a semicolon behind its name, such as task.labels='positive;'"
        )
        yield Finding(
            "warning", f"the classes are {' and '.join(bags.class_names)}", f"{reading} {remedy}"
        )
    if nothing := [
        name for name in bags.class_names if name.casefold() in _NOTHING and name != "Na"
    ]:  # sodium
        remedy = "does it stand for no label? An empty field does"
        yield Finding(
            "warning", "classes that read like nothing", f"{abbreviate(nothing)}: {remedy}"
        )
    for separator, names in _unseparated_classes(bags.class_names).items():
        remedy = f"task.separator='{separator.strip()}' takes them apart"
        detail = f"{abbreviate([*map(repr, names)], 3)} may be several classes; {remedy}"
        yield Finding(
            "warning",
            "classes that read like several",
            detail,
            f"task.separator={separator.strip()}",
        )
    for name, count in zip(bags.class_names, bags.labels.sum(axis=0).tolist(), strict=True):
        yield Finding("fact", f"class {name}", f"in {count:,} of {len(bags):,} bags")
        if count == len(bags):
            yield Finding(
                "warning", f"class {name}", "is in every bag: label sets say nothing of where it is"
            )


def _unseparated_classes(names: Sequence[str]) -> dict[str, list[str]]:
    """Return separator -> the classes that seem to be several ones with it between them."""
    joined = {
        "list": [
            name for name in names if re.fullmatch(r"\[.*\]|\{.*\}|\(.*['\"].*\)|(['\"]).*\1", name)
        ]
    }
    names = [name for name in names if name not in joined["list"]]
    marks = [
        ",",
        "|",
        ";",
        "/",
        "+",
        "&",
        *sorted({*re.findall(r"\W|_", "".join(names))} - {*",|;/+& "}),
        " ",
    ]
    for separator in marks:
        parts = {
            name: [*filter(None, map(str.strip, name.split(separator)))]
            for name in names
            if separator in name
        }
        counts = Counter(part for several in parts.values() for part in {*several})
        # Commas, bars and semicolons are rare in names; other marks count where all parts are classes.
        is_mark = separator in ",|;"
        classes = {*names, *(part for part, count in counts.items() if count > 1 and is_mark)}
        joined[separator] = [
            name
            for name, several in parts.items()
            if (len(several) > 1 and classes.issuperset(several))
            or (is_mark and not {*names}.isdisjoint(several))
        ]
        names = [name for name in names if name not in joined[separator]]
    return {separator: several for separator, several in joined.items() if several}


def _sizes_of_sets(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    counts, sizes = bags.labels.sum(axis=1), bags.store.sizes
    if many := int((counts > EXACT_LABEL_LIMIT).sum()):
        method = "exact trains on its certified lower bound there (method=auto), and method=exact refuses them"
        detail = f"{many:,} bags have more than {EXACT_LABEL_LIMIT} classes: {method}"
        yield Finding("warning", "large label sets", detail)
    if isinstance(options, FeatureOptions) and (
        small := [bags.bags[b] for b in np.flatnonzero(counts > sizes)]
    ):
        text = f"{len(small):,} have more classes than instances: {abbreviate(small)}"
        leaves_out = options.small_bags == "leave-out"
        remedy = "they are left out"
        if not leaves_out:
            remedy = "-p task.small_bags=leave-out leaves them out"
        yield Finding(
            "warning" if leaves_out else "fatal",
            "bags with too few instances",
            f"{text} ({remedy})",
        )
    if options.kind == "sequences":
        rows, positions = _with_rows(bags), -(-sizes // STRIDE)
        named = [
            f"{rows[b]} has {counts[b]} classes and {sizes[b]:,} frames" for b in range(len(rows))
        ]
        short, none = (
            np.flatnonzero((counts > positions) & (counts <= sizes)),
            np.flatnonzero(counts > sizes),
        )
        yield from _list_names(
            "fatal", "sequences with too few frames", [named[b] for b in none], 4
        )
        what = f"sequences with too few positions of {STRIDE} frames (network.stride=1 gives more)"
        yield from _list_names("warning", what, [named[b] for b in short], 4)


def _duplicates(bags: OwnBags, kind: Kind) -> Iterator[Finding]:
    groups = defaultdict[bytes, list[int]](list)
    for bag, digest in enumerate(bags.store.digests):
        groups[digest.tobytes()].append(bag)
    twins = [group for group in groups.values() if len(group) > 1]
    across: Level = "fatal" if kind == "sequences" else "warning"
    what = "bags" if kind == "features" else kind
    names = _with_rows(bags) if across == "fatal" else bags.bags
    named = [" = ".join(names[b] for b in twin) for twin in twins]
    yield from _list_names("warning", f"{what} of equal content", named, 4)
    differing = [
        name
        for twin, name in zip(twins, named, strict=True)
        if len({*map(bytes, bags.labels[twin])}) > 1
    ]
    yield from _list_names("warning", f"equal {what}, other labels", differing, 4)
    if bags.split or across == "fatal":
        parts = bags.split or bags.groups or bags.bags
        split_twins = [
            name
            for twin, name in zip(twins, named, strict=True)
            if len({parts[b] for b in twin}) > 1
        ]
        where = (
            "in two parts"
            if bags.split
            else "that may get into two parts, being in no common group"
        )
        yield from _list_names(across, f"equal {what} {where}", split_twins, 4)


def _list_names(level: Level, what: str, names: Sequence[str], most: int = 8) -> Iterator[Finding]:
    if names:
        yield Finding(level, what, f"{len(names):,}: {abbreviate(names, most)}")
