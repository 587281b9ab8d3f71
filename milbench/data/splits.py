"""Which bags are trained on, validated on and tested on: as a table or files say, in folds, or drawn by seed."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milbench.data.own_bags import OwnBags
from milbench.data.table import PARTS, SPLITS, abbreviate, read_table
from milbench.data.table_files import column_names
from milbench.data.table_options import TableOptions
from milbench.errors import UsageError

_MOST_FOLDS = 10  # folds of which some are a share of the bags, where the share itself does not need more of them
Fold = Mapping[
    str, NDArray[np.int64]
]  # the numbers of the bags of each part that is known, the test part at least
Evaluated = Literal["validation", "test"]


class BagSplit(NamedTuple):
    """The numbers of the bags of each part, ascending; every bag is in one of them at most."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def evaluated(self) -> dict[Evaluated, NDArray[np.int64]]:
        """The bags to validate on and those to test on, if there are any."""
        parts: dict[Evaluated, NDArray[np.int64]] = {
            "validation": self.validation,
            "test": self.test,
        }
        return {part: bags for part, bags in parts.items() if len(bags)}


def split_bags(table: OwnBags, options: TableOptions, seed: int) -> BagSplit:
    """Return the split of a seed: by a column, by folds, or drawn. Raises UsageError."""
    every = np.arange(len(table))
    if not options.test:  # for use
        return BagSplit(every, every[:0], every[:0])
    if table.split:
        if options.folds or options.splits:
            other = f"folds = {options.folds}" if options.folds else f"splits = {options.splits!r}"
            raise UsageError(
                f"{table.path} has a column {options.split!r}: {other} would be another split"
            )
        column, seed = np.array(table.split), 0  # one split for every seed
        train, validation, tested = (np.flatnonzero(column == part) for part in BagSplit._fields)
    elif folds := _find_folds(table, options):
        k, r = len(folds[0]), len(folds)
        seed *= k * r > 1  # a single split is that of every seed
        if seed >= k * r:
            raise UsageError(
                f"seed {seed}: {r} x {k} folds are the seeds 0-{k * r - 1}, one a fold"
            )
        parts = {part: np.sort(bags) for part, bags in folds[seed // k][seed % k].items()}
        tested, validation = parts["test"], parts.get("validation", every[:0])
        train = parts.get("train", np.setdiff1d(every, np.union1d(tested, validation)))
    else:
        train, tested = _draw_part(table, every, options.test, seed)
        validation = every[:0]
    left = (
        len(train) / len(table)
        if table.split or options.folds or options.splits
        else 1 - options.test
    )
    held_out = 0.0 if len(validation) else options.validation
    if held_out >= left:
        raise UsageError(
            f"{table.path}: no bag is left to train on, with validation = {options.validation:g}"
        )
    if held_out:
        train, validation = _draw_part(table, train, held_out / left, seed)
    return BagSplit(train, validation, tested)


def count_folds(table: OwnBags, options: TableOptions) -> tuple[int, int] | None:
    """Return how many folds and repetitions there are, None for none."""
    if not options.splits:
        return (options.folds, options.repeats) if options.folds else None
    folds = _find_folds(table, options)
    return (len(folds[0]), len(folds)) if len(folds) * len(folds[0]) > 1 else None


def mean_overlap(table: OwnBags, options: TableOptions) -> float:
    """Return the test bags for each training bag, of folds or splits by seed; 0 where all seeds have one split."""
    if options.splits:
        k, r = count_folds(table, options) or (0, 0)
        sizes = np.array(
            [[*map(len, split_bags(table, options, seed))] for seed in range(k * r)]
        ).reshape(-1, 3)
        return float(sizes[:, 2].sum() / max(1, sizes[:, 0].sum()))
    if table.split:
        return 0.0
    test = 1 / options.folds if options.folds else options.test
    return test / (1 - test - options.validation)


def split_files(table: OwnBags, options: TableOptions) -> list[Path]:
    """Return the files of the splits of others: the one that is named, or one a fold, by their numbers."""
    folder, pattern = table.path.parent, options.splits
    path = folder / pattern.replace("*", table.path.stem)
    if not pattern or path.is_file() or "*" not in pattern:
        return [path] * bool(pattern)
    start, end = pattern.split("*", 1)
    numbers = {
        str(file.relative_to(folder))[len(start) :].removesuffix(end): file
        for file in folder.glob(pattern)
    }
    if not (
        files := [numbers[number] for number in sorted(filter(str.isdecimal, numbers), key=int)]
    ):
        raise UsageError(
            f"there is no {path}, and no file {folder / pattern} with a number for the '*'"
        )
    return files


def _find_folds(table: OwnBags, options: TableOptions) -> Sequence[Sequence[Fold]]:
    """Return repetitions of folds, of a file or drawn; none where neither is asked for. Raises UsageError."""
    if options.folds > (units := len(set(table.groups or table.bags))):
        what = "groups" if table.groups else "bags"
        raise UsageError(f"{table.path}: folds = {options.folds} are more than its {units} {what}")
    if options.folds:
        seeds, every = range(options.repeats), np.arange(len(table))
        return [
            [{"test": test} for test in _draw_folds(table, every, options.folds, seed)]
            for seed in seeds
        ]
    files = split_files(table, options)
    if files and files[0].suffix.lower() == ".json":
        return _read_json(files[0], table)
    return [[_number_bags(file, table, _columns_of_parts(file)) for file in files]] if files else []


def _columns_of_parts(path: Path) -> dict[str, list[str]]:
    """Return the names of the bags of each part from a table with a column a part, as CLAM writes it."""
    table = read_table(path, column_names(path))
    parts = {PARTS[name.casefold()]: name for name in table.columns if name.casefold() in PARTS}
    if lacking := {"train", "test"} - parts.keys():
        raise UsageError(
            f"{path} has no column {min(lacking)!r}, expected the columns train, val and test"
        )
    texts = {part: table.texts(name) for part, name in parts.items()}
    marks = {part: [text.casefold() for text in of_part] for part, of_part in texts.items()}
    if all({*of_part} <= {"true", "false"} for of_part in marks.values()):  # a row a bag
        bags = table.texts(table.columns[0])
        return {part: bags[np.array(of_part) == "true"].tolist() for part, of_part in marks.items()}
    return {part: [*filter(None, of_part.tolist())] for part, of_part in texts.items()}


def _read_json(path: Path, table: OwnBags) -> list[list[Fold]]:
    def parts_of(fold: Any) -> dict[str, list[str]]:
        parts = fold if isinstance(fold, dict) else {"test": fold}
        return {PARTS[part.casefold()]: [*map(str, bags)] for part, bags in parts.items()}

    try:
        names = [[*map(parts_of, repetition)] for repetition in json.loads(path.read_text("utf-8"))]
        if (
            not names
            or len({*map(len, names)}) != 1
            or not all("test" in fold for folds in names for fold in folds)
        ):
            raise ValueError("expected repetitions of equally many folds, each with test bags")
    except KeyError as error:
        raise UsageError(
            f"{path}: {error} is no part of a split, expected {', '.join(SPLITS)}"
        ) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} cannot be read as folds, lists of test bags: {error}") from None
    for r, repetition in enumerate(names):
        if len(repetition) > 1 and all(
            fold.keys() == {"test"} for fold in repetition
        ):  # a cross-validation
            where = f"{path}, repetition {r}"
            numbered = _number_bags(
                where, table, {str(n): fold["test"] for n, fold in enumerate(repetition)}, "fold"
            )
            placed = np.concatenate([*numbered.values()])
            if missing := [table.bags[bag] for bag in np.setdiff1d(np.arange(len(table)), placed)]:
                raise UsageError(
                    f"{where}: {len(missing)} bags are in no fold: {abbreviate(missing)}"
                )
    return [
        [
            _number_bags(f"{path}, repetition {r}, fold {n}", table, fold)
            for n, fold in enumerate(repetition)
        ]
        for r, repetition in enumerate(names)
    ]


def _number_bags(
    where: object, table: OwnBags, parts: Mapping[str, Sequence[str]], kind: str = "part"
) -> Fold:
    """Return the numbers of named bags. Raises UsageError for a name that is none, or a bag or group in two parts."""
    number = {bag: n for n, bag in enumerate(table.bags)}
    # Where columns have different lengths, pandas writes names that are whole numbers with decimals.
    named = {
        part: [n if n in number else n.removesuffix(".0") for n in names]
        for part, names in parts.items()
    }
    counts = Counter(name for names in named.values() for name in names)
    part_of = {name: part for part, names in named.items() for name in names}
    groups = (
        [table.groups[number[name]] for name in part_of if name in number] if table.groups else ()
    )
    faults = {
        f"no bags of {table.path}": [name for name in counts if name not in number],
        f"bags in two {kind}s": [name for name, count in counts.items() if count > 1],
        f"groups of {table.path} in two {kind}s": divided_groups(groups, [*part_of.values()]),
    }
    for what, names in faults.items():
        if names:
            raise UsageError(f"{where}: {what}: {abbreviate(names)}")
    return {
        part: np.array([number[name] for name in names], np.int64) for part, names in named.items()
    }


def divided_groups(groups: Sequence[str], parts: Sequence[object]) -> list[str]:
    """Return the groups whose bags are in several parts, such as parts of a split or folds."""
    first: dict[str, object] = {}
    pairs = zip(groups, parts, strict=False)
    return list(
        dict.fromkeys(group for group, part in pairs if first.setdefault(group, part) != part)
    )


def official_split(folds: NDArray[np.int64], count: int, seed: int) -> BagSplit:
    """Return the split of a seed where every item has its fold (N,), from 0 to `count` - 1.

    Fold seed % `count` is tested on, the next, or the first after the last, is validated on, and others are trained on.
    """
    tested, validated = seed % count, (seed + 1) % count
    train = np.flatnonzero((folds != tested) & (folds != validated))
    split = BagSplit(train, np.flatnonzero(folds == validated), np.flatnonzero(folds == tested))
    for part, items in zip(BagSplit._fields, split, strict=True):
        if not len(items):
            raise UsageError(
                f"of {count} folds, those of the {part} split of seed {seed} are empty"
            )
    return split


def _draw_part(
    table: OwnBags, bags: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    units = len({table.groups[bag] for bag in bags}) if table.groups else len(bags)
    if units < 2:
        what = "group" if table.groups else "bag"
        if len(bags) == len(table):
            raise UsageError(
                f"{table.path}: 1 {what} cannot be split into two parts, expected at least 2 {what}s"
            )
        too_few = f"beside the {what}s to test on there is 1 {what}, which cannot be split to train and to validate on"
        raise UsageError(
            f"{table.path}: {too_few}; expected at least 3 {what}s in all, or validation = 0"
        )
    most = min(max(round(1 / min(share, 1 - share)), _MOST_FOLDS), units)
    # A share of 0.2 is one of five folds, and one of 0.4 two of them.
    fraction = Fraction(share).limit_denominator(most)
    fraction = min(max(fraction, Fraction(1, most)), Fraction(most - 1, most))
    drawn = np.sort(
        np.concatenate(_draw_folds(table, bags, fraction.denominator, seed)[: fraction.numerator])
    )
    return np.setdiff1d(bags, drawn), drawn


def _draw_folds(
    table: OwnBags, bags: NDArray[np.int64], count: int, seed: int
) -> list[NDArray[np.int64]]:
    """Return `count` folds of some bags, stratified by label set; groups stay together."""
    import warnings

    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    _, strata = np.unique(table.labels[bags], axis=0, return_inverse=True)
    strata = strata.ravel()
    if np.bincount(strata).max() < count:
        strata = np.zeros_like(
            strata
        )  # hardly two bags have the same label set: there are no strata
    groups = None if table.groups is None else np.array([table.groups[bag] for bag in bags])
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="The least populated class"
        )  # a rare label set is in some folds
        folds = kind(count, shuffle=True, random_state=seed % 2**32).split(bags, strata, groups)
        return [bags[test] for _, test in folds]
