"""Bags of feature vectors from a table with a row an instance, or a row a bag and a file of its features."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.tables.feature_files import bag_features
from milbench.data.tables.reading import NAMES, column, read_table, row_name, shown, text_column
from milbench.errors import UsageError, closest

SEPARATOR = ";"
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what.

    Args:
        bag: the column of the bags' names.
        labels: the column of label sets, classes with ";" between them, empty for none; or a pattern such as "has_*" or
            a list "cat;dog" of columns with 0 and 1, one a class.
        features: the columns of features as a pattern or list; "": all other columns that hold numbers. Or "@NAME": a
            column with the path of a file of features for every bag.
        classes: the classes in their order, with ";" between them; "": those that occur, sorted.
        key: of the features in files that hold several arrays.
    """

    bag: str = "bag"
    labels: str = "labels"
    features: str = ""
    classes: str = ""
    key: str = ""


@dataclass(frozen=True, eq=False)
class BagTable:
    """B bags with N instances in all, of D features, with label sets of C classes.

    Args:
        path: of the table.
        bags: the names of the bags, in the order of their first rows.
        starts: (B + 1,), bag b has the instances starts[b] to starts[b + 1] - 1.
        features: (N, D) float32.
        feature_names: of the D features.
        labels: (B, C) bool.
        class_names: of the C classes.
        instance_classes: (N,) the class of each instance, C for background; None where they are not known.
        groups: of the bags, such as the patient that each belongs to; None where there are none.
        split: of the bags, each one of SPLITS; None where the table has none.
        ignored: columns that are neither features nor anything else.
        rows: (N,) the row of the table that each instance comes from.
        digest: of all of this.
    """

    path: Path
    bags: list[str]
    starts: NDArray[np.int64]
    features: NDArray[np.float32]
    feature_names: list[str]
    labels: NDArray[np.bool_]
    class_names: list[str]
    instance_classes: NDArray[np.int64] | None = None
    groups: list[str] | None = None
    split: list[str] | None = None
    ignored: list[str] = field(default_factory=list)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.bags)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(B,), the number of instances of each bag."""
        return np.diff(self.starts)

    @property
    def digest(self) -> str:
        """A digest of names, features, labels and what else is known, which does not depend on the form of the file."""
        found = hashlib.sha256(
            repr((self.bags, self.feature_names, self.class_names, self.groups, self.split)).encode()
        )
        for array in (self.starts, self.features, self.labels, self.instance_classes):
            found.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def bag_digest(self, bag: int) -> str:
        """Return a digest of the instances of a bag, equal for bags of equal content."""
        return hashlib.sha256(self.features[self.starts[bag] : self.starts[bag + 1]].tobytes()).hexdigest()


def load_bag_table(path: Path, columns: Columns) -> BagTable:
    """Read the bags of a table. The last few tables stay in memory, and are read anew where a file has changed.

    Raises:
        UsageError: a file is missing or damaged, or a row is not what it should be; the message names both.
    """
    stat = path.stat() if path.is_file() else None
    return _load(path, columns, stat and (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=4)
def _load(path: Path, columns: Columns, _changed: object) -> BagTable:
    frame = read_table(path)
    names = text_column(frame, path, columns.bag, "the bag that an instance belongs to")
    if "" in names:
        raise UsageError(f"{row_name(path, names.index(''))}: the column {columns.bag!r} is empty, expected a bag")
    codes, bags = pd.factorize(np.array(names, dtype=object))
    if columns.features.startswith("@"):
        return _of_files(path, frame, columns, codes, list(bags))
    order = np.argsort(codes, kind="stable")
    frame, codes = frame.iloc[order], codes[order]
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    labels, class_names, used = _labels(path, frame, columns, codes, list(bags))
    features, feature_names, ignored = _features(path, frame, columns, used)
    return BagTable(
        path, list(bags), np.append(first, len(codes)), features, feature_names, labels, class_names,
        _instance_classes(path, frame, labels, class_names, codes),
        _of_bags(path, frame, "group", codes, list(bags)), _split(path, frame, codes, list(bags)), ignored, order,
    )  # fmt: skip


def _of_files(path: Path, frame: pd.DataFrame, columns: Columns, codes: NDArray[np.int64], bags: list[str]) -> BagTable:
    """Return the bags of a table with a row a bag and a column of paths."""
    if len(bags) < len(frame):
        again = int(np.flatnonzero(frame.index.to_numpy() != codes)[0])
        name = bags[codes[again]]
        raise UsageError(
            f"{row_name(path, again)}: a second row of bag {name!r}, expected a row a bag where files are named"
        )
    where = columns.features[1:]
    parts = bag_features(path, text_column(frame, path, where, "the file of a bag's features"), columns.key)
    labels, class_names, used = _labels(path, frame, columns, codes, bags)
    ignored = [name for name in frame.columns if name not in {*used, *NAMES, columns.bag, where}]
    starts = np.cumsum([0, *map(len, parts)])
    features = np.concatenate(parts)
    return BagTable(
        path, bags, starts, features, [f"f{i}" for i in range(features.shape[1])], labels, class_names, None,
        _of_bags(path, frame, "group", codes, bags), _split(path, frame, codes, bags), ignored,
        np.repeat(codes, np.diff(starts)),
    )  # fmt: skip


def _labels(
    path: Path, frame: pd.DataFrame, columns: Columns, codes: NDArray[np.int64], bags: list[str]
) -> tuple[NDArray[np.bool_], list[str], list[str]]:
    """Return label sets (B, C), the classes, and the columns that they were read from."""
    several = SEPARATOR in columns.labels or "*" in columns.labels
    if several:
        used = _matching(path, frame, columns.labels, "of 0 and 1, one a class")
        sets = _from_indicators(path, frame, used)
        names = used
    else:
        used = [columns.labels]
        texts = text_column(frame, path, columns.labels, "the classes of a bag")
        sets = [frozenset(filter(None, map(str.strip, text.split(SEPARATOR)))) for text in texts]
        names = sorted(set().union(*sets))
    if columns.classes:
        names = [name.strip() for name in columns.classes.split(SEPARATOR) if name.strip()]
        _check_known(path, frame, sets, names)
    if not names:
        raise UsageError(f"{path}: the column {columns.labels!r} names no class in any row, expected some labels")
    of_bag: dict[int, tuple[int, frozenset[str]]] = {}
    for row, code, found in zip(frame.index, codes, sets, strict=True):
        before, known = of_bag.setdefault(int(code), (int(row), found))
        if known != found:
            raise UsageError(
                f"{row_name(path, int(row))}: bag {bags[code]!r} has the labels {_set_text(found)}, expected those of "
                f"its {row_name(path, before).rpartition(', ')[2]}, {_set_text(known)}"
            )
    number = {name: c for c, name in enumerate(names)}
    labels = np.zeros((len(bags), len(names)), bool)
    for code, (_, found) in of_bag.items():
        labels[code, [number[name] for name in found]] = True
    return labels, names, used


def _from_indicators(path: Path, frame: pd.DataFrame, used: list[str]) -> list[frozenset[str]]:
    """Return the label set of every row from columns of 0 and 1."""
    values = frame[used].apply(pd.to_numeric, errors="coerce")
    wrong = ~values.isin([0, 1]).to_numpy()
    if wrong.any():
        row, which = (int(i[0]) for i in np.nonzero(wrong))
        got = str(frame[used[which]].iloc[row])
        raise UsageError(f"{row_name(path, int(frame.index[row]))}: column {used[which]!r} is {got!r}, expected 0 or 1")
    there = values.to_numpy() == 1
    return [frozenset(name for name, is_there in zip(used, row, strict=True) if is_there) for row in there]


def _check_known(path: Path, frame: pd.DataFrame, sets: list[frozenset[str]], names: list[str]) -> None:
    for row, found in zip(frame.index, sets, strict=True):
        for name in sorted(found - set(names)):
            near = closest(name, names)
            hint = f"; did you mean {near!r}?" if near else ""
            raise UsageError(f"{row_name(path, int(row))}: {name!r} is no class{hint} (there are: {shown(names)})")


def _features(
    path: Path, frame: pd.DataFrame, columns: Columns, used: list[str]
) -> tuple[NDArray[np.float32], list[str], list[str]]:
    """Return the features (N, D), their names, and the columns that are not used."""
    others = [name for name in frame.columns if name not in {*used, *NAMES, columns.bag}]
    if columns.features:
        names = _matching(path, frame, columns.features, "of features")
        numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in names}
    else:
        numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in others}
        # A column of text is no feature; one that holds numbers but for a few fields is one with mistakes.
        numbers = {name: found for name, found in numbers.items() if found.notna().mean() > 0.5}
        names = list(numbers)
    if not names:
        raise UsageError(f"{path} has no column of numbers for features (it has: {shown(list(frame.columns))})")
    for name, found in numbers.items():
        bad = np.flatnonzero(found.isna().to_numpy())
        if bad.size:
            got = str(frame[name].iloc[bad[0]])
            raise UsageError(
                f"{row_name(path, int(frame.index[bad[0]]))}: column {name!r} is {got!r}, expected a number"
                + (f" (and so in {bad.size - 1} more rows)" if bad.size > 1 else "")
            )
    with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite, which the checks name
        features = np.stack([found.to_numpy(np.float32) for found in numbers.values()], axis=1)
    return features, names, [name for name in others if name not in names]


def _matching(path: Path, frame: pd.DataFrame, pattern: str, what: str) -> list[str]:
    """Return the columns that a pattern or list names, in the order of the table. Raises UsageError for none."""
    found: list[str] = []
    for part in filter(None, map(str.strip, pattern.split(SEPARATOR))):
        names = [name for name in frame.columns if fnmatchcase(name, part)]
        if not names:
            column(frame, path, part, f"a column {what}")
        found += names
    return list(dict.fromkeys(found))


def _instance_classes(
    path: Path, frame: pd.DataFrame, labels: NDArray[np.bool_], names: list[str], codes: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return (N,) the class of each instance from the column `instance_label`, whose empty fields are background."""
    if "instance_label" not in frame:
        return None
    number = {"": len(names), **{name: c for c, name in enumerate(names)}}
    found = text_column(frame, path, "instance_label", "the class of an instance")
    for row, code, name in zip(frame.index, codes, found, strict=True):
        if name not in number:
            near = closest(name, names)
            hint = f"; did you mean {near!r}?" if near else ""
            raise UsageError(f"{row_name(path, int(row))}: {name!r} is no class{hint} (there are: {shown(names)})")
        if name and not labels[code, number[name]]:
            raise UsageError(
                f"{row_name(path, int(row))}: an instance of {name!r}, which is not among its bag's labels"
            )
    return np.array([number[name] for name in found])


