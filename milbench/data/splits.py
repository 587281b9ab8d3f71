"""Which bags are trained on, validated on and tested on: as a table says, in folds, or drawn by seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from milbench.data.own_bags import OwnBags
from milbench.data.table import abbreviate
from milbench.errors import UsageError

_MOST_FOLDS = 10
"""Folds of which some are a share of the bags, where the share itself does not need more of them."""


class BagSplit(NamedTuple):
    """The numbers of the bags of each part, ascending; every bag is in one of them at most."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def evaluated(self) -> dict[Literal["validation", "test"], NDArray[np.int64]]:
        """The bags to validate on, if there are any, and those to test on."""
        return {"validation": self.validation, "test": self.test} if len(self.validation) else {"test": self.test}


Share = Annotated[float, Field(ge=0, lt=1)]
TestShare = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
FoldCount = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class SplitOptions:
    """How the bags of a table are split: the parameters that its tasks share, as `feature-bags` describes them.

    Raises UsageError where they leave no bag to train on, or lack the number of folds.
    """

    folds: FoldCount = 0
    repeats: Count = 1
    folds_file: str = ""
    test: TestShare = 0.2
    validation: Share = 0.1

    def __post_init__(self) -> None:
        folds, validation = self.folds, self.validation
        if folds == 1:
            raise UsageError("folds = 1 leaves no bag to train on, expected 2 or more, or 0 for none")
        if not folds and (
            lone := f"repeats = {self.repeats}" if self.repeats > 1 else self.folds_file and "folds_file"
        ):
            raise UsageError(f"{lone} needs the number of folds, such as folds = 10")
        if (1 / folds if folds else self.test) + validation >= 1:
            tested = f"folds = {folds}" if folds else f"test = {self.test:g}"
            raise UsageError(f"{tested} and validation = {validation:g} leave no bag to train on")

    def folds_path(self, table: OwnBags) -> Path:
        """Return the path of the file of folds."""
        return table.path.parent / self.folds_file.replace("*", table.path.stem)

    def split(self, table: OwnBags, seed: int) -> BagSplit:
        """Return the split of a seed: by the column `split`, by folds, or drawn. Raises UsageError."""
        if table.split and self.folds:
            raise UsageError(f"{table.path} has a column 'split': folds = {self.folds} would be another split")
        if table.split:
            names = np.array(table.split)
            return BagSplit(*(np.flatnonzero(names == part) for part in BagSplit._fields))
        if not self.folds:
            rest, tested = _apart(table, np.arange(len(table)), self.test, seed)
            return _with_validation(table, rest, tested, self.validation / (1 - self.test), seed)
        if self.folds_file:
            folds = read_folds(self.folds_path(table), table, self.folds, self.repeats)
        else:
            folds = drawn_folds(table, self.folds, self.repeats)
        return _fold_split(table, folds, self.validation, seed)

    def overlap(self, table: OwnBags) -> float:
        """Return the test bags for each training bag, of folds or splits by seed; 0 where the table has a split."""
        if table.split and not self.folds:
            return 0.0
        test = 1 / self.folds if self.folds else self.test
        return test / (1 - test - self.validation)


