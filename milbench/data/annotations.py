"""Where classes are: boxes of an image, or events of a recording, as JSON in a column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milbench.data.box_forms import EXPECTED_BOXES, BoxForm, are_numbers, has_extent
from milbench.data.label_cells import class_name
from milbench.data.label_sets import TableLabels
from milbench.data.name_lists import set_text, unknown_class
from milbench.errors import UsageError

MarkForm = BoxForm | Literal["events"]
"""How the numbers of a mark are written. A mark is a box of an image, or an event of a recording."""
EXPECTED_MARKS = {**EXPECTED_BOXES, "events": "[class, start, end] in seconds, 0 <= start < end"}
"""What messages say of each form."""


_LONGEST = 60
"""Characters of a field that a message shows."""


class Annotation(NamedTuple):
    """A mark: a class, and where it is."""

    cls: int
    place: tuple[float, ...]


Marks = list[list[Annotation]]
"""The marks of every bag."""


class WrongMarkError(UsageError):
    """Numbers that are not a mark by the form that was asked for, but perhaps by another one."""


def marks_in(
    text: str, column: str, form: MarkForm, labels: TableLabels, place: str
) -> list[Annotation]:
    """Return the marks in a field, events in the order of their starts.

    Args:
        text: the field, JSON.
        column: its name, for messages.
        form: how the numbers are written.
        labels: the classes of the table. Marks of labels that mean no class are left out.
        place: how a message names the row.

    Raises:
        WrongMarkError: where numbers are not a mark by the form.
        UsageError: where the text is not JSON, or a name is not a class.
    """
    try:
        items = [(class_name(str(name)), numbers) for name, *numbers in json.loads(text)]
    except (ValueError, TypeError, RecursionError) as error:
        expected = f"expected JSON, a list of {EXPECTED_MARKS[form]}"
        shown = text[:_LONGEST]
        raise UsageError(
            f"{place}: {column} {shown!r} cannot be read ({error}), {expected}"
        ) from None
    marks = []
    for name, numbers in items:
        if not is_mark(numbers, form):
            got = str([name, *numbers])[:_LONGEST]
            expected = EXPECTED_MARKS[form]
            raise WrongMarkError(f"{place}: {column}: {got} is wrong; expected {expected}")
        if name in labels.nothing:
            continue
        if name not in labels.names:
            raise unknown_class(place, name, labels.names)
        marks.append(Annotation(labels.names.index(name), tuple(numbers)))
    if form == "events":
        marks.sort(key=lambda mark: mark.place)
    return marks


def is_mark(numbers: Sequence[Any], form: MarkForm) -> bool:
    """Return whether values are the numbers of a mark."""
    if form == "events":
        return are_numbers(numbers, 2) and 0 <= numbers[0] < numbers[1]
    return are_numbers(numbers, 4) and has_extent(tuple(numbers), form)


def check_complete(
    marks: list[Annotation], column: str, labels: NDArray[np.bool_], names: list[str], place: str
) -> None:
    """Raise UsageError unless the classes of the marks are those of the label set `labels` (C,)."""
    marked = {mark.cls for mark in marks}
    expected = set(np.flatnonzero(labels).tolist())
    if marked != expected:
        marked_text = set_text(names[c] for c in marked)
        label_text = set_text(names[c] for c in expected)
        expected_marks = f"expected one of every class of the labels {label_text} and of no other, or an empty field"
        raise UsageError(f"{place}: the {column} are of {marked_text}, {expected_marks}")
