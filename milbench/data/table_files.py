"""Files of tables: read in chunks of rows, with messages that name the row of a mistake; and written."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from milbench._utils import extras
from milbench._utils.files import write_atomically
from milbench.errors import UsageError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (*SEPARATORS, ".parquet", ".arrow", ".feather")
_KINDS = " or ".join((", ".join(ENDINGS[:-1]), ENDINGS[-1]))
CHUNK = 1 << 23
"""Fields of a table that are in memory together, of text files."""


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
        return [name.strip() for name in next(_rows(path, separator), [])]


def read_chunks(path: Path, text: Collection[str]) -> Iterator[pd.DataFrame]:
    """Yield the rows of a table, in which some columns hold text, and never numbers; indices are numbers of rows.

    Raises:
        UsageError: the file is missing, a folder, empty or damaged, or of another kind.
    """
    _check_file(path)
    count = 0
    with _as_table(path):
        for frame in _frames(path, text):
            frame.columns = pd.Index([str(name).strip() for name in frame.columns])
            if len(twice := frame.columns[frame.columns.duplicated()]):
                raise UsageError(f"{path}: several columns are named {twice[0]!r}, expected one")
            count += len(frame)
            if len(frame):
                yield frame
    if not count:
        raise UsageError(f"{path} has no rows below its header")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table, without its index, whole or not at all; its folder is made if there is none.

    Raises:
        UsageError: the name ends in nothing that is read.
    """
    check_kind(path)
    write = {
        ".csv": partial(frame.to_csv, index=False), ".tsv": partial(frame.to_csv, index=False, sep="\t"),
        ".parquet": partial(frame.to_parquet, index=False),
    }.get(path.suffix.lower(), frame.to_feather)  # fmt: skip
    write_atomically(path, write)


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"there is no file {path}, expected a table {_KINDS}")
    check_kind(path)


@contextmanager
def _as_table(path: Path) -> Iterator[None]:
    """Turn what readers of tables raise in a block into a UsageError that names the table."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 every reader has errors of its own for a damaged file
        raise UsageError(f"{path} cannot be read as a table: {error}") from None


def _frames(path: Path, text: Collection[str]) -> Iterator[pd.DataFrame]:
    if (separator := SEPARATORS.get(path.suffix.lower())) is not None:
        yield from _csv(path, text, separator)
    else:
        read = pd.read_parquet if path.suffix.lower() == ".parquet" else pd.read_feather
        yield read(path).reset_index(drop=True)


class _CountingFile(io.FileIO):
    """A file that counts its lines while it is read."""

    lines = 0

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self.lines += bytes(memoryview(buffer)[:count]).count(b"\n")
        return count


def _csv(path: Path, text: Collection[str], separator: str) -> Iterator[pd.DataFrame]:
    header = next(_rows(path, separator), [])
    for name, count in Counter(map(str.strip, header)).items():
        if name and count > 1:  # pandas would rename the second
            raise UsageError(f"{path}, row 1: {count} columns are named {name!r}, expected one")
    raw = _CountingFile(path)
    rows, checked = 0, False
    with io.BufferedReader(raw, 1 << 20) as file:
        chunks = pd.read_csv(
            file, sep=separator, keep_default_na=False, encoding="utf-8-sig", skipinitialspace=True, low_memory=False,
            chunksize=max(64, CHUNK // max(1, len(header))),
            converters={name: str for name in header if name.strip() in text},
        )  # fmt: skip
        for chunk in chunks:
            # Together: pandas keeps each column for itself, which takes long where there are more columns than rows.
            frame = chunk.copy() if len(header) > len(chunk) else chunk
            last = frame.iloc[:, -1]
            numbers = pd.RangeIndex(rows, rows + len(frame))
            # In a row with too few fields the last one is empty; one with too many makes the first ones an index.
            if not (checked or (frame.index.equals(numbers) and not (last.isna() | (last == "")).any())):
                checked = True
                _check_rows(path, separator)
            frame.index = numbers
            rows += len(frame)
            yield frame
    if raw.lines > rows + 1 and not checked:
        _check_rows(path, separator)


def _rows(path: Path, separator: str) -> Iterator[list[str]]:
    """Yield the fields of the rows of a text file, header first; what follows a closed quotation mark is an error."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = (re.sub(rf'" +(?={separator}|\r?\n|$)', '"', line) for line in file)  # a space there is no mistake
        yield from filter(None, csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True))


def _check_rows(path: Path, separator: str) -> None:
    """Raise UsageError for a row with more or fewer fields than the header, or a quotation mark closed in a later row.

    It takes longer than to read the table.
    """
    rows = _rows(path, separator)
    expected, row = len(next(rows)), 0
    try:
        for row, fields in enumerate(rows, start=1):
            if len(fields) != expected:
                found = f"got {len(fields)} fields, expected {expected} as in the header"
                raise UsageError(f"{row_name(path, row - 1)}: {found}")
    except csv.Error as error:
        raise UsageError(
            f"{row_name(path, row)}: {error}; a quotation mark that is part of a text is written twice, in quotation "
            'marks, as in "5"" wide"'
        ) from None
