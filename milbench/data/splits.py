"""Split bags into those to train on, to validate on and to test on.

A split is made as a column of the table or as files say, by folds, or at random by a seed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milbench.data.name_lists import abbreviate
from milbench.data.own_bags import OwnBags
from milbench.data.split_parts import PARTS, SPLITS
from milbench.data.table import read_table
from milbench.data.table_files import column_names, missing_column
from milbench.data.table_options import TableOptions
from milbench.errors import UsageError

_MOST_FOLDS = 10
"""Into how many folds bags are put to take a share of them at random, unless it needs more.

A share below a tenth, or above nine tenths, needs more folds.
"""
Fold = Mapping[str, NDArray[np.int64]]
"""Part -> the numbers of its bags. The part "test" is always there, other parts may be missing."""
Evaluated = Literal["validation", "test"]
"""The parts of a split on which a network is evaluated."""


class BagSplit(NamedTuple):
    """The numbers of the bags in each part, ascending. No bag is in two parts."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def evaluated(self) -> dict[Evaluated, NDArray[np.int64]]:
        """The parts to validate on and to test on, without a part that has no bag."""
        parts: dict[Evaluated, NDArray[np.int64]] = {
            "validation": self.validation,
            "test": self.test,
        }
        return {part: bags for part, bags in parts.items() if len(bags)}


def split_bags(bags: OwnBags, options: TableOptions, seed: int) -> BagSplit:
    """Return the split of a seed, as the options of a task say.

    It is made by a column of the table, by folds, or at random. Raises UsageError where the bags
    cannot be split in this way.
    """
    every = np.arange(len(bags))
    none = every[:0]
    if not options.test:
        # Whoever trains a network to use it asks for no test bags: all bags are trained on.
        return BagSplit(every, none, none)
    if bags.split:
        # The column says one split for all seeds. If validation bags are held out at random, they
        # should be the same for all seeds, too.
        seed = 0
        _refuse_other_splits(bags, options)
        split = split_of_column(bags.split)
    elif options.folds or options.splits:
        folds = _find_folds(bags, options)
        seed = _seed_of_folds(folds, seed)
        split = _split_of_fold(folds, seed, every)
    else:
        train, tested = _take_share(bags, every, options.test, seed)
        split = BagSplit(train, none, tested)
    if len(split.validation):
        if not len(split.train):
            raise _nothing_to_train_on(bags, options)
        return split
    return _with_validation(bags, options, split, seed)


def split_of_column(parts: Sequence[str]) -> BagSplit:
    """Return the split, given the part that each bag is in."""
    column = np.array(parts)
    return BagSplit(*(np.flatnonzero(column == part) for part in SPLITS))


def _refuse_other_splits(bags: OwnBags, options: TableOptions) -> None:
    """Raise UsageError where a table has a column of parts, and options ask for another split."""
    if options.folds:
        raise _other_split(bags, options, f"task.folds={options.folds}")
    if options.splits:
        raise _other_split(bags, options, f"task.splits={options.splits!r}")


def _other_split(bags: OwnBags, options: TableOptions, other: str) -> UsageError:
    return UsageError(f"{bags.path} has a column {options.split!r}: {other} would be another split")


def _seed_of_folds(folds: Sequence[Sequence[Fold]], seed: int) -> int:
    """Return the number of the fold that a seed stands for, counted over all repetitions.

    A seed is such a number itself. But if there is only one fold, every seed stands for fold 0.
    Raises UsageError where there is no such fold.
    """
    repeats = len(folds)
    count = len(folds[0])
    total = count * repeats
    if total == 1:
        return 0
    if seed >= total:
        raise UsageError(
            f"seed {seed}: {repeats} x {count} folds are the seeds 0-{total - 1}, one a fold"
        )
    return seed


def _split_of_fold(
    folds: Sequence[Sequence[Fold]], seed: int, every: NDArray[np.int64]
) -> BagSplit:
    """Return the split of the fold that a seed stands for; `every` are the numbers of all bags."""
    repetition, number = divmod(seed, len(folds[0]))
    parts = {part: np.sort(bags) for part, bags in folds[repetition][number].items()}
    tested = parts["test"]
    validation = parts.get("validation", every[:0])
    train = parts.get("train", np.setdiff1d(every, np.union1d(tested, validation)))
    return BagSplit(train, validation, tested)


