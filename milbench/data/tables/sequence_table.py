"""Sequences with label sets from a table with a row a file, each of which is a bag."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.tables.labels import LabelledBags, class_number, of_bags, read_labels, read_split, set_text
from milbench.data.tables.reading import NAMES, file_column, read_table, row_name, text_column
from milbench.errors import UsageError

EVENTS = "events"
"""The column of events."""
LATEST = 1e12
"""Seconds; an event that ends later is a mistake."""


class Event(NamedTuple):
    """What occurs in a sequence, and when.

    Args:
        cls: the number of its class.
        start: in seconds from the beginning of the sequence.
        end: in seconds, likewise.
    """

    cls: int
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class SequenceTable(LabelledBags):
    """B sequences, named by their paths as the table has them.

    Args:
        files: (B,) the paths of the sequences.
        events: of each sequence, in the order in which they begin; None where the table has no such column.
    """

    files: list[Path] = field(default_factory=list)
    events: list[list[Event]] | None = None

    def timed(self) -> NDArray[np.bool_]:
        """Return (B,), which sequences have an event of every class of theirs, as all have whose label set is empty."""
        if self.events is None:
            return np.zeros(len(self), bool)
        return np.array([len(events) > 0 for events in self.events]) | ~self.labels.any(axis=1)

    @property
    def digest(self) -> str:
        """A digest of names, label sets, events and what else is known, not of the files."""
        found = hashlib.sha256(repr((self.bags, self.class_names, self.groups, self.split, self.events)).encode())
        found.update(self.labels.tobytes())
        return found.hexdigest()


def is_sequence_table(path: Path, file: str = "file", others: tuple[str, ...] = ("bag", "image")) -> bool:
    """Return whether a table has a column of files, and none that makes it a table of other bags.

    Args:
        path: the table.
        file: the column of the files.
        others: columns that a table of other bags has.
    """
    return file in (names := read_table(path).columns) and not set(others) & set(names)


def load_sequence_table(path: Path, file: str = "file", labels: str = "labels", classes: str = "") -> SequenceTable:
    """Read a table of sequences, but not their files. The last few tables stay in memory, until a file has changed.

    Args:
        path: of the table.
        file: the column with the paths of the files, relative to the folder of the table.
        labels: the column of label sets, or a pattern or list of columns with 0 and 1.
        classes: the classes in their order, with ";" between them; "": those that occur, sorted.

    Raises:
        UsageError: the table is missing or damaged, or a row is not what it should be; the message names both.
    """
    stat = path.stat() if path.is_file() else None
    return _load(path, file, labels, classes, stat and (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=4)
def _load(path: Path, file: str, labels: str, classes: str, _changed: object) -> SequenceTable:
    frame = read_table(path, text=(file, labels, EVENTS))
    names = file_column(frame, path, file, "sequence")
    codes = np.arange(len(names))
    label_sets, class_names, used = read_labels(path, frame, labels, classes, codes, names)
    return SequenceTable(
        path, names, label_sets, class_names, [path.parent / name for name in names],
        _events(path, frame, label_sets, class_names),
        groups=of_bags(path, frame, "group", codes, names), split=read_split(path, frame, codes, names),
        ignored=[name for name in frame.columns if name not in {*used, *NAMES, EVENTS, file}],
    )  # fmt: skip


def _events(path: Path, frame: pd.DataFrame, labels: NDArray[np.bool_], names: list[str]) -> list[list[Event]] | None:
    """Return the events of every sequence, none where its field is empty."""
    if EVENTS not in frame:
        return None
    found = []
    for row, text in enumerate(text_column(frame, path, EVENTS, "events")):
        place = row_name(path, row)
        events = _parsed(text, names, place) if text else []
        there, expected = {event.cls for event in events}, set(np.flatnonzero(labels[row]).tolist())
        if text and there != expected:
            raise UsageError(
                f"{place}: the events are of {set_text(names[c] for c in there)}, expected an event of every class of "
                f"the labels {set_text(names[c] for c in expected)} and of no other, or an empty field"
            )
        found.append(sorted(events, key=lambda event: event[1:]))
    return found


def _parsed(text: str, names: list[str], place: str) -> list[Event]:
    """Return events from JSON. Raises UsageError for anything but [[class, start, end], ...] in seconds."""
    expected = "expected [[class, start, end], ...] in seconds, 0 <= start < end"
    try:
        events = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: events {text[:60]!r} cannot be read as JSON ({error}); {expected}") from None
    if not isinstance(events, list):
        raise UsageError(f"{place}: events are {text[:60]!r}; {expected}")
    for event in events:
        whole = isinstance(event, list) and len(event) == 3 and isinstance(event[0], str | int)
        timed = whole and all(type(time) in (int, float) for time in event[1:])
        if not (timed and 0 <= event[1] < event[2] < LATEST):
            raise UsageError(f"{place}: the event {str(event)[:60]} is wrong; {expected}")
    return [Event(class_number(str(name), names, place, "an event"), start, end) for name, start, end in events]
