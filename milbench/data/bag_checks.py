"""Checks of bags before training: facts, warnings, and faults that make training impossible."""

import dataclasses
import itertools
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.box_forms import fits
from milbench.data.group_columns import MISSING, stands_in_train_and_test
from milbench.data.label_cells import LIST, class_name, classes_in
from milbench.data.own_bags import OwnBags
from milbench.data.splits import BagSplit, count_folds, divided_groups, split_bags
from milbench.data.table import SPLITS, abbreviate, is_group_name, is_id_name, words_of
from milbench.data.table_files import column_names, is_text, row_name
from milbench.data.table_options import (
    LIST_MARK,
    FeatureOptions,
    ImageOptions,
    Kind,
    TableOptions,
    leave_out,
    listed,
)
from milbench.data.written_numbers import thousands_remedy
from milbench.errors import UsageError

Level = Literal["fact", "warning", "fatal"]
EXACT_LABEL_LIMIT = 16
"""As in `milbench.likelihood`, which imports torch: a check would take three times as long."""
FAR = 5
"""A value is far from all others if its distance from the nearest is so many times what they span."""
_LEAST_CODE = 999
"""From this size on a single value far from all others may be a code for a missing value."""
_MOST_FAR_VALUES = 4
"""Of more values far from all others only the number is said."""
STRIDE = 4
"""The frames of a position in networks for sequences, by default."""
_FEWEST = 10
"""With fewer other values or classes there is no warning that rests on them."""
_FEWEST_BOXES = 5
"""Of fewer boxes it may well be chance that all are in the upper left."""
_RARE = 30
"""If at least as many bags or groups have a class, and as many lack it, both are in every part of a drawn split."""
_NOTHING = {
    "nan", "na", "n/a", "n.a.", "#n/a", "<na>", "nat", "none", "null", "nil", "-", "--", "?", "...", "#value!",
    "unknown", "undefined", "missing", "unlabeled", "unlabelled", "empty", "no label", "not available",
    "background", "noise", "silence", "nothing", "no finding", "no findings", "no event", "no events", "no class",
    "no call", "nocall", "no bird",
}  # fmt: skip
"""Labels that stand for no class in the files of many programs, in lower case and with spaces between words."""
_NO_FEATURES = {"index", "class", "target", "fold", "y"}
"""Names of columns that hold labels or numbers of rows."""
_RARE_MARKS = ",;|"
_COMMON_MARKS = (",", "|", ";", "/", "+", "&")
"""Marks between classes, those that are rare in names first."""
_LIST = re.compile(r"\[.*\]|\{.*\}|\(.*['\"].*\)|(['\"]).*\1", re.DOTALL)
"""A text that reads like a list."""
_MOST_OF_ASKED = 2
"""A column of groups is of no use if a part of the split would be more than so many times as large as asked for."""
_ROUNDING = 0.1
"""How far a thousand times a number below 1000 may be from a whole one, in single precision."""
_YEARS = 946_684_800, 4_102_444_800
"""The seconds from 1970 to the years 2000 and 2100."""
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Unit of a time stamp -> how many of it a second has."""
_NO_FEATURE_WORDS = {"label", "labels", "coord", "coords", "coordinate", "coordinates"}
"""Words in the names of columns that hold labels or places."""


class Finding(NamedTuple):
    """One line of the table of checks: a fact, a warning, or a fault that makes training impossible."""

    level: Level
    what: str
    detail: str
    setting: str = ""
    """What mends it."""


def check_bags(
    bags: OwnBags, options: TableOptions, *, quick: bool = False, splits: Sequence[BagSplit] = ()
) -> list[Finding]:
    """Return findings on bags and some of their splits, see `checked_splits`; `quick`: without reading them again."""
    if options.kind == "images":
        findings = list(_images(bags, options))
    elif options.kind == "sequences":
        findings = list(_sequences(bags))
    else:
        findings = list(_features(bags))
    groups = _columns_to_group_by(bags, options)
    if isinstance(options, FeatureOptions) and np.isfinite(bags.store.means).all():
        findings += _odd_features(bags, options, list(groups))
        findings += _time_stamps(bags, options)
        if not quick:
            findings += _far_values(bags)
            findings += _thousands(bags, options)
    findings += _labels(bags, options)
    findings += _groups(bags, options, groups)
    findings += _classes(bags, options)
    # Where classes are names of bags, nothing more is to be said of where they occur.
    findings += list(_id_like_classes(bags)) or _split_gaps(bags, splits)
    findings += _sizes_of_sets(bags, options)
    findings += _duplicates(bags, options.kind)
    return findings


def fatal(findings: Sequence[Finding]) -> list[str]:
    """Return what makes training impossible."""
    return [f"{one.what}: {one.detail}" for one in findings if one.level == "fatal"]


def checked_splits(
    bags: OwnBags, options: TableOptions, seeds: Sequence[int] | None = None
) -> list[BagSplit]:
    """Return the splits of some seeds, None: all folds, or 0 to 9; none where no class is rare. Raises UsageError."""
    if bags.split:
        return [split_bags(bags, options, 0)]
    units = np.unique(bags.groups or bags.bags, return_inverse=True)[1]
    has_folds = bool(options.folds or options.splits)
    if units.max() < 2 and not has_folds:
        # Two bags are too few to validate on one.
        return []
    if seeds is None:
        seeds = range(math.prod(count_folds(bags, options) or (10,)))
    # A class is rare where few units have it, and where few lack it.
    sets = np.concatenate([bags.labels, ~bags.labels], axis=1).T
    fewest = min(len(np.unique(units[has])) for has in sets)
    if fewest >= _RARE and not options.splits:
        return []
    return [split_bags(bags, options, seed) for seed in seeds]


def _id_like_classes(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding where classes seem to be names of bags, or measured numbers."""
    names = bags.class_names
    labelled = int(bags.labels.any(axis=1).sum())
    if bags.labels.sum(axis=1).max() > 1 or len(names) <= 4:
        return
    numbers = pd.to_numeric(pd.Series(names), errors="coerce")
    are_numbers = numbers.notna().all() and len(names) > _FEWEST
    fewest_bags = 4 if are_numbers else 2
    has_fractions = bool((numbers % 1 > 0).any())
    if has_fractions or fewest_bags * len(names) > labelled:
        what = f"{len(names)} classes in {labelled} bags with a class: {abbreviate(names, 3)}"
        yield Finding(
            "warning",
            "classes that read like ids or measured numbers",
            f"{what}; a class is in many bags",
        )


