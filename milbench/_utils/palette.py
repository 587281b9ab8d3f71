"""Colours that reports and `milbench.inference` share."""

from collections.abc import Sequence
from typing import Any

# In a page these are replaced by the page's own colours, so that figures follow a dark theme.
PAPER, INK, MUTED, LINE = "#fdfdfe", "#1c2129", "#5d6773", "#d9dee5"
GOOD_SOFT, BAD_SOFT, WARN_SOFT = "#e2f4ed", "#fdeced", "#fff5dd"
"""Behind text that says the same in words or signs."""
BETTER, SAME, WORSE = "#a6cdf5", "#fbeeb0", "#f0a27a"
"""Of verdicts, blue, yellow and orange, which the common kinds of colour blindness tell apart."""

# Middle tones, distinguishable on white and on black and with the common kinds of colour blindness.
COLOURS = (
    "#2f7ed8",
    "#e0702b",
    "#159a74",
    "#b8519f",
    "#8a6fdf",
    "#a98600",
    "#1f9fb8",
    "#cf4456",
    "#6f8f2f",
    "#8d6e63",
)
CLASS_COLOURS = (
    "#4e8fdf", "#f08a3c", "#2fb58c", "#e15b8d", "#a583f0", "#d2ab1d", "#37bdd4", "#ef6461", "#93b53e", "#c08d73",
)  # fmt: skip
"""Colours of classes in pictures, lighter since pictures are dark; the name of a class is written beside its colour."""


def class_colours(count: int) -> list[Any]:
    """Return `count` colours of classes, each in a form that matplotlib accepts."""
    return distinct(CLASS_COLOURS, count)


def distinct(colours: Sequence[str], count: int) -> list[Any]:
    """Return `count` of the colours, or as many others that differ where there are too few."""
    import seaborn as sns

    return (
        list(colours[:count]) if count <= len(colours) else list(sns.color_palette("husl", count))
    )
