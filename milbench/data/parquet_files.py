"""Parquet files of tables: every value as its type says.

An integer stays one where others of its column are missing, lists stay lists, and an index of
pandas that has a name is a column. Bytes are text in UTF-8.
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
    """Return the rows of a file, of which some columns are kept as text."""
    pq = extras.load("pyarrow.parquet", "parquet", str(path))
    names = parquet_names(path)
    # pq.read_table would make columns of folders that are named like year=2020. A ParquetFile is
    # this file alone.
    with pq.ParquetFile(path) as file:
        table = file.read().select(names)
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    for name in names:
        column = _exact(table[name], is_text=name.strip() in text_columns)
        if column is not None:
            frame[name] = column
    return frame


def _exact(column: Any, *, is_text: bool) -> Any:
    """Return a column of an Arrow table for pandas, None where pandas has it as it is."""
    pa = extras.load("pyarrow", "parquet", "a table")
    kind = column.type
    if pa.types.is_boolean(kind) and column.null_count:
        # pandas would make objects of them, which would be no numbers.
        return column.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)
    if pa.types.is_integer(kind) and column.null_count:
        # pandas would make floating-point numbers of them, which cannot hold 2**53 + 1.
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
    # Views of lists, which Arrow has since its version 16.
    return str(kind).startswith(("list_view<", "large_list_view<"))


def _exact_lists(column: Any) -> pd.Series[Any] | None:
    """Return a column of lists of integers of which some are missing, None where none is."""
    has_missing = any(chunk.flatten().null_count for chunk in column.chunks)
    if not has_missing:
        return None
    lists = [None if items is None else np.array(items, object) for items in column.to_pylist()]
    return pd.Series(lists, dtype=object)


def _nullable_integer(kind: Any) -> Any:
    """Return the type of pandas for a type of integers of Arrow, whose names differ in case alone."""
    nullable = str(kind).replace("uint", "UInt").replace("int", "Int")
    return pd.api.types.pandas_dtype(nullable)


def _decoded(values: list[bytes | None]) -> pd.Series[Any]:
    """Return texts in UTF-8, or the bytes as they are where one is no text, such as a picture.

    Nothing is wrong with a column of pictures that is not used. Whoever needs its text names the
    row.
    """
    try:
        texts = [None if value is None else value.decode("utf-8") for value in values]
    except UnicodeDecodeError:
        return pd.Series(values, dtype=object)
    return pd.Series(texts, dtype="str")
