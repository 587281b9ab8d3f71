from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from milbench.data import catalog, house_numbers
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


def test_they_are_made_on_the_command_line_and_damage_is_made_anew(
    milbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house_numbers, "PICTURES", {"house-numbers/train": 2, "house-numbers/test": 1})
    words = ("data", "fetch", "house-numbers", "--data-dir", str(tmp_path))
    assert "house-numbers is present in" in milbench(*words).out
    before = tree(tmp_path)
    assert len(before) == 3
    (tmp_path / "house-numbers/train/2.png").unlink()
    row = catalog.DATASETS["house-numbers"].status(tmp_path)
    assert row.state == "damaged"
    assert str(tmp_path / "house-numbers/train") in row.note
    assert milbench(*words).code == 0
    assert tree(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir() if "house" in p.name] == ["house-numbers"]
    assert "did you mean 'house-numbers'" in milbench("data", "fetch", "house-number").complaint()
