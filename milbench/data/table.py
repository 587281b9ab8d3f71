"""Tables of bags: read from a file, with columns that are checked and messages that name the row."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.table_files import read_chunks, row_name
from milbench.errors import UsageError, hint

NAMES = ("bag", "labels", "instance_label", "group", "split", "features", "image", "boxes")
"""Columns that hold names, and never numbers, where a table has them."""
SEPARATOR = ";"
SPLITS = ("train", "validation", "test")


class Mark(NamedTuple):
    """A class and where it is: left, top, right, bottom of a box in pixels, or start and end of an event in seconds."""

    cls: int
    place: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a table. Text is kept as it is: a label "NA" is a label, and an empty field is ""."""

    path: Path
    frame: pd.DataFrame

    def place(self, row: int) -> str:
        """Return how a message names a row, counted from 0 where these rows begin."""
        return row_name(self.path, row + int(self.frame.index[0]))

    def __contains__(self, name: str) -> bool:
        return name in self.frame

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def column(self, name: str, what: str) -> pd.Series[Any]:
        """Return a column; raise UsageError, which says what it should hold, where there is none."""
        if name not in self.frame:
            meant = hint(name, self.columns)
            for mark, separators in {";": "semicolons", "\t": "tabs", "|": "bars"}.items():
                if len(self.columns) == 1 and mark in self.columns[0]:
                    meant = f"; its columns seem to be separated by {separators}, expected commas"
            raise UsageError(f"{self.path} has no column {name!r} ({what}){meant} (it has: {abbreviate(self.columns)})")
        return self.frame[name]

    def texts(self, name: str, what: str = "") -> pd.Categorical[str]:
        """Return a column as text, without spaces around it; what is missing is "", and texts are as they begin.

        Raises UsageError for no such column, or a field that holds a list or bytes, as those of Parquet may.
        """
        values = self.column(name, what)
        if values.dtype == object:
            for row, value in enumerate(values):
                if not isinstance(value, str) and isinstance(value, Collection):
                    kind = "bytes" if isinstance(value, bytes | bytearray) else "a list"
                    expected = "expected text or a number; several classes are one text with ';' between them"
                    raise UsageError(f"{self.place(row)}: the column {name!r} holds {kind}, {expected}")
        codes, unique_values = pd.factorize(values)  # few texts are different, and work is done once for each
        texts = [str(value).strip() for value in unique_values.tolist()] + [""] * bool((codes < 0).any())
        return pd.Categorical(texts, categories=list(dict.fromkeys(texts)))[codes]

    def filled(self, name: str, what: str, expected: str) -> pd.Categorical[str]:
        """Return a column as text. Raises UsageError for an empty field."""
        texts = self.texts(name, what)
        if (empty := texts == "").any():
            raise UsageError(f"{self.place(int(empty.argmax()))}: the column {name!r} is empty, expected {expected}")
        return texts

    def unique(self, name: str, kind: str) -> list[str]:
        """Return a column that names a `kind` of thing, such as an image, in each row. UsageError: one twice."""
        names = self.filled(name, f"the path or name of a row's {kind}", f"the path or name of its {kind}").tolist()
        if len(set(names)) < len(names):
            row = int(pd.Series(names).duplicated().argmax())
            earlier = self.place(names.index(names[row])).rpartition(", ")[2]
            raise UsageError(
                f"{self.place(row)}: {names[row]!r} is the {kind} of {earlier} too, expected a row for each"
            )
        return names

    def matching(self, pattern: str, what: str) -> list[str]:
        """Return the columns of names or patterns with ";" between them. Raises UsageError where one names none."""
        columns: dict[str, None] = {}
        for part in filter(None, map(str.strip, pattern.split(SEPARATOR))):
            names = [name for name in self.columns if name == part or fnmatchcase(name, part)]
            if not names:
                self.column(part, f"a column {what}")
            columns |= dict.fromkeys(names)
        return list(columns)

    def label_columns(self, where: str) -> list[str]:
        """Return the column of label sets, or the columns of 0 and 1 that a pattern or list names."""
        return self.matching(where, "of 0 and 1, one a class") if SEPARATOR in where or "*" in where else [where]

    def numbers(self, names: list[str]) -> NDArray[np.float32]:
        """Return columns (N, D) as numbers. Raises UsageError where a field holds none."""
        frame = self.frame[names]
        if text := [name for name, dtype in frame.dtypes.items() if dtype.kind not in "biuf"]:
            frame = frame.assign(**{str(name): pd.to_numeric(frame[name], errors="coerce") for name in text})
        with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite, which the checks name
            values = np.ascontiguousarray(frame.to_numpy(np.float32))
        missing = np.isnan(values)
        if missing.any():
            column = int(missing.any(axis=0).argmax())
            rows = np.flatnonzero(missing[:, column])
            got = str(self.frame[names[column]].iloc[rows[0]])
            raise UsageError(
                f"{self.place(int(rows[0]))}: column {names[column]!r} is {got!r}, expected a number"
                + (" with a decimal point" if re.fullmatch(_DECIMAL_COMMA, got) else "")
                + ("" if got.strip() else "; task.features names the columns to take, where this is none")
                + (f" (and so in {rows.size - 1} more rows)" if rows.size > 1 else "")
            )
        return values

    def holds_numbers(self, names: list[str]) -> list[str]:
        """Return those of the columns that hold numbers, perhaps with mistakes, which `numbers` then names.

        A column without a name is the index that pandas and R write. Times are text in a CSV file, and so here.
        """
        kinds = {name: dtype.kind for name, dtype in self.frame.dtypes.items()}
        named = [name for name in names if not _NAMELESS.fullmatch(name) and kinds[name] not in "Mm"]
        filled_share = dict(zip(named, self.frame[named].notna().to_numpy().mean(axis=0), strict=True)) if named else {}
        clear = {name for name in named if kinds[name] in "biuf" and filled_share[name] > 0.5}
        return [name for name in named if name in clear or _are_numbers(self.frame[name])]


