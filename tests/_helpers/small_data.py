"""Small data sets in the files that tasks read, written without the code that reads them."""

import gzip
import json
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image, ImageDraw
from scipy.io import wavfile
from torch import Tensor

from tests._helpers import sequence_files
from tests._helpers.svhn_files import small_svhn


def write_idx(path: Path, values: Tensor) -> None:
    """Write bytes in the idx format: 0x0800 + dimensions, the size of each, the values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
    path.write_bytes(header + values.byte().numpy().tobytes())


def small_mnist(
    root: Path, train: int = 120, test: int = 40, title: str = "MNIST", zipped: bool = False
) -> Path:
    """Make a data directory with random images in the files of MNIST or of a set in its form."""
    rng = torch.Generator().manual_seed(0)
    for name, count in (("train", train), ("t10k", test)):
        images = torch.randint(256, (count, 28, 28), generator=rng)
        write_idx(root / f"{title}/raw/{name}-images-idx3-ubyte", images)
        write_idx(root / f"{title}/raw/{name}-labels-idx1-ubyte", torch.arange(count) % 10)
    for path in (root / title / "raw").glob("*ubyte") if zipped else ():
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return root


TRAIN = [f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)]
TEST = "cifar-10-batches-py/test_batch"


class Python2(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings."""

    def save_bytes(self, value: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(value)) + value)  # type: ignore[attr-defined]

    dispatch = {**pickle._Pickler.dispatch, bytes: save_bytes}  # type: ignore[dict-item]  # noqa: RUF012


