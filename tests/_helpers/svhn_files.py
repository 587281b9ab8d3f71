"""Pictures of house numbers and their digitStruct.mat, in the form of SVHN (Netzer et al. 2011)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

Digits = Sequence[tuple[float, float, float, float, float]]
"""Label, left, top, width and height of each digit; a label is 1 to 9, or 10 for a 0."""
FIELDS = ("label", "left", "top", "width", "height")
FONT = Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans-Bold.ttf"
PICTURES = {"train": 60, "test": 20}
"""Folder -> how many pictures `small_svhn` makes."""
DOWNWARDS = 5
"""Every fifth house number is written from top to bottom."""


def small_svhn(root: Path) -> Path:
    """Make a data directory with house numbers in SVHN's files: 60 for training, 20 for testing."""
    for number_of_part, (part, count) in enumerate(PICTURES.items()):
        folder = root / "svhn" / part
        folder.mkdir(parents=True)
        records = []
        for number in range(count):
            rng = np.random.default_rng([number_of_part, number])
            picture, digits = draw_number(rng, downwards=number % DOWNWARDS == 0)
            name = f"{number + 1}.png"
            picture.save(folder / name)
            records.append((name, digits))
        write_struct(folder / "digitStruct.mat", records)
    return root


def draw_number(rng: np.random.Generator, downwards: bool) -> tuple[Image.Image, Digits]:
    """Return a picture of a house number of one to five digits, and the digits with their boxes.

    All digits of a number have one bright colour, before dark noise.
    """
    shown = rng.integers(0, 10, size=rng.integers(1, 6)).tolist()
    side = int(rng.integers(20, 41))
    font = ImageFont.truetype(str(FONT), side)
    margin = side // 2
    # No digit is wider or higher than the side of the font.
    length = margin * 2 + side * len(shown)
    breadth = margin * 2 + side
    width, height = length, breadth
    if downwards:
        width, height = breadth, length
    dark = noise(width, height, seed=int(rng.integers(1000))) // 3
    picture = Image.fromarray(dark)
    pen = ImageDraw.Draw(picture)
    ink = tuple(rng.integers(180, 256, 3).tolist())
    digits = []
    for order, digit in enumerate(shown):
        x = margin
        y = margin
        if downwards:
            y += order * side
        else:
            x += order * side
        left, top, right, bottom = font.getbbox(str(digit))
        pen.text((x - left, y - top), str(digit), fill=ink, font=font)
        label = 10 if digit == 0 else digit
        digits.append((float(label), float(x), float(y), right - left, bottom - top))
    return picture, digits


def write_struct(path: Path, records: Sequence[tuple[str, Digits]]) -> None:
    """Write a digitStruct.mat with these records, which may be wrong.

    tests/data/test_digit_struct.py checks that the file has the structure of SVHN's.
    """
    with h5py.File(path, "w") as file:
        pool = file.create_group("#refs#")
        names = []
        boxes = []
        for number, (name, digits) in enumerate(records):
            units = np.frombuffer(name.encode("utf-16-le"), dtype="<u2")
            names.append(pool.create_dataset(f"name {number}", data=units.reshape(-1, 1)))
            group = pool.create_group(f"boxes {number}")
            columns = np.array(digits, float).reshape(-1, len(FIELDS)).T
            for field, values in zip(FIELDS, columns, strict=True):
                _write_field(pool, group, field, values)
            boxes.append(group)
        structure = file.create_group("digitStruct")
        structure.attrs["MATLAB_class"] = np.bytes_("struct")
        _write_references(structure, "name", names)
        _write_references(structure, "bbox", boxes)


def _write_field(pool: Any, group: Any, field: str, values: Any) -> None:
    """Write a field of a record as MATLAB does.

    The field of a single digit is a number. The field of several digits is a column of references,
    each to the number of one digit.
    """
    if len(values) == 1:
        group.create_dataset(field, data=values.reshape(1, 1))
        return
    numbers = []
    for value in values:
        name = f"number {len(pool)}"
        numbers.append(pool.create_dataset(name, data=[[value]]))
    _write_references(group, field, numbers)


def _write_references(group: Any, name: str, targets: Sequence[Any]) -> None:
    """Write a column of references to HDF5 objects."""
    column = np.array([[target.ref] for target in targets], dtype=h5py.ref_dtype)
    column = column.reshape(len(targets), 1)
    group.create_dataset(name, data=column, dtype=h5py.ref_dtype)


def noise(width: int, height: int, seed: int = 0) -> Any:
    """Return smooth coloured noise, (height, width, 3) uint8."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def write_folder(folder: Path, pictures: Sequence[tuple[int, int, Digits]]) -> Path:
    """Write 1.png, 2.png, ... of these widths and heights, and their digitStruct.mat."""
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for number, (width, height, digits) in enumerate(pictures, start=1):
        name = f"{number}.png"
        Image.fromarray(noise(width, height, number)).save(folder / name)
        records.append((name, digits))
    write_struct(folder / "digitStruct.mat", records)
    return folder