@dataclass(frozen=True, eq=False)
class Bagged:
    """The rows of a table in bags: the number of the bag of every row (N,), and the names of bags as they begin."""

    table: Table
    codes: NDArray[np.int64]
    names: list[str]

    @property
    def first(self) -> NDArray[np.int64]:
        """(B,), the first row of every bag."""
        first: NDArray[np.int64] = np.unique(self.codes, return_index=True)[1]
        return first

    def _check_alike(self, values: NDArray[Any], what: str, text: Callable[[int], str]) -> None:
        """Raise UsageError where two rows of a bag have other values (N, C); `text` says what a row has."""
        before = self.first[self.codes]
        rows = np.flatnonzero((values != values[before]).any(axis=1))
        if rows.size:
            row, first = int(rows[0]), int(before[rows[0]])
            place, other = self.table.place(row), self.table.place(first).rpartition(", ")[2]
            found = f"bag {self.names[self.codes[row]]!r} has the {what} {text(row)}, and {text(first)} in {other}"
            raise UsageError(f"{place}: {found}; expected the same in all rows of a bag")

    def labels(self, where: str, classes: str) -> tuple[NDArray[np.bool_], list[str], list[str]]:
        """Return label sets (B, C), the classes, and the columns that they were read from.

        `where` is the column of label sets, or names columns of 0 and 1; `classes` the order of classes, "": those that
        occur, sorted. Raises UsageError for no such column or class, or a bag whose rows differ.
        """
        table = self.table
        used = table.label_columns(where)
        if used != [where]:
            names, sets = used, _indicators(table, used)
            if wrong := [name for name in used if SEPARATOR in name]:
                what = f"the column {wrong[0]!r} names a class with {SEPARATOR!r} in it, which stands between classes"
                raise UsageError(f"{table.path}: {what}")
        else:
            texts = table.texts(where, "the classes of a bag")
            of_text = [frozenset(filter(None, map(class_name, text.split(SEPARATOR)))) for text in texts.categories]
            names = sorted(frozenset().union(*of_text))
            sets = np.array([[name in found for name in names] for found in of_text], bool).reshape(len(of_text), -1)
            sets = sets[texts.codes]
        if classes:
            class_order = [class_name(name) for name in classes.split(SEPARATOR) if name.strip()]
            if len(set(class_order)) < len(class_order):
                raise UsageError(f"{table.path}: classes = {classes!r} names a class twice, expected each once")
            strange = sets[:, [name not in class_order for name in names]].any(axis=1)
            if strange.any():
                row = int(strange.argmax())
                stranger = min(n for n, there in zip(names, sets[row], strict=True) if there and n not in class_order)
                raise unknown_class(table.place(row), stranger, class_order)
            at = [names.index(name) if name in names else len(names) for name in class_order]
            sets, names = np.pad(sets, ((0, 0), (0, 1)))[:, at], class_order
        if not names:
            raise UsageError(f"{table.path}: the column {where!r} names no class in any row, expected some labels")
        self._check_alike(sets, "labels", lambda row: set_text(np.array(names)[sets[row]].tolist()))
        return sets[self.first], names, used

    def values(self, name: str) -> list[str] | None:
        """Return a column's value for every bag, None for no such column; UsageError: a bag has none, or two."""
        if name not in self.table:
            return None
        texts = self.table.filled(name, "", f"the {name} of the bag")
        self._check_alike(texts.codes[:, None], name, lambda row: repr(texts[row]))
        return texts[self.first].tolist()

    def split(self) -> list[str] | None:
        """Return the part of every bag from the column `split`, None for no such column. Raises UsageError."""
        split = self.values("split")
        for value in dict.fromkeys(split or ()):
            if value not in SPLITS:
                row = int((self.table.texts("split") == value).argmax())
                raise UsageError(
                    f"{self.table.place(row)}: split {value!r}{hint(value, SPLITS)}, expected {', '.join(SPLITS)}"
                )
        if split and (lacking := [part for part in ("train", "test") if part not in split]):
            raise UsageError(f"{self.table.path}: the column 'split' puts no bag into {lacking[0]}")
        return split

    def instance_classes(self, labels: NDArray[np.bool_], names: list[str]) -> NDArray[np.int64] | None:
        """Return (N,) the class of every row from the column `instance_label`, C where it is empty: background."""
        if "instance_label" not in self.table:
            return None
        texts = self.table.texts("instance_label", "the class of an instance")
        number = {"": len(names), **{name: c for c, name in enumerate(names)}}
        label_names = [class_name(text) for text in texts.categories]
        for text, name in zip(texts.categories, label_names, strict=True):
            if name not in number:
                raise unknown_class(self.table.place(int((texts == text).argmax())), name, names)
        classes: NDArray[np.int64] = np.array([number[name] for name in label_names])[texts.codes]
        foreign = ~np.pad(labels, ((0, 0), (0, 1)), constant_values=True)[self.codes, classes]
        if foreign.any():
            row = int(foreign.argmax())
            what = f"an instance of {names[classes[row]]!r}, which is not among its bag's labels"
            raise UsageError(f"{self.table.place(row)}: {what}")
        return classes

    def marks(self, column: str, labels: NDArray[np.bool_], names: list[str]) -> list[list[Mark]] | None:
        """Return the marks of every bag from the column `boxes` or `events`; an empty field has none.

        Raises UsageError where a field is not of the form that `EXPECTED` says, or the classes are not the label set.
        """
        if column not in self.table:
            return None
        every_mark = []
        for row, text in enumerate(self.table.texts(column, column)):
            marks = _marks(text, column, names, self.table.place(row)) if text else []
            marked, expected = {mark.cls for mark in marks}, set(np.flatnonzero(labels[row]).tolist())
            if text and marked != expected:
                raise UsageError(
                    f"{self.table.place(row)}: the {column} are of {set_text(names[c] for c in marked)}, expected one "
                    f"of every class of the labels {set_text(names[c] for c in expected)} and of no other, or an empty "
                    "field"
                )
            every_mark.append(marks)
        return every_mark


