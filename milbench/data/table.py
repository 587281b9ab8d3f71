"""Tables: columns as text or numbers, with messages that name the row of a mistake."""

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
"""Columns that never hold numbers."""
_NAMELESS = re.compile(r"Unnamed: \d+(\.\d+)*")
"""The name that pandas gives to columns without one."""


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a table. Text is kept as it is: a label "NA" is a label, and an empty field is ""."""

    path: Path
    frame: pd.DataFrame
    form: TableFormat = field(default=USUAL)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def place(self, row: int) -> str:
        """Return how a message names a row, counted from 0 where these rows begin."""
        return row_name(self.path, self._row_of_file(row))

    def short_place(self, row: int) -> str:
        """Return how a message names a row of the table that it has named before."""
        return short_row_name(self.path, self._row_of_file(row))

    def _row_of_file(self, row: int) -> int:
        """Return the number of a row in the whole table, of which these rows may be a chunk."""
        return row + int(self.frame.index[0])

    def column(self, name: str, what: str) -> pd.Series[Any]:
        """Return a column. Raises UsageError, which says what it should hold, where there is none."""
        if name not in self.frame:
            raise missing_column(self.path, self.form, name, what)
        return self.frame[name]

    def texts(self, name: str, what: str = "") -> pd.Categorical[str]:
        """Return a column as text, without spaces around it; what is missing is "".

        The categories are in the order of their first rows.

        Raises UsageError for a value that is no text, number or date.
        """
        values = self.column(name, what)
        try:
            # Few texts are different, and work is done once for each.
            codes, unique_values = pd.factorize(values)
        except TypeError:
            # Lists and objects cannot be counted.
            raise self._text_fault(name, values) from None
        try:
            texts = [text_of(value).strip() for value in unique_values.tolist()]
        except ValueError:
            raise self._text_fault(name, values) from None
        if (codes < 0).any():
            # An empty field has the code -1, by which Python finds the last text.
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
        """Return a column as text. Raises UsageError for an empty field."""
        texts = self.texts(name, what)
        is_empty = texts == ""
        if is_empty.any():
            place = self.place(int(is_empty.argmax()))
            raise UsageError(f"{place}: the column {name!r} is empty, expected {expected}")
        return texts

    def unique(self, name: str, kind: str) -> list[str]:
        """Return a column that names a `kind` of thing, such as an image, in each row. UsageError: one twice."""
        what = f"the path or name of a row's {kind}"
        names: list[str] = self.filled(name, what, f"the path or name of its {kind}").tolist()
        if len(set(names)) < len(names):
            row = int(pd.Series(names).duplicated().argmax())
            first = self.short_place(names.index(names[row]))
            twice = f"{names[row]!r} is the {kind} of {first} too"
            raise UsageError(f"{self.place(row)}: {twice}, expected a row for each")
        return names

    def matching(self, pattern: str, what: str) -> list[str]:
        """Return the columns of names or patterns with ";" between them. Raises UsageError where one names none.

        A list of numbers is columns `name[0]`, `name[1]`, …, all of which its name names.
        """
        columns: dict[str, None] = {}
        for part in listed(pattern):
            names = self._named(part)
            if not names:
                raise missing_column(self.path, self.form, part, f"a column {what}")
            columns |= dict.fromkeys(names)
        return list(columns)

    def _named(self, part: str) -> list[str]:
        """Return the column of a name, else those of a list of that name or a pattern."""
        # The name of a column may have the characters of a pattern in it.
        if part in self.columns:
            return [part]
        numbered = re.compile(re.escape(part) + r"\[\d+\]")
        return [
            name for name in self.columns if fnmatchcase(name, part) or numbered.fullmatch(name)
        ]

    def numbers(self, names: list[str], features: str | None = None) -> NDArray[np.float32]:
        """Return columns (N, D) as numbers. Raises UsageError where a field holds none.

        The message names an option that reads the column, if one does; else one that leaves it out,
        where `features` is the parameter that chose the columns.
        """
        frame = self.frame[names]
        changed = {}
        for name, dtype in frame.dtypes.items():
            if dtype.kind not in "biuf" or isinstance(dtype, pd.api.extensions.ExtensionDtype):
                changed[str(name)] = as_numbers(frame[name], self.form)
        if changed:
            frame = frame.assign(**changed)
        # What single precision cannot hold becomes infinite, which the checks name.
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(frame.to_numpy(np.float32))
        is_missing = np.isnan(values)
        if is_missing.any():
            column = int(is_missing.any(axis=0).argmax())
            rows = np.flatnonzero(is_missing[:, column])
            raise self._number_fault(names, names[column], rows, features)
        return values

    def exact_numbers(self, names: list[str], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return columns (n, D) in some rows as numbers in double precision. UsageError: a field holds none."""
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
        """Return the error of rows of a column that hold no number, see `numbers`."""
        got = str(self.frame[column].iloc[rows[0]])
        more = f" (and so in {rows.size - 1} more rows)" if rows.size > 1 else ""
        remedy = ""
        # A number of a list, such as name[0], is no column of the file.
        is_column = column in column_names(self.path, self.form)
        if is_column and got.strip():
            remedy = writing_remedy(self.path, self.form, column, names)
        if not remedy and features is not None:
            flag = leave_out_flag(features, [column], names)
            remedy = f"; {flag} leaves the column out" if flag else ""
        return UsageError(
            f"{self.place(int(rows[0]))}: column {column!r} is {got!r}, expected a number{more}{remedy}"
        )

    def holds_numbers(self, names: list[str]) -> list[str]:
        """Return those of the columns that hold numbers, perhaps with mistakes, which `numbers` then names.

        Text of a Parquet file is text, whatever is in it.
        """
        # A table may have very many columns: pandas is asked once for all of them.
        kinds = {str(name): dtype.kind for name, dtype in self.frame.dtypes.items()}
        has_values = dict(zip(names, self.frame[names].notna().any().tolist(), strict=True))
        chosen = []
        for name in names:
            # A column without a name is the index that pandas and R write.
            if _NAMELESS.fullmatch(name) or not has_values[name]:
                continue
            is_number = kinds[name] in "biuf"
            if not is_number and is_text(self.path):
                is_number = are_meant_as_numbers(self.frame[name], self.form)
            if is_number:
                chosen.append(name)
        return chosen


def read_table(path: Path, text_columns: Collection[str] = (), form: TableFormat = USUAL) -> Table:
    """Return a table, of which these columns and those of `TEXT_COLUMNS` are kept as text. Raises UsageError."""
    chunks = list(read_chunks(path, {*TEXT_COLUMNS, *text_columns}, form))
    frame = chunks[0] if len(chunks) == 1 else pd.concat(chunks)
    return Table(path, frame, form)