def _split_gaps(bags: OwnBags, splits: Sequence[BagSplit]) -> Iterator[Finding]:
    """Yield findings for classes that no bag of a part of a split has, or every one, and for bags in no part."""
    if bags.split and not splits:
        splits = [_split_of_column(bags.split)]
    gaps = _count_gaps(bags, splits)
    of_splits = f" of {len(splits)} splits" if len(splits) > 1 else ""
    missing = _in_parts(gaps.missing, "from", of_splits)
    yield from _list_names("warning", "classes missing from a part of the split", missing)
    everywhere = _in_parts(gaps.everywhere, "in", of_splits)
    yield from _list_names("warning", "classes in every bag of a part of the split", everywhere)
    if gaps.blind:
        where = "the validation bags"
        if of_splits:
            where = f"the validation bags of {gaps.blind}{of_splits}"
        detail = f"{where} have no class, or all classes: label sets are read off at even odds"
        yield Finding("warning", "no threshold can be chosen", detail)
    if splits:
        outside = np.setdiff1d(np.arange(len(bags)), np.concatenate(splits[0]))
        names = [bags.bags[bag] for bag in outside]
        yield from _list_names("warning", "bags in no part of the split", names, 4)


def _split_of_column(parts: Sequence[str]) -> BagSplit:
    """Return the split that a column says, the part of each bag."""
    column = np.array(parts)
    return BagSplit(*(np.flatnonzero(column == part) for part in SPLITS))


@dataclasses.dataclass
class _Gaps:
    """In how many splits something lacks."""

    missing: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    """(class, part) -> the splits in which no bag of the part has the class."""
    everywhere: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    """(class, part) -> the splits in which every bag of the part has the class."""
    blind: int = 0
    """The splits whose validation bags have no class or all classes."""


