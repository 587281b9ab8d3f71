"""The colour and the marker of a loss: the same in every picture, whatever it is compared with."""

from collections.abc import Mapping
from typing import NamedTuple

from milbench._utils.palette import TONES
from milbench.api.plan import Cell

MARKERS = "osD^vPXhp<>d*8"
"""Those that can be filled or hollow, so that filling can say which losses may be the best."""


class Look(NamedTuple):
    """How a loss is drawn."""

    colour: str
    marker: str


# Those that are shown most have a colour of their own. The others share one, with another marker.
_LOOKS = {
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
MOST_SHOWN = tuple(_LOOKS)[:12]
_POOLING = ("gated-attention", "set-transformer", "dsmil", "context")
"""Networks that are compared like losses, so that they have a look of their own."""
_OWN = "black"
"""The colour of a loss that is not built in."""


def looks(cells: Mapping[str, Cell]) -> dict[str, Look]:
    """Return how each variant is drawn, given a cell of each.

    The look follows from the loss and its head, or from the network that pools instances. A loss
    that is not built in is black, with a marker by the order of names. Further variants of one
    loss, such as those with other recipes, share its colour and take the next markers.
    """
    names = {variant: name_of(cell) for variant, cell in cells.items()}
    own = sorted(set(names.values()) - set(_LOOKS))
    found: dict[str, Look] = {}
    further: dict[str, Look] = {}
    for variant in sorted(cells):
        name = names[variant]
        if name in _LOOKS:
            tone, marker = _LOOKS[name]
        else:
            tone, marker = _OWN, MARKERS[own.index(name) % len(MARKERS)]
        look = Look(TONES[tone].light, marker)
        if look in found.values():
            further[variant] = look
        else:
            found[variant] = look
    for variant, look in further.items():
        found[variant] = _free_look(look, set(found.values()))
    return found


def name_of(cell: Cell) -> str:
    """Return the name by which a cell has its look: of its loss, with the head, or of its network."""
    if cell.network in _POOLING:
        return cell.network
    if cell.loss == "noisy-or":
        return f"noisy-or ({cell.loss_params.get('head', 'sigmoid')})"
    return cell.loss


def _free_look(look: Look, taken: set[Look]) -> Look:
    """Return the look with the next marker that no other variant has."""
    start = MARKERS.index(look.marker)
    for marker in MARKERS[start:] + MARKERS[:start]:
        if Look(look.colour, marker) not in taken:
            return Look(look.colour, marker)
    return look
