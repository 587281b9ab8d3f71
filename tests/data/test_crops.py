"""Crops of house numbers (SVHN): compared with the text of the published protocol; their cache."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as transforms

from milbench.data import crops as crops_module
from milbench.data.crops import CROP_SIDE, Crops, CropVariant, Protocol, crop, load, window
from milbench.data.digit_struct import Record, read
from milbench.errors import UsageError
from tests._helpers.svhn_files import noise, write_folder, write_struct

Box = tuple[float, float, float, float]
"""Left, top, width and height, in pixels."""


def record_of(*boxes: Box) -> Record:
    """Return the record of a picture whose digits 0, 1, 2, ... have these boxes."""
    return Record("1.png", tuple(range(len(boxes))), np.array(boxes, dtype=float))


@pytest.mark.parametrize("digits", [1, 2, 3, 6])
def test_the_window_is_the_published_one(digits: int) -> None:
    # Digits stand beside each other, each a pixel lower than the one before.
    boxes = [(400 + 20 * k, 300 + k, 18, 40) for k in range(digits)]
    width = 20 * (digits - 1) + 18
    height = 40 + digits - 1
    x = 400 + width / 2
    y = 300 + height / 2
    # The published factor: the fewer digits, the more of the picture around them.
    half = (1 + (6 - digits) / 7) * max(width, height) / 2
    expected = (x - half, y - half, x + half, y + half)
    assert window(record_of(*boxes), 900, 700, "paper") == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(
    "boxes",
    [
        pytest.param([(400, 300, 40, 40)], id="one digit"),
        pytest.param([(400, 300, 20, 40), (420, 300, 20, 40)], id="two digits"),
    ],
)
def test_the_tight_window_depends_on_the_union_of_the_boxes_alone(boxes: list[Box]) -> None:
    # Both unions are 40 pixels wide and high; the window is wider by 6 on each side, 30 % in all.
    assert window(record_of(*boxes), 900, 700, "tight") == (394, 294, 446, 346)


Span = tuple[int, int]
"""The first and the last pixel, numbered from 1."""

IntegerBox = tuple[int, int, int, int]
"""Left and top, numbered from 0, width and height."""


def span_shown(starts: list[int], lengths: list[int], count: int) -> Span:
    """Return the span that boxes cover along an axis of a picture.

    Args:
        starts: the first pixel of each box, numbered from 0.
        lengths: the length of each box.
        count: the number of pixels of the picture along the axis.
    """
    shown = set[int]()
    for start, length in zip(starts, lengths, strict=True):
        shown.update(range(start + 1, start + length + 1))
    in_picture = shown & set(range(1, count + 1))
    return min(in_picture), max(in_picture)


def window_by_hand(boxes: list[IntegerBox], width: int, height: int) -> list[int]:
    """Return left, top, right and bottom of the window by the text of the published protocol."""
    lefts, tops, widths, heights = (list(values) for values in zip(*boxes, strict=True))
    columns = span_shown(lefts, widths, width)
    rows = span_shown(tops, heights, height)
    longest = max(columns[1] - columns[0], rows[1] - rows[0])
    half = Fraction(longest, 2) * (1 + Fraction(6 - len(boxes), 7))
    left, right = ends_around(columns, half, width)
    top, bottom = ends_around(rows, half, height)
    return [left, top, right, bottom]


def ends_around(span: Span, half: Fraction, count: int) -> tuple[int, int]:
    """Return the ends of a window that reaches `half` pixels from the middle of a span.

    They are the first pixel, numbered from 0, and the pixel after the last.
    """
    middle = Fraction(span[0] + span[1], 2)
    # Numbers are rounded to whole pixels, halves upwards, and cut off at the picture.
    first = max(rounded(middle - half), 1)
    last = min(rounded(middle + half), count)
    return first - 1, last


def rounded(value: Fraction) -> int:
    """Return the closest whole number; a half is rounded upwards."""
    return math.floor(value + Fraction(1, 2))


@dataclass
class Boxed:
    """The boxes of the digits of a picture, and its size in pixels."""

    boxes: list[IntegerBox]
    width: int
    height: int


def random_boxes(count: int) -> list[Boxed]:
    """Return random boxes; many reach beyond their picture, but none lies wholly outside."""
    rng = np.random.default_rng(0)
    pictures = []
    for _ in range(count):
        width, height = (int(n) for n in rng.integers(20, 90, 2))
        boxes = []
        for _ in range(rng.integers(1, 7)):
            left = int(rng.integers(-8, width))
            top = int(rng.integers(-8, height))
            across = max(int(rng.integers(2, 30)), 1 - left)
            down = max(int(rng.integers(2, 60)), 1 - top)
            boxes.append((left, top, across, down))
        pictures.append(Boxed(boxes, width, height))
    return pictures


def test_by_the_published_protocol_boxes_are_clipped_before_joining() -> None:
    for boxed in random_boxes(400):
        found = window(record_of(*boxed.boxes), boxed.width, boxed.height, "paper", "paper")
        assert list(found) == window_by_hand(boxed.boxes, boxed.width, boxed.height), boxed


def test_clipping_changes_the_window_of_many_numbers() -> None:
    changed = 0
    for boxed in random_boxes(400):
        clipped = window_by_hand(boxed.boxes, boxed.width, boxed.height)
        unclipped = window(record_of(*boxed.boxes), boxed.width, boxed.height, "paper")
        if list(unclipped) != clipped:
            changed += 1
    assert changed > 100


@pytest.mark.parametrize(
    "box",
    [
        pytest.param((59.5, 10, 8, 8), id="right"),
        pytest.param((-7.5, 10, 8, 8), id="left"),
        pytest.param((10, 39.9, 8, 8), id="below"),
        pytest.param((59.9, 39.9, 0.5, 0.5), id="corner"),
    ],
)
def test_a_box_of_part_of_a_pixel_has_a_window(box: Box) -> None:
    left, top, right, bottom = window(record_of(box), 60, 40, "paper", "paper")
    assert 0 <= left < right <= 60
    assert 0 <= top < bottom <= 40


@pytest.mark.parametrize("variant", get_args(CropVariant))
def test_pixels_are_an_antialiased_bicubic_resize_of_the_window(variant: CropVariant) -> None:
    pixels = noise(300, 200, seed=1)
    record = record_of((120, 60, 30, 70), (152, 66, 28, 70))
    made, _ = crop(record, Image.fromarray(pixels), variant)
    left, top, right, bottom = window(record, 300, 200, variant)
    cut = channels_first(pixels[top:bottom, left:right]).double()
    mode = transforms.InterpolationMode.BICUBIC
    expected = transforms.resize_image(cut, [CROP_SIDE, CROP_SIDE], mode, antialias=True)
    difference = channels_first(made) - expected
    assert float(difference.abs().max()) < 1.5


def channels_first(pixels: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return an image (H, W, 3) as a tensor (3, H, W)."""
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


