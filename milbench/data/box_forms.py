"""The forms in which people write boxes, and how each becomes left, top, right and bottom in pixels."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

BoxForm = Literal["pixels", "relative", "coco", "yolo"]
Box = tuple[float, ...]
"""The four numbers of a box, in some form."""
EXPECTED: dict[str, str] = {
    "pixels": "[class, left, top, right, bottom] in pixels, left < right and top < bottom",
    "relative": "[class, left, top, right, bottom] as shares of width and height from 0 to 1, "
    "left < right and top < bottom",
    "coco": "[class, left, top, width, height] in pixels, width and height above 0",
    "yolo": "[class, centre x, centre y, width, height] as shares of width and height from 0 to 1, "
    "width and height above 0",
}
"""The forms of a box."""
FARTHEST = 1e12
"""Pixels or seconds; a mark that lies farther is a mistake."""
OVERHANG = 1.0
"""Pixels by which a box may reach beyond its image: some programs count from 1, and others round."""
SMALLEST = 1.0
"""The width and height of the smallest box, in pixels."""
_ROUNDING = 1e-6
"""Pixels: shares are rounded, and so are their products."""


def are_numbers(values: Sequence[object], count: int) -> bool:
    """Return whether values are `count` numbers that may be places."""
    if len(values) != count:
        return False
    for value in values:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # NaN is not smaller either.
        if not is_number or not abs(value) < FARTHEST:  # type: ignore[arg-type]
            return False
    return True


def has_extent(box: Box, form: BoxForm) -> bool:
    """Return whether a box has some width and height."""
    if form in ("coco", "yolo"):
        return box[2] > 0 and box[3] > 0
    return box[0] < box[2] and box[1] < box[3]


def in_pixels(box: Box, form: BoxForm, width: int, height: int) -> Box:
    """Return left, top, right and bottom in pixels of an image.

    Examples:
        >>> in_pixels((0.5, 0.5, 0.25, 0.5), "yolo", 40, 20)
        (15.0, 5.0, 25.0, 15.0)
    """
    if form == "pixels":
        return tuple(box)
    if form == "coco":
        left, top, across, down = box
        return left, top, left + across, top + down
    x, y = box[0] * width, box[1] * height
    if form == "relative":
        return x, y, box[2] * width, box[3] * height
    half_across, half_down = box[2] * width / 2, box[3] * height / 2
    return x - half_across, y - half_down, x + half_across, y + half_down


def fault_of(box: Box, width: int, height: int) -> str:
    """Return what is wrong with a box in pixels of an image, "" for nothing."""
    left, top, right, bottom = box
    smallest = SMALLEST - _ROUNDING
    if right - left < smallest or bottom - top < smallest:
        return "is smaller than a pixel"
    beyond = OVERHANG + _ROUNDING
    is_inside = left >= -beyond and top >= -beyond
    if not is_inside or right > width + beyond or bottom > height + beyond:
        return f"is outside its image of {width} x {height} pixels"
    return ""


def fits(box: Box, form: BoxForm, size: tuple[int, int]) -> bool:
    """Return whether a box of a form is one of an image of some width and height."""
    return has_extent(box, form) and not fault_of(in_pixels(box, form, *size), *size)


def remedy(boxes: Sequence[tuple[Box, tuple[int, int]]], form: BoxForm) -> str:
    """Return the end of a message with the forms by which all boxes fit their images, "" for none.

    Args:
        boxes: every box of a table, with width and height of its image.
        form: by which they do not fit.
    """
    fitting = [
        other
        for other in get_args(BoxForm)
        if other != form and all(fits(box, other, size) for box, size in boxes)
    ]
    return remedy_flags(fitting)


def remedy_flags(fitting: Sequence[str]) -> str:
    """Return the end of a message with the forms by which all boxes of a table fit, "" for none."""
    if not fitting:
        return ""
    flags = " or ".join(f"-p task.boxes={other}" for other in fitting)
    return f"; by {flags} all boxes fit their images"


def shown(box: Box) -> str:
    """Return the numbers of a box for a message."""
    return ", ".join(_short(number) for number in box)


def _short(number: float) -> str:
    return f"{number:.0f}" if math.isclose(number, round(number)) else f"{number:.6g}"
