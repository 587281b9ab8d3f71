"""Tables of bags: read from a file, with columns that are checked and messages that name the row."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import lt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.table_files import DECIMAL_COMMA, column_names, read_chunks, row_name
from milbench.data.table_options import TableOptions
from milbench.errors import UsageError, hint

NAMES = (
    "bag",
    "labels",
    "instance_label",
    "group",
    "split",
    "features",
    "image",
    "boxes",
)  # never numbers
SEPARATOR = ";"  # between the columns or classes that a parameter lists
SPLITS = ("train", "validation", "test")
PARTS = {part: part for part in SPLITS} | {
    "training": "train",
    "testing": "test",
}  # by the names that people write
PARTS |= dict.fromkeys(("val", "valid", "validate", "dev", "tune", "tuning"), "validation")
_LABEL_SETS = "the classes of a bag; for columns of 0 and 1 task.labels='wren;owl' lists them"
_LISTED = re.compile(
    r"[^\s\[\](){}'\",][^\[\](){}'\",]*"
)  # a name in a list as Python, NumPy and JSON write it


class Annotation(NamedTuple):
    """A class and where it is, see `EXPECTED`."""

    cls: int
    place: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a table. Text is kept as it is: a label "NA" is a label, and an empty field is ""."""

    path: Path
    frame: pd.DataFrame

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def place(self, row: int) -> str:
        """Return how a message names a row, counted from 0 where these rows begin."""
        return row_name(self.path, row + int(self.frame.index[0]))

    def column(self, name: str, what: str) -> pd.Series[Any]:
        """Return a column. Raises UsageError, which says what it should hold, where there is none."""
        if name not in self.frame:
            names = column_names(self.path)  # not all may have been read
            has = f"{hint(name, names)} (it has: {abbreviate(names)})"
            raise UsageError(f"{self.path} has no column {name!r} ({what}){has}")
        return self.frame[name]

    def texts(self, name: str, what: str = "") -> pd.Categorical[str]:
        """Return a column as text, without spaces around it; what is missing is "", and texts are as they begin."""
        values = self.column(name, what)
        if (
            values.dtype == object
        ):  # lists, as Parquet may hold them, are written as NumPy writes them
            values = values.map(str, na_action="ignore")
        codes, unique_values = pd.factorize(
            values
        )  # few texts are different, and work is done once for each
        texts = [str(value).strip() for value in unique_values.tolist()] + [""] * bool(
            (codes < 0).any()
        )
        return pd.Categorical(texts, categories=list(dict.fromkeys(texts)))[codes]

    def filled(self, name: str, what: str, expected: str) -> pd.Categorical[str]:
        """Return a column as text. Raises UsageError for an empty field."""
        texts = self.texts(name, what)
        if (empty := texts == "").any():
            raise UsageError(
                f"{self.place(int(empty.argmax()))}: the column {name!r} is empty, expected {expected}"
            )
        return texts

    def unique(self, name: str, kind: str) -> list[str]:
        """Return a column that names a `kind` of thing, such as an image, in each row. UsageError: one twice."""
        names = self.filled(
            name, f"the path or name of a row's {kind}", f"the path or name of its {kind}"
        ).tolist()
        if len(set(names)) < len(names):
            row = int(pd.Series(names).duplicated().argmax())
            twice = f"{names[row]!r} is the {kind} of {self.place(names.index(names[row])).rpartition(', ')[2]} too"
            raise UsageError(f"{self.place(row)}: {twice}, expected a row for each")
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
        return (
            self.matching(where, "of 0 and 1, one a class")
            if SEPARATOR in where or "*" in where
            else [where]
        )

    def numbers(self, names: list[str]) -> NDArray[np.float32]:
        """Return columns (N, D) as numbers. Raises UsageError where a field holds none."""
        frame = self.frame[names]
        if text := [name for name, dtype in frame.dtypes.items() if dtype.kind not in "biuf"]:
            frame = frame.assign(
                **{str(name): pd.to_numeric(frame[name], errors="coerce") for name in text}
            )
        with np.errstate(
            over="ignore"
        ):  # what single precision cannot hold becomes infinite, which the checks name
            values = np.ascontiguousarray(frame.to_numpy(np.float32))
        missing = np.isnan(values)
        if missing.any():
            column = int(missing.any(axis=0).argmax())
            rows = np.flatnonzero(missing[:, column])
            got = str(self.frame[names[column]].iloc[rows[0]])
            choice = "; task.features names the columns to take, where this is none" * (
                not re.search(r"[^\W\d]", got)
            )
            raise UsageError(
                f"{self.place(int(rows[0]))}: column {names[column]!r} is {got!r}, expected a number"
                + (
                    " with a decimal point, or task.decimal=,"
                    if re.fullmatch(DECIMAL_COMMA, got)
                    else choice
                )
                + (f" (and so in {rows.size - 1} more rows)" if rows.size > 1 else "")
            )
        return values

    def holds_numbers(self, names: list[str]) -> list[str]:
        """Return those of the columns that hold numbers, perhaps with mistakes, which `numbers` then names."""
        kinds = {name: dtype.kind for name, dtype in self.frame.dtypes.items()}
        # A column without a name is the index that pandas and R write. Times are text in a CSV file, and so here.
        named = [
            name for name in names if not _NAMELESS.fullmatch(name) and kinds[name] not in "Mm"
        ]
        filled = self.frame[named].notna().any()
        return [
            n for n in named if (filled[n] if kinds[n] in "biuf" else _are_numbers(self.frame[n]))
        ]