def _count_gaps(bags: OwnBags, splits: Sequence[BagSplit]) -> _Gaps:
    """Return which classes the parts of splits lack. Those in all bags or in none are reported elsewhere."""
    gaps = _Gaps()
    names = np.array(bags.class_names, object)
    is_varied = ~bags.labels.all(axis=0) & bags.labels.any(axis=0)
    for split, part in itertools.product(splits, SPLITS):
        labels = bags.labels[getattr(split, part)]
        if not len(labels):
            continue
        if part == "validation" and (labels.all() or not labels.any()):
            gaps.blind += 1
        missing = names[is_varied & ~labels.any(axis=0)]
        everywhere = names[is_varied & labels.all(axis=0)]
        if len(missing):
            gaps.missing.update((name, part) for name in missing)
        else:
            gaps.everywhere.update((name, part) for name in everywhere)
    return gaps


def _in_parts(counts: Counter[tuple[str, str]], word: str, of_splits: str) -> list[str]:
    """Return texts such as "wren from test (2 of 10 splits)"."""
    texts = []
    for (name, part), count in counts.items():
        times = f" ({count}{of_splits})" if of_splits else ""
        texts.append(f"{name} {word} {part}{times}")
    return texts


def _features(bags: OwnBags) -> Iterator[Finding]:
    store = bags.store
    sizes = store.sizes
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
        return
    count = sum(int((~np.isfinite(store.single(bag))).sum()) for bag in broken)
    values = store.single(broken[0])
    instances, features = np.nonzero(~np.isfinite(values))
    instance = int(instances[0])
    feature = int(features[0])
    place = bags.place(int(store.offsets[broken[0]]) + instance)
    name = bags.feature_names[feature]
    first = f"the first in {place}: {name} is {values[instance, feature]} in single precision"
    yield Finding("fatal", "features that are not finite", f"{count:,}, {first}")


def _odd_features(
    bags: OwnBags, options: FeatureOptions, groups: Sequence[str]
) -> Iterator[Finding]:
    """Yield a finding for features with names of ids, labels or places. Columns of groups are reported elsewhere."""
    odd = [name for name in bags.feature_names if _is_no_feature(name) and name not in groups]
    if odd:
        remedy = _leave_out(bags, options, odd)
        what = f"features that read like ids, labels or places{remedy}"
        yield from _list_names("warning", what, odd)


def _is_no_feature(name: str) -> bool:
    if name.casefold() in _NO_FEATURES or not _NO_FEATURE_WORDS.isdisjoint(words_of(name)):
        return True
    return is_id_name(name) or is_group_name(name)


def _time_stamps(bags: OwnBags, options: FeatureOptions) -> Iterator[Finding]:
    """Yield a finding for features that may be times since 1970: all of their means are between 2000 and 2100."""
    found = []
    for unit, parts in _UNITS.items():
        low, high = (limit * parts for limit in _YEARS)
        are_times = ((bags.store.means >= low) & (bags.store.means <= high)).all(axis=0)
        for number in np.flatnonzero(are_times).tolist():
            means = bags.store.means[:, number] / parts
            first = datetime.fromtimestamp(means.min(), UTC).date()
            last = datetime.fromtimestamp(means.max(), UTC).date()
            text = f"{unit} since 1970, {first} to {last}"
            found.append((bags.feature_names[number], text))
    if found:
        texts = [f"{name} ({text})" for name, text in found]
        remedy = _leave_out(bags, options, [name for name, _ in found])
        yield from _list_names("warning", f"features that may be time stamps{remedy}", texts, 4)


def _leave_out(bags: OwnBags, options: FeatureOptions, names: Sequence[str]) -> str:
    """Return the option that leaves features out, for a message; "" where none would be left, or they are of files."""
    flag = "" if options.of_files else leave_out(options.features, names, bags.feature_names)
    return f" ({flag} leaves them out)" if flag else ""


def _constant_features(bags: OwnBags, names: Sequence[str], counted: str = "") -> Iterator[Finding]:
    constant = [names[number] for number in np.flatnonzero(bags.store.constant()).tolist()]
    if len(constant) == len(names):
        yield Finding("fatal", "features", "all are constant: no instance differs from another one")
    else:
        yield from _list_names("warning", f"constant features{counted}", constant)


