"""The component decoder: from connected components to a string of digits.

A digit shows as one component, or as a few beside each other; two equal digits in a row show as two
components, or as one. The extent of a single digit distinguishes these cases. It depends on the
network, and is learnt from the true strings of validation data, as the margin of boxes is from true
boxes.
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
"""The values tried for `apart`: halves, as distances along an axis are near to integers."""
TILTS = (1.0, 1.25, 1.5, 2.0, 3.0)
"""The values tried for `tilt`."""
MASSES = 9
"""How many values are tried for `mass`: quantiles of the masses, none above the median."""
PRIOR_RUNS = 10.0
"""In learning the reach of a class, the runs of all classes together count as this many runs of the class itself."""


class ComponentDecoder(BaseModel):
    """How components are turned into a string and into boxes. Lengths are in positions unless stated otherwise.

    A string is read from top to bottom where the middles of components are spread more than `tilt`
    times as far down as across: those of digits beside each other differ in height too, as a 2 is
    most probable at its foot, a 7 at its bar.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mass: NonNegative = 0.0
    """A component with less is dropped."""
    apart: NonNegative = 0.0
    """Of two components of different classes nearer than this, the one with less mass is dropped."""
    tilt: NonNegative = 1.0
    reach: tuple[Annotated[float, Field(gt=0)], ...] = (math.inf,) * CLASSES
    """The extent of one digit of each class in the direction of reading."""
    margin: tuple[NonNegative, NonNegative] = (0.0, 0.0)
    """The pixels (across, down) that boxes extend beyond components on each side."""


class Piece(NamedTuple):
    """A component along the direction of reading: its middle, its class, and its positions from start to stop."""

    middle: float
    cls: int
    start: int
    stop: int


def read_components(components: Components, images: int, decoder: ComponentDecoder) -> list[String]:
    """Return the string of each of `images` images, () for one of which no component is kept."""
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
    """Return the components of each image that the decoder keeps, in the order of reading; `reach` is not used."""
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
    """Return the pieces of components along one direction."""
    rows = zip(middle.tolist(), cls.tolist(), start.tolist(), stop.tolist(), strict=True)
    return [Piece(*row) for row in rows]


def read_strongest(strongest: Components, images: int, learnt: ComponentDecoder) -> list[String]:
    """Return for each image what its strongest positions spell, each of them once, in the order of the learnt tilt."""
    ordered = ordered_pieces(strongest, images, ComponentDecoder(tilt=learnt.tilt))
    return [tuple(piece.cls for piece in pieces) for pieces in ordered]


def kept_components(components: Components, images: int, decoder: ComponentDecoder) -> Components:
    """Return the components that are neither too small nor too near to a larger one of another class."""
    large = components[components.mass >= decoder.mass]
    # Single values of lists are read much faster than those of arrays.
    x = large.x.tolist()
    y = large.y.tolist()
    cls = large.cls.tolist()
    masses = large.mass.tolist()

    def is_crowded_by(number: int, larger: int) -> bool:
        if cls[number] == cls[larger]:
            return False
        return math.hypot(x[number] - x[larger], y[number] - y[larger]) < decoder.apart

    selected: list[int] = []
    for first, last in _slices(large, images):
        by_falling_mass = sorted(range(first, last), key=lambda number: -masses[number])
        kept: list[int] = []
        for number in by_falling_mass:
            if not any(is_crowded_by(number, larger) for larger in kept):
                kept.append(number)
        selected += sorted(kept)
    return large[np.array(selected, dtype=np.int64)]


def count_digits(pieces: Iterable[Piece], reach: float) -> int:
    """Return how many digits the pieces of one run are: the fewest stretches of length `reach` that cover them."""
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
    """Return the decoder that suits the components of images whose strings are known; its margin is 0.

    First `apart`, then `tilt`, then `mass` are chosen: the value with the fewest wrong strings, the
    smallest of equally good ones. How often a digit is repeated does not matter here.

    `reach` is then learnt from the strings that are right but for repetitions: each run of equal
    components there is a run of equal digits. For each class it is the reach that counts the digits
    of the fewest runs wrongly, the middle one of equally good ones. The runs of all classes
    together count as PRIOR_RUNS more.
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
    # Each length is fitted with those before it.
    tried: dict[str, Sequence[float]] = {"apart": DISTANCES, "tilt": TILTS, "mass": masses}
    for name, values in tried.items():
        candidates = [decoder.model_copy(update={name: value}) for value in values]
        decoder = min(candidates, key=count_wrong)
    reach = _fit_reach(ordered_pieces(components, len(truth), decoder), truth)
    return decoder.model_copy(update={"reach": reach})


def _fit_reach(ordered: list[list[Piece]], truth: Sequence[String]) -> tuple[float, ...]:
    """Return the reach of each class that counts the fewest of its runs wrongly, see `fit_component_decoder`."""
    ends = [piece.stop for pieces in ordered for piece in pieces]
    longest = max(ends, default=1)
    reaches = range(1, longest + 1)
    # (classes, reaches): how many runs of a class are counted wrongly.
    wrong = np.zeros((CLASSES, longest))
    runs = 0
    for pieces, string in zip(ordered, truth, strict=True):
        # In other strings it is not known which run of components is which run of digits.
        if _collapsed_classes(pieces) != collapsed(string):
            continue
        true_runs = itertools.groupby(string)
        for (cls, run), (_, digits) in zip(_runs(pieces), true_runs, strict=True):
            true_count = len(list(digits))
            counts = np.array([count_digits(run, reach) for reach in reaches])
            wrong[cls, counts != true_count] += 1
            runs += 1
    # The share of runs of all classes that each reach counts wrongly.
    prior = wrong.sum(axis=0) / max(runs, 1)
    chosen = []
    for errors in wrong + PRIOR_RUNS * prior:
        # Equal sums may differ by rounding.
        best = np.flatnonzero(errors <= errors.min() + 1e-9)
        middle = best[len(best) // 2]
        chosen.append(float(reaches[middle]))
    return tuple(chosen)


def _collapsed_classes(pieces: Iterable[Piece]) -> list[int]:
    """Return the classes of pieces, those of a run of equal ones once."""
    return collapsed(piece.cls for piece in pieces)


def _runs(pieces: list[Piece]) -> Iterable[tuple[int, list[Piece]]]:
    """Yield each run of pieces of one class, with that class."""
    for cls, run in itertools.groupby(pieces, key=lambda piece: piece.cls):
        yield cls, list(run)


def _slices(components: Components, images: int) -> Iterable[tuple[int, int]]:
    """Return the indices of the first and the last (exclusive) component of every image."""
    starts = np.searchsorted(components.image, np.arange(images + 1))
    return itertools.pairwise(starts.tolist())
