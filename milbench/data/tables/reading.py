"""Read a table from a file, and name its rows and columns in messages."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pandas as pd

from milbench.errors import UsageError, closest

NAMES = ("bag", "labels", "instance_label", "group", "split", "features", "image", "boxes")
"""Columns that hold names, and never numbers, where a table has them."""
_HEADER = {".csv": 2, ".tsv": 2}
"""The number of the first row below the header in files that people open in an editor; elsewhere rows count from 1."""


def file_state(path: Path) -> tuple[int, int] | None:
    """Return what changes with a file; None where there is none, which is named when it is read."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def read_table(path: Path, text: Collection[str] = ()) -> pd.DataFrame:
    """Return a table. Its text is kept as it is: a label "NA" is a label, and an empty field is "".

    Args:
        path: of a file .csv, .tsv, .parquet, .arrow or .feather.
        text: columns that hold text, and never numbers, beside those of `NAMES`.

    Raises:
        UsageError: the file is missing, a folder, empty or damaged, or of another kind.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder, expected a table: a file {_kinds()}")
    if not path.is_file():
        beside = [other.name for other in path.parent.glob("*") if other.suffix.lower() in _READERS]
        near = closest(path.name, beside)
        raise UsageError(f"there is no table {path}{f'; did you mean {near!r} beside it?' if near else ''}")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path}: expected a table {_kinds()}, got a file {path.suffix or 'without an ending'}")
    try:
        frame = reader(path, {*NAMES, *text})
    except UsageError:
        raise
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} cannot be read as a table: it is no text in UTF-8 ({error.reason}, byte {error.start}); save it so"
        ) from None
    except pd.errors.EmptyDataError:
        raise UsageError(f"{path} is empty, expected a header and a row an instance") from None
    except Exception as error:  # noqa: BLE001 every reader has errors of its own for a damaged file
        raise UsageError(f"{path} cannot be read as a table: {error}") from None
    if frame.empty:
        raise UsageError(f"{path} has no rows below its header")
    frame.columns = [str(name).strip() for name in frame.columns]
    if len(twice := frame.columns[frame.columns.duplicated()]):
        raise UsageError(f"{path}: several columns are named {twice[0]!r}, expected one")
    return frame.reset_index(drop=True)


def is_table(path: Path) -> bool:
    """Return whether a file has the ending of a table."""
    return path.suffix.lower() in _READERS


def row_name(path: Path, row: int) -> str:
    """Return how a message names a row.

    Args:
        path: of the table.
        row: from 0, below the header.

    Examples:
        >>> row_name(Path("birds.csv"), 0), row_name(Path("birds.parquet"), 0)
        ('birds.csv, row 2', 'birds.parquet, row 1')
    """
    return f"{path}, row {row + _HEADER.get(path.suffix.lower(), 1)}"


def column(frame: pd.DataFrame, path: Path, name: str, what: str) -> pd.Series[Any]:
    """Return a column of a table.

    Args:
        frame: the table.
        path: where it was read from.
        name: of the column.
        what: it holds, for the message.

    Raises:
        UsageError: there is no such column.
    """
    if name not in frame:
        near = closest(name, frame.columns)
        hint = f"; did you mean {near!r}?" if near else ""
        if separator := _other_separator(list(frame.columns)):
            hint = f"; its columns seem to be separated by {separator}, expected commas"
        raise UsageError(f"{path} has no column {name!r} ({what}){hint} (it has: {shown(list(frame.columns))})")
    return frame[name]


def _other_separator(names: list[str]) -> str:
    """Return what separates the names in the only field of a header, "" where there is nothing of the kind."""
    found = {";": "semicolons", "\t": "tabs", "|": "bars"}
    return next((word for char, word in found.items() if char in names[0]), "") if len(names) == 1 else ""


def text_column(frame: pd.DataFrame, path: Path, name: str, what: str) -> list[str]:
    """Return a column as text, without spaces around it; what is missing is "".

    Args:
        frame: the rows of the table.
        path: the table, for messages.
        name: the column.
        what: what the column holds, for messages.

    Raises:
        UsageError: there is no such column, or a field holds a list or bytes, as those of Parquet may.
    """
    values = column(frame, path, name, what)
    for row, value in enumerate(values):
        if not isinstance(value, str) and isinstance(value, Collection):
            kind = "bytes" if isinstance(value, bytes | bytearray) else "a list"
            raise UsageError(
                f"{row_name(path, row)}: the column {name!r} holds {kind}, expected text or a number; "
                "several classes are one text with ';' between them"
            )
    return ["" if missing else str(v).strip() for v, missing in zip(values, values.isna(), strict=True)]


def file_column(frame: pd.DataFrame, path: Path, name: str, kind: str) -> list[str]:
    """Return a column with the path of a file in every row.

    Args:
        frame: the table.
        path: where it was read from.
        name: of the column.
        kind: what a file holds, such as "image", for the message.

    Raises:
        UsageError: there is no such column, a field of it is empty, or a file is in two rows.
    """
    names = text_column(frame, path, name, f"the path of a file, one of {kind}s")
    first: dict[str, int] = {}
    for row, file in enumerate(names):
        if not file:
            raise UsageError(f"{row_name(path, row)}: the column {name!r} is empty, expected the path of a file")
        if (before := first.setdefault(file, row)) != row:
            place = row_name(path, before).rpartition(", ")[2]
            raise UsageError(f"{row_name(path, row)}: {file!r} is the {kind} of {place} too, expected a row for each")
    return names


def shown(names: list[str], most: int = 8) -> str:
    """Return names for a message, the first `most` of them and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _csv(path: Path, text: Collection[str], separator: str) -> pd.DataFrame:
    header = pd.read_csv(path, sep=separator, nrows=0, encoding="utf-8-sig", skipinitialspace=True).columns
    _check_header(path, separator)
    types = {name: str for name in header if str(name).strip() in text}
    frame = pd.read_csv(
        path, sep=separator, dtype=types, keep_default_na=False, low_memory=False, encoding="utf-8-sig",
        skipinitialspace=True,
    )  # fmt: skip
    # In a row with too few fields the last one is empty; one with too many makes pandas take the first for an index.
    # To count the fields of every row takes as long as to read the table, so it is done only where one may be wrong.
    last = frame.iloc[:, -1]
    if not isinstance(frame.index, pd.RangeIndex) or (last.isna() | (last == "")).any():
        _check_fields(path, separator, len(header))
    _check_quotes(path, separator, frame)
    return frame


