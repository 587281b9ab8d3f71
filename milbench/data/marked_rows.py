"""Tables with a row for each annotation: each row is an event in a recording, or a box in an image.

A row has the file, one class, and the times of an event or the sides of a box. The classes of all
rows of a file are its label set. A file without events or boxes has one row with an empty label.
The parameters of the task name the columns. Columns that they do not name are found by known names;
nothing is guessed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from milbench.data.annotations import (
    EXPECTED_MARKS,
    Annotation,
    MarkForm,
    Marks,
    WrongMarkError,
    is_mark,
)
from milbench.data.bagged_rows import Bagged
from milbench.data.box_forms import shown_box
from milbench.data.label_sets import TableLabels, read_labels
from milbench.data.table import Table
from milbench.data.table_files import shown_names
from milbench.data.table_options import LIST_MARK, ImageOptions, SequenceOptions, listed
from milbench.errors import UsageError

Options = TypeVar("Options", bound=ImageOptions | SequenceOptions)
CORNERS = (("left", "top", "right", "bottom"), ("xmin", "ymin", "xmax", "ymax"))
"""Groups of names that the columns of a box's corners may have, the usual names first."""
TIMES = (("start", "end"), ("onset", "offset"), ("Begin Time (s)", "End Time (s)"))
"""Groups of names that the columns of an event's times may have, the usual names first."""
SIDES: dict[str, Sequence[tuple[str, ...]]] = {
    "pixels": CORNERS,
    "relative": CORNERS,
    "coco": (("left", "top", "width", "height"), ("x", "y", "width", "height")),
    "yolo": (("x_center", "y_center", "width", "height"), ("x", "y", "width", "height")),
}
"""Form of boxes -> groups of names that the columns of the four numbers may have."""
KNOWN_NAMES = {
    "file": ("file", "filename", "Begin File"),
    "image": ("image", "filename"),
    "labels": ("labels", "label", "event_label", "class", "Species", "Annotation"),
}
"""Parameter -> the names by which its column is found, if the parameter names no other column."""
_EMPTY = ("", "nan", "None", "<NA>")
"""The texts of empty fields."""
_WHAT = {
    "file": "the paths of recordings",
    "image": "the paths of images",
    "labels": "the class of a row",
    "times": "start and end of an event in seconds",
    "sides": "the four numbers of a box",
}
"""Parameter -> what its columns hold, for messages."""


def with_columns(options: Options, table: str, columns: Sequence[str]) -> Options:
    """Return the options with the names of the columns that hold files, labels and numbers.

    Options of a task whose rows are not events or boxes are returned as they are. Raises UsageError
    where a column is not found.

    Args:
        options: of the task.
        table: how a message names the table.
        columns: the columns of the table.
    """
    if not options.rows_are_marks:
        return options
    options = with_file_column(options, table, columns)
    changed: dict[str, Any] = {"labels": _label_column(options, table, columns)}
    if isinstance(options, SequenceOptions):
        names = _number_columns("times", options.times, TIMES, table, columns)
        changed["times"] = LIST_MARK.join(names)
    else:
        names = _number_columns("sides", options.sides, SIDES[options.boxes], table, columns)
        changed["sides"] = LIST_MARK.join(names)
    return replace(options, **changed)


def _label_column(options: Options, table: str, columns: Sequence[str]) -> str:
    """Return the column of labels.

    If the parameter `labels` is a list or a pattern of columns, it is returned as it is.
    """
    labels = options.labels
    is_list_or_pattern = LIST_MARK in labels or "*" in labels
    if labels in columns or is_list_or_pattern:
        return labels
    return _known_column(options, "labels", table, columns)


def _number_columns(
    parameter: str,
    given: str,
    groups: Sequence[tuple[str, ...]],
    table: str,
    columns: Sequence[str],
) -> list[str]:
    """Return the columns that hold the numbers of an event or a box.

    Args:
        parameter: the parameter that names the columns: "times" or "sides".
        given: its value, "" where the user did not give it.
        groups: the groups of names by which the columns are then found.
        table: how a message names the table.
        columns: the columns of the table.
    """
    names = listed(given)
    if not names:
        return _known_group(parameter, groups, table, columns)
    if len(names) != len(groups[0]):
        raise UsageError(
            f"task.{parameter}={given!r}: expected {len(groups[0])} columns, {_WHAT[parameter]}, "
            f"such as '{LIST_MARK.join(groups[0])}'"
        )
    for name in names:
        if name not in columns:
            raise _not_found(f"no column {name!r}", parameter, table, columns)
    return names