def test_boxes_follow_the_digits_into_the_crop() -> None:
    # Each digit is a rectangle in a colour of its own. In the crop, the rectangle is where the box
    # of the digit says, to within a pixel.
    pixels = np.zeros((120, 200, 3), dtype=np.uint8)
    boxes = [(60, 40, 20, 44), (90, 30, 25, 50)]
    for channel, (left, top, width, height) in enumerate(boxes):
        pixels[top : top + height, left : left + width, channel] = 255
    made, moved_boxes = crop(record_of(*boxes), Image.fromarray(pixels), "paper")
    for channel, box in enumerate(moved_boxes):
        rows, columns = np.nonzero(made[..., channel] > 127)
        painted = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert box == pytest.approx(painted, abs=1)


NUMBER_1 = [(1.0, 20.0, 5.0, 12.0, 20.0)]
NUMBER_40 = [(4.0, 10.0, 8.0, 12.0, 20.0), (10.0, 24.0, 8.0, 12.0, 20.0)]
NUMBER_0 = [(10.0, 4.0, 30.0, 10.0, 20.0)]
"""Label, left, top, width and height of every digit; a label of 10 is a 0."""

PICTURES = [(60, 40, NUMBER_1), (70, 50, NUMBER_40), (30, 90, NUMBER_0)]
"""Width, height and digits of each picture."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of PICTURES, as SVHN has them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_folder(tmp_path / "svhn" / "train", PICTURES)


def test_the_classes_of_crops_are_those_of_the_records(folder: Path) -> None:
    assert load(folder, "paper").classes.tolist() == [[1, -1], [4, 0], [0, -1]]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_cache_holds_every_crop_in_the_order_of_records(folder: Path, number: int) -> None:
    crops = load(folder, "paper")
    records = list(read(folder / "digitStruct.mat"))
    record = records[number]
    pixels, boxes = crop(record, Image.open(folder / record.name), "paper")
    assert np.array_equal(crops.crops[number], pixels)
    assert np.array_equal(crops.boxes[number, : len(boxes)], boxes)
    assert not crops.boxes[number, len(boxes) :].any()


def test_crops_are_not_read_into_memory(folder: Path) -> None:
    assert isinstance(load(folder, "paper").crops, np.memmap)


@dataclass(frozen=True)
class CropRule:
    """How pictures are cropped."""

    variant: CropVariant
    protocol: Protocol

    def load(self, folder: Path) -> Crops:
        return load(folder, self.variant, self.protocol)


CROP_RULES = [
    CropRule("paper", "ours"),
    CropRule("tight", "ours"),
    CropRule("paper", "paper"),
]


@pytest.fixture
def folder_with_a_box_beyond(folder: Path) -> Path:
    """A folder with a box that reaches beyond its picture, which protocols crop differently."""
    beyond = [(1.0, -6.0, 5.0, 40.0, 20.0)]
    records = [("1.png", beyond), ("2.png", NUMBER_40), ("3.png", NUMBER_0)]
    write_struct(folder / "digitStruct.mat", records)
    return folder


def test_every_variant_and_protocol_has_crops_of_its_own(folder_with_a_box_beyond: Path) -> None:
    paper, tight, published = (rule.load(folder_with_a_box_beyond).crops for rule in CROP_RULES)
    assert not np.array_equal(paper, tight)
    assert not np.array_equal(paper, published)


def test_the_digest_of_crops_depends_on_the_files_alone(folder_with_a_box_beyond: Path) -> None:
    assert len({rule.load(folder_with_a_box_beyond).digest for rule in CROP_RULES}) == 1


def test_pictures_are_cropped_once_for_each_variant_and_protocol(
    folder_with_a_box_beyond: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [rule.load(folder_with_a_box_beyond) for rule in CROP_RULES]
    # No picture can be cropped now.
    monkeypatch.setattr(crops_module, "crop", None)
    again = [rule.load(folder_with_a_box_beyond) for rule in CROP_RULES]
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.crops, other.crops)
        assert one.digest == other.digest


def change_a_picture(folder: Path) -> None:
    Image.fromarray(noise(60, 40, seed=9)).save(folder / "1.png")


def change_the_records(folder: Path) -> None:
    records = [("1.png", NUMBER_1), ("3.png", NUMBER_40), ("2.png", NUMBER_0)]
    write_struct(folder / "digitStruct.mat", records)


@pytest.mark.parametrize("change", [change_a_picture, change_the_records])
def test_other_pictures_or_records_make_new_crops(
    folder: Path, change: Callable[[Path], None]
) -> None:
    before = load(folder, "paper")
    pixels = before.crops.tobytes()
    change(folder)
    after = load(folder, "paper")
    assert after.digest != before.digest
    assert after.crops.tobytes() != pixels
    # No temporary folder and no old one is left.
    assert [path.name for path in (folder.parent / ".crops").iterdir()] == ["train-paper"]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("name", ["crops.npy", "cache.json"])
@pytest.mark.parametrize("damage", [Path.unlink, cut_short], ids=["lost", "cut short"])
def test_a_file_of_the_cache_that_is_damaged_or_lost_is_made_again(
    folder: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    crops = load(folder, "paper").crops.copy()
    path = folder.parent / ".crops" / "train-paper" / name
    size = path.stat().st_size
    damage(path)
    assert np.array_equal(load(folder, "paper").crops, crops)
    assert path.stat().st_size == size


def content_of_cache(folder: Path) -> dict[Path, bytes]:
    """Return path -> content, for each file of the cache of crops."""
    return {path: path.read_bytes() for path in (folder.parent / ".crops").rglob("*.*")}


def test_a_picture_too_small_for_its_boxes_does_not_change_the_cache(folder: Path) -> None:
    load(folder, "paper")
    before = content_of_cache(folder)
    picture = folder / "2.png"
    Image.fromarray(noise(8, 8)).save(picture)
    outside = f"{picture} has 8x8 pixels, and box 1 of 2 in digitStruct.mat is wholly outside"
    with pytest.raises(UsageError, match=outside):
        load(folder, "paper")
    assert content_of_cache(folder) == before


def test_a_missing_picture_does_not_change_the_cache(folder: Path) -> None:
    load(folder, "paper")
    before = content_of_cache(folder)
    (folder / "2.png").unlink()
    with pytest.raises(UsageError, match=r"2\.png is not there"):
        load(folder, "paper")
    assert content_of_cache(folder) == before


def test_a_read_only_folder_has_its_cache_elsewhere(folder: Path, tmp_path: Path) -> None:
    folder.parent.chmod(0o555)
    try:
        crops = load(folder, "paper")
    finally:
        folder.parent.chmod(0o755)
    assert len(crops) == 3
    assert [path.name for path in folder.parent.iterdir()] == ["train"]
    caches = (tmp_path / "cache" / "milbench" / "crops").glob("*/train-paper/cache.json")
    assert len(list(caches)) == 1
