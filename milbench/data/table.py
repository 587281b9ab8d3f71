"""Read the columns of a table as text or numbers, with messages that name the row of a mistake."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.label_cells import shown, text_of
from milbench.data.table_files import (
    USUAL,
    TableFormat,
    column_names,
    is_text,
    missing_column,
    read_chunks,
    row_name,
    short_row_name,
)
from milbench.data.table_options import leave_out_flag, listed
from milbench.data.written_numbers import are_meant_as_numbers, as_numbers, writing_remedy
from milbench.errors import UsageError

TEXT_COLUMNS = (
    "bag",
    "labels",
    "instance_label",
    "group",
    "split",
    "features",
    "image",
    "boxes",
)
"""Columns that are always read as text, even if they hold numbers."""
_NAMELESS = re.compile(r"Unnamed: \d+(\.\d+)*")
"""The name that pandas gives to a column without a name."""


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a table, or some of them.

    Text is kept as it is: a label "NA" is a label, and an empty field is "".
    """

    path: Path
    frame: pd.DataFrame
    """The rows. The index has the number of each row in the whole table, counted from 0."""
    form: TableFormat = field(default=USUAL)
    """How the fields of the file are written."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def place(self, row: int) -> str:
        """Return how a message names a row, such as "bags.csv, row 7".

        `row` is counted from 0 at the first of these rows.
        """
        return row_name(self.path, self._row_of_file(row))

    def short_place(self, row: int) -> str:
        """Return how a message that has named the table names a row, such as "row 7"."""
        return short_row_name(self.path, self._row_of_file(row))

    def _row_of_file(self, row: int) -> int:
        """Return the number of a row in the whole table."""
        return row + int(self.frame.index[0])

    def column(self, name: str, what: str) -> pd.Series[Any]:
        """Return a column. Raises UsageError where the table lacks it.

        `what` says in the message what the column should hold.
        """
        if name not in self.frame:
            raise missing_column(self.path, self.form, name, what)
        return self.frame[name]

    def texts(self, name: str, what: str = "") -> pd.Categorical[str]:
        """Return a column as text, without spaces around the texts; a missing value is "".

        The categories are in the order of their first rows. Raises UsageError for a value that is
        no text, number or date. `what` says what the column should hold, see `column`.
        """
        values = self.column(name, what)
        try:
            # A column has few different texts, so each is handled once.
            codes, unique_values = pd.factorize(values)
        except TypeError:
            # pandas cannot compare lists and objects.
            raise self._text_fault(name, values) from None
        try:
            texts = [text_of(value).strip() for value in unique_values.tolist()]
        except ValueError:
            raise self._text_fault(name, values) from None
        if (codes < 0).any():
            # A missing value has the code -1. As an index this is the last text, which must be "".
            texts.append("")
        categories = list(dict.fromkeys(texts))
        return pd.Categorical(texts, categories=categories)[codes]

    def _text_fault(self, name: str, values: pd.Series[Any]) -> UsageError:
        """Return the error of the first value that is no text."""
        for row, value in enumerate(values):
            try:
                text_of(value)
            except ValueError as error:
                return UsageError(f"{self.place(row)}: column {name!r} is {shown(value)}: {error}")
        return UsageError(f"{self.path}: the column {name!r} is no text")

    def filled(self, name: str, what: str, expected: str) -> pd.Categorical[str]:
        """Return a column as text, like `texts`. Raises UsageError for an empty field.

        `expected` says in the message what the field should hold.
        """
        texts = self.texts(name, what)
        is_empty = texts == ""
        if is_empty.any():
            place = self.place(int(is_empty.argmax()))
            raise UsageError(f"{place}: the column {name!r} is empty, expected {expected}")
        return texts

    def unique(self, name: str, kind: str) -> list[str]:
        """Return the names in a column. Raises UsageError where two rows have one name.

        `kind` says in messages what the column names, such as "image".
        """
        what = f"the path or name of a row's {kind}"
        names: list[str] = self.filled(name, what, f"the path or name of its {kind}").tolist()
        if len(set(names)) < len(names):
            row = int(pd.Series(names).duplicated().argmax())
            first = self.short_place(names.index(names[row]))
            twice = f"{names[row]!r} is the {kind} of {first} too"
            raise UsageError(f"{self.place(row)}: {twice}, expected a row for each")
        return names

    def matching(self, pattern: str, what: str) -> list[str]:
        """Return the columns that a parameter names, by names or patterns with ";" between them.

        A column of lists has been replaced by the columns `name[0]`, `name[1]` and so on. The name
        of the column of lists stands for all of these. Raises UsageError for a name or pattern that
        fits no column; `what` says in the message what the column should hold.
        """
        columns: dict[str, None] = {}
        for part in listed(pattern):
            names = self._named(part)
            if not names:
                raise missing_column(self.path, self.form, part, f"a column {what}")
            columns |= dict.fromkeys(names)
        return list(columns)

    def _named(self, part: str) -> list[str]:
        """Return the columns that a name or a pattern stands for."""
        # A column may have the characters of a pattern in its name, so names come first.
        if part in self.columns:
            return [part]
        numbered = re.compile(re.escape(part) + r"\[\d+\]")
        return [
            name for name in self.columns if fnmatchcase(name, part) or numbered.fullmatch(name)
        ]

    def numbers(self, names: list[str], features: str | None = None) -> NDArray[np.float32]:
        """Return columns as numbers (N, D) in single precision.

        Raises UsageError where a field holds no number. If an option would read the column as
        numbers, the message names this option. Otherwise it names an option that leaves the column
        out, if the columns are features.

        Args:
            names: the names of the D columns.
            features: the value of the parameter that chose the features, None for other columns.
        """
        frame = self.frame[names]
        changed = {}
        for name, dtype in frame.dtypes.items():
            # numpy can convert booleans, integers and floating-point numbers of its own types.
            if dtype.kind not in "biuf" or isinstance(dtype, pd.api.extensions.ExtensionDtype):
                changed[str(name)] = as_numbers(frame[name], self.form)
        if changed:
            frame = frame.assign(**changed)
        # A number too large for single precision becomes infinite, which the checks of bags report.
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(frame.to_numpy(np.float32))
        is_missing = np.isnan(values)
        if is_missing.any():
            column = int(is_missing.any(axis=0).argmax())
            rows = np.flatnonzero(is_missing[:, column])
            raise self._number_fault(names, names[column], rows, features)
        return values

    def exact_numbers(self, names: list[str], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return columns in some rows as numbers (n, D) in double precision.

        Raises UsageError where a field holds no number.
        """
        columns = []
        for name in names:
            values = as_numbers(self.frame[name], self.form).to_numpy(np.float64)[rows]
            is_missing = np.isnan(values)
            if is_missing.any():
                raise self._number_fault(names, name, rows[is_missing], None)
            columns.append(values)
        return np.stack(columns, axis=1)

    def _number_fault(
        self, names: list[str], column: str, rows: NDArray[np.int64], features: str | None
    ) -> UsageError:
        """Return the error that some rows of a column hold no number, see `numbers`."""
        got = str(self.frame[column].iloc[rows[0]])
        more = f" (and so in {rows.size - 1} more rows)" if rows.size > 1 else ""
        remedy = ""
        # The numbers of a column of lists, such as name[0], are no columns of the file.
        is_column = column in column_names(self.path, self.form)
        if is_column and got.strip():
            remedy = writing_remedy(self.path, self.form, column, names)
        if not remedy and features is not None:
            flag = leave_out_flag(features, [column], names)
            remedy = f"; {flag} leaves the column out" if flag else ""
        place = self.place(int(rows[0]))
        return UsageError(f"{place}: column {column!r} is {got!r}, expected a number{more}{remedy}")

    def holds_numbers(self, names: list[str]) -> list[str]:
        """Return the columns that hold numbers, out of the columns `names`.

        A column in a text file may have mistakes in it, which `numbers` reports. A column of text
        in a Parquet file does not count, whatever the texts are.
        """
        # A table may have very many columns, for which separate calls of pandas would take long.
        kinds = {str(name): dtype.kind for name, dtype in self.frame.dtypes.items()}
        has_values = dict(zip(names, self.frame[names].notna().any().tolist(), strict=True))
        chosen = []
        for name in names:
            # pandas and R write row numbers as a column without a name.
            if _NAMELESS.fullmatch(name) or not has_values[name]:
                continue
            is_number = kinds[name] in "biuf"
            if not is_number and is_text(self.path):
                is_number = are_meant_as_numbers(self.frame[name], self.form)
            if is_number:
                chosen.append(name)
        return chosen


def read_table(path: Path, text_columns: Collection[str] = (), form: TableFormat = USUAL) -> Table:
    """Read a whole table. The columns `text_columns` and `TEXT_COLUMNS` are kept as text.

    Raises UsageError where the file cannot be read.
    """
    chunks = list(read_chunks(path, {*TEXT_COLUMNS, *text_columns}, form))
    frame = chunks[0] if len(chunks) == 1 else pd.concat(chunks)
    return Table(path, frame, form)
