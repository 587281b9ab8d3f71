"""The colour and the marker of a loss: the same in every picture, whatever it is compared with."""

from collections.abc import Mapping
from typing import NamedTuple

from milbench._utils.palette import TONES
from milbench.experiment.cell import Cell

MARKERS = "osD^vPXhp<>d*8"
"""Markers of matplotlib that can be filled or hollow.

A filled marker says that the loss may be the best.
"""


class Look(NamedTuple):
    """The colour and the marker of a loss."""

    colour: str
    marker: str


# Name -> tone and marker. The losses and networks that are shown most have a colour of their own.
_MOST_SHOWN = {
    "exact": ("blue", "o"),
    "noisy-or (softmax)": ("red", "s"),
    "noisy-or (sigmoid)": ("brown", "D"),
    "one-vs-rest": ("green", "^"),
    "top-k": ("violet", "v"),
    "max-pooling": ("wine", "P"),
    "log-sum-exp": ("azure", "X"),
    "hard-em": ("grey", "h"),
    "gated-attention": ("magenta", "<"),
    "set-transformer": ("navy", ">"),
    "dsmil": ("forest", "p"),
    "context": ("salmon", "d"),
}
# Other losses share a colour with one of these. No two losses have the same colour and marker.
_OTHERS = {
    "exact-em": ("blue", "D"),
    "attention": ("magenta", "o"),
    "auto-pool": ("azure", "o"),
    "exponential-softmax": ("azure", "s"),
    "power-pooling": ("azure", "D"),
    "generalised-mean": ("violet", "o"),
    "noisy-and": ("brown", "o"),
    "isr": ("red", "o"),
    "linear-softmax": ("wine", "o"),
    "mean": ("grey", "o"),
    "superset": ("forest", "o"),
    "count": ("salmon", "s"),
    "ctc": ("forest", "s"),
    "position": ("navy", "o"),
    "cross-entropy": ("navy", "s"),
}
_LOOKS = _MOST_SHOWN | _OTHERS
MOST_SHOWN = tuple(_MOST_SHOWN)
_POOLING = ("gated-attention", "set-transformer", "dsmil", "context")
"""Networks that are compared like losses. Each has a look of its own, whatever loss trains it."""
_FOREIGN_COLOUR = "black"
"""The colour of a loss that is not built in."""


def looks(cells: Mapping[str, Cell]) -> dict[str, Look]:
    """Return the look of each variant, given a cell of each variant.

    It is the look of the loss with its head, or of the network that pools instances. A loss that is
    not built in is black, and gets its marker by the order of the names. If several variants have
    the same loss, for example with other recipes, they share its colour and take the next markers.
    """
    names = {variant: name_of(cell) for variant, cell in cells.items()}
    foreign = sorted(set(names.values()) - set(_LOOKS))
    # Of variants with the same look, the first keeps it. Then each of the others takes a look that
    # no variant has.
    found: dict[str, Look] = {}
    further: dict[str, Look] = {}
    for variant in sorted(cells):
        name = names[variant]
        if name in _LOOKS:
            tone, marker = _LOOKS[name]
        else:
            tone = _FOREIGN_COLOUR
            # With more foreign losses than markers, the markers repeat.
            marker = MARKERS[foreign.index(name) % len(MARKERS)]
        # A page replaces the light colour by the dark one where its reader has a dark theme.
        look = Look(TONES[tone].light, marker)
        if look in found.values():
            further[variant] = look
        else:
            found[variant] = look
    for variant, look in further.items():
        found[variant] = _free_look(look, set(found.values()))
    return found


def name_of(cell: Cell) -> str:
    """Return the name that a cell gets its look from: of the network if that pools, or the loss.

    `noisy-or` has a look for each head.
    """
    if cell.network.name in _POOLING:
        return cell.network.name
    if cell.loss.name == "noisy-or":
        return f"noisy-or ({cell.loss.params.get('head', 'sigmoid')})"
    return cell.loss.name


def _free_look(look: Look, taken: set[Look]) -> Look:
    """Return the look with the next marker that is not taken, or the same look if all are."""
    start = MARKERS.index(look.marker)
    for marker in MARKERS[start:] + MARKERS[:start]:
        if Look(look.colour, marker) not in taken:
            return Look(look.colour, marker)
    return look