def _with_validation(bags: OwnBags, options: TableOptions, split: BagSplit, seed: int) -> BagSplit:
    """Return a split in which some of the bags to train on are held out to validate on.

    The options say how many. Raises UsageError where no bag would be left to train on.
    """
    is_random = not (bags.split or options.folds or options.splits)
    # The share of all bags that are not tested on. In a random split this is the share that was
    # asked for, before it was rounded to whole bags.
    left = 1 - options.test if is_random else len(split.train) / len(bags)
    if options.validation >= left:
        raise _nothing_to_train_on(bags, options)
    if not options.validation:
        return split
    train, validation = _take_share(bags, split.train, options.validation / left, seed)
    return BagSplit(train, validation, split.test)


def _nothing_to_train_on(bags: OwnBags, options: TableOptions) -> UsageError:
    return UsageError(
        f"{bags.path}: no bag is left to train on, with task.validation={options.validation:g}"
    )


def count_folds(bags: OwnBags, options: TableOptions) -> tuple[int, int] | None:
    """Return the number of folds and the number of repetitions, None where there are no folds."""
    if options.folds:
        return options.folds, options.repeats
    if not options.splits:
        return None
    folds = _find_folds(bags, options)
    count = len(folds[0])
    return (count, len(folds)) if len(folds) * count > 1 else None


def mean_overlap(bags: OwnBags, options: TableOptions) -> float:
    """Return how many test bags there are for each training bag, over all seeds.

    The result is 0 where all seeds have the same split. Tests of differences need the number:
    splits that overlap give errors that are not independent (see `milbench.Task.overlap`).
    """
    if options.splits:
        count, repeats = count_folds(bags, options) or (0, 0)
        tested = 0
        trained = 0
        for seed in range(count * repeats):
            split = split_bags(bags, options, seed)
            tested += len(split.test)
            trained += len(split.train)
        return tested / max(1, trained)
    if bags.split:
        return 0.0
    test = 1 / options.folds if options.folds else options.test
    return test / (1 - test - options.validation)


def split_files(bags: OwnBags, options: TableOptions) -> list[Path]:
    """Return the files that the parameter `splits` names.

    This is one file, or a file for each fold, in the order of the numbers in their names. Raises
    UsageError where a pattern fits no file.
    """
    pattern = options.splits
    if not pattern:
        return []
    folder = bags.path.parent
    path = folder / pattern.replace("*", bags.path.stem)
    if path.is_file() or "*" not in pattern:
        return [path]
    start, end = pattern.split("*", 1)
    numbered: list[tuple[int, Path]] = []
    for file in folder.glob(pattern):
        number = str(file.relative_to(folder))[len(start) :].removesuffix(end)
        if number.isdecimal():
            numbered.append((int(number), file))
    if not numbered:
        raise UsageError(
            f"there is no {path}, and no file {folder / pattern} with a number for the '*'"
        )
    return [file for _, file in sorted(numbered)]


def _find_folds(bags: OwnBags, options: TableOptions) -> Sequence[Sequence[Fold]]:
    """Return repetitions of folds: random folds, or those that files say. Raises UsageError."""
    if options.folds:
        return _random_folds(bags, options)
    files = split_files(bags, options)
    if files[0].suffix.lower() == ".json":
        return _read_json(files[0], bags)
    return [[_number_bags(file, bags, _columns_of_parts(file, options)) for file in files]]


def _random_folds(bags: OwnBags, options: TableOptions) -> list[list[Fold]]:
    """Return repetitions of random folds. Raises UsageError for more folds than bags or groups."""
    units = len(set(bags.groups or bags.bags))
    if options.folds > units:
        what = "groups" if bags.groups else "bags"
        raise UsageError(
            f"{bags.path}: task.folds={options.folds} are more than its {units} {what}"
        )
    every = np.arange(len(bags))
    repetitions: list[list[Fold]] = []
    for repetition in range(options.repeats):
        folds = _make_folds(bags, every, options.folds, repetition)
        repetitions.append([{"test": test} for test in folds])
    return repetitions