def with_file_column(options: Options, table: str, columns: Sequence[str]) -> Options:
    """Return the options with the name of the column that holds files.

    A table of files to predict on needs no other column. Raises UsageError where it is not found.
    """
    parameter = options.file_parameter
    if not options.rows_are_marks or getattr(options, parameter) in columns:
        return options
    changed: dict[str, Any] = {parameter: _known_column(options, parameter, table, columns)}
    return replace(options, **changed)


def _known_column(options: Options, parameter: str, table: str, columns: Sequence[str]) -> str:
    """Return the only column that has a known name.

    Raises UsageError where there is no such column, or several, or where the user has named a
    column that the table does not have.
    """
    defaults = {option.name: option.default for option in fields(options)}
    given = getattr(options, parameter)
    if given != defaults[parameter]:
        raise _not_found(f"no column {given!r}", parameter, table, columns)
    found = [name for name in KNOWN_NAMES[parameter] if name in columns]
    if not found:
        what = f"no column {', '.join(KNOWN_NAMES[parameter])}"
        raise _not_found(what, parameter, table, columns)
    if len(found) > 1:
        what = f"the columns {' and '.join(found)}, expected one"
        raise _not_found(what, parameter, table, columns)
    return found[0]


def _known_group(
    parameter: str, groups: Sequence[tuple[str, ...]], table: str, columns: Sequence[str]
) -> list[str]:
    """Return the only group of known names of which a table has all columns.

    Raises UsageError where there is no such group, or several.
    """
    found = [group for group in groups if set(group) <= set(columns)]
    if not found:
        texts = [LIST_MARK.join(group) for group in groups]
        raise _not_found(f"no columns {' or '.join(texts)}", parameter, table, columns)
    if len(found) > 1:
        texts = [LIST_MARK.join(group) for group in found]
        what = f"the columns {' and '.join(texts)}, expected one group"
        raise _not_found(what, parameter, table, columns)
    return list(found[0])


def _not_found(what: str, parameter: str, table: str, columns: Sequence[str]) -> UsageError:
    """Return the error that a column is not found.

    It says which columns there are, and which option names the right one.
    """
    examples = {"times": "'START;END'", "sides": "'A;B;C;D'"}
    flag = f"-p task.{parameter}={examples.get(parameter, 'COLUMN')}"
    return UsageError(
        f"{table} has {what} ({_WHAT[parameter]}; it has: {shown_names(columns, 20)}); "
        f"{flag} says where they are"
    )


def columns_in_words(options: Options, columns: Sequence[str]) -> str:
    """Return the columns from which events or boxes would be read; "" where one is not found."""
    try:
        named = with_columns(options, "", columns)
    except UsageError:
        return ""
    names = [getattr(named, named.file_parameter), named.labels, *listed(named.mark_columns)]
    return ", ".join(names)


def group_by_file(table: Table, column: str, kind: str) -> "MarkedRows":
    """Return the rows of a table in bags: the rows of one file are one bag.

    Args:
        table: the table.
        column: the column of files. Raises UsageError for an empty field in it.
        kind: what messages call a file, such as "image".
    """
    what = f"the path or name of a row's {kind}"
    texts = table.filled(column, what, f"the path or name of its {kind}")
    return MarkedRows(table, texts.codes.astype(np.int64), texts.categories.tolist())


