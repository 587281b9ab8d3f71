"""Parquet files of tables: every value as its type says.

An integer stays one where others of its column are missing, lists stay lists, and an index of pandas that has a name is
a column. Bytes are text in UTF-8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from milbench._utils import extras
from milbench.errors import UsageError

_INDEX = "__index_level_"
"""How the name of an index begins that has none of its own."""


def parquet_names(path: Path) -> list[str]:
    """Return the names of the columns of a file. Raises UsageError where two are equal."""
    pq = extras.load("pyarrow.parquet", "parquet", str(path))
    names = [name for name in pq.read_schema(path).names if not name.startswith(_INDEX)]
    for name, count in Counter(map(str.strip, names)).items():
        if count > 1:
            raise UsageError(f"{path}: several columns are named {name!r}, expected one")
    return names


def read_parquet(path: Path, text: Collection[str]) -> pd.DataFrame:
    """Return the rows of a file, in which some columns hold text. Raises UsageError for bytes that are no text."""
    pq = extras.load("pyarrow.parquet", "parquet", str(path))
    names = parquet_names(path)
    # pq.read_table would make columns of folders that are named like year=2020. A ParquetFile is this file alone.
    with pq.ParquetFile(path) as file:
        table = file.read().select(names)
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    for name in names:
        column = _exact(path, name, table[name], is_text=name.strip() in text)
        if column is not None:
            frame[name] = column
    return frame


def _exact(path: Path, name: str, column: Any, *, is_text: bool) -> Any:
    """Return a column of an Arrow table for pandas, None where pandas has it as it is."""
    pa = extras.load("pyarrow", "parquet", str(path))
    kind = column.type
    if pa.types.is_integer(kind) and column.null_count:
        # pandas would make floating-point numbers of them, which cannot hold 2**53 + 1.
        return column.to_pandas(types_mapper=_nullable_integers(pa).get)
    if _is_list(pa, kind) and pa.types.is_integer(kind.value_type):
        return _exact_lists(column)
    if pa.types.is_decimal(kind) and not is_text:
        return column.cast(pa.float64()).to_pandas()
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if is_binary or pa.types.is_fixed_size_binary(kind):
        return _decoded(path, name, column.to_pylist())
    return None


def _is_list(pa: Any, kind: Any) -> bool:
    is_one_length = pa.types.is_fixed_size_list(kind)
    return bool(is_one_length or pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _exact_lists(column: Any) -> pd.Series[Any] | None:
    """Return a column of lists of integers of which some are missing, None where none is."""
    has_missing = any(chunk.flatten().null_count for chunk in column.chunks)
    if not has_missing:
        return None
    lists = [None if items is None else np.array(items, object) for items in column.to_pylist()]
    return pd.Series(lists, dtype=object)


def _nullable_integers(pa: Any) -> dict[Any, Any]:
    """Return the nullable types of pandas by those of Arrow."""
    return {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
    }


def _decoded(path: Path, name: str, values: list[bytes | None]) -> pd.Series[Any]:
    """Return a column of bytes as text. Raises UsageError, which names the row, for bytes that are none."""
    texts: list[str | None] = []
    for row, value in enumerate(values, start=1):
        if value is None:
            texts.append(None)
            continue
        try:
            texts.append(value.decode("utf-8"))
        except UnicodeDecodeError:
            expected = "expected text in UTF-8"
            raise UsageError(
                f"{path}, row {row}: column {name!r} holds the bytes {value[:12]!r}, {expected}"
            ) from None
    return pd.Series(texts, dtype="str")
