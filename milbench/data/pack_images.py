"""Read the images of a table, fitted into squares and packed, with their boxes in pixels."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from milbench.data.annotate_bags import annotate, bags_of_files
from milbench.data.annotations import Annotation, Marks, WrongMarkError
from milbench.data.array_cache import DeclareInputs
from milbench.data.bag_files import BagFile
from milbench.data.bagged_rows import Bagged
from milbench.data.bags_store import write_files
from milbench.data.box_forms import (
    Box,
    BoxForm,
    box_flags,
    box_remedy,
    fault_of,
    fits,
    in_pixels,
    shown_box,
)
from milbench.data.image_files import decode_image, image_size
from milbench.data.marked_rows import with_columns
from milbench.data.own_bags import OwnBags
from milbench.data.table import Table, read_table
from milbench.data.table_files import column_names, require_columns
from milbench.data.table_options import ImageOptions, listed
from milbench.errors import UsageError


def pack_images(folder: Path, path: Path, options: ImageOptions, declare: DeclareInputs) -> OwnBags:
    """Read the images that a table names, fit each into a square, and pack them into one array.

    If the table has boxes, they become corners in pixels of the images before they were fitted.

    Args:
        folder: an empty folder, into which the pixels are written.
        path: of the table.
        options: of the task.
        declare: is told which files the pixels are made from, so that a cache notices when one
            of them changes.
    """
    options = with_columns(options, str(path), column_names(path, options.form))
    require_columns(path, options.form, {options.image: "the paths of images"})
    table = read_table(path, options.texts, options.form)
    bags = bags_of_files(table, options, "image")
    declare(bags.names)
    sizes = np.zeros((len(bags.names), 2), np.int32)

    def read(bag: int) -> NDArray[np.uint8]:
        image = path.parent / bags.names[bag]
        pixels, size = decode_image(image, options.size, options.channels)
        # Once all images are read, boxes are checked against these sizes.
        sizes[bag] = size
        return pixels[None]

    shape = (1, options.channels, options.size, options.size)
    other_columns = {options.image, *listed(options.sides)}
    try:
        annotated = annotate(bags, options, other_columns, "boxes", options.boxes)
    except WrongMarkError as error:
        # A box does not fit the form that was given. All boxes may fit another form.
        remedy = _remedy_of_all(bags, options)
        raise UsageError(f"{error}{remedy}") from None
    files = [
        BagFile(shape, "uint8", partial(read, bag), name=table.place(int(row)))
        for bag, row in enumerate(bags.first_rows)
    ]
    store = write_files(folder, files, "images")
    if annotated["marks"] is not None:
        annotated["marks"] = _boxes_in_pixels(table, annotated, options, sizes)
    return OwnBags(**annotated, store=store, sizes=sizes)


def _boxes_in_pixels(
    table: Table, annotated: Mapping[str, Any], options: ImageOptions, sizes: NDArray[np.int32]
) -> Marks:
    """Return the boxes of all images as corners in pixels.

    Raises UsageError for a box that is smaller than a pixel, or outside its image.
    """
    marks = []
    for bag, boxes in enumerate(annotated["marks"]):
        width, height = sizes[bag].tolist()
        marks_of_bag = []
        for number, (cls, box) in enumerate(boxes):
            corners = in_pixels(box, options.boxes, width, height)
            fault = fault_of(corners, width, height)
            if fault:
                place = table.place(annotated["mark_rows"][bag][number])
                name = annotated["class_names"][cls]
                image = annotated["bags"][bag]
                remedy = box_remedy(_sized_boxes(annotated["marks"], sizes), options.boxes)
                raise UsageError(
                    f"{place}: the box {shown_box(box)} of {name!r} in {image!r} {fault} "
                    f"(task.boxes={options.boxes}){remedy}"
                )
            marks_of_bag.append(Annotation(cls, corners))
        marks.append(marks_of_bag)
    return marks


def _sized_boxes(marks: Marks, sizes: NDArray[np.int32]) -> list[tuple[Box, tuple[int, int]]]:
    """Return every box of a table with width and height of its image."""
    sized = []
    for boxes, (width, height) in zip(marks, sizes.tolist(), strict=True):
        for _, box in boxes:
            sized.append((box, (int(width), int(height))))
    return sized


def _remedy_of_all(bags: Bagged, options: ImageOptions) -> str:
    """Return the end of a message: the forms by which all boxes fit their images, "" for none.

    Unlike `box_remedy` it can be called before images are read, since it opens them for their size.
    """
    fitting = []
    for form in get_args(BoxForm):
        other = replace(options, boxes=form)
        try:
            annotated = annotate(bags, other, set(), "boxes", form)
            sizes = [image_size(bags.table.path.parent / name) for name in bags.names]
        except UsageError:
            continue
        boxes = _sized_boxes(annotated["marks"], np.array(sizes, np.int32))
        if all(fits(box, form, size) for box, size in boxes):
            fitting.append(form)
    return box_flags(fitting)