EXPECTED = {
    "boxes": "[class, left, top, right, bottom] in pixels, left < right and top < bottom",
    "events": "[class, start, end] in seconds, 0 <= start < end",
}
"""The form of a mark in a column of marks."""
FARTHEST = 1e12
"""Pixels or seconds; a mark that lies farther is a mistake."""


def _marks(text: str, column: str, names: list[str], place: str) -> list[Mark]:
    try:
        items = [(class_name(str(name)), at) for name, *at in json.loads(text)]
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{place}: {column} {text[:60]!r} cannot be read ({error}), expected JSON, a list of {EXPECTED[column]}"
        ) from None
    for name, at in items:
        if not _is_place(at, column):
            raise UsageError(f"{place}: {column}: {str([name, *at])[:60]} is wrong; expected {EXPECTED[column]}")
        if name not in names:
            raise unknown_class(place, name, names)
    marks = [Mark(names.index(name), tuple(at)) for name, at in items]
    return sorted(marks, key=lambda mark: mark.place) if column == "events" else marks


def _is_place(at: list[Any], column: str) -> bool:
    if not all(type(number) in (int, float) and abs(number) < FARTHEST for number in at):
        return False
    if column == "events":
        return len(at) == 2 and 0 <= at[0] < at[1]
    return len(at) == 4 and at[0] < at[2] and at[1] < at[3]


