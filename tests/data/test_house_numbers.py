"""Pictures in SVHN's format: how they are listed, and those that are rendered."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from milbench.data import catalog, digit_struct, house_numbers
from milbench.data.digit_struct import Record, read
from milbench.errors import UsageError
from tests._helpers.command_line import Ran
from tests._helpers.small_data import write_struct

ONE = [(10.0, 3.0, -2.0, 11.0, 20.0)]
THREE = [(1.0, 5.0, 6.0, 7.0, 8.0), (10.0, 13.0, 6.5, 8.0, 9.0), (9.0, 22.0, 7.0, 6.0, 8.0)]


def test_what_is_written_has_the_structure_of_svhn(tmp_path: Path) -> None:
    """Read back by the few lines that every reader of SVHN has, not by the code under test."""
    path = tmp_path / "digitStruct.mat"
    records = [
        Record("3.png", (4, 0), np.array([[1.0, -2, 3, 4], [5, 6.5, 7, 8]])),
        Record("x.png", (0,), np.ones((1, 4))),
    ]
    digit_struct.write(path, records)
    with h5py.File(path) as file:
        names, boxes = file["digitStruct/name"], file["digitStruct/bbox"]
        assert names.shape == boxes.shape == (2, 1)
        assert ["".join(chr(c) for c in file[r][:, 0]) for r in names[:, 0]] == ["3.png", "x.png"]
        two, one = (file[r] for r in boxes[:, 0])
        assert [file[r][0, 0] for r in two["label"][:, 0]] == [4, 10]
        assert [file[r][0, 0] for r in two["height"][:, 0]] == [4, 8]
        assert one["label"].shape == (1, 1)
        assert one["label"][0, 0] == 10
        assert one["left"].dtype == np.float64
    for record, again in zip(records, digit_struct.read(path), strict=True):
        assert (record.name, record.classes, record.boxes.tolist()) == (
            again.name,
            again.classes,
            again.boxes.tolist(),
        )


def other_count(path: Path) -> None:
    write_struct(path, [("1.png", ONE), ("2.png", THREE)])
    with h5py.File(path, "r+") as file:
        group = file[file["digitStruct/bbox"][1, 0]]
        del group["top"]
        group["top"] = np.ones((1, 1))


def huge(path: Path) -> None:
    """Declare a million million names and store none."""
    write_struct(path, [("1.png", ONE)])
    with h5py.File(path, "r+") as file:
        kind = file["digitStruct/name"].dtype
        del file["digitStruct/name"]
        file["digitStruct"].create_dataset(
            "name", shape=(10**12, 1), dtype=kind, compression="gzip"
        )


def truncated(path: Path) -> None:
    write_struct(path, [(f"{n}.png", THREE) for n in range(20)])
    path.write_bytes(path.read_bytes()[:-5000])


def given(digits: Any) -> Callable[[Path], None]:
    return lambda path: write_struct(path, [("1.png", ONE), ("2.png", digits)])


@pytest.mark.parametrize(("write", "complaint"), [
    (lambda path: None, r"digitStruct.mat not found$"),
    (lambda path: path.write_bytes(b"MATLAB 5.0"), r"digitStruct.mat is damaged: no HDF5 file"),
    (lambda path: write_struct(path, []), r"digitStruct.mat has no records"),
    (lambda path: write_struct(path, [("1.png", ONE), ("1.png", ONE)]), "record 2 names 1.png a second time"),
    (lambda path: write_struct(path, [("../1.png", ONE)]), "record 1 names '../1.png', which is no plain name"),
    (given([]), r"record 2 \(2.png\) has {'label': \[\], .* for each digit"),
    (given([(1, float("nan"), 2, 3, 4)]), r"record 2 \(2.png\) has .*'left': \[nan\]"),
    (given([(11, 1, 2, 3, 4)]), r"record 2 \(2.png\) has .*'label': \[11.0\], .* expected a label from 1 to 10"),
    (given([(1, 1, 2, 0, 4)]), r"record 2 \(2.png\) has .*'width': \[0.0\]"),
    (other_count, r"record 2 \(2.png\) has .*'top': \[1.0\], 'width': \[7.0, 8.0, 6.0\]"),
    (truncated, "is damaged"),
    (huge, "is damaged: no HDF5 file with SVHN's records"),
])  # fmt: skip
def test_what_is_wrong_is_named(
    tmp_path: Path, write: Callable[[Path], None], complaint: str
) -> None:
    path = tmp_path / "digitStruct.mat"
    write(path)
    with pytest.raises(UsageError, match=complaint) as caught:
        digit_struct.read(path)
    assert str(caught.value).startswith(str(path))


def normalised(image: Image.Image) -> Any:
    """Return a grey image as (24, 16) with mean 0 and length 1, so that a product of two is their correlation."""
    pixels = np.asarray(image.convert("L").resize((16, 24)), dtype=float)
    return (pixels - pixels.mean()) / max(float(np.linalg.norm(pixels - pixels.mean())), 1e-9)


@pytest.fixture(scope="module")
def templates() -> Any:
    """(fonts, 10, 24, 16): the ten digits in five of matplotlib's fonts, drawn by Pillow alone."""
    drawn = []
    for font in ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "STIXGeneral", "cmr10"):
        face = ImageFont.truetype(
            str(Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"), 64
        )
        for digit in "0123456789":
            left, top, right, bottom = face.getbbox(digit)
            image = Image.new("L", (int(right - left), int(bottom - top)))
            ImageDraw.Draw(image).text((-left, -top), digit, fill=255, font=face)
            drawn.append(normalised(image))
    return np.array(drawn).reshape(5, 10, 24, 16)


def test_the_pictures_show_the_digits_that_the_records_name_in_their_boxes(
    street_data: Path, templates: Any
) -> None:
    """A reader of its own, by the closest template of any font and either contrast, agrees nearly always."""
    right = []
    for part, count in (("train", 60), ("test", 20)):
        folder = street_data / "house-numbers" / part
        records = read(folder / "digitStruct.mat")
        assert [record.name for record in records] == [f"{n}.png" for n in range(1, count + 1)]
        assert {path.name for path in folder.iterdir()} == {
            "digitStruct.mat",
            *(record.name for record in records),
        }
        for record in records:
            with Image.open(folder / record.name) as picture:
                assert (picture.format, picture.mode) == ("PNG", "RGB")
                assert len(record.classes) == len(record.boxes) > 0
                for digit, (left, top, width, height) in zip(
                    record.classes, record.boxes, strict=True
                ):
                    assert 0 <= left < left + width <= picture.width
                    assert 0 <= top < top + height <= picture.height
                    cut = normalised(picture.crop((left, top, left + width, top + height)))
                    match = np.abs((templates * cut).sum(axis=(2, 3))).max(axis=0)
                    right.append(int(match.argmax()) == digit)
    assert len(right) > 150
    assert (
        np.mean(right) > 0.8
    )  # chance is 0.1; fonts, tilt, blur and neighbours mislead so plain a reader at times
    with h5py.File(street_data / "house-numbers/test/digitStruct.mat") as file:
        assert file["digitStruct/bbox"].shape == (20, 1)


def test_they_are_made_on_the_command_line_and_damage_is_made_anew(
    milbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        house_numbers, "PICTURES", {"house-numbers/train": 2, "house-numbers/test": 1}
    )
    words = ("data", "fetch", "house-numbers", "--data-dir", str(tmp_path))
    assert "house-numbers is present in" in milbench(*words).out
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    assert len(before) == 3
    (tmp_path / "house-numbers/train/2.png").unlink()
    note = catalog.DATASETS["house-numbers"].status(tmp_path).note
    assert note.startswith(f"{tmp_path / 'house-numbers/train'} is damaged: expected SHA-256")
    assert milbench(*words).code == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.png")} == before
    assert [p.name for p in tmp_path.iterdir() if "house" in p.name] == ["house-numbers"]
    assert "did you mean 'house-numbers'" in milbench("data", "fetch", "house-number").complaint()
