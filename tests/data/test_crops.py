import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as transforms

from milbench.data import crops as crops_module
from milbench.data.crops import CROP_SIDE, CropVariant, crop, load, window
from milbench.data.digit_struct import Record, read
from milbench.errors import UsageError
from tests._helpers.svhn_files import noise, write_folder, write_struct


def record(*boxes: tuple[float, float, float, float]) -> Record:
    return Record("1.png", tuple(range(len(boxes))), np.array(boxes, dtype=float))


@pytest.mark.parametrize("digits", [1, 2, 3, 6])
def test_the_published_window(digits: int) -> None:
    """Half side = (1 + (6 - n)/7) max(height, width)/2 around the middle of the union of the boxes."""
    boxes = [(400 + 20 * k, 300 + k, 18, 40) for k in range(digits)]
    width, height = 20 * (digits - 1) + 18, 40 + digits - 1
    half = (1 + (6 - digits) / 7) * max(width, height) / 2
    x, y = 400 + width / 2, 300 + height / 2
    assert window(record(*boxes), 900, 700, "paper") == pytest.approx(
        (x - half, y - half, x + half, y + half), abs=0.5
    )


def test_the_tight_window_does_not_depend_on_the_number_of_digits() -> None:
    one, two = record((400, 300, 40, 40)), record((400, 300, 20, 40), (420, 300, 20, 40))
    assert window(one, 900, 700, "tight") == window(two, 900, 700, "tight") == (394, 294, 446, 346)


def clipped_by_hand(
    boxes: list[tuple[int, int, int, int]], width: int, height: int
) -> list[tuple[int, int]]:
    """Return the first and the last pixel, numbered from 1, of the columns and of the rows that the text asks for."""
    spans = []
    for start, side, count in ((0, 2, width), (1, 3, height)):
        shown = {
            p
            for box in boxes
            for p in range(box[start] + 1, box[start] + box[side] + 1)
            if 1 <= p <= count
        }
        spans.append((min(shown), max(shown)))
    half = Fraction(max(last - first for first, last in spans), 2) * (
        1 + Fraction(6 - len(boxes), 7)
    )
    found = []
    for (first, last), count in zip(spans, (width, height), strict=True):
        low, high = (
            math.floor(Fraction(first + last, 2) + side + Fraction(1, 2)) for side in (-half, half)
        )
        found.append((max(low, 1), min(high, count)))
    return found


def test_by_the_published_protocol_boxes_are_clipped_before_they_are_joined() -> None:
    rng, differing = np.random.default_rng(0), 0
    for _ in range(400):
        width, height = (int(n) for n in rng.integers(20, 90, 2))
        boxes = []
        for _ in range(rng.integers(1, 7)):
            left, top = int(rng.integers(-8, width)), int(rng.integers(-8, height))
            boxes.append(
                (
                    left,
                    top,
                    max(int(rng.integers(2, 30)), 1 - left),
                    max(int(rng.integers(2, 60)), 1 - top),
                )
            )
        columns, rows = clipped_by_hand(boxes, width, height)
        expected = (columns[0] - 1, rows[0] - 1, columns[1], rows[1])
        assert window(record(*boxes), width, height, "paper", "paper") == expected, boxes
        differing += window(record(*boxes), width, height, "paper") != expected
    assert differing > 100


def test_a_box_that_overlaps_by_less_than_a_pixel_still_has_a_window() -> None:
    for box in ((59.5, 10, 8, 8), (-7.5, 10, 8, 8), (10, 39.9, 8, 8), (59.9, 39.9, 0.5, 0.5)):
        left, top, right, bottom = window(record(box), 60, 40, "paper", "paper")
        assert 0 <= left < right <= 60
        assert 0 <= top < bottom <= 40


@pytest.mark.parametrize("variant", get_args(CropVariant))
def test_pixels_are_an_antialiased_bicubic_resize_of_the_window(variant: CropVariant) -> None:
    pixels = noise(300, 200, seed=1)
    marked = record((120, 60, 30, 70), (152, 66, 28, 70))
    made, _ = crop(marked, Image.fromarray(pixels), variant)
    left, top, right, bottom = window(marked, 300, 200, variant)
    cut = torch.from_numpy(pixels[top:bottom, left:right].copy()).permute(2, 0, 1).double()
    mode = transforms.InterpolationMode.BICUBIC
    expected = transforms.resize_image(cut, [CROP_SIDE, CROP_SIDE], mode, antialias=True)
    assert float((torch.from_numpy(made.copy()).permute(2, 0, 1) - expected).abs().max()) < 1.5


