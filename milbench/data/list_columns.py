"""Turn a column whose fields are lists of numbers, such as embeddings, into a column a number."""

import json
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.label_cells import shown
from milbench.data.table import TEXT_COLUMNS, Table
from milbench.data.table_options import FeatureOptions, chosen_and_left_out, leave_out_flag
from milbench.errors import UsageError

_EMPTY_LIST = re.compile(r"\[\s*\]")
_PRINTED = re.compile(r"\[[-+.eE\d\s]*\d[-+.eE\d\s]*\]")
"""An array as numpy prints it: without commas, and a long array with "..." in its middle."""


def with_lists_as_columns(table: Table, options: FeatureOptions) -> Table:
    """Return a table in which each column of lists is replaced by a column for each number.

    The numbers of the lists in a column `name` become the columns `name[0]`, `name[1]` and so on.
    Columns of names and labels are left as they are. Raises UsageError, which names the row, where
    the lists of a column have different lengths.
    """
    # In other tables a column "features" holds paths. Here a user may give a column of
    # lists this name.
    kept = {*TEXT_COLUMNS, *options.texts} - {"features"}
    lists = []
    for name, dtype in zip(table.columns, table.frame.dtypes, strict=True):
        may_be_feature = dtype.kind == "O" and name not in kept and _is_asked_for(name, options)
        if not may_be_feature:
            continue
        if _holds_lists(table.frame[name]):
            lists.append(name)
        else:
            _check_not_printed(table, name, options)
    if not lists:
        return table
    for name in lists:
        _check_numbered_names(table, name)
    parts = [
        _columns_of(table, name) if name in lists else table.frame[[name]] for name in table.columns
    ]
    return Table(table.path, pd.concat(parts, axis=1), table.form)


def _is_asked_for(name: str, options: FeatureOptions) -> bool:
    """Return whether the parameter `features` asks for a column; if empty, it asks for all."""
    wanted, unwanted = chosen_and_left_out(options.features)
    if _is_named(name, unwanted):
        return False
    if not wanted:
        return True
    # Whoever names one number of the lists, such as name[0], asks for the column of lists.
    columns_of_numbers = [part.partition("[")[0] for part in wanted]
    return _is_named(name, [*wanted, *columns_of_numbers])


def _is_named(name: str, parts: Sequence[str]) -> bool:
    """Return whether a column has one of these names, or matches one as a pattern."""
    return name in parts or any(fnmatchcase(name, part) for part in parts)


def _check_not_printed(table: Table, name: str, options: FeatureOptions) -> None:
    """Raise UsageError where a column holds arrays as numpy prints them.

    Such a column is often an embedding. It cannot be read as numbers. If it were left out without a
    word, a network would be trained on the other columns alone.
    """
    row, value = _first_filled(table.frame[name])
    if isinstance(value, str) and _PRINTED.fullmatch(value.strip()):
        flag = leave_out_flag(options.features, [name], table.columns)
        remedy = f"; {flag} leaves the column out" if flag else ""
        raise UsageError(
            f"{table.place(row)}: column {name!r} is {shown(value)}, "
            f"expected commas between the numbers of a list, as in [0.5, 2]{remedy}"
        )


def _check_numbered_names(table: Table, name: str) -> None:
    """Raise UsageError where another column is named like a number of a list."""
    numbered = re.compile(re.escape(name) + r"\[\d+\]")
    for other in table.columns:
        if numbered.fullmatch(other):
            problem = f"the columns {other!r} and {name!r}, a column of lists, both name a number"
            raise UsageError(f"{table.path}: {problem} of that list, expected one of them")


def _holds_lists(values: "pd.Series[Any]") -> bool:
    """Return whether a column holds lists of numbers, by its first field that is not empty."""
    _, value = _first_filled(values)
    return _numbers_in(value) is not None


def _first_filled(values: "pd.Series[Any]") -> tuple[int, Any]:
    """Return the row and the value of the first field that is not empty; 0 and None for none.

    An empty list counts as empty.
    """
    for row, value in enumerate(values):
        if not _is_empty(value):
            return row, value
    return 0, None


def _is_empty(value: Any) -> bool:
    """Return whether a field is an empty text, an empty list, or neither text nor a list."""
    if isinstance(value, np.ndarray):
        return value.size == 0
    if isinstance(value, str):
        return value.strip() == "" or _EMPTY_LIST.fullmatch(value.strip()) is not None
    return True


def _numbers_in(value: Any) -> NDArray[Any] | None:
    """Return the numbers of a list in a field, None where the field is no list of numbers.

    A number that is missing from the list is nan.
    """
    if isinstance(value, str):
        value = _parse(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        if not all(item is None or isinstance(item, int | float) for item in value):
            return None
        value = np.array(value, float)
    if not isinstance(value, np.ndarray) or value.ndim != 1 or not value.size:
        return None
    # Booleans, integers and floating-point numbers.
    return value if value.dtype.kind in "biuf" else None


def _parse(text: str) -> NDArray[np.float64] | None:
    """Return the numbers of a list that is written in JSON, None for another text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if any(type(item) not in (int, float) for item in items):
        return None
    return np.array(items, float)


def _columns_of(table: Table, name: str) -> pd.DataFrame:
    """Return the columns that replace a column of lists.

    Raises UsageError for a field that is no list of numbers, or whose list has another length
    than the first.
    """
    arrays: list[NDArray[Any]] = []
    for row, value in enumerate(table.frame[name]):
        array = _numbers_in(value)
        if array is None or np.isnan(array).any():
            expected = "expected a list of numbers in every row"
            raise UsageError(f"{table.place(row)}: column {name!r} is {shown(value)}, {expected}")
        if arrays and array.size != arrays[0].size:
            first = f"{arrays[0].size} as in {table.short_place(0)}"
            raise UsageError(
                f"{table.place(row)}: the list in column {name!r} has {array.size} numbers, "
                f"expected {first}"
            )
        arrays.append(array)
    names = [f"{name}[{number}]" for number in range(arrays[0].size)]
    return pd.DataFrame(np.stack(arrays), index=table.frame.index, columns=names)