def _check_header(path: Path, separator: str) -> None:
    """Raise UsageError where two columns have one name: pandas would rename the second."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = [
            name.strip() for name in next(filter(None, csv.reader(file, delimiter=separator, skipinitialspace=True)))
        ]
    for name in names:
        if name and names.count(name) > 1:
            raise UsageError(f"{path}, row 1: {names.count(name)} columns are named {name!r}, expected one")


def _check_fields(path: Path, separator: str, expected: int) -> None:
    """Raise UsageError for a row with more or fewer fields than the header."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = filter(None, csv.reader(file, delimiter=separator, skipinitialspace=True))
        next(rows)
        for row, fields in enumerate(rows):
            if len(fields) != expected:
                found = f"got {len(fields)} fields, expected {expected} as in the header"
                raise UsageError(f"{row_name(path, row)}: {found}")


def _check_quotes(path: Path, separator: str, frame: pd.DataFrame) -> None:
    """Raise UsageError for a field that seems to hold rows: its quotation mark is closed by one of a later row."""
    with path.open("rb") as file:
        if sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b"")) <= len(frame) + 1:
            return
    wrong = [
        row
        for column, fields in frame.items()
        if not pd.api.types.is_numeric_dtype(fields)
        for row, text in enumerate(fields)
        if "\n" in str(text) and _holds_rows(str(text), separator, frame, str(column))
    ]
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = (re.sub(rf'" +(?={separator}|\r?\n|$)', '"', line) for line in file)  # a space behind it is no mistake
        rows = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
        number = -2  # the header comes first
        try:
            for fields in rows:
                number += bool(fields)
        except csv.Error as error:
            if "expected after" in str(error):  # something stands between a quotation mark and the next field
                wrong.append(number + 1)
    if wrong:
        raise UsageError(
            f"{row_name(path, min(wrong))}: a quotation mark is closed in a later row, expected in its own; one that "
            'is part of a text is written twice, in quotation marks, as in "5"" wide"'
        )


def _holds_rows(text: str, separator: str, frame: pd.DataFrame, column: str) -> bool:
    """Return whether the lines of a field are the end of a row, rows, and the beginning of one, by their numbers."""
    names = [str(name) for name in frame.columns]
    at = names.index(column)
    first, *whole, last = text.split("\n")
    parts = [(first, names[at:]), *((line, names) for line in whole), (last, names[: at + 1])]
    numbers = 0
    for line, expected in parts:
        found = line.rstrip("\r").split(separator)
        if len(found) != len(expected):
            return False
        for piece, name in zip(found, expected, strict=True):
            if pd.api.types.is_numeric_dtype(frame[name]):
                if not _is_number(piece):
                    return False
                numbers += 1
    return numbers > 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_READERS: dict[str, Callable[[Path, Collection[str]], pd.DataFrame]] = {
    ".csv": lambda path, text: _csv(path, text, ","),
    ".tsv": lambda path, text: _csv(path, text, "\t"),
    ".parquet": lambda path, _: pd.read_parquet(path),
    ".arrow": lambda path, _: pd.read_feather(path),
    ".feather": lambda path, _: pd.read_feather(path),
}


def _kinds() -> str:
    *first, last = _READERS
    return f"{', '.join(first)} or {last}"
