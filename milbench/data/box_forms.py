"""The forms in which people write boxes, and how to turn each into corners in pixels.

The corners are left, top, right and bottom.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

BoxForm = Literal["pixels", "relative", "coco", "yolo"]
"""The forms of boxes, which `EXPECTED_BOXES` explains."""
Box = tuple[float, ...]
"""The four numbers of a box, in one of the forms."""
EXPECTED_BOXES: dict[str, str] = {
    "pixels": "[class, left, top, right, bottom] in pixels, left < right and top < bottom",
    "relative": "[class, left, top, right, bottom] as shares of width and height from 0 to 1, "
    "left < right and top < bottom",
    "coco": "[class, left, top, width, height] in pixels, width and height above 0",
    "yolo": "[class, centre x, centre y, width, height] as shares of width and height from 0 to 1, "
    "width and height above 0",
}
"""Form -> how messages describe a box in this form."""
FARTHEST = 1e12
"""The bound, in pixels or seconds, beyond which the number of a box or an event is a mistake."""
OVERHANG = 1.0
"""How many pixels a box may reach beyond its image: some programs count from 1, others round."""
SMALLEST = 1.0
"""The smallest width and height of a box, in pixels."""
_ROUNDING = 1e-6
"""How many pixels a side may be off, since files have rounded shares of width and height."""


def are_numbers(values: Sequence[object], count: int) -> bool:
    """Return whether values are `count` numbers of a size that occurs in boxes and events."""
    if len(values) != count:
        return False
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        # The comparison is False for NaN, too.
        is_near = abs(value) < FARTHEST
        if not is_near:
            return False
    return True


def has_extent(box: Box, form: BoxForm) -> bool:
    """Return whether the width and height of a box are above 0."""
    if form in ("coco", "yolo"):
        return box[2] > 0 and box[3] > 0
    return box[0] < box[2] and box[1] < box[3]


def in_pixels(box: Box, form: BoxForm, width: int, height: int) -> Box:
    """Return left, top, right and bottom of a box, in pixels of an image of this width and height.

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
    """Return what is wrong with a box in pixels of its image, "" for nothing."""
    left, top, right, bottom = box
    smallest = SMALLEST - _ROUNDING
    if right - left < smallest or bottom - top < smallest:
        return "is smaller than a pixel"
    beyond = OVERHANG + _ROUNDING
    starts_inside = left >= -beyond and top >= -beyond
    ends_inside = right <= width + beyond and bottom <= height + beyond
    if not (starts_inside and ends_inside):
        return f"is outside its image of {width} x {height} pixels"
    return ""


def fits(box: Box, form: BoxForm, size: tuple[int, int]) -> bool:
    """Return whether a box, read by a form, lies in an image; `size` is width and height."""
    if not has_extent(box, form):
        return False
    return not fault_of(in_pixels(box, form, *size), *size)


def box_remedy(boxes: Sequence[tuple[Box, tuple[int, int]]], form: BoxForm) -> str:
    """Return the end of a message: the forms by which all boxes fit their images, "" for none.

    Args:
        boxes: every box of a table, with width and height of its image.
        form: the form that the user gave, by which the boxes do not fit.
    """
    fitting = []
    for other in get_args(BoxForm):
        all_fit = all(fits(box, other, size) for box, size in boxes)
        if all_fit and other != form:
            fitting.append(other)
    return box_flags(fitting)


def box_flags(fitting: Sequence[str]) -> str:
    """Return the end of a message that offers these forms of boxes, "" where there are none."""
    if not fitting:
        return ""
    flags = " or ".join(f"-p task.boxes={other}" for other in fitting)
    return f"; by {flags} all boxes fit their images"


def shown_box(box: Box) -> str:
    """Return the numbers of a box or an event for a message."""
    return ", ".join(_short(number) for number in box)


def _short(number: float) -> str:
    return f"{number:.0f}" if math.isclose(number, round(number)) else f"{number:.6g}"
