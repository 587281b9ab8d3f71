"""Checks of splits: whether the bags can be split, and which classes a part of a split lacks."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from milbench.data.findings import Finding, list_names
from milbench.data.own_bags import OwnBags
from milbench.data.split_parts import SPLITS
from milbench.data.splits import BagSplit, count_folds, split_bags, split_of_column
from milbench.data.table_options import TableOptions

_RARE = 30
"""How many bags or groups must have a class, and how many must lack it, so that it is not rare.

Bags that have the class, and bags that lack it, are then in every part of a random split.
"""
_SPLITS_CHECKED = 10
"""How many splits are checked where each seed makes a random one."""


def checked_splits(
    bags: OwnBags, options: TableOptions, seeds: Sequence[int] | None = None
) -> list[BagSplit]:
    """Return the splits in which a part may lack a class; [] where no part can be expected to.

    In a random split a part may lack a class if the class is rare. If a column of the table or
    files say how bags are split, a part may lack any class, however common the class is.

    Args:
        bags: the bags of a table.
        options: of the task, which say how bags are split.
        seeds: the seeds of the splits to check; None: one for each fold of each repetition, or 0
            to 9 where there are no folds.

    Raises:
        UsageError: where the bags cannot be split as the options say.
    """
    if bags.split:
        return [split_bags(bags, options, 0)]
    # What a split keeps together: the bags of a group, or each bag if there are no groups.
    units = np.unique(bags.groups or bags.bags, return_inverse=True)[1]
    are_given = bool(options.splits)
    # The fewest units that can be split: one to train on, one to test on and, unless the options
    # ask for no validation bags, one to validate on. If a random split has fewer, `check_parts`
    # reports it. If folds or splits in files have fewer, `split_bags` below does.
    fewest = 3 if options.validation else 2
    count = units.max() + 1
    has_neither_folds_nor_files = not options.folds and not are_given
    if has_neither_folds_nor_files and count < fewest:
        return []
    if seeds is None:
        seeds = range(_count_splits(bags, options))
    if not are_given and not _has_rare_class(bags.labels, units):
        return []
    return [split_bags(bags, options, seed) for seed in seeds]


def _count_splits(bags: OwnBags, options: TableOptions) -> int:
    """Return how many splits to check: all that differ, but of random ones only some."""
    folds_and_repeats = count_folds(bags, options)
    if folds_and_repeats is None:
        # One file of splits gives every seed the same split.
        return 1 if options.splits else _SPLITS_CHECKED
    folds, repeats = folds_and_repeats
    return folds * repeats


def _has_rare_class(labels: NDArray[np.bool_], units: NDArray[np.int64]) -> bool:
    """Return whether few bags or groups have some class, or few lack it.

    Args:
        labels: (B, C), the label sets.
        units: (B,), the number of the group of each bag, or of the bag if there are no groups.
    """
    # Two columns for each class: whether a bag has the class, and whether it lacks the class.
    has_or_lacks = np.concatenate([labels, ~labels], axis=1)
    fewest = min(len(np.unique(units[is_counted])) for is_counted in has_or_lacks.T)
    return fewest < _RARE


def check_parts(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield a fact on the split that a column says, or a finding if bags are too few to split.

    Groups are counted instead of bags where there are groups, since a split keeps them together.
    """
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


def split_gaps(bags: OwnBags, splits: Sequence[BagSplit]) -> Iterator[Finding]:
    """Yield findings for classes that no bag in a part of a split has, or that every bag has.

    Also yield a finding for bags that are in no part of the first split. `splits` are those of
    `checked_splits`, or () if the caller has not made any.
    """
    # The split of a column needs no seed and no options, so it can be checked in any case.
    if bags.split and not splits:
        splits = [split_of_column(bags.split)]
    gaps = _count_gaps(bags, splits)
    of_splits = f" of {len(splits)} splits" if len(splits) > 1 else ""
    missing = _in_parts(gaps.missing, "from", of_splits)
    yield from list_names("warning", "classes missing from a part of the split", missing)
    everywhere = _in_parts(gaps.everywhere, "in", of_splits)
    yield from list_names("warning", "classes in every bag of a part of the split", everywhere)
    if gaps.without_threshold:
        where = "the validation bags"
        if of_splits:
            where = f"the validation bags of {gaps.without_threshold}{of_splits}"
        detail = f"{where} have no class, or all classes: label sets are read off at even odds"
        yield Finding("warning", "no threshold can be chosen", detail)
    if splits:
        outside = np.setdiff1d(np.arange(len(bags)), np.concatenate(splits[0]))
        names = [bags.bags[bag] for bag in outside]
        yield from list_names("warning", "bags in no part of the split", names, most=4)


@dataclasses.dataclass
class _Gaps:
    """In how many splits a part has no bag with a class, or has the class in every bag."""

    missing: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    """(class, part) -> the number of splits in which no bag of the part has the class."""
    everywhere: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    """(class, part) -> the number of splits in which every bag of the part has the class.

    A part that lacks some class is counted in `missing` alone. Often the one follows from the
    other: where each bag has one of two classes, a part without the first has the second in every
    bag.
    """
    without_threshold: int = 0
    """The number of splits in which no threshold can be chosen.

    In these every validation bag has all classes, or none has any.
    """


def _count_gaps(bags: OwnBags, splits: Sequence[BagSplit]) -> _Gaps:
    """Count the splits in which a part has no bag with a class, or has the class in every bag."""
    gaps = _Gaps()
    names = np.array(bags.class_names, object)
    # Whether some bags of the table have a class and some do not. Other classes are reported by
    # `check_classes`.
    is_varied = ~bags.labels.all(axis=0) & bags.labels.any(axis=0)
    for split, part in itertools.product(splits, SPLITS):
        labels = bags.labels[getattr(split, part)]
        if not len(labels):
            continue
        if part == "validation" and (labels.all() or not labels.any()):
            gaps.without_threshold += 1
        missing = names[is_varied & ~labels.any(axis=0)]
        everywhere = names[is_varied & labels.all(axis=0)]
        # A part that lacks a class is counted for this alone, see `_Gaps.everywhere`.
        if len(missing):
            gaps.missing.update((name, part) for name in missing)
        else:
            gaps.everywhere.update((name, part) for name in everywhere)
    return gaps


def _in_parts(counts: Counter[tuple[str, str]], word: str, of_splits: str) -> list[str]:
    """Return texts such as "wren from test (2 of 10 splits)".

    `word` is "from" or "in" for the text, and `of_splits` is " of 10 splits", "" for one split.
    """
    texts = []
    for (name, part), count in counts.items():
        times = f" ({count}{of_splits})" if of_splits else ""
        texts.append(f"{name} {word} {part}{times}")
    return texts