@dataclass(frozen=True, eq=False)
class Bagged:
    """The rows of a table in bags. Raises UsageError, which names the row, for what cannot be made of them."""

    table: Table
    codes: NDArray[np.int64]  # (N,), the number of the bag of every row
    names: list[str]  # of the bags, as they begin

    @property
    def first(self) -> NDArray[np.int64]:
        """(B,), the first row of every bag."""
        return np.unique(self.codes, return_index=True)[1]

    def _check_alike(self, values: NDArray[Any], what: str, text: Callable[[int], str]) -> None:
        """Raise UsageError where two rows of a bag have other values (N, C); `text` says what a row has."""
        before = self.first[self.codes]
        rows = np.flatnonzero((values != values[before]).any(axis=1))
        if rows.size:
            row, first = int(rows[0]), int(before[rows[0]])
            earlier = f"{text(first)} in {self.table.place(first).rpartition(', ')[2]}"
            differing = (
                f"bag {self.names[self.codes[row]]!r} has the {what} {text(row)}, and {earlier}"
            )
            raise UsageError(
                f"{self.table.place(row)}: {differing}; expected the same in all rows of a bag"
            )

    def labels(self, options: TableOptions) -> tuple[NDArray[np.bool_], list[str], list[str]]:
        """Return label sets (B, C), the classes, and the columns that they were read from."""
        table, where = self.table, options.labels
        label_columns = table.label_columns(where)
        if label_columns != [where]:
            names, sets = label_columns, _indicators(table, label_columns)
        else:
            texts, mark = table.texts(where, _LABEL_SETS), options.separator
            parts = [
                _LISTED.findall(text) if mark == "list" else text.split(mark or None)
                for text in texts.categories
            ]
            of_text = [{*map(class_name, names)} - {""} for names in parts]
            names = sorted(set().union(*of_text))
            sets = np.array([[name in classes for name in names] for classes in of_text], bool)
            sets = sets.reshape(len(of_text), -1)
            sets = sets[texts.codes]
        if options.classes:
            class_order = [
                class_name(name) for name in options.classes.split(SEPARATOR) if name.strip()
            ]
            if len(set(class_order)) < len(class_order):
                raise UsageError(
                    f"{table.path}: classes = {options.classes!r} names a class twice, expected each once"
                )
            strange = sets[:, [name not in class_order for name in names]].any(axis=1)
            if strange.any():
                row = int(strange.argmax())
                stranger = min(
                    n
                    for n, has in zip(names, sets[row], strict=True)
                    if has and n not in class_order
                )
                raise unknown_class(table.place(row), stranger, class_order)
            columns = [names.index(name) if name in names else len(names) for name in class_order]
            sets, names = np.pad(sets, ((0, 0), (0, 1)))[:, columns], class_order
        if not names:
            raise UsageError(
                f"{table.path}: the column {where!r} names no class in any row, expected some labels"
            )
        self._check_alike(sets, "labels", lambda row: set_text(np.array(names)[sets[row]].tolist()))
        return sets[self.first], names, label_columns

    def values(self, name: str, usual: str) -> list[str] | None:
        """Return a column's value for every bag, None where there is none of the `usual` name."""
        if name == usual and name not in self.table.frame:
            return None
        texts = self.table.filled(name, f"the {usual} of a bag", f"the {usual} of the bag")
        self._check_alike(texts.codes[:, None], name, lambda row: repr(texts[row]))
        return texts[self.first].tolist()

    def split(self, column: str) -> list[str] | None:
        """Return the part of every bag from a column, None for no such column."""
        if (values := self.values(column, "split")) is None:
            return None
        if wrong := [value for value in values if value.casefold() not in PARTS]:
            place = self.table.place(int((self.table.texts(column) == wrong[0]).argmax()))
            raise UsageError(
                f"{place}: split {wrong[0]!r}{hint(wrong[0], SPLITS)}, expected {', '.join(SPLITS)}"
            )
        split = [PARTS[value.casefold()] for value in values]
        if empty := [part for part in ("train", "test") if part not in split]:
            raise UsageError(
                f"{self.table.path}: the column {column!r} puts no bag into {empty[0]}"
            )
        return split

    def likely_split(self, names: Sequence[str]) -> str:
        """Return the first column that holds parts of a split, "" for none."""
        texts = {
            name: {text.casefold() for text in self.table.texts(name).categories} for name in names
        }
        return next(
            (name for name in names if len(texts[name]) > 1 and texts[name] <= PARTS.keys()), ""
        )

    def likely_group(
        self, names: Sequence[str], labels: NDArray[np.bool_], split: Sequence[str] | None
    ) -> str:
        """Return the column that most likely says which bags belong together, such as patients; "" for none."""
        table, first, likely = self.table, self.first, dict[str, float]()
        sets = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
        for name in names:
            texts = table.frame[name].astype(str)
            codes, values = pd.factorize(texts.mask(texts.isin(["", "nan", "None"])))
            of_bags, has_value = codes[first], codes[first] >= 0
            # Several bags share a value, in several parts of a split, and no bag has two.
            is_shared = 1 < len(values) < has_value.sum() and (
                has_value.all() or is_group_name(name)
            )
            pairs = {pair for pair in zip(of_bags, split or (), strict=False) if pair[0] >= 0}
            is_apart = split is None or len(pairs) > len(values)
            if not (is_shared and is_apart) or (codes != of_bags[self.codes]).any():
                continue
            is_label = (
                sets.max() + 1 == len(values) == len({*zip(of_bags, sets, strict=True)})
            )  # in other words
            is_id = not is_label and (
                table.frame[name].dtype.kind not in "biufMm" or is_id_name(name)
            )
            if is_group_name(name) or (
                is_id and len(values) >= max(_GROUPS_AT_LEAST, len(first) / _GROUPS_AT_LEAST)
            ):
                likely[name] = 2 * is_group_name(name) + len(values) / len(first)
        return max(likely, key=lambda name: likely[name], default="")

    def instance_classes(
        self, labels: NDArray[np.bool_], names: list[str]
    ) -> NDArray[np.int64] | None:
        """Return (N,) the class of every row from the column `instance_label`, C where it is empty: background."""
        if "instance_label" not in self.table.frame:
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
            place, name = self.table.place(int(foreign.argmax())), names[classes[foreign.argmax()]]
            raise UsageError(
                f"{place}: an instance of {name!r}, which is not among its bag's labels"
            )
        return classes

    def marks(
        self, column: str, labels: NDArray[np.bool_], names: list[str]
    ) -> list[list[Annotation]] | None:
        """Return the marks of every bag from a column, see `EXPECTED`; an empty field has none."""
        if column not in self.table.frame:
            return None
        every_mark = []
        for row, text in enumerate(self.table.texts(column, column)):
            marks = _marks(text, column, names, self.table.place(row)) if text else []
            marked, expected = (
                {mark.cls for mark in marks},
                set(np.flatnonzero(labels[row]).tolist()),
            )
            if text and marked != expected:
                marked_text, label_text = (
                    set_text(names[c] for c in classes) for classes in (marked, expected)
                )
                what = f"expected one of every class of the labels {label_text} and of no other, or an empty field"
                raise UsageError(
                    f"{self.table.place(row)}: the {column} are of {marked_text}, {what}"
                )
            every_mark.append(marks)
        return every_mark


