"""Small folders in SVHN's format, written without the code that is tested."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

Digits = Sequence[tuple[float, float, float, float, float]]
"""Label (1 to 10), left, top, width and height of each digit."""


def write_struct(path: Path, records: Sequence[tuple[str, Digits]]) -> None:
    """Write a digitStruct.mat by hand: references to numbers, a plain number where there is one digit."""
    with h5py.File(path, "w") as file:
        for key, values in {
            "name": [as_text(file, name) for name, _ in records],
            "bbox": [as_boxes(file, digits) for _, digits in records],
        }.items():
            file.require_group("digitStruct")[key] = column(values)


def column(references: Sequence[Any]) -> Any:
    return np.array([[r] for r in references] or np.empty((0, 1)), dtype=h5py.ref_dtype)


def fresh(file: Any) -> str:
    return f"#refs#/x{len(file.require_group('#refs#'))}"


def as_text(file: Any, text: str) -> Any:
    return file.create_dataset(fresh(file), data=np.array([[ord(c)] for c in text], dtype=np.uint16)).ref


def as_boxes(file: Any, digits: Digits) -> Any:
    group = file.create_group(fresh(file))
    for n, field in enumerate(("label", "left", "top", "width", "height")):
        values = [float(digit[n]) for digit in digits]
        if len(values) == 1:
            group[field] = np.array([values])
        else:
            group[field] = column([file.create_dataset(fresh(file), data=np.array([[v]])).ref for v in values])
    return group.ref


def picture(width: int, height: int, seed: int = 0) -> Any:
    """Smooth coloured noise (height, width, 3) uint8."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def write_folder(folder: Path, pictures: Sequence[tuple[int, int, Digits]]) -> Path:
    """Write 1.png, 2.png, ... of these widths and heights, and their digitStruct.mat."""
    folder.mkdir(parents=True, exist_ok=True)
    for n, (width, height, _) in enumerate(pictures, start=1):
        Image.fromarray(picture(width, height, n)).save(folder / f"{n}.png")
    write_struct(folder / "digitStruct.mat", [(f"{n}.png", p[2]) for n, p in enumerate(pictures, start=1)])
    return folder


def bomb(side: int) -> bytes:
    """Return a PNG file whose header promises a square picture of this side."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
