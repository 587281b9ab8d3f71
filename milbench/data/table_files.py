"""Files of tables: read in chunks of rows, with messages that name the row of a mistake; and written."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pandas as pd

from milbench._utils import extras
from milbench._utils.files import write_atomically
from milbench.errors import UsageError, closest

SEPARATORS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (*SEPARATORS, ".parquet")
_KINDS = " or ".join((", ".join(ENDINGS[:-1]), ENDINGS[-1]))
CHUNK = 1 << 23
"""Fields of a table that are in memory together, of text files."""
WIDE = 1000
"""Columns; pandas keeps each one of a wider table for itself, and a copy has them together."""


def is_table(path: Path) -> bool:
    """Return whether a file has the ending of a table."""
    return path.suffix.lower() in ENDINGS


def check_kind(path: Path) -> None:
    """Raise UsageError where a name has no ending of a table, or one that needs an extra which is not installed."""
    if not is_table(path):
        raise UsageError(f"{path}: expected a table {_KINDS}, got a file {path.suffix or 'without an ending'}")
    if path.suffix.lower() not in SEPARATORS:
        extras.load("pyarrow", "parquet", str(path))


def row_name(path: Path, row: int) -> str:
    """Return how a message names a row, counted from 0 below the header: as an editor shows it, else from 1."""
    return f"{path}, row {row + (2 if path.suffix.lower() in SEPARATORS else 1)}"


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of a table; of text the header alone is read."""
    _check_file(path)
    if (separator := SEPARATORS.get(path.suffix.lower())) is None:
        return list(next(read_chunks(path, ())).columns)
    with _as_table(path):
        return [name.strip() for name in _header(path, separator)]


def read_chunks(path: Path, text: Collection[str]) -> Iterator[pd.DataFrame]:
    """Yield the rows of a table, in which some columns hold text, and never numbers; indices are numbers of rows.

    Raises UsageError for a file that is missing, empty, damaged or of another kind.
    """
    _check_file(path)
    separator = SEPARATORS.get(path.suffix.lower())
    count = 0
    with _as_table(path):
        for frame in _csv(path, text, separator) if separator else [pd.read_parquet(path).reset_index(drop=True)]:
            frame.columns = pd.Index([str(name).strip() for name in frame.columns])
            if len(twice := frame.columns[frame.columns.duplicated()]):
                raise UsageError(f"{path}: several columns are named {twice[0]!r}, expected one")
            count += len(frame)
            if len(frame):
                yield frame
    if not count:
        raise UsageError(f"{path} has no rows below its header")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table, without its index, whole or not at all. Raises UsageError for another ending."""
    check_kind(path)
    separator = SEPARATORS.get(path.suffix.lower())
    write = partial(frame.to_csv, sep=separator) if separator else frame.to_parquet
    write_atomically(path, partial(write, index=False))


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder, expected a table: a file {_KINDS}")
    if not path.is_file():
        near = closest(path.name, [other.name for other in path.parent.glob("*") if is_table(other)])
        raise UsageError(f"there is no table {path}{f'; did you mean {near!r} beside it?' if near else ''}")
    check_kind(path)


@contextmanager
def _as_table(path: Path) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except UnicodeDecodeError as error:
        reason = f"it is no text in UTF-8 ({error.reason}, byte {error.start}); save it so"
        raise UsageError(f"{path} cannot be read as a table: {reason}") from None
    except pd.errors.EmptyDataError:
        raise UsageError(f"{path} is empty, expected a header and a row an instance") from None
    except Exception as error:  # noqa: BLE001 every reader has errors of its own for a damaged file
        raise UsageError(f"{path} cannot be read as a table: {error}") from None


def _csv(path: Path, text: Collection[str], separator: str) -> Iterator[pd.DataFrame]:
    header = _header(path, separator)
    for name, count in Counter(map(str.strip, header)).items():
        if name and count > 1:  # pandas would rename the second
            raise UsageError(f"{path}, row 1: {count} columns are named {name!r}, expected one")
    chunks = pd.read_csv(
        path, sep=separator, keep_default_na=False, encoding="utf-8-sig", skipinitialspace=True, low_memory=False,
        chunksize=max(64, CHUNK // max(1, len(header))),
        converters={name: str for name in header if name.strip() in text},  # types of so many columns take far longer
    )  # fmt: skip
    rows, checked = 0, False
    for chunk in chunks:
        frame = chunk.copy() if len(header) > WIDE else chunk
        last = frame.iloc[:, -1]
        numbers = pd.RangeIndex(rows, rows + len(frame))
        # In a row with too few fields the last one is empty; one with too many makes the first ones an index.
        if not (checked or (frame.index.equals(numbers) and not (last.isna() | (last == "")).any())):
            checked = True
            _check_fields(path, separator, len(header))
        frame.index = numbers
        rows += len(frame)
        yield frame
    with path.open("rb") as file:
        lines = sum(block.count(b"\n") for block in iter(partial(file.read, 1 << 20), b""))
    if lines > rows + 1:
        _check_quotes(path, separator, [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes])


def _rows(path: Path, separator: str, *, strict: bool = False) -> Iterator[list[str]]:
    """Yield the fields of the rows of a text file, header first; `strict` as in csv.reader."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        # A space behind a quotation mark is no mistake.
        lines = (re.sub(rf'" +(?={separator}|\r?\n|$)', '"', line) for line in file) if strict else file
        yield from filter(None, csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=strict))


def _header(path: Path, separator: str) -> list[str]:
    return next(_rows(path, separator), [])


def _check_fields(path: Path, separator: str, expected: int) -> None:
    """Raise UsageError for a row with more or fewer fields than the header. It takes as long as to read the table."""
    for row, fields in enumerate(_rows(path, separator), start=-1):
        if len(fields) != expected:
            complaint = f"got {len(fields)} fields, expected {expected} as in the header"
            raise UsageError(f"{row_name(path, row)}: {complaint}")


def _check_quotes(path: Path, separator: str, numeric: Sequence[bool]) -> None:
    """Raise UsageError for a row whose quotation mark is closed in a later row; `numeric` says which columns are."""
    row = -1  # the header
    try:
        for fields in _rows(path, separator, strict=True):
            if any("\n" in text and _holds_rows(text, separator, numeric, at) for at, text in enumerate(fields)):
                break
            row += 1
        else:
            return
    except csv.Error as error:
        if "expected after" not in str(error):  # else something stands between a quotation mark and the next field
            return
    raise UsageError(
        f"{row_name(path, row)}: a quotation mark is closed in a later row, expected in its own; one that "
        'is part of a text is written twice, in quotation marks, as in "5"" wide"'
    )


def _holds_rows(text: str, separator: str, numeric: Sequence[bool], column: int) -> bool:
    """Return whether the lines of a field are the end of a row, rows, and the beginning of one, by their numbers."""
    first, *whole, last = text.split("\n")
    pieces: list[str] = []
    lines = [(first, numeric[column:]), *((line, numeric) for line in whole), (last, numeric[: column + 1])]
    for line, expected in lines:
        fields = line.rstrip("\r").split(separator)
        if len(fields) != len(expected):
            return False
        pieces += [piece for piece, is_number in zip(fields, expected, strict=True) if is_number]
    return bool(pieces) and bool(pd.to_numeric(pd.Series(pieces), errors="coerce").notna().all())