EXPECTED = {  # the form of a mark in a column of marks
    "boxes": "[class, left, top, right, bottom] in pixels, left < right and top < bottom",
    "events": "[class, start, end] in seconds, 0 <= start < end",
}
FARTHEST = 1e12  # pixels or seconds; a mark that lies farther is a mistake


def _marks(text: str, column: str, names: list[str], place: str) -> list[Annotation]:
    try:
        items = [(class_name(str(name)), ends) for name, *ends in json.loads(text)]
    except (ValueError, TypeError, RecursionError) as error:
        expected = f"expected JSON, a list of {EXPECTED[column]}"
        raise UsageError(
            f"{place}: {column} {text[:60]!r} cannot be read ({error}), {expected}"
        ) from None
    half = 1 if column == "events" else 2
    for name, ends in items:
        are_numbers = len(ends) == 2 * half and all(
            type(n) in (int, float) and abs(n) < FARTHEST for n in ends
        )
        if (
            not are_numbers
            or not all(map(lt, ends[:half], ends[half:]))
            or (column == "events" and ends[0] < 0)
        ):
            raise UsageError(
                f"{place}: {column}: {str([name, *ends])[:60]} is wrong; expected {EXPECTED[column]}"
            )
        if name not in names:
            raise unknown_class(place, name, names)
    marks = [Annotation(names.index(name), tuple(ends)) for name, ends in items]
    return sorted(marks, key=lambda mark: mark.place) if column == "events" else marks


