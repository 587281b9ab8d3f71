"""Colours that reports and `milbench.inference` share."""

from collections.abc import Sequence
from typing import Any, NamedTuple

# A page replaces these four colours in figures by its own, so that figures follow a dark theme.
PAPER = "#fdfdfe"
INK = "#1c2129"
MUTED = "#5d6773"
LINE = "#d9dee5"

# The card behind a picture of a page, in the light and the dark theme of the page.
CARD = "#ffffff"
DARK_CARD = "#191f27"

# Colours behind text, which says the same in words or signs.
GOOD_SOFT = "#bfe5d2"
BAD_SOFT = "#f8cfd0"
WARN_SOFT = "#fdeec4"
# The edge around what is good.
GOOD_EDGE = "#1a7f5a"

# The colours of verdicts: blue, yellow and orange stay distinct with the common kinds of colour
# blindness.
BETTER = "#a6cdf5"
SAME = "#fbeeb0"
WORSE = "#f0a27a"


class Tone(NamedTuple):
    """A colour for lines, symbols and letters, in a shade for each theme of a page."""

    light: str
    dark: str


# Each shade has a contrast of at least 4.5 : 1 with the card behind it. The colours were chosen to
# stay distinct with the common kinds of colour blindness, as far as 13 dark colours can. Figures
# use a symbol for each colour as well.
TONES = {
    "blue": Tone("#3240da", "#839ffe"),
    "red": Tone("#960800", "#f56e5b"),
    "brown": Tone("#905211", "#e0a85a"),
    "green": Tone("#448061", "#84c19f"),
    "violet": Tone("#631ea8", "#b17efd"),
    "wine": Tone("#692349", "#c8799f"),
    "azure": Tone("#1b71a3", "#67b6ec"),
    "grey": Tone("#5e5a66", "#a7a3b0"),
    "magenta": Tone("#c822a2", "#ff81d9"),
    "navy": Tone("#373779", "#888ed8"),
    "forest": Tone("#1a4e0c", "#70a665"),
    "salmon": Tone("#bd5344", "#fe9381"),
    "black": Tone("#15181d", "#eef1f5"),
}

CLASS_COLOURS = (
    "#4e8fdf", "#f08a3c", "#2fb58c", "#e15b8d", "#a583f0",
    "#d2ab1d", "#37bdd4", "#ef6461", "#93b53e", "#c08d73",
)  # fmt: skip
"""The colours of classes over dark pictures. The name of a class is written beside its colour."""


def class_colours(count: int) -> list[Any]:
    """Return `count` colours of classes, each in a form that matplotlib accepts."""
    return distinct(CLASS_COLOURS, count)


def distinct(colours: Sequence[str], count: int) -> list[Any]:
    """Return the first `count` of the colours, or other distinct colours if there are too few."""
    if count <= len(colours):
        return list(colours[:count])
    # Imported here: it takes half a second, and few pictures have so many classes.
    import seaborn as sns

    return list(sns.color_palette("husl", count))


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours such as #1c2129, from 1 to 21, by WCAG 2.

    WCAG are the Web Content Accessibility Guidelines.
    """
    lighter, darker = sorted([_luminance(first), _luminance(second)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour by WCAG 2, from 0 (black) to 1 (white)."""
    red = _linear(colour[1:3])
    green = _linear(colour[3:5])
    blue = _linear(colour[5:7])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(digits: str) -> float:
    """Return the linear intensity, 0 to 1, of a channel of sRGB given as two hexadecimal digits."""
    share = int(digits, 16) / 255
    if share <= 0.04045:
        return share / 12.92
    linear: float = ((share + 0.055) / 1.055) ** 2.4
    return linear