def _columns_of_parts(path: Path, options: TableOptions) -> dict[str, list[str]]:
    """Return part -> the names of its bags, from a file with a column for each part.

    The program CLAM writes such files, in two forms. Either the column of a part lists its bags. Or
    there is a row for each bag, with "true" in the column of its part and "false" in the others.
    """
    names = column_names(path, options.form)
    parts = {PARTS[name.casefold()]: name for name in names if name.casefold() in PARTS}
    for part in ("test", "train"):
        if part not in parts:
            raise missing_column(
                path, options.form, part, "expected the columns train, val and test"
            )
    table = read_table(path, names, options.form)
    texts = {part: table.texts(name).tolist() for part, name in parts.items()}
    folded = {part: [text.casefold() for text in of_part] for part, of_part in texts.items()}
    has_a_row_a_bag = all(set(of_part) <= {"true", "false"} for of_part in folded.values())
    if not has_a_row_a_bag:
        return {part: [text for text in of_part if text] for part, of_part in texts.items()}
    named: dict[str, list[str]] = {}
    names_of_bags = table.texts(table.columns[0]).tolist()
    for part, is_in_part in folded.items():
        pairs = zip(names_of_bags, is_in_part, strict=True)
        named[part] = [name for name, is_in in pairs if is_in == "true"]
    return named


def _read_json(path: Path, bags: OwnBags) -> list[list[Fold]]:
    """Return repetitions of folds from a JSON file.

    Raises UsageError where the file has no folds, or has other bags than the table.
    """
    try:
        repetitions = json.loads(path.read_text("utf-8"))
        names = [[_named_parts(fold) for fold in folds] for folds in repetitions]
        lengths = {len(folds) for folds in names}
        have_tests = all("test" in fold for folds in names for fold in folds)
        if len(lengths) != 1 or not have_tests:
            raise ValueError("expected repetitions of equally many folds, each with test bags")
    except KeyError as error:
        raise UsageError(
            f"{path}: {error} is no part of a split, expected {', '.join(SPLITS)}"
        ) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} cannot be read as folds, lists of test bags: {error}") from None
    numbered: list[list[Fold]] = []
    for repetition, folds in enumerate(names):
        where = f"{path}, repetition {repetition}"
        has_tests_alone = all(fold.keys() == {"test"} for fold in folds)
        if len(folds) > 1 and has_tests_alone:
            _check_cross_validation(where, bags, folds)
        numbered.append(
            [
                _number_bags(f"{where}, fold {number}", bags, fold)
                for number, fold in enumerate(folds)
            ]
        )
    return numbered


def _named_parts(fold: Any) -> dict[str, list[str]]:
    """Return part -> the names of its bags; a fold that is a list has the bags to test on."""
    parts = fold if isinstance(fold, dict) else {"test": fold}
    return {PARTS[part.casefold()]: [str(bag) for bag in bags] for part, bags in parts.items()}


def _check_cross_validation(
    where: str, bags: OwnBags, folds: Sequence[Mapping[str, Sequence[str]]]
) -> None:
    """Raise UsageError unless every bag is in the test part of exactly one fold."""
    tested = {str(number): fold["test"] for number, fold in enumerate(folds)}
    numbered = _number_bags(where, bags, tested, "fold")
    placed = np.concatenate(list(numbered.values()))
    missing = [bags.bags[bag] for bag in np.setdiff1d(np.arange(len(bags)), placed)]
    if missing:
        raise UsageError(f"{where}: {len(missing)} bags are in no fold: {abbreviate(missing)}")


def _number_bags(
    where: object, bags: OwnBags, parts: Mapping[str, Sequence[str]], kind: str = "part"
) -> Fold:
    """Return part -> the numbers of its bags, given their names.

    Args:
        where: the file, and the fold in it, for messages.
        bags: the bags of the table.
        parts: part -> the names of its bags.
        kind: what messages call a part: "part" or "fold".

    Raises:
        UsageError: for a name that no bag has, or for a bag or a group in two parts.
    """
    number_of = {bag: number for number, bag in enumerate(bags.bags)}
    named: dict[str, list[str]] = {}
    for part, names in parts.items():
        # If columns have different lengths, pandas writes names that are whole numbers with
        # decimals: 12.0 for 12.
        named[part] = [name if name in number_of else name.removesuffix(".0") for name in names]
    counts = Counter(name for names in named.values() for name in names)
    unknown = [name for name in counts if name not in number_of]
    if unknown:
        raise UsageError(f"{where}: no bags of {bags.path}: {abbreviate(unknown)}")
    several = [name for name, count in counts.items() if count > 1]
    if several:
        raise UsageError(f"{where}: bags in two {kind}s: {abbreviate(several)}")
    if bags.groups:
        part_of = {name: part for part, names in named.items() for name in names}
        groups = [bags.groups[number_of[name]] for name in part_of]
        divided = divided_groups(groups, list(part_of.values()))
        if divided:
            raise UsageError(
                f"{where}: groups of {bags.path} in two {kind}s: {abbreviate(divided)}"
            )
    return {
        part: np.array([number_of[name] for name in names], np.int64)
        for part, names in named.items()
    }