def write_batch(path: Path, batch: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        Python2(file, protocol=2).dump(batch)
    # numpy called this module otherwise in those days.
    path.write_bytes(path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


def small_cifar(root: Path) -> Path:
    """Make a data directory with random images in CIFAR-10's files."""
    rng = torch.Generator().manual_seed(0)
    for name, count in (*((name, 24) for name in TRAIN), (TEST, 40)):
        pixels = torch.randint(256, (count, 3072), generator=rng).byte().numpy()
        labels = [(i + count) % 10 for i in range(count)]
        write_batch(
            root / name,
            {"data": pixels, "labels": labels, "batch_label": b"made up", "filenames": [b"x.png"]},
        )
    return root


RATE, RATE_OF_CLIPS = 8000, 22_050


def small_spoken_digits(root: Path) -> Path:
    """Make a data directory where digit d is a loud tone of 300 + 300 d Hz, 0.2 to 0.4 seconds long, by one speaker."""
    folder = root / "spoken-digits" / "recordings"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for digit in range(10):
        for take in range(12):
            times = np.arange(rng.integers(RATE // 5, 2 * RATE // 5)) / RATE
            sound = np.sin(2 * np.pi * (300 + 300 * digit) * times)
            wavfile.write(folder / f"{digit}_ann_{take}.wav", RATE, (20_000 * sound).astype("<i2"))
    return root


def letter_rows(words: list[str], folds: list[int]) -> list[list[str]]:
    """Return the rows of B. Taskar's file for words with random pixels, the first ones of which tell the letter."""
    rng = np.random.default_rng(0)
    rows: list[list[str]] = []
    for number, (word, fold) in enumerate(zip(words, folds, strict=True)):
        for place, letter in enumerate(word, start=1):
            following = -1 if place == len(word) else len(rows) + 2
            pixels = rng.integers(0, 2, 128)
            pixels[:5] = [(ord(letter) - ord("a")) >> bit & 1 for bit in range(5)]
            row = (len(rows) + 1, letter, following, number + 1, place, fold, *pixels)
            rows.append([str(value) for value in row])
    return rows


def small_letters(root: Path, words: int = 100) -> Path:
    """Make a data directory with random words of 3 to 8 letters in ten folds, in the file of B. Taskar's letters."""
    rng = np.random.default_rng(0)
    drawn = [
        "".join(rng.choice([*"abcdefghijklmnopqrstuvwxyz"], rng.integers(3, 9)))
        for _ in range(words)
    ]
    write_letters(root, letter_rows(drawn, [n % 10 for n in range(words)]))
    return root


def write_letters(root: Path, rows: list[list[str]]) -> Path:
    path = root / "ocr-letters/letter.data.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join("\t".join(row) + "\t\n" for row in rows).encode()))
    return path


def small_clips(root: Path, takes: int = 1) -> Path:
    """Make a data directory where ESC-10's class n is a tone of 500 + 500 n Hz, 0.5 to 3 seconds in silence."""
    import soundfile

    rng = np.random.default_rng(0)
    for number in range(10):
        folder = root / "esc10" / f"{number + 1:03d} - Tone"
        folder.mkdir(parents=True)
        for fold in range(1, 6):
            for take in "ABCDEFGH"[:takes]:
                times = (
                    np.arange(rng.integers(RATE_OF_CLIPS // 2, 3 * RATE_OF_CLIPS)) / RATE_OF_CLIPS
                )
                sound = np.pad(
                    np.sin(2 * np.pi * (500 + 500 * number) * times), (0, RATE_OF_CLIPS // 2)
                )
                path = folder / f"{fold}-{rng.integers(1000)}-{take}.ogg"
                soundfile.write(path, 0.5 * sound, RATE_OF_CLIPS, format="OGG", subtype="VORBIS")
    return root


def small_table(folder: Path) -> Path:
    """Write bags.csv with 60 bags of 1 to 4 instances; every other one has the label "odd", of its first instance."""
    rows = [
        f"{bag},{'odd' if bag % 2 else ''},{'odd' if bag % 2 and i == 0 else ''},{bag / 7 + i},{bag * i % 5}"
        for bag in range(60)
        for i in range(1 + bag % 4)
    ]
    (folder / "bags.csv").write_text("\n".join(["bag,labels,instance_label,f0,f1", *rows]))
    return folder


def small_images(folder: Path, count: int = 60) -> Path:
    """Write images.csv and pictures of several sizes that are empty, have a square, or a square and a disc, in turn."""
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    rows = []
    for n in range(count):
        width, height = (int(side) for side in rng.integers(60, 101, 2))
        picture = Image.new("RGB", (width, height), tuple(rng.integers(0, 90, 3).tolist()))
        draw, placed = ImageDraw.Draw(picture), []
        for number, (name, shape) in enumerate(
            (("square", draw.rectangle), ("disc", draw.ellipse))[: n % 3]
        ):
            left = int(rng.integers(0, width - 25))
            top = int(rng.integers(0, height // 2 - 25)) + number * (height // 2)
            shape((left, top, left + 24, top + 24), fill=tuple(rng.integers(160, 256, 3).tolist()))
            placed.append([name, left, top, left + 25, top + 25])
        picture.save(folder / "pictures" / f"{n}.png")
        labels = ";".join(str(name) for name, *_ in placed)
        rows.append({"image": f"pictures/{n}.png", "labels": labels, "boxes": json.dumps(placed)})
    pd.DataFrame(rows).to_csv(folder / "images.csv", index=False)
    return folder


def bomb(side: int) -> bytes:
    """Return a PNG file whose header promises a square picture of this side."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


PARAMS: dict[str, dict[str, Any]] = {
    **{
        name: {"any_data": True, "validation": 20}
        for name in ("mnist", "extended-mnist", "cifar10")
    },
    "svhn": {"validation": 20},
    "mnist-bags": {"any_data": True, "train_bags": 24},
    "sound-events": {"train_bags": 64},
    "spoken-digits": {"any_data": True, "train_bags": 64},
    "soundscapes": {"any_data": True, "train_bags": 64},
    "handwritten-words": {"any_data": True},
    "feature-bags": {"table": "bags.csv"},
    "image-bags": {"table": "images.csv", "size": 32, "flip": True, "crop": 3},
    "sequence-bags": {"table": "table.csv", "sample_rate": sequence_files.RATE},
}
"""Parameters with which tasks accept these small data sets."""


def small_data(root: Path) -> Path:
    """Write a small data set of every task into a folder."""
    for write in (
        small_clips,
        small_letters,
        small_spoken_digits,
        small_cifar,
        small_mnist,
        small_table,
        small_images,
        small_svhn,
    ):
        write(root)
    sequence_files.small_table(root)
    return root