def _far_values(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding for features with one value far from all others: -9999 often stands for a missing value."""
    texts = []
    for feature, value in sorted(_far_ends(bags)):
        text = _far_value(bags, feature, value)
        if text:
            texts.append(text)
        # One more than are named, to say that there are more.
        if len(texts) > _MOST_FAR_VALUES:
            break
    if texts:
        listed_texts = abbreviate(texts, _MOST_FAR_VALUES)
        detail = f"{listed_texts}; are they missing values?"
        yield Finding("warning", "values far from all others", detail)


def _far_ends(bags: OwnBags) -> Iterator[tuple[int, float]]:
    """Yield each feature whose smallest or largest value is far from the next one, with that value."""
    # The difference of two values of 3e38 overflows in single precision.
    low, next_low, next_high, high = bags.store.ends().astype(np.float64)
    for extreme, near, other in ((low, next_low, high), (high, next_high, low)):
        span = np.where(np.isfinite(near), abs(other - near), 0)
        is_far = (span > 0) & (abs(near - extreme) > FAR * span)
        for feature in np.flatnonzero(is_far).tolist():
            yield feature, float(extreme[feature])


def _far_value(bags: OwnBags, feature: int, value: float) -> str:
    """Return in which instances a feature has a value that is far from all others; "" where it may well be true."""
    matches = np.concatenate([block[:, feature] == value for block in bags.store.blocks()])
    count = int(matches.sum())
    others = len(matches) - count
    # A single value of this kind may well be true, unless it is as large as codes for missing values are.
    is_like_a_code = count > 1 or abs(value) >= _LEAST_CODE
    if others < _FEWEST or not is_like_a_code:
        return ""
    _, _, row = bags.place(int(matches.argmax())).rpartition(", ")
    name = bags.feature_names[feature]
    return f"{name} is {value:g} in {count:,} instances, the first in {row}"


def _thousands(bags: OwnBags, options: FeatureOptions) -> Iterator[Finding]:
    """Yield a finding for features that are written with the mark of decimals between thousands."""
    if options.of_files or options.form.thousands or not is_text(bags.path):
        return
    could_be = np.ones(len(bags.feature_names), bool)
    has_fraction = np.zeros(len(bags.feature_names), bool)
    for block in bags.store.blocks():
        values = np.abs(block.astype(np.float64))
        is_whole = values % 1 == 0
        is_thousandth = np.abs(values * 1000 - np.round(values * 1000)) < _ROUNDING
        could_be &= ((values < 1000) & (is_whole | ((values > 1) & is_thousandth))).all(axis=0)
        has_fraction |= (~is_whole).any(axis=0)
    names = list(bags.feature_names)
    suspects = [names[number] for number in np.flatnonzero(could_be & has_fraction).tolist()]
    if not suspects:
        return
    # A number of a list is no column of the file.
    in_file = column_names(bags.path, options.form)
    columns = [name for name in suspects if name in in_file]
    remedies = [thousands_remedy(bags.path, options.form, column, names) for column in columns]
    found = [remedy for remedy in remedies if remedy]
    yield from _list_names("warning", "numbers that may have marks between thousands", found)


def _images(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    sizes = np.zeros((1, 2), np.int32) if bags.sizes is None else bags.sizes
    areas = sizes.prod(axis=1)
    smallest = _size_text(sizes[areas.argmin()])
    largest = _size_text(sizes[areas.argmax()])
    yield Finding("fact", "images", f"{len(bags):,}, of {smallest} to {largest} pixels")
    if bags.marks is not None:
        boxed = f"{bags.marked().sum():,} of {len(bags):,} images"
        yield Finding("fact", "boxes", f"{boxed} have a box of every class")
        yield from _boxes_like_sizes(bags, sizes, options)
    is_plain = (bags.store.squares == 0).all(axis=1)
    if is_plain.all():
        detail = "all are of one colour: nothing can be told from them"
        yield Finding("fatal", "images", detail)
    else:
        plain = [bags.bags[image] for image in np.flatnonzero(is_plain)]
        yield from _list_names("warning", "images of one colour", plain)


def _size_text(size: NDArray[np.int32]) -> str:
    width, height = size.tolist()
    return f"{width}x{height}"


def _boxes_like_sizes(
    bags: OwnBags, sizes: NDArray[np.int32], options: TableOptions
) -> Iterator[Finding]:
    """Yield a finding where all boxes, read as corners, could as well be left, top, width and height.

    Boxes that are corners allow that only where all of them are in the upper left of their images.
    """
    if not isinstance(options, ImageOptions) or options.boxes != "pixels":
        return
    count = 0
    for boxes, (width, height) in zip(bags.marks or [], sizes.tolist(), strict=True):
        for box in boxes:
            if not fits(box.place, "coco", (width, height)):
                return
            count += 1
    if count >= _FEWEST_BOXES:
        detail = (
            f"all {count:,} could as well be left, top, width and height; are they? "
            "-p task.boxes=coco reads them so"
        )
        yield Finding("warning", "boxes that read like sizes", detail)


def _sequences(bags: OwnBags) -> Iterator[Finding]:
    lengths = bags.store.sizes
    rate = bags.frames_per_second
    rows = _with_rows(bags)
    low, high, middle = lengths.min(), lengths.max(), np.median(lengths)
    frames = f"{low:,} to {high:,} frames, median {middle:,.0f}"
    yield Finding("fact", "sequences", f"{len(bags):,}, of {frames}")
    seconds = f"{low / rate:.3g} to {high / rate:.3g} seconds, {rate:g} frames a second"
    yield Finding("fact", "time", seconds)
    yield Finding("fact", "features", f"{bags.store.width} in every frame")
    if bags.marks is not None:
        marked = int(bags.marked().sum())
        detail = f"{marked:,} of {len(bags):,} sequences have an event of every class"
        yield Finding("fact", "events", detail)
        yield from _late_events(bags)
    is_broken = ~np.isfinite(bags.store.means).all(axis=1)
    broken = [rows[number] for number in np.flatnonzero(is_broken)]
    yield from _list_names("fatal", "sequences with values that are not finite", broken, 20)
    numbers = [str(number) for number in range(bags.store.width)]
    yield from _constant_features(bags, numbers, " (counted from 0)")
    if not bags.store.constant().all():
        is_unchanged = (bags.store.squares == 0).all(axis=1)
        unchanged = [rows[number] for number in np.flatnonzero(is_unchanged)]
        yield from _list_names("warning", "sequences that never change", unchanged)


def _late_events(bags: OwnBags) -> Iterator[Finding]:
    """Yield findings for events that begin, or end, after the end of their recording."""
    begin_late = []
    end_late = []
    lengths = bags.store.sizes / bags.frames_per_second
    # The length is known only to a frame.
    frame = 1 / bags.frames_per_second
    for bag, events in enumerate(bags.marks or []):
        for number, (cls, (start, end)) in enumerate(events):
            row = row_name(bags.path, bags.mark_row(bag, number)).rpartition(", ")[2]
            name = bags.class_names[cls]
            lasts = f"{bags.bags[bag]} ({row}) lasts {lengths[bag]:.3g} seconds and has {name!r}"
            if start >= lengths[bag]:
                begin_late.append(f"{lasts} from {start:g}")
            elif end > lengths[bag] + frame:
                end_late.append(f"{lasts} to {end:g}")
    yield from _list_names("fatal", "events after the end", begin_late, 4)
    yield from _list_names("warning", "events that end after their recording", end_late, 4)


def _with_rows(bags: OwnBags) -> list[str]:
    """Return the names of bags with the first rows that name them."""
    names = []
    for bag, name in enumerate(bags.bags):
        place = row_name(bags.path, bags.bag_row(bag)).rpartition(", ")[2]
        names.append(f"{name} ({place})")
    return names


def _labels(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    if bags.ignored:
        yield Finding("fact", "columns not used", abbreviate(bags.ignored))
    name = bags.split_column
    if name and not options.splits:
        flag = f"-p task.split={quote(name)}"
        detail = (
            f"{name} holds parts of a split, and bags are split by other means; {flag} takes it"
        )
        yield Finding("warning", "a column that reads like a split", detail)
    low = bags.labels.sum(axis=1).min()
    high = bags.labels.sum(axis=1).max()
    span = f"{low}" if low == high else f"{low} to {high}"
    yield Finding("fact", "classes", f"{len(bags.class_names)}, a bag has {span} of them")
    empty = int((~bags.labels.any(axis=1)).sum())
    yield Finding("fact", "empty label sets", f"{empty:,} of {len(bags):,} bags")
    for label, count in bags.nothing.items():
        what = f"no class by {label}"
        if count:
            yield Finding("fact", what, f"in {count:,} of {len(bags):,} bags")
        else:
            detail = f"task.nothing names {label!r}, which no bag has"
            yield Finding("warning", what, detail)
    if bags.groups:
        yield Finding(
            "fact", "groups", f"{len(set(bags.groups)):,}, each wholly in one part of a split"
        )
        divided = divided_groups(bags.groups, bags.split or [])
        yield from _list_names("fatal", "groups in two parts of the split", divided)
    yield from _parts(bags, options)


def _parts(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield findings on the split of a column, or where there are too few bags or groups to draw one."""
    what = "group" if bags.groups else "bag"
    units = len(set(bags.groups or bags.bags))
    if bags.split:
        sizes = [f"{part} {bags.split.count(part):,} bags" for part in SPLITS]
        yield Finding("fact", "split", ", ".join(sizes))
    elif units < 2:
        detail = "it cannot be split into a part to train on and one to test on"
        yield Finding("fatal", f"only one {what}", detail)
    elif units == 2 and options.validation:
        detail = "one to train on and one to test on: training needs -p task.validation=0"
        yield Finding("warning", f"two {what}s", detail)


def _groups(
    bags: OwnBags, options: TableOptions, groups: Mapping[str, NDArray[np.int64]]
) -> Iterator[Finding]:
    """Yield a finding for each column whose bags may belong together, and are trained and tested on."""
    for name, values in groups.items():
        count = len(np.unique(values[values != MISSING]))
        empty = int((values == MISSING).sum())
        detail = f"{name}: {count:,} values, and bags that share one are trained and tested on"
        if name in bags.feature_names:
            detail += ", and it is taken for a feature"
        flag = f"-p task.group={quote(name)}"
        if bags.split or options.splits:
            detail += "; are they independent?"
        elif empty:
            detail += f"; it is empty for {empty:,} bags, and once filled {flag} keeps the others in one part"
        else:
            detail += f"; {flag} keeps them in one part of a split"
        yield Finding("warning", "a column that reads like a group", detail)


def _columns_to_group_by(bags: OwnBags, options: TableOptions) -> dict[str, NDArray[np.int64]]:
    """Return columns that bags share, none of which is split, whose values stand in train and test.

    Of these only such by which bags can be split as asked: a column such as the sex of a patient has too few values.
    """
    if not bags.shared_columns:
        return {}
    try:
        split = split_bags(bags, options, 0)
    except UsageError:
        return {}
    found = {}
    for name, numbers in bags.shared_columns.items():
        values = np.asarray(numbers)
        is_in_both = stands_in_train_and_test(values, split.train, split.test)
        if is_in_both and _can_be_split_by(bags, options, values):
            found[name] = values
    return found


def _can_be_split_by(bags: OwnBags, options: TableOptions, values: NDArray[np.int64]) -> bool:
    """Try to split bags by a column; return whether parts are about as large as asked for and share their classes.

    Where most classes to test on are missing from training, the column says the labels in other words.
    """
    groups = [f"v{value}" if value != MISSING else f"bag {bag}" for bag, value in enumerate(values)]
    grouped = dataclasses.replace(bags, groups=groups, split=None)
    drawn = dataclasses.replace(options, splits="")
    try:
        split = split_bags(grouped, drawn, 0)
    except UsageError:
        return False
    test = 1 / drawn.folds if drawn.folds else drawn.test
    if len(split.test) > _MOST_OF_ASKED * max(1, test * len(bags)):
        return False
    if len(split.validation) > _MOST_OF_ASKED * max(1, drawn.validation * len(bags)):
        return False
    in_train = bags.labels[split.train].any(axis=0)
    in_test = bags.labels[split.test].any(axis=0)
    return bool((in_train & in_test).sum() * 2 >= in_test.sum())


def _classes(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    yield from _twin_classes(bags)
    yield from _binary_classes(bags, options)
    yield from _classes_like_nothing(bags, options)
    yield from _classes_like_several(bags, options)
    for name, count in zip(bags.class_names, bags.labels.sum(axis=0).tolist(), strict=True):
        yield Finding("fact", f"class {name}", f"in {count:,} of {len(bags):,} bags")
        if count == len(bags):
            detail = "is in every bag: label sets say nothing of where it is"
            yield Finding("warning", f"class {name}", detail)


def _in_words(name: str) -> str:
    """Return the name of a class in lower case, with one space between its words."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", folded)


def _twin_classes(bags: OwnBags) -> Iterator[Finding]:
    variants = defaultdict[str, list[str]](list)
    for name in bags.class_names:
        variants[_in_words(name).rstrip(".")].append(name)
    twins = [" and ".join(names) for names in variants.values() if len(names) > 1]
    if twins:
        yield Finding("warning", "classes that differ in case or spaces alone", abbreviate(twins))


def _binary_classes(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield a finding for a column that says whether one class is there: its values are read as two classes."""
    names = {name.casefold() for name in bags.class_names}
    if names not in ({"0", "1"}, {"0.0", "1.0"}, {"false", "true"}):
        return
    absent = min(bags.class_names)
    detail = f"a bag with {absent} has the class {absent}, and none has no class"
    remedy = _nothing_flag(bags, options, [absent])
    if remedy:
        detail += f"; {remedy} makes no class of {absent}"
    if bags.label_texts and set(bags.label_texts) <= {"0", "1", "0.0", "1.0"}:
        flag = quote(f"{options.labels}{LIST_MARK}")
        detail += (
            f"; -p task.labels={flag} reads a column of 0 and 1 for the class {options.labels}"
        )
    yield Finding("warning", f"the classes are {' and '.join(bags.class_names)}", detail)


def _classes_like_nothing(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    names = []
    for name in bags.class_names:
        # Na is sodium.
        means_nothing = _in_words(name) in _NOTHING and name != "Na"
        # Beside a class wren, -wren is a recording without a wren.
        is_negation = re.match(r"-[^\W\d]", name) and name[1:] in bags.class_names
        if means_nothing or is_negation:
            names.append(name)
    if not names:
        return
    detail = f"{abbreviate(names)}: does it mean no class?"
    remedy = _nothing_flag(bags, options, names)
    if remedy:
        left = [number for number, name in enumerate(bags.class_names) if name not in names]
        empty = int((~bags.labels[:, left].any(axis=1)).sum())
        detail += f" {remedy} reads it so, and {empty:,} of {len(bags):,} bags have no class then"
    yield Finding("warning", "classes that read like nothing", detail)


def _nothing_flag(bags: OwnBags, options: TableOptions, names: Sequence[str]) -> str:
    """Return the option by which labels mean no class, "" where it cannot be given or leaves no class."""
    is_possible = not any(LIST_MARK in name or name in listed(options.classes) for name in names)
    if not is_possible or len(names) == len(bags.class_names):
        return ""
    labels = [*listed(options.nothing), *names]
    return f"-p task.nothing={quote(LIST_MARK.join(labels))}"


def _classes_like_several(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    lists = [text for text in bags.label_texts if _LIST.fullmatch(text)]
    if lists and options.separator != LIST:
        yield _several(bags, options, LIST, lists)
        return
    for separator, names in _unseparated_classes(bags.class_names).items():
        yield _several(bags, options, separator.strip(), names)


def _several(bags: OwnBags, options: TableOptions, separator: str, texts: Sequence[str]) -> Finding:
    """Return the finding of texts that may be several classes, with an option if it takes all labels apart."""
    detail = f"{abbreviate([*map(repr, texts)], 3)} may be several classes"
    setting = ""
    if _takes_apart(bags, options, separator):
        setting = f"task.separator={separator}"
        detail += f"; -p task.separator={quote(separator)} takes them apart"
    else:
        detail += f"; task.separator={quote(separator)} does not read all labels of the table"
    return Finding("warning", "classes that read like several", detail, setting)


def _takes_apart(bags: OwnBags, options: TableOptions, separator: str) -> bool:
    """Return whether all labels of the table are read by another separator, and none has the present one in it."""
    classes = set[str]()
    for text in bags.label_texts:
        try:
            classes |= classes_in(text, separator)
        except ValueError:
            return False
    allowed = set(map(class_name, listed(options.classes)))
    if not classes or (allowed and not classes <= allowed):
        return False
    present = options.separator
    if present in ("", LIST) or separator == LIST:
        return True
    return not any(present in name for name in classes)


def _unseparated_classes(names: Sequence[str]) -> dict[str, list[str]]:
    """Return separator -> the classes that seem to be several ones with it between them."""
    found: dict[str, list[str]] = {}
    left = list(names)
    others = set(re.findall(r"\W|_", "".join(names))) - set(_COMMON_MARKS) - {" "}
    for separator in [*_COMMON_MARKS, *sorted(others), " "]:
        joined = _joined_by(separator, left)
        if joined:
            found[separator] = joined
            left = [name for name in left if name not in joined]
    return found


def _joined_by(separator: str, names: Sequence[str]) -> list[str]:
    """Return the names that are other classes with a separator between them."""
    parts: dict[str, list[str]] = {}
    for name in names:
        if separator in name:
            stripped = [part.strip() for part in name.split(separator)]
            parts[name] = [part for part in stripped if part]
    # Commas, bars and semicolons are rare in names; other marks count where all parts are classes.
    is_rare_in_names = separator in _RARE_MARKS
    classes = set(names)
    if is_rare_in_names:
        counts = Counter(part for several in parts.values() for part in set(several))
        classes |= {part for part, count in counts.items() if count > 1}
    joined = []
    for name, several in parts.items():
        all_are_classes = len(several) > 1 and classes.issuperset(several)
        one_is_class = is_rare_in_names and not set(names).isdisjoint(several)
        if all_are_classes or one_is_class:
            joined.append(name)
    return joined


def _sizes_of_sets(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    counts = bags.labels.sum(axis=1)
    many = int((counts > EXACT_LABEL_LIMIT).sum())
    if many:
        method = "exact trains on its certified lower bound there (method=auto), and method=exact refuses them"
        detail = f"{many:,} bags have more than {EXACT_LABEL_LIMIT} classes: {method}"
        yield Finding("warning", "large label sets", detail)
    if isinstance(options, FeatureOptions):
        yield from _small_bags(bags, options)
    if options.kind == "sequences":
        yield from _short_sequences(bags)


def _small_bags(bags: OwnBags, options: FeatureOptions) -> Iterator[Finding]:
    is_small = bags.labels.sum(axis=1) > bags.store.sizes
    if not is_small.any():
        return
    small = [bags.bags[bag] for bag in np.flatnonzero(is_small)]
    detail = f"{len(small):,} have more classes than instances: {abbreviate(small)}"
    if options.small_bags == "leave-out":
        level: Level = "warning"
        remedy = "they are left out"
    else:
        level = "fatal"
        remedy = "-p task.small_bags=leave-out leaves them out"
    yield Finding(level, "bags with too few instances", f"{detail} ({remedy})")


def _short_sequences(bags: OwnBags) -> Iterator[Finding]:
    """Yield findings for sequences with more classes than frames, or than positions of a network."""
    counts = bags.labels.sum(axis=1)
    sizes = bags.store.sizes
    # A begun block of frames is a position.
    positions = -(-sizes // STRIDE)
    named = [
        f"{row} has {count} classes and {size:,} frames"
        for row, count, size in zip(_with_rows(bags), counts, sizes, strict=True)
    ]
    lacks_frames = counts > sizes
    lacks_positions = (counts > positions) & ~lacks_frames
    without = [named[bag] for bag in np.flatnonzero(lacks_frames)]
    short = [named[bag] for bag in np.flatnonzero(lacks_positions)]
    yield from _list_names("fatal", "sequences with too few frames", without, 4)
    what = f"sequences with too few positions of {STRIDE} frames (-p network.stride=1 gives more)"
    yield from _list_names("warning", what, short, 4)


def _duplicates(bags: OwnBags, kind: Kind) -> Iterator[Finding]:
    """Yield findings for bags of equal content; equal sequences that may be trained and tested on are fatal."""
    of_content = defaultdict[bytes, list[int]](list)
    for bag, digest in enumerate(bags.store.digests):
        of_content[digest.tobytes()].append(bag)
    twins = [equal for equal in of_content.values() if len(equal) > 1]
    across: Level = "fatal" if kind == "sequences" else "warning"
    what = "bags" if kind == "features" else kind
    names = _with_rows(bags) if kind == "sequences" else bags.bags
    # Bags with one of these in common are in one part of a split.
    parts = bags.split or bags.groups or bags.bags
    named, differing, apart = [], [], []
    for equal in twins:
        text = " = ".join(names[bag] for bag in equal)
        named.append(text)
        if len(np.unique(bags.labels[equal], axis=0)) > 1:
            differing.append(text)
        if len({parts[bag] for bag in equal}) > 1:
            apart.append(text)
    yield from _list_names("warning", f"{what} of equal content", named, 4)
    yield from _list_names("warning", f"equal {what}, other labels", differing, 4)
    if bags.split:
        yield from _list_names(across, f"equal {what} in two parts", apart, 4)
    elif across == "fatal":
        where = "that may get into two parts, being in no common group"
        yield from _list_names(across, f"equal {what} {where}", apart, 4)


def _list_names(level: Level, what: str, names: Sequence[str], most: int = 8) -> Iterator[Finding]:
    if names:
        yield Finding(level, what, f"{len(names):,}: {abbreviate(names, most)}")
