from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from milbench.data import catalog
from milbench.data.digit_struct import read
from tests._helpers.command_line import Ran


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.png")}


def normalised(image: Image.Image) -> Any:
    """Return a grey image as (24, 16) with mean 0 and length 1, so that a product of two is their correlation."""
    pixels = np.asarray(image.convert("L").resize((16, 24)), dtype=float)
    return (pixels - pixels.mean()) / max(float(np.linalg.norm(pixels - pixels.mean())), 1e-9)


@pytest.fixture(scope="module")
def templates() -> Any:
    """(fonts, 10, 24, 16): the ten digits in five of matplotlib's fonts, drawn by Pillow alone."""
    drawn = []
    for font in ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "STIXGeneral", "cmr10"):
        face = ImageFont.truetype(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"), 64)
        for digit in "0123456789":
            left, top, right, bottom = face.getbbox(digit)
            image = Image.new("L", (int(right - left), int(bottom - top)))
            ImageDraw.Draw(image).text((-left, -top), digit, fill=255, font=face)
            drawn.append(normalised(image))
    return np.array(drawn).reshape(5, 10, 24, 16)


def test_the_pictures_show_the_digits_that_the_records_name_in_their_boxes(street_data: Path, templates: Any) -> None:
    """A reader of its own, by the closest template of any font and either contrast, agrees nearly always."""
    right = []
    for part, count in (("train", 60), ("test", 20)):
        folder = street_data / "house-numbers" / part
        records = read(folder / "digitStruct.mat")
        assert [record.name for record in records] == [f"{n}.png" for n in range(1, count + 1)]
        assert {path.name for path in folder.iterdir()} == {"digitStruct.mat", *(record.name for record in records)}
        for record in records:
            with Image.open(folder / record.name) as picture:
                assert (picture.format, picture.mode) == ("PNG", "RGB")
                assert len(record.classes) == len(record.boxes) > 0
                for digit, (left, top, width, height) in zip(record.classes, record.boxes, strict=True):
                    assert 0 <= left < left + width <= picture.width
                    assert 0 <= top < top + height <= picture.height
                    cut = normalised(picture.crop((left, top, left + width, top + height)))
                    match = np.abs((templates * cut).sum(axis=(2, 3))).max(axis=0)
                    right.append(int(match.argmax()) == digit)
    assert len(right) > 150
    assert np.mean(right) > 0.8  # chance is 0.1; fonts, tilt, blur and neighbours mislead so plain a reader at times
    with h5py.File(street_data / "house-numbers/test/digitStruct.mat") as file:
        assert file["digitStruct/bbox"].shape == (20, 1)


def test_the_state_is_listed_and_damage_is_found(street_data: Path, tmp_path: Path) -> None:
    source = catalog.DATASETS["house-numbers"]
    assert source.missing(tmp_path)[0] == "house-numbers/train/digitStruct.mat"
    shutil.copytree(street_data / "house-numbers", tmp_path / "house-numbers")
    (row,) = [row for row in catalog.status(tmp_path) if row.dataset == "house-numbers"]
    assert (row.state, row.note) == ("present", "seed 3, 60 train, 20 test")
    (tmp_path / "house-numbers/train/9.png").unlink()
    (row,) = [row for row in catalog.status(tmp_path) if row.dataset == "house-numbers"]
    assert row.state == "damaged"
    assert str(tmp_path / "house-numbers/train") in row.note
    for text in ("{", '{"revision": 1, "seed": 3, "sha256": []}'):
        (tmp_path / "house-numbers/manifest.json").write_text(text)
        (row,) = [row for row in catalog.status(tmp_path) if row.dataset == "house-numbers"]
        assert row.state == "damaged"
        assert "manifest.json cannot be read" in row.note


def test_on_the_command_line(milbench: Callable[..., Ran], tmp_path: Path) -> None:
    words = ("data", "make", "house-numbers", "--data-dir", str(tmp_path), "--train", "2", "--test", "1")
    assert "seed 0, 2 train, 1 test" in milbench(*words).out
    before = tree(tmp_path)
    assert milbench(*words).code == 0
    complaint = milbench(*words, "--seed", "1").complaint()
    assert complaint == f"{tmp_path / 'house-numbers'} has other pictures: seed 0, 2 train, 1 test; remove it first"
    assert tree(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir() if "house" in p.name] == ["house-numbers"]
    assert "house-numbers" in milbench("data", "make", "houses", "--data-dir", str(tmp_path)).complaint()
