"""The component decoder: from connected components to a string of digits.

A digit shows as one component, or as a few beside each other; two equal digits in a row show as two components, or as
one. The extent of a single digit distinguishes these cases. It depends on the network, and is learnt from the true
strings of validation data, as the margin of boxes is from true boxes.
"""

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
    across: those of digits beside each other differ in height too, as a 2 is most probable at its foot, a 7 at its bar.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mass: Length = 0.0  # a component with less is dropped
    apart: Length = 0.0  # of two components of different classes nearer than this, the one with less mass is dropped
    tilt: Length = 1.0
    reach: tuple[Annotated[float, Field(gt=0)], ...] = (
        math.inf,
    ) * CLASSES  # of one digit in the direction of reading
    margin: tuple[Length, Length] = (
        0.0,
        0.0,
    )  # pixels (across, down) that boxes extend beyond components on each side


class Piece(NamedTuple):
    """A component along the direction of reading: its middle, its class, and its positions from start to stop."""

    middle: float
    cls: int
    start: int
    stop: int


def read_components(components: Components, images: int, decoder: ComponentDecoder) -> list[String]:
    """Return the string of each of `images` images, () for one of which no component is kept."""
    return [
        tuple(
            cls for cls, run in _runs(pieces) for _ in range(count_digits(run, decoder.reach[cls]))
        )
        for pieces in ordered_pieces(components, images, decoder)
    ]


def ordered_pieces(
    components: Components, images: int, decoder: ComponentDecoder
) -> list[list[Piece]]:
    """Return the components of each image that the decoder keeps, in the order of reading; `reach` is not used."""
    components = kept_components(components, images, decoder)
    x, y, cls = (values.tolist() for values in (components.x, components.y, components.cls))
    across = [
        Piece(*ends)
        for ends in zip(x, cls, components.left.tolist(), components.right.tolist(), strict=True)
    ]
    down = [
        Piece(*ends)
        for ends in zip(y, cls, components.top.tolist(), components.bottom.tolist(), strict=True)
    ]
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
    x, y, masses, cls = (
        values.tolist() for values in (components.x, components.y, components.mass, components.cls)
    )
    selected: list[int] = []
    for first, last in _slices(components, images):
        of_image: list[int] = []
        for j in sorted(range(first, last), key=lambda j: -masses[j]):
            if all(
                cls[i] == cls[j] or math.hypot(x[i] - x[j], y[i] - y[j]) >= decoder.apart
                for i in of_image
            ):
                of_image.append(j)
        selected += sorted(of_image)
    return components[np.array(selected, dtype=np.int64)]


def count_digits(pieces: Iterable[Piece], reach: float) -> int:
    """Return how many digits the pieces of one run are: the fewest stretches of length `reach` that cover them."""
    count, covered = 0, -math.inf
    for piece in sorted(pieces, key=lambda p: p.start):
        if (start := max(piece.start, covered)) < piece.stop:
            more = max(math.ceil((piece.stop - start) / reach), 1)
            count, covered = count + more, start + more * reach
    return max(count, 1)


def fit_component_decoder(components: Components, truth: Sequence[String]) -> ComponentDecoder:
    """Return the decoder that suits the components of images whose strings are known; its margin is 0.

    `apart`, then `tilt`, then `mass` are those with the fewest strings wrong in more than how often a digit is
    repeated; of equally good ones the smallest. In the other strings the runs of equal digits are those of equal
    components: `reach` is the one that counts the fewest runs of a class wrongly, where those of all classes together
    count as PRIOR_RUNS more; of equally good ones the middle one.
    """
    collapsed_truth = [collapsed(string) for string in truth]

    def wrong(decoder: ComponentDecoder) -> int:
        ordered = ordered_pieces(components, len(truth), decoder)
        read = (collapsed(piece.cls for piece in pieces) for pieces in ordered)
        return sum(a != b for a, b in zip(read, collapsed_truth, strict=True))

    quantiles = (
        np.quantile(components.mass, np.linspace(0, 0.5, MASSES)).tolist()
        if len(components)
        else []
    )
    decoder = ComponentDecoder()
    for name, values in (("apart", DISTANCES), ("tilt", TILTS), ("mass", (0.0, *quantiles))):
        decoder = min((decoder.model_copy(update={name: value}) for value in values), key=wrong)
    reach = _fit_reach(ordered_pieces(components, len(truth), decoder), truth)
    return decoder.model_copy(update={"reach": reach})


def _fit_reach(ordered: list[list[Piece]], truth: Sequence[String]) -> tuple[float, ...]:
    longest = max((piece.stop for pieces in ordered for piece in pieces), default=1)
    wrong = np.zeros((CLASSES, longest))
    number = 0
    for pieces, string in zip(ordered, truth, strict=True):
        if collapsed(piece.cls for piece in pieces) != collapsed(string):
            continue
        for (cls, run), (_, digits) in zip(_runs(pieces), itertools.groupby(string), strict=True):
            count = len(list(digits))
            wrong[cls] += [count_digits(run, reach) != count for reach in range(1, longest + 1)]
            number += 1
    prior = wrong.sum(axis=0) / max(number, 1)
    scores = wrong + PRIOR_RUNS * prior
    best = (np.flatnonzero(row <= row.min() + 1e-9) for row in scores)
    return tuple(float(b[len(b) // 2] + 1) for b in best)


def _runs(pieces: list[Piece]) -> Iterable[tuple[int, list[Piece]]]:
    return ((cls, list(run)) for cls, run in itertools.groupby(pieces, key=lambda p: p.cls))


def _slices(components: Components, images: int) -> Iterable[tuple[int, int]]:
    """Return the indices of the first and the last (exclusive) component of every image."""
    return itertools.pairwise(np.searchsorted(components.image, np.arange(images + 1)).tolist())
