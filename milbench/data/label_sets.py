"""Read the classes of each row of a table, from a column of label sets or columns of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.label_cells import class_name, classes_in, is_list, shown
from milbench.data.name_lists import unknown_class
from milbench.data.table import Table
from milbench.data.table_files import is_text
from milbench.data.table_options import LIST_MARK, TableOptions, listed
from milbench.errors import UsageError

_WHAT = "the classes of a bag; for columns of 0 and 1, list them by -p task.labels='wren;owl'"
"""What messages say of the column of labels."""


class TableLabels(NamedTuple):
    """The label sets of the N rows, or of the N bags, of a table."""

    sets: NDArray[np.bool_]
    """(N, C), the label sets."""
    names: list[str]
    """The names of the C classes."""
    columns: list[str]
    """The columns that the label sets were read from."""
    texts: list[str]
    """The different texts in the column of label sets, such as "owl;wren".

    [] for columns of 0 and 1, and for a column of lists.
    """
    nothing: dict[str, NDArray[np.bool_]]
    """Label that means no class, such as "none" -> (N,), whether a row or bag has the label."""


def label_columns(table: Table, labels: str) -> list[str]:
    """Return the columns that the parameter `labels` names.

    This is one column of label sets, or several columns of 0 and 1.
    """
    if LIST_MARK in labels or "*" in labels:
        return table.matching(labels, what="of 0 and 1, one for each class")
    return [labels]


def read_labels(table: Table, options: TableOptions) -> TableLabels:
    """Return the label set of every row. Raises UsageError for a field that is no label set.

    `options` has the parameters of the task: `labels`, `separator`, `nothing` and `classes`.
    """
    columns = label_columns(table, options.labels)
    texts: list[str] = []
    if columns == [options.labels]:
        names, sets, texts = _sets_in_column(table, options.labels, options.separator)
    else:
        names = columns
        sets = _sets_in_indicators(table, columns)
    # Labels that mean no class, which the parameter `nothing` lists, were read as classes. They are
    # taken out of the label sets.
    nothing = {}
    for label in map(class_name, listed(options.nothing)):
        nothing[label] = np.zeros(len(sets), bool)
        if label in names:
            number = names.index(label)
            nothing[label] = sets[:, number]
            sets = np.delete(sets, number, axis=1)
            names = [name for name in names if name != label]
    if options.classes:
        order = _order_of_classes(table, options.classes)
        sets = _ordered_sets(table, names, sets, order)
        names = order
    return TableLabels(sets, names, columns, texts, nothing)


def _sets_in_column(
    table: Table, name: str, separator: str
) -> tuple[list[str], NDArray[np.bool_], list[str]]:
    """Return the classes in a column, the label sets (N, C), and the different texts.

    The texts are [] for a column of lists.
    """
    # A field is a text that occurs in the column. `codes` has for each row the number of its field,
    # so that equal texts are read only once.
    fields, codes, texts = _fields_of_column(table, name)
    classes_of_fields = []
    for number, value in enumerate(fields):
        try:
            classes_of_fields.append(classes_in(value, separator))
        except ValueError as error:
            place = table.place(int((codes == number).argmax()))
            raise UsageError(f"{place}: column {name!r} is {shown(value)}: {error}") from None
    names = sorted({name for classes in classes_of_fields for name in classes})
    number_of = {name: number for number, name in enumerate(names)}
    sets = np.zeros((len(fields), len(names)), bool)
    for number, classes in enumerate(classes_of_fields):
        sets[number, [number_of[name] for name in classes]] = True
    return names, sets[codes], texts


def _fields_of_column(
    table: Table, name: str
) -> tuple[Sequence[Any], NDArray[np.integer[Any]], list[str]]:
    """Return the fields of a column, the number (N,) of each row's field, and the different texts.

    In a column of texts each different text is one field, whatever the number of its rows. In a
    column of lists each row has a field of its own, and the texts are [].
    """
    values = table.column(name, _WHAT)
    if is_text(table.path) or not values.map(is_list).any():
        column = table.texts(name, _WHAT)
        texts = column.categories.tolist()
        return texts, column.codes, texts
    lists = []
    for value in values:
        # A missing list is nan or None.
        is_missing = not is_list(value) and pd.isna(value)
        lists.append(() if is_missing else value)
    return lists, np.arange(len(lists)), []


def _sets_in_indicators(table: Table, columns: list[str]) -> NDArray[np.bool_]:
    """Return the label sets (N, C) in columns of 0 and 1. Raises UsageError for another value."""
    values = table.frame[columns].apply(pd.to_numeric, errors="coerce")
    is_wrong = ~values.isin([0, 1]).to_numpy()
    if is_wrong.any():
        rows, wrong_columns = np.nonzero(is_wrong)
        row = int(rows[0])
        column = columns[int(wrong_columns[0])]
        got = str(table.frame[column].iloc[row])
        raise UsageError(f"{table.place(row)}: column {column!r} is {got!r}, expected 0 or 1")
    return np.asarray(values.to_numpy() == 1)


def _order_of_classes(table: Table, classes: str) -> list[str]:
    """Return the classes that the parameter `classes` lists.

    Raises UsageError where it names a class twice.
    """
    order = [class_name(name) for name in listed(classes)]
    if len(set(order)) < len(order):
        raise UsageError(
            f"{table.path}: task.classes={classes!r} names a class twice, expected each once"
        )
    return order


def _ordered_sets(
    table: Table, names: list[str], sets: NDArray[np.bool_], order: list[str]
) -> NDArray[np.bool_]:
    """Return label sets (N, C) with the classes in the order of the parameter `classes`.

    Raises UsageError where a row has a class that the parameter does not list.

    Args:
        table: the table, for messages.
        names: the classes of the columns of `sets`.
        sets: the label sets.
        order: the classes that the parameter lists. It may list classes that no row has.
    """
    unlisted = [number for number, name in enumerate(names) if name not in order]
    has_unlisted = sets[:, unlisted].any(axis=1)
    if has_unlisted.any():
        row = int(has_unlisted.argmax())
        first_unlisted = min(names[number] for number in unlisted if sets[row, number])
        raise unknown_class(table.place(row), first_unlisted, order)
    ordered = np.zeros((len(sets), len(order)), bool)
    for number, name in enumerate(order):
        if name in names:
            ordered[:, number] = sets[:, names.index(name)]
    return ordered
