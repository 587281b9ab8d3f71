"""Read what the columns of a table say of each bag: labels, group, part of the split, annotations.

This is the same for tables of features, of images and of sequences. Instances are read elsewhere.
"""

from dataclasses import replace
from typing import Any

from milbench.data.annotations import MarkForm
from milbench.data.bagged_rows import Bagged, take_rows
from milbench.data.marked_rows import MarkedRows, columns_in_words, group_by_file
from milbench.data.table import TEXT_COLUMNS, Table
from milbench.data.table_options import ImageOptions, SequenceOptions, TableOptions
from milbench.errors import UsageError


def bags_of_files(table: Table, options: ImageOptions | SequenceOptions, kind: str) -> Bagged:
    """Return the rows of a table in bags, where each bag is a file.

    If rows are events or boxes, all rows of a file make one bag. Otherwise each file must have one
    row, and UsageError is raised for a file in two rows. If the table then has the columns of
    events or boxes, the message names the option that reads the rows as events or boxes.

    Args:
        table: the table, with a column of files.
        options: of the task.
        kind: what messages call a file, such as "image".
    """
    column = getattr(options, options.file_parameter)
    if options.rows_are_marks:
        return group_by_file(table, column, kind)
    try:
        return take_rows(table, column, kind)
    except UsageError as error:
        by_marks = _with_rows_of_marks(options)
        found = columns_in_words(by_marks, table.columns)
        if not found:
            raise
        raise UsageError(f"{error}; -p task.rows={by_marks.rows} groups rows, by {found}") from None


def _with_rows_of_marks(
    options: ImageOptions | SequenceOptions,
) -> ImageOptions | SequenceOptions:
    """Return the same options, but for a table whose rows are boxes or events."""
    if isinstance(options, ImageOptions):
        return replace(options, rows="boxes")
    return replace(options, rows="events")


def annotate(
    bags: Bagged,
    options: TableOptions,
    other_columns: set[str],
    mark_column: str = "",
    form: MarkForm = "events",
) -> dict[str, Any]:
    """Return what the columns of a table say of its bags: values for fields of `OwnBags`, by name.

    Args:
        bags: the rows of a table in bags.
        options: of the task, which name the columns of labels, groups and splits.
        other_columns: columns that the caller reads, such as those of features. They are not
            listed as ignored.
        mark_column: where rows are bags, the column of boxes or events as JSON; "" for none.
        form: how the numbers of boxes or events are written.
    """
    labels = bags.labels(options)
    groups = bags.values(options.group, "group")
    split = bags.split(options.split)
    used = {
        *labels.columns,
        *TEXT_COLUMNS,
        options.labels,
        options.group,
        options.split,
        mark_column,
    }
    others = [name for name in bags.table.columns if name not in used]
    annotated: dict[str, Any] = {
        "path": bags.table.path,
        "bags": bags.names,
        "labels": labels.sets,
        "class_names": labels.names,
        "groups": groups,
        "split": split,
        "ignored": [name for name in others if name not in other_columns],
        "label_texts": labels.texts,
        "nothing": {label: int(has.sum()) for label, has in labels.nothing.items()},
        "marks": None,
        "bag_rows": bags.first_rows,
        "mark_rows": None,
    }
    # If no column says the groups or the split, checks suggest columns that read like one.
    if groups is None:
        annotated["shared_columns"] = bags.shared_columns(others)
    if split is None:
        annotated["split_column"] = bags.split_column(others)
    if isinstance(bags, MarkedRows) and isinstance(options, ImageOptions | SequenceOptions):
        annotated["marks"], annotated["mark_rows"] = bags.marks_of_rows(options, form)
    elif mark_column:
        marks = bags.marks(mark_column, labels, form)
        annotated["marks"] = marks
        annotated["mark_rows"] = None if marks is None else bags.mark_rows(marks)
    return annotated