def take_rows(table: Table, column: str, kind: str) -> Bagged:
    """Return each row of a table as a bag, named by a column, see `Table.unique`."""
    names = table.unique(column, kind)
    return Bagged(table, np.arange(len(names)), names)


def group_rows(table: Table, bag: str) -> Bagged:
    """Return the rows of a table in bags by the names in a column. Raises UsageError where one is missing."""
    texts = table.filled(bag, "the bag that an instance belongs to", "a bag")
    return Bagged(table, texts.codes.astype(np.int64), texts.categories.tolist())


def words_of(name: str) -> list[str]:
    """Return the words in the name of a column or array, such as slide, patient and id of slide/patientID_2."""
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_group_name(name: str) -> bool:
    """Return whether a column is named like what bags share, such as case_id or patient."""
    words = {*words_of(name)}
    return bool(words & _GROUPS) and words <= _GROUPS | _IDS | {
        "number",
        "no",
        "nr",
        "code",
        "name",
        "barcode",
    }


def is_id_name(name: str) -> bool:
    """Return whether a column is named like one of ids, such as lesion_id."""
    return not _IDS.isdisjoint(words_of(name))


def class_name(text: str) -> str:
    """Return the name of a class without spaces around it, and with one of Unicode's two forms of letters such as é."""
    return unicodedata.normalize("NFC", text.strip())


def unknown_class(place: str, name: str, names: list[str]) -> UsageError:
    """Return the error of a name that is no class, with the closest class."""
    return UsageError(
        f"{place}: {name!r} is no class{hint(name, names)} (there are: {abbreviate(names)})"
    )


def set_text(names: Iterable[str]) -> str:
    """Return a label set for a message."""
    return "{" + ", ".join(sorted(names)) + "}"


def abbreviate(names: Sequence[str], most: int = 8) -> str:
    """Return names as text for a message: the first `most`, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def read_table(path: Path, text: Collection[str] = (), decimal: str = "") -> Table:
    """Return a table, in which some columns beside those of `NAMES` hold text. Raises UsageError."""
    chunks = [*read_chunks(path, {*NAMES, *text}, decimal)]
    return Table(path, chunks[0] if len(chunks) == 1 else pd.concat(chunks))


_GROUPS = {
    "case", "cases", "patient", "patients", "subject", "subjects", "participant", "person", "donor", "individual",
    "animal", "mouse", "family", "group", "groups", "specimen", "sample", "slide", "speaker", "user", "scan",
    "session", "recording", "video", "pid", "mrn",
}  # fmt: skip
_IDS = {"id", "ids", "uid", "idx"}
_GROUPS_AT_LEAST = (
    5  # and that many bags for each at most: a diagnosis has fewer values, or more bags for each
)
_NUMBER = r"(?=.*\d)\s*[-+\u2212]?(\d{1,3}([.,'\s]\d{3})+|\d*)([.,]\d+)?([eE][-+]?\d+)?\s*%?\s*"  # as languages have it
_NAMELESS = re.compile(r"Unnamed: \d+(\.\d+)*")  # the name that pandas gives to columns without one


def _are_numbers(fields: pd.Series[Any]) -> bool:
    """Return whether most fields are numbers, all are or are empty, or most are as many languages write numbers."""
    is_number, text = pd.to_numeric(fields, errors="coerce").notna(), fields.astype(str)
    if is_number.mean() > 0.5 or text.str.fullmatch(_NUMBER).mean() > 0.5:
        return True
    empty = fields.isna() | (text.str.strip() == "")
    return bool(is_number.any() and (is_number | empty).all())


def _indicators(table: Table, label_columns: list[str]) -> NDArray[np.bool_]:
    values = table.frame[label_columns].apply(pd.to_numeric, errors="coerce")
    wrong = ~values.isin([0, 1]).to_numpy()
    if wrong.any():
        row, column = (int(i[0]) for i in np.nonzero(wrong))
        got = str(table.frame[label_columns[column]].iloc[row])
        raise UsageError(
            f"{table.place(row)}: column {label_columns[column]!r} is {got!r}, expected 0 or 1"
        )
    return np.asarray(values.to_numpy() == 1)
