"""Checks of bags before training: facts, warnings, and faults that make training impossible."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from shlex import quote

import numpy as np

from milbench.data.class_checks import check_classes, id_like_classes
from milbench.data.feature_checks import (
    check_features,
    far_values,
    marks_between_thousands,
    odd_features,
    time_stamps,
)
from milbench.data.findings import Finding, Level, list_names, names_with_rows
from milbench.data.group_checks import check_groups, columns_to_group_by
from milbench.data.image_checks import check_images
from milbench.data.name_lists import abbreviate
from milbench.data.own_bags import OwnBags
from milbench.data.sequence_checks import check_sequences, short_sequences
from milbench.data.split_checks import check_parts, split_gaps
from milbench.data.splits import BagSplit, divided_groups
from milbench.data.table_options import FeatureOptions, Kind, TableOptions

EXACT_LABEL_LIMIT = 16
"""The same number as in `milbench.likelihood`.

It is not imported from there: that would import torch, and a check would take three times as long.
"""


def check_bags(
    bags: OwnBags, options: TableOptions, *, quick: bool = False, splits: Sequence[BagSplit] = ()
) -> list[Finding]:
    """Return findings on the bags of a table and on their splits.

    Args:
        bags: the bags.
        options: of the task.
        quick: whether to leave out the checks that read all instances again.
        splits: the splits to check, as `milbench.data.split_checks.checked_splits` returns them.
    """
    if options.kind == "images":
        findings = list(check_images(bags, options))
    elif options.kind == "sequences":
        findings = list(check_sequences(bags))
    else:
        findings = list(check_features(bags))
    groups = columns_to_group_by(bags, options)
    # Numbers that are not finite are reported by `check_features`. They would spoil the arithmetic
    # of the following checks.
    if isinstance(options, FeatureOptions) and np.isfinite(bags.store.means).all():
        findings += odd_features(bags, options, list(groups))
        findings += time_stamps(bags, options)
        if not quick:
            findings += far_values(bags)
            findings += marks_between_thousands(bags, options)
    findings += _labels(bags, options)
    findings += check_groups(bags, options, groups)
    findings += check_classes(bags, options)
    id_like = list(id_like_classes(bags))
    findings += id_like
    # If classes are names of bags, each class is missing from most parts of a split. This need not
    # be said as well.
    if not id_like:
        findings += split_gaps(bags, splits)
    findings += _sizes_of_sets(bags, options)
    findings += _duplicates(bags, options.kind)
    return findings


def _labels(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield facts and findings on columns, label sets, groups and splits."""
    yield from _other_columns(bags, options)
    yield from _label_sets(bags)
    if bags.groups:
        count = len(set(bags.groups))
        yield Finding("fact", "groups", f"{count:,}, each wholly in one part of a split")
        divided = divided_groups(bags.groups, bags.split or [])
        yield from list_names("fatal", "groups in two parts of the split", divided)
    yield from check_parts(bags, options)


def _other_columns(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield a fact on the columns that are not used, and a finding if one of them holds a split."""
    if bags.ignored:
        yield Finding("fact", "columns not used", abbreviate(bags.ignored))
    name = bags.split_column
    if name and not options.splits:
        flag = f"-p task.split={quote(name)}"
        detail = (
            f"{name} holds parts of a split, and bags are split by other means; {flag} takes it"
        )
        yield Finding("warning", "a column that reads like a split", detail)


def _label_sets(bags: OwnBags) -> Iterator[Finding]:
    """Yield how many classes there are, how many each bag has, and how many bags have no class."""
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


def _sizes_of_sets(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield findings for label sets too large for the exact likelihood, or for their bag."""
    counts = bags.labels.sum(axis=1)
    many = int((counts > EXACT_LABEL_LIMIT).sum())
    if many:
        detail = (
            f"{many:,} bags have more than {EXACT_LABEL_LIMIT} classes: exact trains on its "
            "certified lower bound there (method=auto), and method=exact refuses them"
        )
        yield Finding("warning", "large label sets", detail)
    if isinstance(options, FeatureOptions):
        yield from _small_bags(bags, options)
    if options.kind == "sequences":
        yield from short_sequences(bags)


def _small_bags(bags: OwnBags, options: FeatureOptions) -> Iterator[Finding]:
    """Yield a finding for bags that have more classes than instances.

    No labelling of the instances explains such a label set: each instance shows at most one class.
    """
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


def _duplicates(bags: OwnBags, kind: Kind) -> Iterator[Finding]:
    """Yield findings for bags of equal content.

    Equal sequences are fatal where one may be trained on and another tested on.
    """
    level_apart: Level = "warning"
    names = bags.bags
    if kind == "sequences":
        # The error on a test recording that was trained on says nothing of new recordings.
        level_apart = "fatal"
        names = names_with_rows(bags)
    what = "bags" if kind == "features" else kind
    # Bags with equal values in this list are certainly in one part of a split.
    parts = bags.split or bags.groups or bags.bags
    named = []
    differing = []
    apart = []
    for equal in _equal_bags(bags):
        text = " = ".join(names[bag] for bag in equal)
        named.append(text)
        if len(np.unique(bags.labels[equal], axis=0)) > 1:
            differing.append(text)
        if len({parts[bag] for bag in equal}) > 1:
            apart.append(text)
    yield from list_names("warning", f"{what} of equal content", named, 4)
    yield from list_names("warning", f"equal {what}, other labels", differing, 4)
    if bags.split:
        yield from list_names(level_apart, f"equal {what} in two parts", apart, 4)
    elif level_apart == "fatal":
        where = "that may get into two parts, being in no common group"
        yield from list_names(level_apart, f"equal {what} {where}", apart, 4)


def _equal_bags(bags: OwnBags) -> list[list[int]]:
    """Return lists of bags of equal content: in each the numbers of two or more bags."""
    of_content = defaultdict[bytes, list[int]](list)
    for bag, digest in enumerate(bags.store.digests):
        of_content[digest.tobytes()].append(bag)
    return [equal for equal in of_content.values() if len(equal) > 1]