def _fold_split(table: OwnBags, folds: list[list[NDArray[np.int64]]], validation: float, seed: int) -> BagSplit:
    """Return the split whose test bags are fold seed % k of repetition seed // k.

    A share of all bags is validated on, from those that are not tested on. Raises UsageError where nothing is left to
    train on.
    """
    k = len(folds[0])
    if seed >= k * len(folds):
        raise UsageError(f"seed {seed}: {len(folds)} x {k} folds are the seeds 0-{k * len(folds) - 1}, one a fold")
    tested = np.sort(folds[seed // k][seed % k])
    rest = np.setdiff1d(np.arange(len(table)), tested)
    if (share := validation * len(table) / len(rest)) >= 1:
        raise UsageError(f"{table.path}: validation = {validation:g} leaves no bag of {k - 1} of {k} folds to train on")
    return _with_validation(table, rest, tested, share, seed)


def drawn_folds(table: OwnBags, folds: int, repeats: int) -> list[list[NDArray[np.int64]]]:
    """Return `repeats` times `folds` folds, stratified by label set, which keep groups together."""
    if folds > (units := len(set(table.groups or table.bags))):
        what = "groups" if table.groups else "bags"
        raise UsageError(f"{table.path}: folds = {folds} are more than its {units} {what}")
    return [_folds(table, np.arange(len(table)), folds, seed) for seed in range(repeats)]


def read_folds(path: Path, table: OwnBags, folds: int, repeats: int) -> list[list[NDArray[np.int64]]]:
    """Return folds from a JSON file: repetitions, each a list of folds, each a list of the names of its test bags.

    Raises UsageError where they are not `repeats` x `folds`, a bag is not in exactly one fold, or a group is in two.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, list) or not content:
            raise TypeError("expected a list of repetitions")
        names = [[[str(bag) for bag in fold] for fold in repetition] for repetition in content]
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path} cannot be read as folds, lists of test bags: {error}") from None
    shape = f"{len(names)} x {' or '.join(sorted({str(len(repetition)) for repetition in names}))}"
    if len(names) < repeats or any(len(repetition) != folds for repetition in names):
        raise UsageError(f"{path} has {shape} folds, expected {repeats} x {folds} (repeats x folds)")
    number = {bag: i for i, bag in enumerate(table.bags)}
    for r, repetition in enumerate(names[:repeats]):
        counted = Counter(bag for fold in repetition for bag in fold)
        fold_of = {bag: i for i, fold in enumerate(repetition) for bag in fold}
        missing = [bag for bag in table.bags if bag not in counted]
        faults = {
            f"no bags of {table.path}": [bag for bag in counted if bag not in number],
            "bags in two folds": [bag for bag, count in counted.items() if count > 1],
            f"{len(missing)} bags are in no fold": missing,
            f"groups of {table.path} in two folds": apart_groups(table, [fold_of.get(bag) for bag in table.bags]),
        }
        for what, named in faults.items():
            if named:
                raise UsageError(f"{path}, repetition {r}: {what}: {abbreviate(named)}")
    return [[np.array([number[bag] for bag in fold]) for fold in repetition] for repetition in names[:repeats]]


def apart_groups(table: OwnBags, parts: Sequence[object]) -> list[str]:
    """Return the groups whose bags are in several parts, such as parts of a split or folds."""
    first: dict[str, object] = {}
    pairs = zip(table.groups or (), parts, strict=False)
    return list(dict.fromkeys(group for group, part in pairs if first.setdefault(group, part) != part))


def official_split(folds: NDArray[np.int64], count: int, seed: int) -> BagSplit:
    """Return the split of a seed where every item has its fold (N,), from 0 to `count` - 1.

    Fold seed % `count` is tested on, the one after it, the first after the last, is validated on, and all others are
    trained on. Raises UsageError where one of the three has no item.
    """
    tested, validated = seed % count, (seed + 1) % count
    train = np.flatnonzero((folds != tested) & (folds != validated))
    split = BagSplit(train, np.flatnonzero(folds == validated), np.flatnonzero(folds == tested))
    for part, items in zip(BagSplit._fields, split, strict=True):
        if not len(items):
            raise UsageError(f"of {count} folds, those of the {part} split of seed {seed} are empty")
    return split


def _with_validation(
    table: OwnBags, rest: NDArray[np.int64], tested: NDArray[np.int64], share: float, seed: int
) -> BagSplit:
    train, validation = _apart(table, rest, share, seed) if share else (rest, rest[:0])
    return BagSplit(train, validation, tested)


def _apart(
    table: OwnBags, bags: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    units = len({table.groups[bag] for bag in bags}) if table.groups else len(bags)
    if units < 2:
        what = "group" if table.groups else "bag"
        if len(bags) == len(table):
            raise UsageError(f"{table.path}: 1 {what} cannot be split into two parts, expected at least 2 {what}s")
        raise UsageError(
            f"{table.path}: beside the {what}s to test on there is 1 {what}, which cannot be split to train and to "
            f"validate on; expected at least 3 {what}s in all, or validation = 0"
        )
    most = min(max(round(1 / min(share, 1 - share)), _MOST_FOLDS), units)
    # A share of 0.2 is one of five folds, and one of 0.4 two of them.
    fraction = Fraction(share).limit_denominator(most)
    fraction = min(max(fraction, Fraction(1, most)), Fraction(most - 1, most))
    drawn = np.sort(np.concatenate(_folds(table, bags, fraction.denominator, seed)[: fraction.numerator]))
    return np.setdiff1d(bags, drawn), drawn


def _folds(table: OwnBags, bags: NDArray[np.int64], count: int, seed: int) -> list[NDArray[np.int64]]:
    """Return `count` folds of some bags, stratified by label set; groups stay together."""
    import warnings

    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    _, strata = np.unique(table.labels[bags], axis=0, return_inverse=True)
    strata = strata.ravel()
    if np.bincount(strata).max() < count:
        strata = np.zeros_like(strata)  # hardly two bags have the same label set: there are no strata
    groups = None if table.groups is None else np.array([table.groups[bag] for bag in bags])
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")  # a rare label set is in some folds
        folds = kind(count, shuffle=True, random_state=seed % 2**32).split(bags, strata, groups)
        return [bags[test] for _, test in folds]
