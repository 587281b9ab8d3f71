"""The component decoder: from connected components to a string of digits.

A component is a connected region of positions that show the same class. A digit appears as one
component, or as a few beside each other; two equal digits in a row appear as two components, or as
one. How far a single digit extends distinguishes these cases. This extent, `reach`, depends on the
network, and is learnt from the true strings of validation images.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from milbench.evaluation.reading.components import Components, Floats, Ints
from milbench.evaluation.reading.patterns import CLASSES, String, collapsed

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
DISTANCES = (0.0, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5)
"""The values tried for `apart`.

Distances along an axis are near to integers: values halfway between them separate them best.
"""
TILTS = (1.0, 1.25, 1.5, 2.0, 3.0)
"""The values tried for `tilt`."""
MASSES = 9
"""How many values above 0 are tried for `mass`: quantiles, from the smallest to the median."""
PRIOR_RUNS = 10.0
"""How many runs of a class the runs of all classes together count as.

`reach` is learnt for each class; this keeps it sensible for a class with few runs.
"""


class ComponentDecoder(BaseModel):
    """How components are turned into a string and into boxes.

    Lengths are in positions, except for `margin`, which is in pixels.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mass: NonNegative = 0.0
    """A component with less mass than this is dropped."""
    apart: NonNegative = 0.0
    """If two components of different classes are nearer than this, the lighter one is dropped."""
    tilt: NonNegative = 1.0
    """How many times farther down than across a string extends that is read from top to bottom.

    The middles of components are compared. They differ in height even where digits stand beside
    each other, as a 2 is most probable at its foot, a 7 at its bar.
    """
    reach: tuple[Annotated[float, Field(gt=0)], ...] = (math.inf,) * CLASSES
    """The extent of one digit of each class in the direction of reading."""
    margin: tuple[NonNegative, NonNegative] = (0.0, 0.0)
    """How many pixels (across, down) a box extends beyond its component on each side."""


class Piece(NamedTuple):
    """A component along the direction of reading, in positions."""

    middle: float
    cls: int
    start: int
    stop: int
    """The position after the last one."""


def read_components(components: Components, images: int, decoder: ComponentDecoder) -> list[String]:
    """Return the string of each of `images` images.

    The string of an image is empty where the decoder keeps no component.
    """
    strings = []
    for pieces in ordered_pieces(components, images, decoder):
        string: list[int] = []
        for cls, run in _runs(pieces):
            string += [cls] * count_digits(run, decoder.reach[cls])
        strings.append(tuple(string))
    return strings


def ordered_pieces(
    components: Components, images: int, decoder: ComponentDecoder
) -> list[list[Piece]]:
    """Return the components of each image that the decoder keeps, in the order of reading.

    The components may still have to be split or joined to digits, which `reach` decides.
    """
    kept = kept_components(components, images, decoder)
    across = _pieces(kept.x, kept.cls, kept.left, kept.right)
    down = _pieces(kept.y, kept.cls, kept.top, kept.bottom)
    ordered: list[list[Piece]] = []
    for first, last in _slices(kept, images):
        is_empty = first == last
        if is_empty:
            ordered.append([])
            continue
        is_vertical = np.ptp(kept.y[first:last]) > decoder.tilt * np.ptp(kept.x[first:last])
        along = down if is_vertical else across
        ordered.append(sorted(along[first:last]))
    return ordered


def _pieces(middle: Floats, cls: Ints, start: Ints, stop: Ints) -> list[Piece]:
    """Return components as pieces along one axis, given their middles and ends on it."""
    rows = zip(middle.tolist(), cls.tolist(), start.tolist(), stop.tolist(), strict=True)
    return [Piece(*row) for row in rows]


def read_strongest(strongest: Components, images: int, learnt: ComponentDecoder) -> list[String]:
    """Return for each image the classes of its strongest positions, each class once.

    Only the tilt of the learnt decoder is used, for the order of reading.
    """
    ordered = ordered_pieces(strongest, images, ComponentDecoder(tilt=learnt.tilt))
    return [tuple(piece.cls for piece in pieces) for pieces in ordered]


def kept_components(components: Components, images: int, decoder: ComponentDecoder) -> Components:
    """Return the components that the decoder keeps.

    It drops those with too little mass, and those too near to a heavier one of another class.
    """
    large = components[components.mass >= decoder.mass]
    # Reading single values of a list is much faster than reading them from an array.
    x = large.x.tolist()
    y = large.y.tolist()
    cls = large.cls.tolist()
    masses = large.mass.tolist()

    def is_crowded_by(number: int, heavier: int) -> bool:
        if cls[number] == cls[heavier]:
            return False
        return math.hypot(x[number] - x[heavier], y[number] - y[heavier]) < decoder.apart

    selected: list[int] = []
    for first, last in _slices(large, images):
        by_falling_mass = sorted(range(first, last), key=lambda number: -masses[number])
        kept: list[int] = []
        for number in by_falling_mass:
            if not any(is_crowded_by(number, heavier) for heavier in kept):
                kept.append(number)
        selected += sorted(kept)
    return large[np.array(selected, dtype=np.int64)]