def bagged_alone(table: Table, column: str, kind: str) -> Bagged:
    """Return each row of a table as a bag, named by a column, see `Table.unique`."""
    names = table.unique(column, kind)
    return Bagged(table, np.arange(len(names)), names)


def bagged(table: Table, bag: str) -> Bagged:
    """Return the rows of a table in bags by the names in a column. Raises UsageError where one is missing."""
    texts = table.filled(bag, "the bag that an instance belongs to", "a bag")
    return Bagged(table, texts.codes.astype(np.int64), texts.categories.tolist())


def class_name(text: str) -> str:
    """Return the name of a class without spaces around it, and with one of Unicode's two forms of letters such as é."""
    return unicodedata.normalize("NFC", text.strip())


def unknown_class(place: str, name: str, names: list[str]) -> UsageError:
    """Return the error of a name that is no class, with the closest class."""
    return UsageError(f"{place}: {name!r} is no class{hint(name, names)} (there are: {abbreviate(names)})")


def set_text(names: Iterable[str]) -> str:
    """Return a label set for a message."""
    return "{" + ", ".join(sorted(names)) + "}"


def abbreviate(names: Sequence[str], most: int = 8) -> str:
    """Return names as text for a message: the first `most`, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def read_table(path: Path, text: Collection[str] = ()) -> Table:
    """Return a table, in which some columns beside those of `NAMES` hold text. Raises UsageError."""
    chunks = [*read_chunks(path, {*NAMES, *text})]
    return Table(path, chunks[0] if len(chunks) == 1 else pd.concat(chunks))


_DECIMAL_COMMA = r"\s*[-+]?\d*,\d+\s*"
_NAMELESS = re.compile(r"Unnamed: \d+(\.\d+)*")
"""The name that pandas gives to a column without one, and to a second one."""


def _are_numbers(fields: pd.Series[Any]) -> bool:
    """Return whether most fields are numbers, all are or are empty, or most are as many languages write numbers."""
    is_number = pd.to_numeric(fields, errors="coerce").notna()
    if is_number.mean() > 0.5:
        return True
    text = fields.astype(str)
    empty = fields.isna() | (text.str.strip() == "")
    return bool((is_number.any() and (is_number | empty).all()) or text.str.fullmatch(_DECIMAL_COMMA).mean() > 0.5)


def _indicators(table: Table, used: list[str]) -> NDArray[np.bool_]:
    values = table.frame[used].apply(pd.to_numeric, errors="coerce")
    wrong = ~values.isin([0, 1]).to_numpy()
    if wrong.any():
        row, column = (int(i[0]) for i in np.nonzero(wrong))
        got = str(table.frame[used[column]].iloc[row])
        raise UsageError(f"{table.place(row)}: column {used[column]!r} is {got!r}, expected 0 or 1")
    present: NDArray[np.bool_] = values.to_numpy() == 1
    return present
