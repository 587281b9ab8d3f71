"""Checks of tables of features: values that are no measurements, and columns that are no features."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from milbench.data.column_words import is_group_name, is_id_name, words_of
from milbench.data.findings import Finding, list_names
from milbench.data.name_lists import abbreviate
from milbench.data.own_bags import OwnBags
from milbench.data.table_files import column_names, is_text
from milbench.data.table_options import FeatureOptions, leave_out_flag
from milbench.data.written_numbers import thousands_remedy

FAR = 5
"""A value is far from all others if its distance from the nearest one is more than this times what they span."""
_LEAST_CODE = 999
"""From this size on a single value far from all others may be a code for a missing value."""
_MOST_FAR_VALUES = 4
"""Of more values far from all others only the number is said."""
_FEWEST_OTHERS = 10
"""A value is not called far from all others where there are fewer others."""
_NO_FEATURES = {"index", "class", "target", "fold", "y"}
"""Names of columns that hold labels or numbers of rows."""
_NO_FEATURE_WORDS = {"label", "labels", "coord", "coords", "coordinate", "coordinates"}
"""Words in the names of columns that hold labels or places."""
_ROUNDING = 0.1
"""How far a thousand times a number below 1000 may be from a whole one, in single precision."""
_YEAR_2000 = 946_684_800
_YEAR_2100 = 4_102_444_800
"""The seconds from 1970 to these years."""
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Unit of a time stamp -> how many of it a second has."""


def check_features(bags: OwnBags) -> Iterator[Finding]:
    """Yield facts on instances and features, and findings for features that are constant or not finite."""
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
    # Only a bag with a number that is not finite has such a mean.
    broken = np.flatnonzero(~np.isfinite(store.means).all(axis=1)).tolist()
    if broken:
        yield _not_finite(bags, broken)
    else:
        yield from constant_features(bags, bags.feature_names)


def _not_finite(bags: OwnBags, broken: Sequence[int]) -> Finding:
    """Return the finding of numbers that are not finite in some bags, with the place of the first."""
    store = bags.store
    count = sum(int((~np.isfinite(store.single(bag))).sum()) for bag in broken)
    values = store.single(broken[0])
    instances, features = np.nonzero(~np.isfinite(values))
    instance = int(instances[0])
    feature = int(features[0])
    place = bags.place(int(store.offsets[broken[0]]) + instance)
    name = bags.feature_names[feature]
    first = f"the first in {place}: {name} is {values[instance, feature]} in single precision"
    return Finding("fatal", "features that are not finite", f"{count:,}, {first}")


def constant_features(bags: OwnBags, names: Sequence[str], counted: str = "") -> Iterator[Finding]:
    """Yield a finding for features with one value in all instances; `counted` says how `names` are counted."""
    constant = [names[number] for number in np.flatnonzero(bags.store.constant()).tolist()]
    if len(constant) == len(names):
        yield Finding("fatal", "features", "all are constant: no instance differs from another one")
    else:
        yield from list_names("warning", f"constant features{counted}", constant)


def odd_features(
    bags: OwnBags, options: FeatureOptions, groups: Sequence[str]
) -> Iterator[Finding]:
    """Yield a finding for features with names of ids, labels or places. Columns of groups are reported elsewhere."""
    odd = [name for name in bags.feature_names if _is_no_feature(name) and name not in groups]
    if odd:
        remedy = _how_to_leave_out(bags, options, odd)
        what = f"features that read like ids, labels or places{remedy}"
        yield from list_names("warning", what, odd)


def _is_no_feature(name: str) -> bool:
    """Return whether a column is named like ids, labels, groups or places."""
    if name.casefold() in _NO_FEATURES or not _NO_FEATURE_WORDS.isdisjoint(words_of(name)):
        return True
    return is_id_name(name) or is_group_name(name)


