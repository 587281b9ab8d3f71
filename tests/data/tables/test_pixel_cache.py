from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from milbench.data.tables import pixel_cache
from milbench.data.tables.checks import check_images, fatal
from milbench.data.tables.image_table import ImageTable, load_image_table
from milbench.data.tables.pixel_cache import fitted, fitted_boxes, load_pixels
from milbench.errors import UsageError


def image_table(folder: Path, names: list[str], split: str = "") -> ImageTable:
    """Write a table whose images show a cat, but for the first one, and with the parts of a split where it is given."""
    parts = split.split()
    rows = [f"{name},{'cat' * (n > 0)}" + (f",{parts[n]}" if parts else "") for n, name in enumerate(names)]
    (folder / "pets.csv").write_text("\n".join(["image,labels" + ",split" * bool(parts), *rows]))
    return load_image_table(folder / "pets.csv")


@pytest.fixture
def table(tmp_path: Path) -> ImageTable:
    """Three pictures: red and wide, white with a black point and square, and a copy of the first in another format."""
    red, point = Image.new("RGB", (80, 40), "red"), Image.new("L", (32, 32), 255)
    red.putpixel((0, 0), (0, 0, 255))
    point.putpixel((3, 5), 0)
    red.save(tmp_path / "red.png")
    red.save(tmp_path / "again.bmp")
    point.save(tmp_path / "point.png")
    return image_table(tmp_path, ["red.png", "point.png", "again.bmp"])


def test_images_are_fitted_into_squares_and_mapped_from_a_file(table: ImageTable) -> None:
    pixels = load_pixels(table, 32, 3)
    assert pixels.images.shape == (3, 3, 32, 32)
    assert isinstance(pixels.images, np.memmap), "more images than memory holds"
    assert pixels.sizes.tolist() == [[80, 40], [32, 32], [80, 40]]
    assert pixels.images[0, :, 16, 16].tolist() == [255, 0, 0]
    assert pixels.images[0, 2, 8, 0] > 0, "the upper left corner of the picture, 8 pixels below that of the square"
    assert (pixels.images[1] == 0).nonzero()[1].tolist() == [5] * 3
    assert (pixels.images[1] == 0).nonzero()[2].tolist() == [3] * 3
    assert load_pixels(table, 32, 1).images.shape == (3, 1, 32, 32)
    assert pixels.digest == load_pixels(table, 16, 1).digest


def test_boxes_move_with_the_pixels() -> None:
    picture = Image.new("L", (90, 60), 0)
    picture.paste(255, (30, 12, 60, 36))
    square = np.asarray(fitted(picture, 48)) > 127
    rows, columns = (np.flatnonzero(square.any(axis=axis)) for axis in (1, 0))
    (box,) = fitted_boxes(np.array([[30, 12, 60, 36]], np.float32), 90, 60, 48)
    assert box == pytest.approx([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], abs=0.5)


def test_images_are_decoded_once_until_one_changes(table: ImageTable, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_pixels(table, 32, 3)
    monkeypatch.setattr(pixel_cache, "open_image", None)
    assert load_pixels(table, 32, 3).digest == before.digest
    monkeypatch.undo()
    Image.new("L", (32, 32), 9).save(table.files[1])
    after = load_pixels(table, 32, 3)
    assert after.images[1].max() == 9
    assert after.digest != before.digest


def test_a_later_date_alone_is_another_file_and_the_same_data(table: ImageTable) -> None:
    before = load_pixels(table, 32, 3).digest
    os.utime(table.files[0], (1, 1))
    assert load_pixels(table, 32, 3).digest == before


def test_all_images_that_cannot_be_read_are_named_and_no_cache_is_left(table: ImageTable) -> None:
    folder = table.path.parent
    (folder / "broken.png").write_bytes(table.files[0].read_bytes()[:60])
    (folder / "text.jpg").write_text("no picture")
    wrong = image_table(folder, ["red.png", "broken.png", "absent.png", "point.png", "text.jpg"])
    with pytest.raises(UsageError, match=r"^3 of 5 images cannot be read: ") as error:
        load_pixels(wrong, 32, 3)
    for place in ("pets.csv, row 3: .*broken.png", "pets.csv, row 4: .*absent.png is not there", "row 6: .*text.jpg"):
        assert error.match(place)
    assert "\n" not in str(error.value)
    assert not list(folder.rglob("*.npy"))


def test_a_full_disk_is_one_line(table: ImageTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(UsageError, match=r"cannot keep the images of .*pets.csv in .*: No space left on device"):
        load_pixels(table, 32, 3)


def test_checks_name_equal_images_in_two_parts_of_a_split_and_plain_ones(table: ImageTable) -> None:
    folder = table.path.parent
    Image.new("RGB", (20, 30), "green").save(folder / "plain.png")
    names = ["red.png", "point.png", "again.bmp", "plain.png"]
    split = image_table(folder, names, "train train test test")
    found = {f.what: (f.level, f.found) for f in check_images(split, load_pixels(split, 32, 3), 16)}
    assert found["images"] == ("fact", "4, of 20x30 to 80x40 pixels")
    assert found["images of equal content"] == ("warning", "1: red.png = again.bmp")
    assert found["equal images in two parts"] == ("warning", "1: red.png = again.bmp")
    assert found["images of one colour"] == ("warning", "1: plain.png")
    assert found["equal images, other labels"] == ("warning", "1: red.png = again.bmp")
    assert not [what for what, (level, _) in found.items() if level == "fatal"]
    Image.new("RGB", (9, 9), "blue").save(folder / "blue.png")
    plain = image_table(folder, ["plain.png", "blue.png"])
    problems = fatal(check_images(plain, load_pixels(plain, 32, 3), 16))
    assert problems == ["images: all are of one colour: nothing can be told from them"]


@pytest.mark.parametrize(("left", "bottom", "outside"), [(19, 30, False), (20, 30, True), (19, 0, True)])
def test_boxes_outside_their_image_are_fatal_and_named(
    table: ImageTable, left: float, bottom: float, outside: bool
) -> None:
    folder = table.path.parent
    Image.new("RGB", (20, 30), "green").save(folder / "plain.png")
    names = ["red.png", "plain.png"]
    box = np.array([[left, -5, 25, bottom]], np.float32)
    boxed = replace(image_table(folder, names), boxes=[(np.zeros(0, np.int64), box[:0]), (np.zeros(1, np.int64), box)])
    problems = fatal(check_images(boxed, load_pixels(boxed, 32, 3), 16))
    assert problems == ["boxes outside their image: 1: plain.png (row 3) has 20 x 30 pixels"] * outside
