"""A table of files with sequences: which label set each has, and perhaps its split and its events."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from milbench.errors import UsageError, as_usage, unknown

NEEDED = ("file", "labels")
OPTIONAL = ("split", "events")
SPLITS = ("train", "validation", "test")


class Event(NamedTuple):
    """What occurs in a sequence, and when, in seconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence in the table.

    Args:
        place: the table and the line, for messages.
        path: of the file.
        labels: the names of the classes that occur in it, sorted.
        split: train, validation or test; None where the table has no such column.
        events: in the order in which they begin; None where they are not known.
    """

    place: str
    path: Path
    labels: tuple[str, ...]
    split: str | None = None
    events: tuple[Event, ...] | None = None


def read_table(path: Path) -> list[Row]:
    """Return the rows of a table in CSV, with a header.

    The columns are `file` (a path, relative to the folder of the table), `labels` (names with `;` between them, empty
    where no class occurs), perhaps `split` (train, validation or test), and perhaps `events` (JSON, a list of
    [class, start, end] in seconds, empty where it is not known when the classes occur). Other columns are ignored.

    Raises:
        UsageError: the table cannot be read, or a cell of it is wrong; the message names its line.
    """
    with as_usage():
        text = path.read_bytes()
    try:
        lines = text.decode("utf-8-sig").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no table in UTF-8: byte {error.start} is wrong") from None
    reader = csv.DictReader(lines, strict=True)
    try:
        columns = reader.fieldnames or ()
        for name in NEEDED:
            if name not in columns:
                raise UsageError(f"{path} has no column {name!r}; its columns are: {', '.join(columns) or 'none'}")
        rows = [_row(path, reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error}") from None
    if not rows:
        raise UsageError(f"{path} has no rows below its header")
    if not any(row.labels for row in rows):
        raise UsageError(f"{path}: no row has a label, so there is no class to learn")
    return rows


def _row(table: Path, line: int, cells: dict[str, str]) -> Row:
    place = f"{table}, line {line}"
    if None in cells or None in cells.values():
        raise UsageError(f"{place}: it has more or fewer cells than the header")
    if not cells["file"].strip():
        raise UsageError(f"{place}: no file is named")
    names = [name.strip() for name in cells["labels"].split(";")] if cells["labels"].strip() else []
    if "" in names:
        raise UsageError(f"{place}: labels {cells['labels']!r} has an empty name; expected NAME;NAME")
    split = cells.get("split")
    if split is not None and (split := split.strip()) not in SPLITS:
        raise UsageError(f"{place}: {unknown('split', split, SPLITS)}")
    labels = tuple(sorted(set(names)))
    written = cells.get("events", "").strip()
    events = _events(place, written) if written else None
    if events is not None and {event.name for event in events} != set(labels):
        found = ";".join(sorted({event.name for event in events}))
        raise UsageError(f"{place}: the labels are {';'.join(labels)!r}, but the classes of the events are {found!r}")
    return Row(place, table.parent / cells["file"].strip(), labels, split, events)


def _events(place: str, written: str) -> tuple[Event, ...]:
    expected = "expected JSON as [[class, start, end], ...] with times in seconds, 0 <= start < end"
    try:
        events = [Event(str(name), float(start), float(end)) for name, start, end in json.loads(written)]
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{place}: events {written[:60]!r} cannot be read ({error}); {expected}") from None
    for event in events:
        if not 0 <= event.start < event.end < math.inf:
            raise UsageError(f"{place}: event {list(event)} is wrong; {expected}")
    return tuple(sorted(events, key=lambda event: event[1:]))