def time_stamps(bags: OwnBags, options: FeatureOptions) -> Iterator[Finding]:
    """Yield a finding for features that may be times since 1970: all of their means are between 2000 and 2100."""
    names = []
    texts = []
    means = bags.store.means
    for unit, parts in _UNITS.items():
        is_time = (means >= _YEAR_2000 * parts) & (means <= _YEAR_2100 * parts)
        for number in np.flatnonzero(is_time.all(axis=0)).tolist():
            name = bags.feature_names[number]
            seconds = means[:, number] / parts
            first = datetime.fromtimestamp(seconds.min(), UTC).date()
            last = datetime.fromtimestamp(seconds.max(), UTC).date()
            names.append(name)
            texts.append(f"{name} ({unit} since 1970, {first} to {last})")
    if names:
        remedy = _how_to_leave_out(bags, options, names)
        yield from list_names("warning", f"features that may be time stamps{remedy}", texts, 4)


def _how_to_leave_out(bags: OwnBags, options: FeatureOptions, names: Sequence[str]) -> str:
    """Return the option that leaves features out, for a message; "" where none would be left, or they are of files."""
    flag = "" if options.of_files else leave_out_flag(options.features, names, bags.feature_names)
    return f" ({flag} leaves them out)" if flag else ""


def far_values(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding for features with one value far from all others: -9999 often stands for a missing value."""
    texts = []
    for feature, value in sorted(_far_ends(bags)):
        text = _describe_far_value(bags, feature, value)
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
    for extreme, nearest, opposite in ((low, next_low, high), (high, next_high, low)):
        # What all other values span. A feature with a single value has no nearest one.
        span = np.where(np.isfinite(nearest), abs(opposite - nearest), 0)
        is_far = (span > 0) & (abs(nearest - extreme) > FAR * span)
        for feature in np.flatnonzero(is_far).tolist():
            yield feature, float(extreme[feature])


def _describe_far_value(bags: OwnBags, feature: int, value: float) -> str:
    """Return in which instances a feature has a value far from all others; "" for one that may well be true."""
    matches = np.concatenate([block[:, feature] == value for block in bags.store.blocks()])
    count = int(matches.sum())
    others = len(matches) - count
    # A single value of this kind may well be true, unless it is as large as codes for missing
    # values are.
    is_like_a_code = count > 1 or abs(value) >= _LEAST_CODE
    if others < _FEWEST_OTHERS or not is_like_a_code:
        return ""
    row = bags.short_place(int(matches.argmax()))
    name = bags.feature_names[feature]
    return f"{name} is {value:g} in {count:,} instances, the first in {row}"


def marks_between_thousands(bags: OwnBags, options: FeatureOptions) -> Iterator[Finding]:
    """Yield a finding for features that may be written with the mark of decimals between thousands.

    Read as they are, such numbers have three decimals and are below 1000: 5.050 may be five
    thousand.
    """
    if options.of_files or options.form.thousands or not is_text(bags.path):
        return
    may_have_marks = np.ones(len(bags.feature_names), bool)
    has_fraction = np.zeros(len(bags.feature_names), bool)
    for block in bags.store.blocks():
        values = np.abs(block.astype(np.float64))
        is_whole = values % 1 == 0
        has_three_decimals = np.abs(values * 1000 - np.round(values * 1000)) < _ROUNDING
        may_have_mark = is_whole | ((values > 1) & has_three_decimals)
        may_have_marks &= ((values < 1000) & may_have_mark).all(axis=0)
        has_fraction |= (~is_whole).any(axis=0)
    names = list(bags.feature_names)
    suspects = [names[number] for number in np.flatnonzero(may_have_marks & has_fraction).tolist()]
    if not suspects:
        return
    # A number of a list, such as name[0], is a feature but no column of the file.
    in_file = column_names(bags.path, options.form)
    columns = [name for name in suspects if name in in_file]
    remedies = [thousands_remedy(bags.path, options.form, column, names) for column in columns]
    found = [remedy for remedy in remedies if remedy]
    yield from list_names("warning", "numbers that may have marks between thousands", found)
