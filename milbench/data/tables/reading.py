"""Read a table from a file, and name its rows and columns in messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from milbench.errors import UsageError, closest

NAMES = ("bag", "labels", "instance_label", "group", "split", "features", "image", "boxes")
"""Columns that hold names, and never numbers, where a table has them."""
_HEADER = {".csv": 2, ".tsv": 2}
"""The number of the first row below the header in files that people open in an editor; elsewhere rows count from 1."""


def read_table(path: Path) -> pd.DataFrame:
    """Return a table. Its text is kept as it is: a label "NA" is a label, and an empty field is "".

    Args:
        path: of a file .csv, .tsv, .parquet, .arrow or .feather.

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
        frame = reader(path)
    except pd.errors.EmptyDataError:
        raise UsageError(f"{path} is empty, expected a header and a row an instance") from None
    except Exception as error:  # noqa: BLE001 every reader has errors of its own for a damaged file
        raise UsageError(f"{path} cannot be read as a table: {error}") from None
    if frame.empty:
        raise UsageError(f"{path} has no rows below its header")
    frame.columns = [str(name).strip() for name in frame.columns]
    return frame.reset_index(drop=True)


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
        raise UsageError(f"{path} has no column {name!r} ({what}){hint} (it has: {shown(list(frame.columns))})")
    return frame[name]


def text_column(frame: pd.DataFrame, path: Path, name: str, what: str) -> list[str]:
    """Return a column as text, without spaces around it; what is missing is ""."""
    values = column(frame, path, name, what)
    return ["" if missing else str(v).strip() for v, missing in zip(values, values.isna(), strict=True)]


def shown(names: list[str], most: int = 8) -> str:
    """Return names for a message, the first `most` of them and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _csv(path: Path, separator: str) -> pd.DataFrame:
    header = pd.read_csv(path, sep=separator, nrows=0, encoding="utf-8-sig").columns
    text = {name: str for name in header if str(name).strip() in NAMES}
    return pd.read_csv(
        path, sep=separator, dtype=text, keep_default_na=False, low_memory=False, encoding="utf-8-sig"
    )  # fmt: skip


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda path: _csv(path, ","),
    ".tsv": lambda path: _csv(path, "\t"),
    ".parquet": pd.read_parquet,
    ".arrow": pd.read_feather,
    ".feather": pd.read_feather,
}


def _kinds() -> str:
    *first, last = _READERS
    return f"{', '.join(first)} or {last}"
