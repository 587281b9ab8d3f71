"""What every table of labelled bags has: label sets, and perhaps groups and a split."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.tables.reading import column, row_name, shown, text_column
from milbench.errors import UsageError, closest

SEPARATOR = ";"
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class LabelledBags:
    """B bags with label sets of C classes; what the bags hold is added by a subclass.

    Args:
        path: of the table.
        bags: the names of the bags, in the order of their first rows.
        labels: (B, C) bool.
        class_names: of the C classes.
        groups: of the bags, such as the patient that each belongs to; None where there are none.
        split: of the bags, each one of SPLITS; None where the table has none.
        ignored: columns that are not used.
    """

    path: Path
    bags: list[str]
    labels: NDArray[np.bool_]
    class_names: list[str]
    groups: list[str] | None = field(default=None, kw_only=True)
    split: list[str] | None = field(default=None, kw_only=True)
    ignored: list[str] = field(default_factory=list, kw_only=True)

    def __len__(self) -> int:
        return len(self.bags)


def read_labels(
    path: Path, frame: pd.DataFrame, where: str, classes: str, codes: NDArray[np.int64], bags: list[str]
) -> tuple[NDArray[np.bool_], list[str], list[str]]:
    """Return label sets (B, C), the classes, and the columns that they were read from.

    Args:
        path: of the table.
        frame: its rows.
        where: the column of label sets, or a pattern or list of columns with 0 and 1.
        classes: the classes in their order, with ";" between them; "": those that occur, sorted.
        codes: the number of the bag of every row.
        bags: the names of the bags.

    Raises:
        UsageError: there is no such column or class, or two rows of a bag differ.
    """
    several = SEPARATOR in where or "*" in where
    if several:
        used = matching_columns(path, frame, where, "of 0 and 1, one a class")
        sets = _from_indicators(path, frame, used)
        names = used
        if wrong := [name for name in used if SEPARATOR in name]:
            raise UsageError(
                f"{path}: the column {wrong[0]!r} names a class with {SEPARATOR!r} in it, which stands between classes"
            )
    else:
        used = [where]
        texts = text_column(frame, path, where, "the classes of a bag")
        sets = [frozenset(filter(None, map(class_name, text.split(SEPARATOR)))) for text in texts]
        names = sorted(set().union(*sets))
    if classes:
        names = [class_name(name) for name in classes.split(SEPARATOR) if name.strip()]
        if len(set(names)) < len(names):
            raise UsageError(f"{path}: classes = {classes!r} names a class twice, expected each once")
        _check_known(path, frame, sets, names)
    if not names:
        raise UsageError(f"{path}: the column {where!r} names no class in any row, expected some labels")
    of_bag: dict[int, tuple[int, frozenset[str]]] = {}
    for row, code, found in zip(frame.index, codes, sets, strict=True):
        before, known = of_bag.setdefault(int(code), (int(row), found))
        if known != found:
            raise UsageError(
                f"{row_name(path, int(row))}: bag {bags[code]!r} has the labels {set_text(found)}, expected those of "
                f"its {row_name(path, before).rpartition(', ')[2]}, {set_text(known)}"
            )
    number = {name: c for c, name in enumerate(names)}
    labels = np.zeros((len(bags), len(names)), bool)
    for code, (_, found) in of_bag.items():
        labels[code, [number[name] for name in found]] = True
    return labels, names, used


def class_name(text: str) -> str:
    """Return the name of a class: without spaces around it, and with one form for each letter.

    Unicode has two forms of é, one character or two, which look alike and are not equal.
    """
    return unicodedata.normalize("NFC", text.strip())


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
            raise unknown_class(row_name(path, int(row)), name, names)


def unknown_class(place: str, name: str, names: list[str], what: str = "") -> UsageError:
    """Return the error of a name that is no class, with the closest class.

    Args:
        place: the table and the row.
        name: that is no class.
        names: of all classes.
        what: has the class, such as "a box"; "": it stands for itself.
    """
    near = closest(name, names)
    hint = f"; did you mean {near!r}?" if near else ""
    found = f"{what} of {name!r}, which is no class" if what else f"{name!r} is no class"
    return UsageError(f"{place}: {found}{hint} (there are: {shown(names)})")


def matching_columns(path: Path, frame: pd.DataFrame, pattern: str, what: str) -> list[str]:
    """Return the columns that a pattern or list names, in the order of the table.

    Args:
        path: the table, for messages.
        frame: its rows.
        pattern: names or patterns of columns, separated as labels are.
        what: what the columns hold, for messages.

    Raises:
        UsageError: there is no such column.
    """
    found: list[str] = []
    for part in filter(None, map(str.strip, pattern.split(SEPARATOR))):
        names = [name for name in frame.columns if name == part or fnmatchcase(name, part)]
        if not names:
            column(frame, path, part, f"a column {what}")
        found += names
    return list(dict.fromkeys(found))


def of_bags(path: Path, frame: pd.DataFrame, name: str, codes: NDArray[np.int64], bags: list[str]) -> list[str] | None:
    """Return the value of a column for every bag, None where there is no such column.

    Args:
        path: the table, for messages.
        frame: its rows.
        name: the column.
        codes: (N,) the number of the bag of every row.
        bags: the names of the bags, by number.

    Raises:
        UsageError: a field is empty, or a bag has two values.
    """
    if name not in frame:
        return None
    first: dict[int, tuple[int, str]] = {}
    for row, code, value in zip(frame.index, codes, text_column(frame, path, name, ""), strict=True):
        if not value:
            raise UsageError(
                f"{row_name(path, int(row))}: the column {name!r} is empty, expected the {name} of the bag"
            )
        before, known = first.setdefault(int(code), (int(row), value))
        if known != value:
            place = row_name(path, before).rpartition(", ")[2]
            raise UsageError(
                f"{row_name(path, int(row))}: bag {bags[code]!r} has the {name} {value!r}, and {known!r} in {place}"
            )
    return [first[code][1] for code in range(len(bags))]


def read_split(path: Path, frame: pd.DataFrame, codes: NDArray[np.int64], bags: list[str]) -> list[str] | None:
    """Return the part of every bag from the column `split`, None where there is none.

    Args:
        path: the table, for messages.
        frame: its rows.
        codes: (N,) the number of the bag of every row.
        bags: the names of the bags, by number.

    Raises:
        UsageError: a bag has another part, or two, or no bag is trained or tested on.
    """
    split = of_bags(path, frame, "split", codes, bags)
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


def apart_groups(table: LabelledBags, parts: Sequence[object]) -> list[str]:
    """Return the groups whose bags are not all in one part.

    Args:
        table: the bags.
        parts: of the bags, such as the part of a split or the number of a fold.
    """
    first: dict[str, object] = {}
    pairs = zip(table.groups or (), parts, strict=False)
    return list(dict.fromkeys(group for group, part in pairs if first.setdefault(group, part) != part))


def class_number(name: str, names: list[str], place: str, what: str) -> int:
    """Return the number of a class.

    Args:
        name: of the class.
        names: of all classes, in their order.
        place: the table and the row, for the message.
        what: has the class, such as "a box", likewise.

    Raises:
        UsageError: there is no such class.
    """
    name = class_name(name)
    if name not in names:
        raise unknown_class(place, name, names, what)
    return names.index(name)


def set_text(names: Iterable[str]) -> str:
    """Return a label set for a message.

    Examples:
        >>> set_text(["wren", "nuthatch"])
        '{nuthatch, wren}'
    """
    return "{" + ", ".join(sorted(names)) + "}"