def _of_bags(path: Path, frame: pd.DataFrame, name: str, codes: NDArray[np.int64], bags: list[str]) -> list[str] | None:
    """Return the value of a column for every bag, None where there is no such column. Raises UsageError for two."""
    if name not in frame:
        return None
    first: dict[int, tuple[int, str]] = {}
    for row, code, value in zip(frame.index, codes, text_column(frame, path, name, ""), strict=True):
        before, known = first.setdefault(int(code), (int(row), value))
        if known != value:
            place = row_name(path, before).rpartition(", ")[2]
            raise UsageError(
                f"{row_name(path, int(row))}: bag {bags[code]!r} has the {name} {value!r}, and {known!r} in {place}"
            )
    return [first[code][1] for code in range(len(bags))]


def _split(path: Path, frame: pd.DataFrame, codes: NDArray[np.int64], bags: list[str]) -> list[str] | None:
    split = _of_bags(path, frame, "split", codes, bags)
    if split is None:
        return None
    for row, value in zip(frame.index, text_column(frame, path, "split", ""), strict=True):
        if value not in SPLITS:
            near = closest(value, SPLITS)
            hint = f"; did you mean {near!r}?" if near else ""
            raise UsageError(f"{row_name(path, int(row))}: split {value!r}{hint}, expected {', '.join(SPLITS)}")
    for needed in ("train", "test"):
        if needed not in split:
            raise UsageError(f"{path}: the column 'split' puts no bag into {needed}")
    return split


def _set_text(found: frozenset[str]) -> str:
    return "{" + ", ".join(sorted(found)) + "}"
