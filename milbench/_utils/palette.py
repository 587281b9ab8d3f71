"""Colours that reports and `milbench.inference` share."""

from collections.abc import Sequence
from typing import Any, NamedTuple

# In a page these are replaced by the page's own colours, so that figures follow a dark theme.
PAPER, INK, MUTED, LINE = "#fdfdfe", "#1c2129", "#5d6773", "#d9dee5"
CARD, DARK_CARD = "#ffffff", "#191f27"
"""Behind the pictures of a page, light and dark."""
GOOD_SOFT, BAD_SOFT, WARN_SOFT = "#bfe5d2", "#f8cfd0", "#fdeec4"
"""Behind text that says the same in words or signs."""
GOOD_EDGE = "#1a7f5a"
"""Around what is good."""
BETTER, SAME, WORSE = "#a6cdf5", "#fbeeb0", "#f0a27a"
"""Of verdicts, blue, yellow and orange, which the common kinds of colour blindness tell apart."""


class Tone(NamedTuple):
    """A colour for lines, marks and letters: on white, and on the dark card of a page."""

    light: str
    dark: str


# Each has a contrast of 4.5 : 1 with its card. They were chosen to stay apart with the common
# kinds of colour blindness, as far as so many dark colours can; markers tell the rest.
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
    "#4e8fdf", "#f08a3c", "#2fb58c", "#e15b8d", "#a583f0", "#d2ab1d", "#37bdd4", "#ef6461", "#93b53e", "#c08d73",
)  # fmt: skip
"""Colours of classes in pictures, lighter since pictures are dark; the name of a class is written beside its colour."""


def class_colours(count: int) -> list[Any]:
    """Return `count` colours of classes, each in a form that matplotlib accepts."""
    return distinct(CLASS_COLOURS, count)


def distinct(colours: Sequence[str], count: int) -> list[Any]:
    """Return `count` of the colours, or as many others that differ where there are too few."""
    if count <= len(colours):
        return list(colours[:count])
    # It takes half a second to import, and few pictures have so many classes.
    import seaborn as sns

    return list(sns.color_palette("husl", count))


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours such as #1c2129, from 1 to 21, as WCAG 2 defines it."""
    lighter, darker = sorted([_luminance(first), _luminance(second)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour, from 0 (black) to 1 (white)."""
    total = 0.0
    for weight, start in ((0.2126, 1), (0.7152, 3), (0.0722, 5)):
        share = int(colour[start : start + 2], 16) / 255
        linear = share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
        total += weight * linear
    return total