def divided_groups(groups: Sequence[str], parts: Sequence[object]) -> list[str]:
    """Return the groups whose bags are in several parts.

    `groups` and `parts` have the group and the part of each bag, such as a fold.
    """
    first: dict[str, object] = {}
    pairs = zip(groups, parts, strict=False)
    divided = [group for group, part in pairs if first.setdefault(group, part) != part]
    return list(dict.fromkeys(divided))


def official_split(folds: NDArray[np.int64], count: int, seed: int) -> BagSplit:
    """Return the split of a seed for items in official folds.

    Fold `seed % count` is tested on, and the next fold is validated on, where fold 0 comes after
    the last. The other folds are trained on. Raises UsageError where a part would be empty.

    Args:
        folds: (N,), the fold of each item, from 0 to `count` - 1.
        count: the number of folds.
        seed: the seed.
    """
    tested = seed % count
    validated = (seed + 1) % count
    train = np.flatnonzero((folds != tested) & (folds != validated))
    split = BagSplit(train, np.flatnonzero(folds == validated), np.flatnonzero(folds == tested))
    for part, items in zip(BagSplit._fields, split, strict=True):
        if not len(items):
            raise UsageError(
                f"of {count} folds, those of the {part} split of seed {seed} are empty"
            )
    return split


def _take_share(
    bags: OwnBags, numbers: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Take a share of some bags at random; return the bags that are left, and the bags taken.

    The bags are put into folds, and the share is made of some folds. So it is stratified by label
    set, as folds are, and groups stay together. Raises UsageError where there are fewer than two
    bags or groups.

    Args:
        bags: the bags of a table.
        numbers: the numbers of the bags to choose from.
        share: the share of these to take.
        seed: the seed.
    """
    units = len({bags.groups[bag] for bag in numbers}) if bags.groups else len(numbers)
    if units < 2:
        what = "group" if bags.groups else "bag"
        if len(numbers) == len(bags):
            raise UsageError(
                f"{bags.path}: 1 {what} cannot be split into two parts, expected at least 2 {what}s"
            )
        raise UsageError(
            f"{bags.path}: beside the {what}s to test on there is 1 {what}, which cannot be split "
            f"to train and to validate on; expected at least 3 {what}s in all, or validation = 0"
        )
    smaller_share = min(share, 1 - share)
    most_folds = max(round(1 / smaller_share), _MOST_FOLDS)
    # Each fold has at least one bag or group.
    most_folds = min(most_folds, units)
    # A share of 0.2 is one of five folds, and a share of 0.4 is two of five folds.
    fraction = Fraction(share).limit_denominator(most_folds)
    # At least one fold is taken, and at least one is left.
    fraction = max(fraction, Fraction(1, most_folds))
    fraction = min(fraction, Fraction(most_folds - 1, most_folds))
    folds = _make_folds(bags, numbers, fraction.denominator, seed)
    taken = np.sort(np.concatenate(folds[: fraction.numerator]))
    return np.setdiff1d(numbers, taken), taken


def _make_folds(
    bags: OwnBags, numbers: NDArray[np.int64], count: int, seed: int
) -> list[NDArray[np.int64]]:
    """Return `count` folds: the numbers of the bags in each.

    Each label set is spread evenly over the folds, and groups stay together.
    """
    import warnings

    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    _, strata = np.unique(bags.labels[numbers], axis=0, return_inverse=True)
    strata = strata.ravel()
    if np.bincount(strata).max() < count:
        # No label set has enough bags for all folds, so that scikit-learn would raise an error: all
        # bags become one stratum.
        strata = np.zeros_like(strata)
    groups = None if bags.groups is None else np.array([bags.groups[bag] for bag in numbers])
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    with warnings.catch_warnings():
        # scikit-learn warns of a label set that has too few bags for all folds. This is no fault.
        warnings.filterwarnings("ignore", message="The least populated class")
        folds = kind(count, shuffle=True, random_state=seed % 2**32).split(numbers, strata, groups)
        return [numbers[test] for _, test in folds]
