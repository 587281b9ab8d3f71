"""Checks of tables of features: find values that are not measured, and columns of other things."""

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
"""A value is far from all others if it is more than this many times their range away from them."""
_LEAST_CODE = 999
"""A far value that occurs only once is reported if its absolute value is at least this.

It may then be a code for a missing value, such as -999.
"""
_MOST_FAR_VALUES = 4
"""How many features with far values a finding names."""
_FEWEST_OTHERS = 10
"""A value is called far from all others only if there are at least this many others."""
_NO_FEATURES = {"index", "class", "target", "fold", "y"}
"""Names of columns that hold labels or numbers of rows."""
_NO_FEATURE_WORDS = {"label", "labels", "coord", "coords", "coordinate", "coordinates"}
"""Words in the names of columns that hold labels or coordinates."""
_ROUNDING = 0.1
"""How far a number with three decimals, times 1000, may be from an integer.

Features are stored in single precision. A number below 1000 is then off by at most 0.00003, and
1000 times the number by at most 0.03. The bound is a little larger, to be safe.
"""
_YEAR_2000 = 946_684_800
_YEAR_2100 = 4_102_444_800
"""The seconds from the beginning of 1970 to the beginnings of 2000 and of 2100."""
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Unit of a time stamp -> how many of this unit make a second."""


def check_features(bags: OwnBags) -> Iterator[Finding]:
    """Yield facts on instances and features, and findings for constant or not finite ones."""
    store = bags.store
    sizes = store.sizes
    yield Finding("fact", "bags", f"{len(bags):,}, with {sizes.sum():,} instances")
    yield Finding(
        "fact", "bag sizes", f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}"
    )
    yield Finding("fact", "features", f"{store.width}: {abbreviate(bags.feature_names)}")
    if bags.coords is not None:
        yield Finding("fact", "coordinates", "of every instance: evidence is plotted in the plane")
    if bags.instance_classes is not None:
        labelled = int((bags.instance_classes < len(bags.class_names)).sum())
        yield Finding(
            "fact",
            "instance labels",
            f"{labelled:,} of {len(bags.instance_classes):,} are not background",
        )
    # The mean of a bag is not finite exactly if one of its numbers is not.
    broken = np.flatnonzero(~np.isfinite(store.means).all(axis=1)).tolist()
    if broken:
        yield _not_finite(bags, broken)
    else:
        yield from constant_features(bags, bags.feature_names)


def _not_finite(bags: OwnBags, broken: Sequence[int]) -> Finding:
    """Return the finding that numbers are not finite, with the row and feature of the first one.

    `broken` are the numbers of the bags that have such numbers.
    """
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
    """Yield a finding for features that have one value in all instances.

    Args:
        bags: the bags.
        names: the names of the features, for messages.
        counted: what a message adds on these names, such as " (counted from 0)".
    """
    constant = [names[number] for number in np.flatnonzero(bags.store.constant()).tolist()]
    if len(constant) == len(names):
        yield Finding("fatal", "features", "all are constant: no instance differs from another one")
    else:
        yield from list_names("warning", f"constant features{counted}", constant)


def odd_features(
    bags: OwnBags, options: FeatureOptions, groups: Sequence[str]
) -> Iterator[Finding]:
    """Yield a finding for features that are named like ids, labels or coordinates.

    The columns `groups` are left out: `milbench.data.group_checks` reports them, since their equal
    values may say which bags belong together.
    """
    odd = [name for name in bags.feature_names if _is_no_feature(name) and name not in groups]
    if odd:
        remedy = _how_to_leave_out(bags, options, odd)
        what = f"features that read like ids, labels or coordinates{remedy}"
        yield from list_names("warning", what, odd)


def _is_no_feature(name: str) -> bool:
    """Return whether a column is named like ids, labels, groups or coordinates."""
    if name.casefold() in _NO_FEATURES or not _NO_FEATURE_WORDS.isdisjoint(words_of(name)):
        return True
    return is_id_name(name) or is_group_name(name)


def time_stamps(bags: OwnBags, options: FeatureOptions) -> Iterator[Finding]:
    """Yield a finding for features that may be times since 1970.

    Read as such a time, the mean of the feature is between 2000 and 2100 in every bag.
    """
    names = []
    texts = []
    means = bags.store.means
    for unit, per_second in _UNITS.items():
        is_time = (means >= _YEAR_2000 * per_second) & (means <= _YEAR_2100 * per_second)
        for number in np.flatnonzero(is_time.all(axis=0)).tolist():
            name = bags.feature_names[number]
            seconds = means[:, number] / per_second
            first = datetime.fromtimestamp(seconds.min(), UTC).date()
            last = datetime.fromtimestamp(seconds.max(), UTC).date()
            names.append(name)
            texts.append(f"{name} ({unit} since 1970, {first} to {last})")
    if names:
        remedy = _how_to_leave_out(bags, options, names)
        yield from list_names("warning", f"features that may be time stamps{remedy}", texts, 4)


def _how_to_leave_out(bags: OwnBags, options: FeatureOptions, names: Sequence[str]) -> str:
    """Return the option that leaves features out, in brackets, for a message.

    The result is "" where no feature would remain, or where features are read from files.
    """
    flag = "" if options.of_files else leave_out_flag(options.features, names, bags.feature_names)
    return f" ({flag} leaves them out)" if flag else ""


def far_values(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding for features in which one value is far from all others.

    Such a value, for example -9999, often stands for a missing one.
    """
    texts = []
    for feature, value in sorted(_far_ends(bags)):
        text = _describe_far_value(bags, feature, value)
        if text:
            texts.append(text)
        # To describe a value takes a pass over the features, so only the first few are described.
        # One more than these shows that there are others.
        if len(texts) > _MOST_FAR_VALUES:
            texts[-1] = "and others"
            break
    if texts:
        detail = f"{', '.join(texts)}; are they missing values?"
        yield Finding("warning", "values far from all others", detail)


