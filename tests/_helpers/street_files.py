"""Small folders in SVHN's format."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from milbench.data import digit_struct
from milbench.data.digit_struct import Record

Digits = Sequence[tuple[float, float, float, float, float]]
"""Label (1 to 10), left, top, width and height of each digit."""


def write_struct(path: Path, records: Sequence[tuple[str, Digits]]) -> None:
    """Write a digitStruct.mat, perhaps a wrong one, by the writer that tests/data/test_digit_struct.py checks."""
    made = []
    for name, digits in records:
        numbers = np.array(digits, float).reshape(-1, 5)
        made.append(Record(name, tuple(0 if label == 10 else int(label) for label in numbers[:, 0]), numbers[:, 1:]))
    digit_struct.write(path, made)


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
