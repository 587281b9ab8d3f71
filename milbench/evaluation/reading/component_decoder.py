"""The component decoder: from connected components to a string of digits.

A digit shows as one component, or as a few beside each other; two equal digits in a row show as two components, or as
one. The extent of a single digit distinguishes these cases. It depends on the network, so a few numbers are learnt
from validation data: those for reading strings from the true strings alone, those for boxes from the true boxes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from milbench.evaluation.reading.components import Components
from milbench.evaluation.reading.patterns import CLASSES, String, collapsed

Length = Annotated[float, Field(ge=0, allow_inf_nan=False)]
DISTANCES = (0.0, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5)
"""The values tried for `apart`: halves, as distances along an axis are near to integers."""
TILTS = (1.0, 1.25, 1.5, 2.0, 3.0)
"""The values tried for `tilt`."""
MASSES = 9
"""How many values are tried for `mass`: quantiles of the masses, none above the median."""
PRIOR_RUNS = 10.0
"""How many runs of any class weigh as much as the runs of a class itself in learning its reach."""


class ComponentDecoder(BaseModel):
    """How components are turned into a string and into boxes. Lengths are in positions unless stated otherwise.

    A string is read from top to bottom where the middles of components are spread more than `tilt` times as far down as
    across. Middles of digits beside each other differ in height too, since the probability of a 2 is largest at its
    foot and that of a 7 at its bar.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mass: Length = 0.0  # a component with less is dropped
    apart: Length = 0.0  # of two components of different classes nearer than this, the one with less mass is dropped
    tilt: Length = 1.0
    reach: tuple[Annotated[float, Field(gt=0)], ...] = (math.inf,) * CLASSES  # of one digit in the direction of reading
    margin: tuple[Length, Length] = (0.0, 0.0)  # pixels (across, down) that boxes extend beyond components on each side


class Piece(NamedTuple):
    """A component along the direction of reading: its middle, its class, and its positions from start to stop."""

    middle: float
    cls: int
    start: int
    stop: int


def read_components(components: Components, images: int, decoder: ComponentDecoder) -> list[String]:
    """Return the string of each of `images` images, () for one of which no component is kept."""
    return [tuple(_classes(pieces, decoder.reach)) for pieces in ordered_pieces(components, images, decoder)]


def ordered_pieces(components: Components, images: int, decoder: ComponentDecoder) -> list[list[Piece]]:
    """Return the components of each image that the decoder keeps, in the order of reading; `reach` is not used."""
    components = kept_components(components, images, decoder)
    x, y, cls = (values.tolist() for values in (components.x, components.y, components.cls))
    across = [Piece(*ends) for ends in zip(x, cls, components.left.tolist(), components.right.tolist(), strict=True)]
    down = [Piece(*ends) for ends in zip(y, cls, components.top.tolist(), components.bottom.tolist(), strict=True)]
    ordered = []
    for first, last in _slices(components, images):
        vertical = last > first and np.ptp(y[first:last]) > decoder.tilt * np.ptp(x[first:last])
        ordered.append(sorted((down if vertical else across)[first:last]))
    return ordered


def read_strongest(strongest: Components, images: int, learnt: ComponentDecoder) -> list[String]:
    """Return for each image what its strongest positions spell, each of them once, in the order of the learnt tilt."""
    ordered = ordered_pieces(strongest, images, ComponentDecoder(tilt=learnt.tilt))
    return [tuple(piece.cls for piece in pieces) for pieces in ordered]


def kept_components(components: Components, images: int, decoder: ComponentDecoder) -> Components:
    """Return the components that are neither too small nor too near to a larger one of another class."""
    components = components[components.mass >= decoder.mass]
    x, y, masses, cls = (values.tolist() for values in (components.x, components.y, components.mass, components.cls))
    selected: list[int] = []
    for first, last in _slices(components, images):
        of_image: list[int] = []
        for j in sorted(range(first, last), key=lambda j: -masses[j]):
            if all(cls[i] == cls[j] or math.hypot(x[i] - x[j], y[i] - y[j]) >= decoder.apart for i in of_image):
                of_image.append(j)
        selected += sorted(of_image)
    return components[np.array(selected, dtype=np.int64)]