def _far_ends(bags: OwnBags) -> Iterator[tuple[int, float]]:
    """Yield each feature whose smallest or largest value is far from all others, with the value."""
    # For each feature the smallest value, the next larger one, the second largest and the largest.
    # In double precision, since the difference of 3e38 and -3e38 overflows in single precision.
    low, next_low, next_high, high = bags.store.ends().astype(np.float64)
    for extreme, nearest, opposite in ((low, next_low, high), (high, next_high, low)):
        # `span` is the range of all other values: `nearest` is the next value after the extreme
        # one, and `opposite` the other end. A feature with a single value has no next value, and
        # `nearest` is then infinite.
        span = np.where(np.isfinite(nearest), abs(opposite - nearest), 0)
        # A feature with two different values has no range of others, and nothing is said of it.
        is_far = (span > 0) & (abs(nearest - extreme) > FAR * span)
        for feature in np.flatnonzero(is_far).tolist():
            yield feature, float(extreme[feature])


def _describe_far_value(bags: OwnBags, feature: int, value: float) -> str:
    """Return how often and where a feature has its far value; "" if it is not to be reported.

    A value is not reported if it may well be true, or if there are too few others to compare with.
    """
    matches = np.concatenate([block[:, feature] == value for block in bags.store.blocks()])
    count = int(matches.sum())
    others = len(matches) - count
    # A value that occurs once may well be true, unless it is as large as a code for a missing one.
    is_like_a_code = count > 1 or abs(value) >= _LEAST_CODE
    if others < _FEWEST_OTHERS or not is_like_a_code:
        return ""
    row = bags.short_place(int(matches.argmax()))
    name = bags.feature_names[feature]
    return f"{name} is {value:g} in {count:,} instances, the first in {row}"


def marks_between_thousands(bags: OwnBags, options: FeatureOptions) -> Iterator[Finding]:
    """Yield a finding for features whose decimal mark may separate thousands: 5.050 may mean 5050.

    Read as decimals, the numbers of such a feature are below 1000. Some of them are whole, and the
    others have three decimals.
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
    # Where a column holds lists, each number of the list is a feature, such as name[0]. Such a
    # feature is no column of the file, and is left out here.
    in_file = column_names(bags.path, options.form)
    columns = [name for name in suspects if name in in_file]
    # The numbers do not show how they were written: 2.500 is the same number as 2.5. So
    # `thousands_remedy` looks at the texts in the file. It returns "" unless three digits follow
    # every mark, some texts have no mark, and the option that it names reads the table.
    remedies = [thousands_remedy(bags.path, options.form, column, names) for column in columns]
    found = [remedy for remedy in remedies if remedy]
    yield from list_names("warning", "numbers that may have marks between thousands", found)
