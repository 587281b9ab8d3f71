"""Read tables from Parquet files, with every value as its type says.

Integers stay integers, even if values of their column are missing. Lists stay lists. An index of
pandas that has a name becomes a column. Bytes become text, read as UTF-8.
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
"""How pandas begins the name of an index that has no name."""


def parquet_names(path: Path) -> list[str]:
    """Return the names of the columns of a file. Raises UsageError where two are equal."""
    pq = extras.load("pyarrow.parquet", "parquet", str(path))
    names = [name for name in pq.read_schema(path).names if not name.startswith(_INDEX)]
    for name, count in Counter(map(str.strip, names)).items():
        if count > 1:
            raise UsageError(f"{path}: several columns are named {name!r}, expected one")
    return names


def read_parquet(path: Path, text_columns: Collection[str]) -> pd.DataFrame:
    """Return the rows of a file as a frame.

    In the columns `text_columns`, decimal numbers are not converted to floating-point numbers, so
    that their texts keep all digits.
    """
    pq = extras.load("pyarrow.parquet", "parquet", str(path))
    names = parquet_names(path)
    # If a folder in the path is named like year=2020, pq.read_table adds a column `year`. A
    # ParquetFile has the columns of the file alone.
    with pq.ParquetFile(path) as file:
        table = file.read().select(names)
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    for name in names:
        column = _exact(table[name], is_text=name.strip() in text_columns)
        if column is not None:
            frame[name] = column
    return frame


def _exact(column: Any, *, is_text: bool) -> Any:
    """Return a column of an Arrow table for pandas, None where pandas' own conversion is right."""
    pa = extras.load("pyarrow", "parquet", "a table")
    kind = column.type
    if pa.types.is_boolean(kind) and column.null_count:
        # pandas would make objects of booleans and None, which do not count as numbers.
        return column.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)
    if pa.types.is_integer(kind) and column.null_count:
        # pandas would make floating-point numbers of these integers, which cannot hold 2**53 + 1.
        return column.to_pandas(types_mapper=_nullable_integer)
    if _is_list(pa, kind) and pa.types.is_integer(kind.value_type):
        return _exact_lists(column)
    if pa.types.is_decimal(kind) and not is_text:
        return column.cast(pa.float64()).to_pandas()
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if is_binary or pa.types.is_fixed_size_binary(kind):
        return _decoded(column.to_pylist())
    return None


def _is_list(pa: Any, kind: Any) -> bool:
    is_any_length = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_any_length or pa.types.is_fixed_size_list(kind):
        return True
    # Before version 16 Arrow had no views of lists, and no functions that tell them.
    return str(kind).startswith(("list_view<", "large_list_view<"))


def _exact_lists(column: Any) -> pd.Series[Any] | None:
    """Return a column of lists of integers as objects, None where no integer is missing.

    pandas would make floating-point numbers of the integers beside a missing one.
    """
    has_missing = any(chunk.flatten().null_count for chunk in column.chunks)
    if not has_missing:
        return None
    lists = [None if items is None else np.array(items, object) for items in column.to_pylist()]
    return pd.Series(lists, dtype=object)


def _nullable_integer(kind: Any) -> Any:
    """Return the type of pandas for a type of integers of Arrow: Int64 for int64, and so on."""
    nullable = str(kind).replace("uint", "UInt").replace("int", "Int")
    return pd.api.types.pandas_dtype(nullable)


def _decoded(values: list[bytes | None]) -> pd.Series[Any]:
    """Return bytes as texts in UTF-8; if a value is no such text, return all bytes as they are.

    This is no error yet: a column of pictures, for instance, may not be used. If a caller needs the
    column as text, it raises an error that names the row.
    """
    try:
        texts = [None if value is None else value.decode("utf-8") for value in values]
    except UnicodeDecodeError:
        return pd.Series(values, dtype=object)
    return pd.Series(texts, dtype="str")