def count_digits(pieces: Iterable[Piece], reach: float) -> int:
    """Return how many digits the pieces of one run are: the fewest stretches of length `reach` that cover them."""
    count, covered = 0, -math.inf
    for piece in sorted(pieces, key=lambda p: p.start):
        start = max(piece.start, covered)
        if start < piece.stop:
            more = max(math.ceil((piece.stop - start) / reach), 1)
            count, covered = count + more, start + more * reach
    return max(count, 1)


def fit_component_decoder(components: Components, truth: Sequence[String]) -> ComponentDecoder:
    """Return the decoder that suits the components of images whose strings are known; its margin is 0.

    `apart`, then `tilt`, then `mass` are those with the fewest strings wrong in more than how often a digit is
    repeated; of equally good ones the smallest. `reach` is then learnt from the strings that are right in that sense,
    whose runs of equal digits and of equal components belong to each other: the reach that counts the fewest runs of a
    class wrongly. Runs of all classes together count as PRIOR_RUNS more; of equally good ones the middle one is taken.
    """
    collapsed_truth = [collapsed(string) for string in truth]

    def wrong(decoder: ComponentDecoder) -> int:
        ordered = ordered_pieces(components, len(truth), decoder)
        read = (collapsed(piece.cls for piece in pieces) for pieces in ordered)
        return sum(a != b for a, b in zip(read, collapsed_truth, strict=True))

    def best(decoders: Iterable[ComponentDecoder]) -> ComponentDecoder:
        return min(decoders, key=wrong)  # the first of equally good ones

    quantiles = np.quantile(components.mass, np.linspace(0, 0.5, MASSES)).tolist() if len(components) else []
    decoder = best(ComponentDecoder(apart=apart) for apart in DISTANCES)
    decoder = best(decoder.model_copy(update={"tilt": tilt}) for tilt in TILTS)
    decoder = best(decoder.model_copy(update={"mass": mass}) for mass in [0.0, *quantiles])
    reach = _fit_reach(ordered_pieces(components, len(truth), decoder), truth)
    return decoder.model_copy(update={"reach": reach})


def _fit_reach(ordered: list[list[Piece]], truth: Sequence[String]) -> tuple[float, ...]:
    longest = max((piece.stop for pieces in ordered for piece in pieces), default=1)
    wrong = np.zeros((CLASSES, longest))
    number = 0
    for pieces, string in zip(ordered, truth, strict=True):
        if collapsed(piece.cls for piece in pieces) != collapsed(string):
            continue
        for run, digits in zip(_runs(pieces), itertools.groupby(string), strict=True):
            count = len(list(digits[1]))
            wrong[run[0].cls] += [count_digits(run, reach) != count for reach in range(1, longest + 1)]
            number += 1
    prior = wrong.sum(axis=0) / max(number, 1)
    scores = wrong + PRIOR_RUNS * prior
    best = (np.flatnonzero(row <= row.min() + 1e-9) for row in scores)
    return tuple(float(b[len(b) // 2] + 1) for b in best)


def _classes(pieces: list[Piece], reach: Sequence[float]) -> Iterable[int]:
    for run in _runs(pieces):
        yield from [run[0].cls] * count_digits(run, reach[run[0].cls])


def _runs(pieces: list[Piece]) -> Iterable[list[Piece]]:
    return (list(run) for _, run in itertools.groupby(pieces, key=lambda p: p.cls))


def _slices(components: Components, images: int) -> Iterable[tuple[int, int]]:
    """Return the indices of the first and the last (exclusive) component of every image."""
    return itertools.pairwise(np.searchsorted(components.image, np.arange(images + 1)).tolist())
