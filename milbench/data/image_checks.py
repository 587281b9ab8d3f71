"""Checks of images and their boxes."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from milbench.data.box_forms import fits
from milbench.data.findings import Finding, list_names
from milbench.data.own_bags import OwnBags
from milbench.data.table_options import ImageOptions, TableOptions

_FEWEST_BOXES = 5
"""With fewer boxes it may be chance that each of them, read in another form, fits its image."""


def check_images(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield facts on images and boxes, and findings for suspicious boxes and for plain images."""
    # For mypy: `pack_images` always gives the sizes of images.
    assert bags.sizes is not None  # noqa: S101
    sizes = bags.sizes
    areas = sizes.prod(axis=1)
    smallest = _size_text(sizes[areas.argmin()])
    largest = _size_text(sizes[areas.argmax()])
    yield Finding("fact", "images", f"{len(bags):,}, of {smallest} to {largest} pixels")
    if bags.marks is not None:
        boxed = f"{bags.marked().sum():,} of {len(bags):,} images"
        yield Finding("fact", "boxes", f"{boxed} have a box of every class")
        yield from _boxes_like_sizes(bags, sizes, options)
    is_plain = (bags.store.squares == 0).all(axis=1)
    if is_plain.all():
        detail = "all are of one colour: nothing can be told from them"
        yield Finding("fatal", "images", detail)
    else:
        plain = [bags.bags[image] for image in np.flatnonzero(is_plain)]
        yield from list_names("warning", "images of one colour", plain)


def _size_text(size: NDArray[np.int32]) -> str:
    width, height = size.tolist()
    return f"{width}x{height}"


def _boxes_like_sizes(
    bags: OwnBags, sizes: NDArray[np.int32], options: TableOptions
) -> Iterator[Finding]:
    """Yield a finding where all boxes could as well be left, top, width and height.

    Boxes are read as left, top, right and bottom. Correct boxes could be read in the other form
    only if all of them were in the upper left of their images, which is unlikely.
    """
    if not isinstance(options, ImageOptions) or options.boxes != "pixels":
        return
    count = 0
    for boxes, (width, height) in zip(bags.marks or [], sizes.tolist(), strict=True):
        for box in boxes:
            if not fits(box.place, "coco", (width, height)):
                return
            count += 1
    if count >= _FEWEST_BOXES:
        detail = (
            f"all {count:,} could as well be left, top, width and height; are they? "
            "-p task.boxes=coco reads them so"
        )
        yield Finding("warning", "boxes that read like sizes", detail)
