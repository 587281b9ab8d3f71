"""Reading components: in which direction, which of them, and how many digits a run of equal ones is.

A digit shows as one component, or as a few beside each other; two equal digits in a row show as two components, or as
one. What tells these apart is how far a single digit reaches. Networks differ in that, so a handful of numbers is
learnt from validation data, of which nothing but the strings is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from milbench.evaluation.reading.components import Blobs

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""How a class is written in a string."""
FORMAT = "components/1"
"""What decoder.json holds, and in which version."""
Length = Annotated[float, Field(ge=0, allow_inf_nan=False)]
DISTANCES = (0.0, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5)
"""Tried for `Reader.apart`: halves, as distances along an axis are near to integers."""
TILTS = (1.0, 1.25, 1.5, 2.0, 3.0)
"""Tried for `Reader.tilt`."""
MASSES = 9
"""How many values are tried for `Reader.mass`: quantiles of the masses, none above the median."""
PRIOR_RUNS = 10.0
"""How many runs of any class weigh as much as the runs of a class itself in learning its reach."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How to turn components into a string; lengths are in positions.

    mass: a component with less probability in all is dropped.
    apart: of two components of different classes whose middles are nearer than this, the one with less mass is dropped.
    tilt: read from top to bottom where the middles are spread more than this many times as far down as across: places
        of digits beside each other differ in height too, as a network is sure of a 2 at its foot and of a 7 at its bar.
    reach: for each class, how far one digit reaches in the direction of reading.
    margin: how many pixels (across, down) the box of an instance extends beyond its component, on each side.
    """

    mass: Length = 0.0
    apart: Length = 0.0
    tilt: Length = 1.0
    reach: tuple[Annotated[float, Field(gt=0)], ...] = (math.inf,) * 10
    margin: tuple[Length, Length] = (0.0, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as the content of decoder.json, which `from_json` reads."""
        numbers = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"format": FORMAT} | {k: list(v) if isinstance(v, tuple) else v for k, v in numbers.items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Reader:
        """Return the decoder whose numbers `to_json` returned.

        Raises:
            ValueError: the content has another format, or a number is missing or out of range.
        """
        if content.get("format") != FORMAT:
            raise ValueError(f"it has format {content.get('format')!r}, this version of milbench reads {FORMAT!r}")
        names = [field.name for field in fields(cls)]
        if lacking := [name for name in names if name not in content]:
            raise ValueError(f"it lacks {', '.join(lacking)}")
        try:
            return TypeAdapter(cls).validate_python({name: content[name] for name in names})
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, float]) -> Reader | None:
        """Return the decoder of a run that earlier versions of milbench made; they kept its numbers among the metrics.

        Args:
            metrics: the last value of every metric of the run, by name.

        Returns:
            None where the numbers are not among the metrics.
        """
        if any(f"chosen/{name}" not in metrics for name in ("mass", "apart", "tilt")):
            return None
        mass, apart, tilt = (metrics[f"chosen/{name}"] for name in ("mass", "apart", "tilt"))
        reach = itertools.takewhile(lambda name: name in metrics, (f"chosen/reach_{c}" for c in CHARACTERS))
        margin = metrics.get("chosen/margin_x", 0.0), metrics.get("chosen/margin_y", 0.0)
        return cls(mass, apart, tilt, tuple(metrics[name] for name in reach), margin)


class Piece(NamedTuple):
    """A component in the direction of reading: where its middle is, its class, and the positions start to stop."""

    middle: float
    cls: int
    start: int
    stop: int


Row = list[Piece]


def spell(blobs: Blobs, images: int, reader: Reader) -> list[str]:
    """Return the strings that the components of so many images spell."""
    return ["".join(_written(row, reader.reach)) for row in rows(blobs, images, reader)]


def rows(blobs: Blobs, images: int, reader: Reader) -> list[Row]:
    """Return the components of every image that a reader keeps, in their order: what it does not need `reach` for."""
    blobs = kept(blobs, images, reader)
    x, y, cls = (values.tolist() for values in (blobs.x, blobs.y, blobs.cls))
    across = [Piece(*one) for one in zip(x, cls, blobs.left.tolist(), blobs.right.tolist(), strict=True)]
    down = [Piece(*one) for one in zip(y, cls, blobs.top.tolist(), blobs.bottom.tolist(), strict=True)]
    found = []
    for first, last in _slices(blobs, images):
        vertical = last > first and _spread(y[first:last]) > reader.tilt * _spread(x[first:last])
        found.append(sorted((down if vertical else across)[first:last]))
    return found


def kept(blobs: Blobs, images: int, reader: Reader) -> Blobs:
    """Return the components that are neither specks nor too near to a larger one of another class."""
    blobs = blobs[blobs.mass >= reader.mass]
    x, y, masses, cls = (values.tolist() for values in (blobs.x, blobs.y, blobs.mass, blobs.cls))
    chosen: list[int] = []
    for first, last in _slices(blobs, images):
        some: list[int] = []
        for j in sorted(range(first, last), key=lambda j: -masses[j]):
            if all(cls[i] == cls[j] or math.hypot(x[i] - x[j], y[i] - y[j]) >= reader.apart for i in some):
                some.append(j)
        chosen += sorted(some)
    return blobs[np.array(chosen, dtype=np.int64)]


def copies(pieces: Iterable[Piece], reach: float) -> int:
    """Return the fewest stretches of length `reach` that cover all pieces, at least 1."""
    count, covered = 0, -math.inf
    for piece in sorted(pieces, key=lambda p: p.start):
        start = max(piece.start, covered)
        if start < piece.stop:
            more = max(math.ceil((piece.stop - start) / reach), 1)
            count, covered = count + more, start + more * reach
    return max(count, 1)


def learn_reader(blobs: Blobs, truth: Sequence[str], classes: int = 10) -> Reader:
    """Return the reader that suits these components of images whose strings are known.

    `apart`, then `tilt`, then `mass`, are those with the fewest strings wrong in more than how often a digit is
    repeated; of equally good ones the smallest. `reach` is then learnt from the strings right in that sense, whose runs
    of equal digits and of equal components belong to each other: the reach that counts the fewest runs of a class
    wrongly, where runs of any class have a say as well, as PRIOR_RUNS of them; of equally good ones the middle one.
    """
    collapsed = [_collapsed(string) for string in truth]

    def wrong(reader: Reader) -> int:
        read = (_collapsed(CHARACTERS[p.cls] for p in row) for row in rows(blobs, len(truth), reader))
        return sum(a != b for a, b in zip(read, collapsed, strict=True))

    def best(readers: Iterable[Reader]) -> Reader:
        return min(readers, key=wrong)  # the first of equally good ones

    quantiles = np.quantile(blobs.mass, np.linspace(0, 0.5, MASSES)).tolist() if len(blobs) else []
    reader = best(Reader(apart=apart) for apart in DISTANCES)
    reader = best(replace(reader, tilt=tilt) for tilt in TILTS)
    reader = best(replace(reader, mass=mass) for mass in [0.0, *quantiles])
    return replace(reader, reach=_learn_reach(rows(blobs, len(truth), reader), truth, classes))


def _learn_reach(found: list[Row], truth: Sequence[str], classes: int) -> tuple[float, ...]:
    """Return the reach of every class."""
    longest = max((p.stop for row in found for p in row), default=1)
    wrong = np.zeros((classes, longest))
    runs = 0
    for row, string in zip(found, truth, strict=True):
        if _collapsed(CHARACTERS[p.cls] for p in row) != _collapsed(string):
            continue
        for pieces, digits in zip(_runs(row), itertools.groupby(string), strict=True):
            count = len(list(digits[1]))
            wrong[pieces[0].cls] += [copies(pieces, reach) != count for reach in range(1, longest + 1)]
            runs += 1
    prior = wrong.sum(axis=0) / max(runs, 1)
    scores = wrong + PRIOR_RUNS * prior
    best = (np.flatnonzero(row <= row.min() + 1e-9) for row in scores)
    return tuple(float(b[len(b) // 2] + 1) for b in best)


def _written(row: Row, reach: Sequence[float]) -> Iterable[str]:
    return (CHARACTERS[run[0].cls] * copies(run, reach[run[0].cls]) for run in _runs(row))


def _runs(row: Row) -> Iterable[Row]:
    return (list(run) for _, run in itertools.groupby(row, key=lambda p: p.cls))


def _collapsed(string: Iterable[str]) -> str:
    return "".join(character for character, _ in itertools.groupby(string))


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _slices(blobs: Blobs, images: int) -> Iterable[tuple[int, int]]:
    """Return first and last (exclusive) of the components of every image."""
    return itertools.pairwise(np.searchsorted(blobs.image, np.arange(images + 1)).tolist())