def count_digits(pieces: Iterable[Piece], reach: float) -> int:
    """Return how many digits the pieces of one run are, at least 1.

    A digit covers a stretch of length `reach`. The number of digits is the smallest number of
    stretches that cover all pieces.
    """
    count = 0
    covered = -math.inf
    for piece in sorted(pieces, key=lambda piece: piece.start):
        start = max(piece.start, covered)
        if start < piece.stop:
            more = max(math.ceil((piece.stop - start) / reach), 1)
            count += more
            covered = start + more * reach
    return max(count, 1)


def fit_component_decoder(components: Components, truth: Sequence[String]) -> ComponentDecoder:
    """Return the decoder that suits the components of images whose strings are known.

    First `apart`, then `tilt`, then `mass` is chosen: the value with the fewest wrong strings, and
    the smallest value where several are equally good. Equal digits in a row still count as one
    digit at this stage.

    Then `reach` is learnt from the strings that are right at this stage: each of their runs of
    equal components is a run of equal digits. The reach of a class is the one for which
    `count_digits` is wrong in the fewest runs, and the middle one where several are equally good.
    The runs of all classes together count as PRIOR_RUNS runs of the class.

    The margin of boxes stays 0: see `milbench.evaluation.localisation.fit_margin`.
    """
    collapsed_truth = [collapsed(string) for string in truth]

    def count_wrong(decoder: ComponentDecoder) -> int:
        wrong = 0
        ordered = ordered_pieces(components, len(truth), decoder)
        for pieces, string in zip(ordered, collapsed_truth, strict=True):
            if _collapsed_classes(pieces) != string:
                wrong += 1
        return wrong

    masses = [0.0]
    if len(components):
        masses += np.quantile(components.mass, np.linspace(0, 0.5, MASSES)).tolist()
    decoder = ComponentDecoder()
    # Each setting is chosen given those chosen before it.
    tried: dict[str, Sequence[float]] = {"apart": DISTANCES, "tilt": TILTS, "mass": masses}
    for name, values in tried.items():
        candidates = [decoder.model_copy(update={name: value}) for value in values]
        decoder = min(candidates, key=count_wrong)
    reach = _fit_reach(ordered_pieces(components, len(truth), decoder), truth)
    return decoder.model_copy(update={"reach": reach})


def _fit_reach(ordered: list[list[Piece]], truth: Sequence[String]) -> tuple[float, ...]:
    """Return the reach of each class, learnt as `fit_component_decoder` says."""
    ends = [piece.stop for pieces in ordered for piece in pieces]
    longest = max(ends, default=1)
    reaches = range(1, longest + 1)
    # (classes, reaches): in how many runs of a class the number of digits would be wrong.
    wrong = np.zeros((CLASSES, longest))
    runs = 0
    for pieces, string in zip(ordered, truth, strict=True):
        # Where the string is wrong, nobody knows which run of components is which run of digits.
        if _collapsed_classes(pieces) != collapsed(string):
            continue
        true_runs = itertools.groupby(string)
        for (cls, run), (_, digits) in zip(_runs(pieces), true_runs, strict=True):
            true_count = len(list(digits))
            counts = np.array([count_digits(run, reach) for reach in reaches])
            wrong[cls, counts != true_count] += 1
            runs += 1
    # (reaches,): the share of the runs of all classes in which the number of digits would be wrong.
    prior = wrong.sum(axis=0) / max(runs, 1)
    chosen = []
    for errors in wrong + PRIOR_RUNS * prior:
        # Sums that are equal on paper may differ by rounding.
        best = np.flatnonzero(errors <= errors.min() + 1e-9)
        middle = best[len(best) // 2]
        chosen.append(float(reaches[middle]))
    return tuple(chosen)


def _collapsed_classes(pieces: Iterable[Piece]) -> list[int]:
    """Return the classes of pieces, with each run of equal classes written once."""
    return collapsed(piece.cls for piece in pieces)


def _runs(pieces: list[Piece]) -> Iterable[tuple[int, list[Piece]]]:
    """Yield each run of pieces of one class, with that class."""
    for cls, run in itertools.groupby(pieces, key=lambda piece: piece.cls):
        yield cls, list(run)


def _slices(components: Components, images: int) -> Iterable[tuple[int, int]]:
    """Return for each image the indices of its first component and of the one after its last."""
    starts = np.searchsorted(components.image, np.arange(images + 1))
    return itertools.pairwise(starts.tolist())