@dataclass(frozen=True, eq=False)
class MarkedRows(Bagged):
    """The rows of a table in bags, where each row is an event or a box.

    A row with an empty label stands for a file without events or boxes.
    """

    def labels(  # type: ignore[override]
        self, options: ImageOptions | SequenceOptions
    ) -> TableLabels:
        """Return the label set of each bag: the classes of all its rows."""
        of_rows = self._row_labels(options)
        if not of_rows.names:
            raise UsageError(
                f"{self.table.path}: the column {options.labels!r} names no class in any row, "
                "expected some labels"
            )
        sets = np.zeros((len(self.names), len(of_rows.names)), bool)
        np.logical_or.at(sets, self.codes, of_rows.sets)
        nothing = {}
        for label, has in of_rows.nothing.items():
            nothing[label] = np.zeros(len(self.names), bool)
            np.logical_or.at(nothing[label], self.codes, has)
        return of_rows._replace(sets=sets, nothing=nothing)

    def _row_labels(self, options: ImageOptions | SequenceOptions) -> TableLabels:
        """Return the class of each row, as a label set of one class or none.

        Raises UsageError for a row of several classes, and for a row without a label that says
        where something is or whose file has other rows.
        """
        of_rows = read_labels(self.table, options)
        # A label that means no class counts as a label.
        counts = of_rows.sets.sum(axis=1) + sum(has.astype(int) for has in of_rows.nothing.values())
        if (counts > 1).any():
            row = int((counts > 1).argmax())
            got = self.table.texts(of_rows.columns[0])[row]
            raise UsageError(
                f"{self.table.place(row)}: the label {got!r} is {counts[row]} classes, "
                "expected one class: a row is one event or box"
            )
        is_unlabelled = counts == 0
        self._check_no_numbers(is_unlabelled, options)
        self._check_single_rows(is_unlabelled)
        return of_rows

    def _check_no_numbers(
        self, is_unlabelled: NDArray[np.bool_], options: ImageOptions | SequenceOptions
    ) -> None:
        """Raise UsageError for a row that has no label, but numbers of an event or a box."""
        for column in listed(options.mark_columns):
            values = self.table.texts(column)
            has_number = is_unlabelled & ~np.isin(values, _EMPTY)
            if has_number.any():
                row = int(has_number.argmax())
                raise UsageError(
                    f"{self.table.place(row)}: no label, and {column!r} is {values[row]}; "
                    "expected a class, or both empty"
                )

    def _check_single_rows(self, is_unlabelled: NDArray[np.bool_]) -> None:
        """Raise UsageError for a row without a label whose file has other rows."""
        rows_of_bag = np.bincount(self.codes)
        has_others = is_unlabelled & (rows_of_bag[self.codes] > 1)
        if has_others.any():
            row = int(has_others.argmax())
            bag = self.codes[row]
            is_other = self.codes == bag
            is_other[row] = False
            other = self.table.short_place(int(is_other.argmax()))
            raise UsageError(
                f"{self.table.place(row)}: {self.names[bag]!r} has no label here, and {other} is "
                "of it too; expected no other row of a file without any"
            )

    def marks_of_rows(
        self, options: ImageOptions | SequenceOptions, form: MarkForm
    ) -> tuple[Marks, list[list[int]]]:
        """Return the annotations of every bag, and the row of each.

        Events are in the order of their starts, boxes in the order of their rows. Raises UsageError
        for numbers that are no event or box, and for an annotation that occurs twice.
        """
        sets = self._row_labels(options).sets
        names = self.labels(options).names
        rows = np.flatnonzero(sets.any(axis=1))
        classes = sets[rows].argmax(axis=1)
        columns = listed(options.mark_columns)
        numbers = self.table.exact_numbers(columns, rows)
        # Each annotation is kept with its row, so that both are sorted together.
        found: list[list[tuple[Annotation, int]]] = [[] for _ in self.names]
        first_row: dict[tuple[int, Annotation], int] = {}
        for row, cls, place in zip(rows.tolist(), classes.tolist(), numbers.tolist(), strict=True):
            mark = Annotation(cls, tuple(place))
            bag = int(self.codes[row])
            what = f"{self.table.place(row)}: {names[cls]!r} in {self.names[bag]!r}"
            if not is_mark(place, form):
                fields_of_row = zip(columns, place, strict=True)
                got = ", ".join(f"{name}={number:g}" for name, number in fields_of_row)
                raise WrongMarkError(f"{what} has {got}; expected {_expected(form)}")
            earlier = first_row.setdefault((bag, mark), row)
            if earlier != row:
                raise UsageError(
                    f"{what}: {shown_box(mark.place)} is in {self.table.short_place(earlier)} too, "
                    "expected each once"
                )
            found[bag].append((mark, row))
        if form == "events":
            found = [sorted(of_bag, key=lambda pair: pair[0].place) for of_bag in found]
        marks = [[mark for mark, _ in of_bag] for of_bag in found]
        mark_rows = [[row for _, row in of_bag] for of_bag in found]
        return marks, mark_rows


def _expected(form: MarkForm) -> str:
    """Return how messages describe the numbers of an annotation. Its class is in another column."""
    return EXPECTED_MARKS[form].replace("[class, ", "[")
