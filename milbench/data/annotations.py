"""Annotations, which say where classes are: boxes in an image, or events in a recording.

A column of a table holds the annotations of each bag as JSON. Names in this package shorten
"annotation" to "mark".
"""

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
"""How the numbers of an annotation are written: one of the forms of boxes, or "events"."""
EXPECTED_MARKS = {**EXPECTED_BOXES, "events": "[class, start, end] in seconds, 0 <= start < end"}
"""Form -> how messages describe an annotation in this form."""


_LONGEST = 60
"""The most characters of a field that a message shows."""


class Annotation(NamedTuple):
    """A class, and where it is: a box in an image, or an event in a recording."""

    cls: int
    """The number of the class."""
    place: tuple[float, ...]
    """The four numbers of a box, or start and end of an event in seconds."""


Marks = list[list[Annotation]]
"""The annotations of every bag."""


class WrongMarkError(UsageError):
    """The numbers of an annotation do not fit the form that was asked for.

    They may fit another form.
    """


def marks_in(
    text: str, column: str, form: MarkForm, labels: TableLabels, place: str
) -> list[Annotation]:
    """Return the annotations in a field of a table, events in the order of their starts.

    Args:
        text: the field, JSON.
        column: the name of its column, for messages.
        form: how the numbers are written.
        labels: the classes of the table. Annotations of labels that mean no class are left out.
        place: how a message names the row.

    Raises:
        WrongMarkError: where numbers do not fit the form.
        UsageError: where the text is not JSON, or a name is not a class.
    """
    try:
        items = [(class_name(str(name)), numbers) for name, *numbers in json.loads(text)]
    # ValueError: no JSON, or an empty annotation. TypeError: a number stands in place of a list.
    # RecursionError: lists are nested thousands deep.
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
    """Return whether values are the numbers of an annotation in this form."""
    if form == "events":
        return are_numbers(numbers, 2) and 0 <= numbers[0] < numbers[1]
    return are_numbers(numbers, 4) and has_extent(tuple(numbers), form)


def check_complete(
    marks: list[Annotation], column: str, labels: NDArray[np.bool_], names: list[str], place: str
) -> None:
    """Raise UsageError unless the annotations of a bag have the same classes as its label set.

    Args:
        marks: the annotations.
        column: the name of their column, for messages.
        labels: (C,), the label set.
        names: the names of the C classes.
        place: how a message names the row.
    """
    annotated = {mark.cls for mark in marks}
    expected = set(np.flatnonzero(labels).tolist())
    if annotated != expected:
        annotated_text = set_text(names[c] for c in annotated)
        label_text = set_text(names[c] for c in expected)
        raise UsageError(
            f"{place}: the {column} are of {annotated_text}, expected one of every class of the "
            f"labels {label_text} and of no other, or an empty field"
        )
