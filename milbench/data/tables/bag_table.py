"""Bags of feature vectors from a table with a row an instance, or a row a bag and a file of its features."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.tables.feature_files import bag_features
from milbench.data.tables.labels import (
    SEPARATOR,
    LabelledBags,
    class_name,
    matching_columns,
    of_bags,
    read_labels,
    read_split,
    unknown_class,
)
from milbench.data.tables.reading import NAMES, file_state, read_table, row_name, shown, text_column
from milbench.errors import UsageError


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
class BagTable(LabelledBags):
    """B bags with N instances in all, of D features.

    Args:
        starts: (B + 1,), bag b has the instances starts[b] to starts[b + 1] - 1.
        features: (N, D) float32.
        feature_names: of the D features.
        instance_classes: (N,) the class of each instance, C for background; None where they are not known.
        rows: (N,) the row of the table that each instance comes from.
    """

    starts: NDArray[np.int64]
    features: NDArray[np.float32]
    feature_names: list[str]
    instance_classes: NDArray[np.int64] | None = None
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

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
            found.update(b"" if array is None else np.ascontiguousarray(array).data)
        return found.hexdigest()

    def bag_digest(self, bag: int) -> str:
        """Return a digest of the instances of a bag, equal for bags of equal content."""
        return hashlib.sha256(self.features[self.starts[bag] : self.starts[bag + 1]].tobytes()).hexdigest()


def load_bag_table(path: Path, columns: Columns) -> BagTable:
    """Read the bags of a table. The last few tables stay in memory, and are read anew where a file has changed.

    Raises:
        UsageError: a file is missing or damaged, or a row is not what it should be; the message names both.
    """
    return _load(path, columns, file_state(path), _states_of_features(path, columns))


def _states_of_features(path: Path, columns: Columns) -> tuple[object, ...]:
    """Return what changes with the files that a table names, none where it names none."""
    if not columns.features.startswith("@"):
        return ()
    where = columns.features[1:]
    frame = read_table(path, text=(columns.bag, columns.labels, where))
    return tuple(
        file_state(path.parent / name) for name in text_column(frame, path, where, "the file of a bag's features")
    )


@lru_cache(maxsize=4)
def _load(path: Path, columns: Columns, _state: object, _states: object) -> BagTable:
    frame = read_table(path, text=(columns.bag, columns.labels, columns.features.removeprefix("@")))
    names = text_column(frame, path, columns.bag, "the bag that an instance belongs to")
    if "" in names:
        raise UsageError(f"{row_name(path, names.index(''))}: the column {columns.bag!r} is empty, expected a bag")
    codes, bags = pd.factorize(np.array(names, dtype=object))
    if columns.features.startswith("@"):
        return _of_files(path, frame, columns, codes, list(bags))
    order = np.argsort(codes, kind="stable")
    frame, codes = frame.iloc[order], codes[order]
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    labels, class_names, used = read_labels(path, frame, columns.labels, columns.classes, codes, list(bags))
    features, feature_names, ignored = _features(path, frame, columns, used)
    return BagTable(
        path, list(bags), labels, class_names, starts=np.append(first, len(codes)), features=features,
        feature_names=feature_names, rows=order,
        instance_classes=_instance_classes(path, frame, labels, class_names, codes),
        groups=of_bags(path, frame, "group", codes, list(bags)), split=read_split(path, frame, codes, list(bags)),
        ignored=ignored,
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
    labels, class_names, used = read_labels(path, frame, columns.labels, columns.classes, codes, bags)
    ignored = [name for name in frame.columns if name not in {*used, *NAMES, columns.bag, where}]
    starts = np.cumsum([0, *map(len, parts)])
    features = np.concatenate(parts)
    return BagTable(
        path, bags, labels, class_names, starts, features, [f"f{i}" for i in range(features.shape[1])],
        rows=np.repeat(codes, np.diff(starts)), groups=of_bags(path, frame, "group", codes, bags),
        split=read_split(path, frame, codes, bags), ignored=ignored,
    )  # fmt: skip


_DECIMAL_COMMA = r"\s*[-+]?\d*,\d+\s*"


def _features(
    path: Path, frame: pd.DataFrame, columns: Columns, used: list[str]
) -> tuple[NDArray[np.float32], list[str], list[str]]:
    """Return the features (N, D), their names, and the columns that are not used."""
    taken = {*used, *NAMES, columns.bag}
    others = [name for name in frame.columns if name not in taken]
    if columns.features:
        names = _named_features(path, frame, columns.features, taken)
        numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in names}
    else:
        numbers = {
            name: pd.to_numeric(frame[name], errors="coerce")
            for name in others
            # A column without a name is the index that pandas and R write. Times are text in a CSV file, and so here.
            if not _NAMELESS.fullmatch(name) and frame[name].dtype.kind not in "Mm"
        }
        numbers = {name: found for name, found in numbers.items() if _is_feature(frame[name], found)}
        names = list(numbers)
    if not names:
        raise UsageError(f"{path} has no column of numbers for features (it has: {shown(list(frame.columns))})")
    return as_features(path, frame, numbers), names, [name for name in others if name not in names]


_NAMELESS = re.compile(r"Unnamed: \d+(\.\d+)*")
"""The name that pandas gives to a column without one, and to a second one."""


def _is_feature(fields: pd.Series[Any], numbers: pd.Series[Any]) -> bool:
    """Return whether a column is one of numbers, perhaps with mistakes, which are then named.

    A column of text is no feature. One is that holds numbers but for a few fields, or for empty ones, or numbers as
    they are written in many languages.
    """
    known = numbers.notna()
    if known.mean() > 0.5:
        return True
    text = fields.astype(str)
    empty = fields.isna() | (text.str.strip() == "")
    return bool((known.any() and (known | empty).all()) or text.str.fullmatch(_DECIMAL_COMMA).mean() > 0.5)


def _named_features(path: Path, frame: pd.DataFrame, pattern: str, taken: set[str]) -> list[str]:
    """Return the columns that the user names as features; a "*" leaves out those that hold something else."""
    listed = set(map(str.strip, pattern.split(SEPARATOR)))
    for name in frame.columns:
        if name in listed & taken - {"features", "image", "boxes"}:  # names in other tables alone
            raise UsageError(f"{path}: the features {pattern!r} name the column {name!r}, which holds names or labels")
    return [n for n in matching_columns(path, frame, pattern, "of features") if n in listed or n not in taken]


def as_features(path: Path, frame: pd.DataFrame, numbers: Mapping[str, pd.Series[Any]]) -> NDArray[np.float32]:
    """Return columns of a table as features (N, D).

    Args:
        path: of the table.
        frame: its rows.
        numbers: the D columns as numbers, missing where a field holds none.

    Raises:
        UsageError: a field holds no number.
    """
    for name, found in numbers.items():
        bad = np.flatnonzero(found.isna().to_numpy())
        if bad.size:
            got = str(frame[name].iloc[bad[0]])
            raise UsageError(
                f"{row_name(path, int(frame.index[bad[0]]))}: column {name!r} is {got!r}, expected a number"
                + (" with a decimal point" if re.fullmatch(_DECIMAL_COMMA, got) else "")
                + ("" if got.strip() else "; task.features names the columns to take, where this is none")
                + (f" (and so in {bad.size - 1} more rows)" if bad.size > 1 else "")
            )
    with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite, which the checks name
        return np.stack([found.to_numpy(np.float32) for found in numbers.values()], axis=1)


def _instance_classes(
    path: Path, frame: pd.DataFrame, labels: NDArray[np.bool_], names: list[str], codes: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return (N,) the class of each instance from the column `instance_label`, whose empty fields are background."""
    if "instance_label" not in frame:
        return None
    number = {"": len(names), **{name: c for c, name in enumerate(names)}}
    found = [class_name(text) for text in text_column(frame, path, "instance_label", "the class of an instance")]
    for row, code, name in zip(frame.index, codes, found, strict=True):
        if name not in number:
            raise unknown_class(row_name(path, int(row)), name, names)
        if name and not labels[code, number[name]]:
            raise UsageError(
                f"{row_name(path, int(row))}: an instance of {name!r}, which is not among its bag's labels"
            )
    return np.array([number[name] for name in found])