def test_boxes_follow_the_digits_into_the_crop() -> None:
    """Digits painted as plain rectangles: their crop is where the box says, to a pixel."""
    pixels = np.zeros((120, 200, 3), dtype=np.uint8)
    boxes = [(60, 40, 20, 44), (90, 30, 25, 50)]
    for channel, (x, y, w, h) in enumerate(boxes):
        pixels[y : y + h, x : x + w, channel] = 255
    made, moved = crop(record(*boxes), Image.fromarray(pixels), "paper")
    for channel, box in enumerate(moved):
        rows, columns = np.nonzero(made[..., channel] > 127)
        found = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert box == pytest.approx(found, abs=1)


TWO = [(4.0, 10.0, 8.0, 12.0, 20.0), (10.0, 24.0, 8.0, 12.0, 20.0)]
PICTURES = [
    (60, 40, [(1.0, 20.0, 5.0, 12.0, 20.0)]),
    (70, 50, TWO),
    (30, 90, [(10.0, 4.0, 30.0, 10.0, 20.0)]),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_folder(tmp_path / "svhn" / "train", PICTURES)


def test_a_cache_holds_every_crop_in_the_order_of_the_records(folder: Path) -> None:
    crops = load(folder, "paper")
    assert crops.classes.tolist() == [[1, -1], [4, 0], [0, -1]]
    for n, record in enumerate(read(folder / "digitStruct.mat")):
        alone = crop(record, Image.open(folder / record.name), "paper")
        count = len(record.classes)
        assert np.array_equal(crops.crops[n], alone[0])
        assert np.array_equal(crops.boxes[n, :count], alone[1])
        assert not crops.boxes[n, count:].any()
    assert isinstance(crops.crops, np.memmap)


def test_pictures_are_cropped_once_for_each_variant_and_protocol(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond = [(1.0, -6.0, 5.0, 40.0, 20.0)]
    write_struct(
        folder / "digitStruct.mat", [("1.png", beyond), ("2.png", TWO), ("3.png", PICTURES[2][2])]
    )
    kinds: list[tuple[Any, ...]] = [("paper",), ("tight",), ("paper", "paper")]
    first = [load(folder, *kind) for kind in kinds]
    monkeypatch.setattr(crops_module, "crop", None)
    again = [load(folder, *kind) for kind in kinds]
    assert len({one.digest for one in first + again}) == 1
    assert all(np.array_equal(one.crops, two.crops) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[0].crops, first[1].crops)
    assert not np.array_equal(first[0].crops, first[2].crops)


def test_other_pictures_or_records_make_new_crops(folder: Path) -> None:
    made = [load(folder, "paper")]
    Image.fromarray(noise(60, 40, seed=9)).save(folder / "1.png")
    made.append(load(folder, "paper"))
    write_struct(
        folder / "digitStruct.mat",
        [(f"{n}.png", p[2]) for n, p in zip((1, 3, 2), PICTURES, strict=True)],
    )
    made.append(load(folder, "paper"))
    assert (
        len({crops.digest for crops in made}) == len({crops.crops.tobytes() for crops in made}) == 3
    )
    assert [p.name for p in (folder.parent / ".crops").iterdir()] == [
        "train-paper"
    ]  # nothing temporary, nothing old


@pytest.mark.parametrize("name", ["crops.npy", "cache.json"])
@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-10])]
)
def test_what_is_cut_short_or_lost_is_made_again(
    folder: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    crops = load(folder, "paper").crops.copy()
    size = (path := folder.parent / ".crops" / "train-paper" / name).stat().st_size
    damage(path)
    assert np.array_equal(load(folder, "paper").crops, crops)
    assert path.stat().st_size == size


def test_bad_input_leaves_the_cache_as_it_was(folder: Path) -> None:
    load(folder, "paper")
    before = {path: path.read_bytes() for path in (folder.parent / ".crops").rglob("*.*")}
    Image.fromarray(noise(8, 8)).save(folder / "2.png")
    outside = (
        f"{folder / '2.png'} has 8x8 pixels, and box 1 of 2 in digitStruct.mat is wholly outside"
    )
    with pytest.raises(UsageError, match=outside):
        load(folder, "paper")
    (folder / "2.png").unlink()
    with pytest.raises(UsageError, match=r"2\.png is not there"):
        load(folder, "paper")
    assert {path: path.read_bytes() for path in (folder.parent / ".crops").rglob("*.*")} == before


def test_a_read_only_folder_is_cached_in_the_user_s_cache_folder(
    folder: Path, tmp_path: Path
) -> None:
    folder.parent.chmod(0o555)
    try:
        crops = load(folder, "paper")
    finally:
        folder.parent.chmod(0o755)
    assert len(crops) == 3
    assert [p.name for p in folder.parent.iterdir()] == ["train"]
    assert len(list((tmp_path / "cache/milbench/crops").glob("*/train-paper/cache.json"))) == 1
