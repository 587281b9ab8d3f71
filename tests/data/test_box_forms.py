"""Boxes of images: in pixels or as shares, as corners or as sizes; a wrong box is named."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from milbench import UsageError
from milbench.data.bag_checks import check_bags
from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.table_options import ImageOptions

WIDTH, HEIGHT = 40, 20
CORNERS = (10.0, 5.0, 30.0, 15.0)
"""A box in pixels: left, top, right and bottom."""
WRITTEN: dict[str, list[float]] = {
    "pixels": [10, 5, 30, 15],
    "relative": [0.25, 0.25, 0.75, 0.75],
    "coco": [10, 5, 20, 10],
    "yolo": [0.5, 0.5, 0.5, 0.5],
}
"""Form -> the same box as it is written in this form."""


def load(folder: Path, *boxes: Sequence[float], **options: Any) -> OwnBags:
    """Return a table of images with one box each, as JSON."""
    rows = []
    for number, box in enumerate(boxes):
        Image.new("L", (WIDTH, HEIGHT), number).save(folder / f"{number}.png")
        rows.append((f"{number}.png", "cat", json.dumps([["cat", *box]])))
    pd.DataFrame(rows, columns=["image", "labels", "boxes"]).to_csv(folder / "t.csv", index=False)
    return load_bags(folder / "t.csv", ImageOptions(table="", size=16, **options))


def complaint(folder: Path, *boxes: Sequence[float], **options: Any) -> str:
    """Return the line that refuses boxes."""
    with pytest.raises(UsageError) as caught:
        load(folder, *boxes, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("form", WRITTEN)
def test_a_box_of_every_form_becomes_the_same_pixels(tmp_path: Path, form: str) -> None:
    bags = load(tmp_path, WRITTEN[form], boxes=form)
    assert bags.marks == [[(0, CORNERS)]]


def test_shares_taken_for_pixels_are_named_with_the_option(tmp_path: Path) -> None:
    # The second box begins at the top of its image: as a centre, half of it would lie outside.
    said = complaint(tmp_path, [0.25, 0.25, 0.75, 0.75], [0.5, 0, 0.75, 0.5])
    assert "t.csv, row 2: the box 0.25, 0.25, 0.75, 0.75 of 'cat' in '0.png'" in said
    assert "is smaller than a pixel" in said
    assert said.endswith("by -p task.boxes=relative all boxes fit their images")


def test_sizes_taken_for_corners_are_named_with_the_option(tmp_path: Path) -> None:
    said = complaint(tmp_path, [1, 2, 20, 10], [25, 3, 10, 9])
    assert "t.csv, row 3: boxes: ['cat', 25, 3, 10, 9] is wrong" in said
    assert said.endswith("by -p task.boxes=coco all boxes fit their images")


def test_no_option_is_named_that_does_not_read_all_boxes(tmp_path: Path) -> None:
    a_size = [25, 3, 10, 9]
    too_high = [0, 0, 3, 900]
    said = complaint(tmp_path, a_size, [30, 3, 30, 9], too_high)
    assert "-p task.boxes" not in said


@pytest.mark.parametrize(
    "box",
    [
        pytest.param([10, 5, 45, 15], id="partly on the right"),
        pytest.param([-3, 5, 10, 15], id="partly on the left"),
        pytest.param([50, 5, 60, 15], id="wholly"),
    ],
)
def test_a_box_outside_its_image_is_named(tmp_path: Path, box: Sequence[float]) -> None:
    said = complaint(tmp_path, box)
    assert "row 2: the box " in said
    assert "is outside its image of 40 x 20 pixels" in said


def test_a_box_may_reach_one_pixel_beyond_its_image(tmp_path: Path) -> None:
    assert load(tmp_path, [0, 0, 41, 21]).marks == [[(0, (0, 0, 41, 21))]]


def warnings_of(bags: OwnBags) -> list[str]:
    """Return what the warnings about bags are about."""
    findings = check_bags(bags, ImageOptions(table="", size=16))
    return [finding.what for finding in findings if finding.level == "warning"]


MAY_BE_SIZES = [[1, 1, 5, 6], [2, 1, 6, 6], [3, 1, 7, 6], [4, 1, 8, 6]]
"""Boxes that fit their images as corners and as sizes."""


def test_boxes_that_may_be_sizes_are_warned_of(tmp_path: Path) -> None:
    bags = load(tmp_path, *MAY_BE_SIZES, [5, 1, 9, 6])
    assert "boxes that read like sizes" in warnings_of(bags)


def test_one_box_that_cannot_be_a_size_ends_the_doubt(tmp_path: Path) -> None:
    # As a size, this box would end at 20 + 38 pixels, beyond the image.
    bags = load(tmp_path, *MAY_BE_SIZES, [20, 2, 38, 9])
    assert "boxes that read like sizes" not in warnings_of(bags)
