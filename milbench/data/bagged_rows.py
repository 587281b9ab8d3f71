"""Group the rows of a table into bags, and read what the rows say of each bag."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.data.annotations import Annotation, MarkForm, Marks, check_complete, marks_in
from milbench.data.column_words import is_group_name, is_id_name
from milbench.data.group_columns import MISSING, is_shared_and_unsplit
from milbench.data.label_cells import class_name
from milbench.data.label_sets import TableLabels, read_labels
from milbench.data.name_lists import set_text, unknown_class
from milbench.data.split_parts import PARTS, SPLITS
from milbench.data.table import Table
from milbench.data.table_options import TableOptions
from milbench.errors import UsageError, hint


@dataclass(frozen=True, eq=False)
class Bagged:
    """The N rows of a table in B bags.

    Its methods raise UsageError, which names the row, where the rows of a bag contradict each other
    or a field cannot be read.
    """

    table: Table
    codes: NDArray[np.int64]
    """(N,), the number of the bag of every row."""
    names: list[str]
    """The names of the bags, in the order of their first rows."""

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """(B,), the first row of every bag."""
        return np.unique(self.codes, return_index=True)[1]

    def _check_alike(self, values: NDArray[Any], what: str, text: Callable[[int], str]) -> None:
        """Raise UsageError where two rows of a bag have different values.

        Args:
            values: (N, C), the values of every row.
            what: what messages call the values.
            text: returns the values of a row, by its number, as text for a message.
        """
        first_row_of_bag = self.first_rows[self.codes]
        is_different = (values != values[first_row_of_bag]).any(axis=1)
        if is_different.any():
            row = int(is_different.argmax())
            first = int(first_row_of_bag[row])
            bag = self.names[self.codes[row]]
            earlier = f"{text(first)} in {self.table.short_place(first)}"
            differing = f"bag {bag!r} has the {what} {text(row)}, and {earlier}"
            raise UsageError(
                f"{self.table.place(row)}: {differing}; expected the same in all rows of a bag"
            )

    def labels(self, options: TableOptions) -> TableLabels:
        """Return the label sets of the bags."""
        of_rows = read_labels(self.table, options)
        sets = of_rows.sets
        names = np.array(of_rows.names, object)
        if not len(names):
            raise UsageError(
                f"{self.table.path}: the column {options.labels!r} names no class in any row, "
                "expected some labels"
            )
        self._check_alike(sets, "labels", lambda row: set_text(names[sets[row]].tolist()))
        nothing = {label: rows[self.first_rows] for label, rows in of_rows.nothing.items()}
        return of_rows._replace(sets=sets[self.first_rows], nothing=nothing)

    def values(self, name: str, usual: str) -> list[str] | None:
        """Return the value of a column for every bag, None where the table has no such column.

        Raises UsageError for an empty field, and for a missing column that the user has named.

        Args:
            name: the name of the column.
            usual: the name that it has if the user names none, which also says what it holds.
        """
        if name == usual and name not in self.table.frame:
            return None
        texts = self.table.filled(name, f"the {usual} of a bag", f"the {usual} of the bag")
        self._check_alike(texts.codes[:, None], name, lambda row: repr(texts[row]))
        return texts[self.first_rows].tolist()

    def split(self, column: str) -> list[str] | None:
        """Return the part of the split that each bag is in, None where the column is missing."""
        values = self.values(column, "split")
        if values is None:
            return None
        for value in values:
            if value.casefold() not in PARTS:
                row = int((self.table.texts(column) == value).argmax())
                near = hint(value, SPLITS)
                raise UsageError(
                    f"{self.table.place(row)}: split {value!r}{near}, expected {', '.join(SPLITS)}"
                )
        split = [PARTS[value.casefold()] for value in values]
        for part in ("train", "test"):
            if part not in split:
                raise UsageError(
                    f"{self.table.path}: the column {column!r} puts no bag into {part}"
                )
        return split

    def split_column(self, names: Sequence[str]) -> str:
        """Return the first of these columns that holds a split, "" where none does."""
        for name in names:
            if self._is_split_column(name):
                return name
        return ""

    def _is_split_column(self, name: str) -> bool:
        """Return whether a column names parts of a split, at least two, and can be read as one."""
        texts = {text.casefold() for text in self._different_texts(name)}
        if len(texts) < 2 or not texts <= PARTS.keys():
            return False
        try:
            self.split(name)
        except UsageError:
            return False
        return True

    def _different_texts(self, name: str) -> list[str]:
        """Return the different texts of a column, [] for a column of lists or objects."""
        try:
            return self.table.texts(name).categories.tolist()
        except UsageError:
            return []

    def shared_columns(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Return the columns that may say which bags belong together, such as those of a patient.

        Each column comes with a number for every bag: bags with equal numbers share a value.

        In such a column several bags share a value, while no bag has two values. A column of
        numbers counts only if it is named like an id or a group: other numbers are measurements.
        """
        shared = {}
        for name in names:
            # Booleans, integers, floating-point numbers, dates and differences of dates.
            is_number = self.table.frame[name].dtype.kind in "biufMm"
            if is_number and not (is_id_name(name) or is_group_name(name)):
                continue
            values = self._numbered(name)
            if is_shared_and_unsplit(values, self.codes):
                shared[name] = values[self.first_rows].tolist()
        return shared

    def _numbered(self, name: str) -> NDArray[np.int64]:
        """Return (N,), the number of the value of each row.

        It is -1 for an empty field, and in all rows of a column of lists or objects.
        """
        try:
            texts = self.table.texts(name)
        except UsageError:
            return np.full(len(self.codes), MISSING)
        is_empty = np.isin(texts.categories, ["", "nan", "None"])
        return np.where(is_empty[texts.codes], MISSING, texts.codes).astype(np.int64)

    def instance_classes(
        self, labels: NDArray[np.bool_], names: list[str], nothing: Collection[str] = ()
    ) -> NDArray[np.int64] | None:
        """Return (N,), the class of every row from the column `instance_label`; C is background.

        A field is background where it is empty or holds a label that means no class. The result is
        None where the table has no such column.

        Args:
            labels: (B, C), the label set of every bag. Raises UsageError for an instance of a class
                that is not in the label set of its bag.
            names: the names of the C classes.
            nothing: the labels that mean no class.
        """
        if "instance_label" not in self.table.frame:
            return None
        texts = self.table.texts("instance_label", "the class of an instance")
        background = len(names)
        number_of = {name: number for number, name in enumerate(names)}
        number_of |= dict.fromkeys(["", *nothing], background)
        label_names = [class_name(text) for text in texts.categories]
        for text, name in zip(texts.categories, label_names, strict=True):
            if name not in number_of:
                row = int((texts == text).argmax())
                raise unknown_class(self.table.place(row), name, names)
        # There are few different texts, so each is looked up once.
        class_of_text = np.array([number_of[name] for name in label_names])
        classes: NDArray[np.int64] = class_of_text[texts.codes]
        # Every bag may hold background: a column of True after those of the classes.
        allowed = np.pad(labels, ((0, 0), (0, 1)), constant_values=True)
        is_foreign = ~allowed[self.codes, classes]
        if is_foreign.any():
            row = int(is_foreign.argmax())
            raise UsageError(
                f"{self.table.place(row)}: an instance of {names[classes[row]]!r}, "
                "which is not among its bag's labels"
            )
        return classes

    def marks(self, column: str, labels: TableLabels, form: MarkForm) -> Marks | None:
        """Return the annotations of every bag from a column of JSON, see `EXPECTED_MARKS`.

        A bag whose field is empty has none. Annotations of labels that mean no class are left out.
        The result is None where the table has no such column.
        """
        if column not in self.table.frame:
            return None
        every_mark: Marks = []
        for row, text in enumerate(self.table.texts(column, column)):
            place = self.table.place(row)
            marks: list[Annotation] = []
            if text:
                marks = marks_in(text, column, form, labels, place)
                check_complete(marks, column, labels.sets[row], labels.names, place)
            every_mark.append(marks)
        return every_mark

    def mark_rows(self, marks: Marks) -> list[list[int]]:
        """Return the row of each annotation: a column of JSON has all of a bag in its one row."""
        return [
            [int(row)] * len(of_bag) for row, of_bag in zip(self.first_rows, marks, strict=True)
        ]


def take_rows(table: Table, column: str, kind: str) -> Bagged:
    """Return each row of a table as a bag, named by the column `column`.

    Raises UsageError for two rows of one name; `kind` is what messages call a bag, such as "image".
    """
    names = table.unique(column, kind)
    return Bagged(table, np.arange(len(names)), names)


def group_rows(table: Table, bag: str) -> Bagged:
    """Return the rows of a table in bags: rows with one name in the column `bag` are one bag.

    Raises UsageError where a row has no name of a bag.
    """
    texts = table.filled(bag, "the bag that an instance belongs to", "a bag")
    return Bagged(table, texts.codes.astype(np.int64), texts.categories.tolist())
