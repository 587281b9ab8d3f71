"""Small data sets in the file formats that tasks read.

They are written without the code that reads them.
"""

import gzip
import json
import pickle
import struct
import zlib
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.io import wavfile
from torch import Tensor

from tests._helpers import sequence_files
from tests._helpers.svhn_files import small_svhn


def write_idx(path: Path, values: Tensor) -> None:
    """Write bytes in the idx format of MNIST.

    A file has 0x0800 + the number of dimensions, the size of each dimension, and the values.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
    path.write_bytes(header + values.byte().numpy().tobytes())


def small_mnist(
    root: Path, train: int = 120, test: int = 40, title: str = "MNIST", zipped: bool = False
) -> Path:
    """Make a data directory with random images in the files of MNIST, or of a data set like it."""
    rng = torch.Generator().manual_seed(0)
    for name, count in (("train", train), ("t10k", test)):
        images = torch.randint(256, (count, 28, 28), generator=rng)
        write_idx(root / f"{title}/raw/{name}-images-idx3-ubyte", images)
        write_idx(root / f"{title}/raw/{name}-labels-idx1-ubyte", torch.arange(count) % 10)
    if zipped:
        for path in [*(root / title / "raw").glob("*ubyte")]:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return root


# The files of CIFAR-10, below a data directory.
TRAIN = [f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)]
TEST = "cifar-10-batches-py/test_batch"


class Python2(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings.

    Only the pickler that is written in Python, which is private, lets a subclass change this.
    """

    def save_bytes(self, value: bytes) -> None:
        # "T" is pickle's code for such a string; its length and its bytes follow.
        self.write(b"T" + struct.pack("<i", len(value)) + value)  # type: ignore[attr-defined]

    dispatch = {  # noqa: RUF012
        **pickle._Pickler.dispatch,
        bytes: save_bytes,  # type: ignore[dict-item]
    }


def write_batch(path: Path, batch: Any) -> None:
    """Pickle a batch as Python 2 and the numpy of its time did."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        Python2(file, protocol=2).dump(batch)
    # In those days numpy called this module numpy.core.multiarray.
    path.write_bytes(path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


def small_cifar(root: Path) -> Path:
    """Make a data directory with random images in CIFAR-10's files."""
    rng = torch.Generator().manual_seed(0)
    for name in (*TRAIN, TEST):
        count = 40 if name == TEST else 24
        pixels = torch.randint(256, (count, 3 * 32 * 32), generator=rng).byte().numpy()
        batch = {
            "data": pixels,
            "labels": [(i + count) % 10 for i in range(count)],
            "batch_label": b"made up",
            "filenames": [b"x.png"],
        }
        write_batch(root / name, batch)
    return root


RATE = 8000
"""Samples in a second of a spoken digit."""
RATE_OF_CLIPS = 22_050
"""Samples in a second of a clip of ESC-10."""


def small_spoken_digits(root: Path) -> Path:
    """Make a data directory with spoken digits by one speaker.

    Digit d is a loud tone of 300 + 300 d Hz, 0.2 to 0.4 seconds long.
    """
    folder = root / "spoken-digits" / "recordings"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for digit in range(10):
        for take in range(12):
            length = int(rng.integers(RATE // 5, 2 * RATE // 5))
            sound = 20_000 * _tone(300 + 300 * digit, length, RATE)
            path = folder / f"{digit}_ann_{take}.wav"
            wavfile.write(path, RATE, sound.astype("<i2"))
    return root


def _tone(hertz: int, length: int, rate: int) -> NDArray[np.float64]:
    """Return a tone of `length` samples, from -1 to 1."""
    times = np.arange(length) / rate
    return np.sin(2 * np.pi * hertz * times)


def letter_rows(words: list[str], folds: list[int]) -> list[list[str]]:
    """Return the rows of B. Taskar's file of letters for these words.

    Pixels are random, except for the first five, which tell the letter.
    """
    rng = np.random.default_rng(0)
    rows: list[list[str]] = []
    for number, (word, fold) in enumerate(zip(words, folds, strict=True)):
        for order, letter in enumerate(word, start=1):
            own_id = len(rows) + 1
            id_of_next_letter = -1 if order == len(word) else own_id + 1
            pixels = rng.integers(0, 2, 16 * 8)
            # Five bits are enough for 26 letters.
            number_of_letter = ord(letter) - ord("a")
            pixels[:5] = [(number_of_letter >> bit) & 1 for bit in range(5)]
            row = (own_id, letter, id_of_next_letter, number + 1, order, fold, *pixels)
            rows.append([str(value) for value in row])
    return rows


def small_letters(root: Path, words: int = 100) -> Path:
    """Make a data directory with B. Taskar's file of letters.

    It has random words of 3 to 8 letters in ten folds.
    """
    rng = np.random.default_rng(0)
    letters = [*ascii_lowercase]
    random_words = ["".join(rng.choice(letters, rng.integers(3, 9))) for _ in range(words)]
    folds = [n % 10 for n in range(words)]
    write_letters(root, letter_rows(random_words, folds))
    return root


def write_letters(root: Path, rows: list[list[str]]) -> Path:
    """Write rows as B. Taskar's file, each line of which ends with a tab; return its path."""
    path = root / "ocr-letters/letter.data.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) + "\t\n" for row in rows]
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def small_clips(root: Path, takes: int = 1) -> Path:
    """Make a data directory with clips in the form of ESC-10.

    Class n is a tone of 500 + 500 n Hz, 0.5 to 3 seconds long, and silence after it.
    """
    import soundfile

    rng = np.random.default_rng(0)
    for number in range(10):
        folder = root / "esc10" / f"{number + 1:03d} - Tone"
        folder.mkdir(parents=True)
        for fold in range(1, 6):
            for take in "ABCDEFGH"[:takes]:
                length = int(rng.integers(RATE_OF_CLIPS // 2, 3 * RATE_OF_CLIPS))
                tone = _tone(500 + 500 * number, length, RATE_OF_CLIPS)
                sound = np.pad(tone, (0, RATE_OF_CLIPS // 2))
                path = folder / f"{fold}-{rng.integers(1000)}-{take}.ogg"
                soundfile.write(path, 0.5 * sound, RATE_OF_CLIPS, format="OGG", subtype="VORBIS")
    return root


def small_table(folder: Path) -> Path:
    """Write bags.csv with 60 bags of 1 to 4 instances.

    Every other bag has the label "odd", which its first instance shows.
    """
    lines = ["bag,labels,instance_label,f0,f1"]
    for bag in range(60):
        label = "odd" if bag % 2 else ""
        for i in range(1 + bag % 4):
            instance_label = label if i == 0 else ""
            lines.append(f"{bag},{label},{instance_label},{bag / 7 + i},{bag * i % 5}")
    (folder / "bags.csv").write_text("\n".join(lines))
    return folder


def small_images(folder: Path, count: int = 60) -> Path:
    """Write images.csv and pictures of several sizes.

    In turn a picture is empty, has a square, and has a square and a disc.
    """
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    rows = []
    for n in range(count):
        width, height = rng.integers(60, 101, 2).tolist()
        dark = tuple(rng.integers(0, 90, 3).tolist())
        picture = Image.new("RGB", (width, height), dark)
        names = ["square", "disc"][: n % 3]
        boxes = _draw_shapes(picture, names, rng)
        picture.save(folder / "pictures" / f"{n}.png")
        row = {"image": f"pictures/{n}.png", "labels": ";".join(names), "boxes": json.dumps(boxes)}
        rows.append(row)
    pd.DataFrame(rows).to_csv(folder / "images.csv", index=False)
    return folder


def _draw_shapes(
    picture: Image.Image, names: list[str], rng: np.random.Generator
) -> list[list[str | int]]:
    """Draw shapes into a picture; return the name and the box of each.

    The first shape is in the upper half, and the second in the lower half.
    """
    pen = ImageDraw.Draw(picture)
    shapes = {"square": pen.rectangle, "disc": pen.ellipse}
    side = 25
    half = picture.height // 2
    boxes: list[list[str | int]] = []
    for number, name in enumerate(names):
        left = int(rng.integers(0, picture.width - side))
        top = int(rng.integers(0, half - side)) + number * half
        bright = tuple(rng.integers(160, 256, 3).tolist())
        # The pen takes the last pixels of a shape, and a box the pixels after them.
        shapes[name]((left, top, left + side - 1, top + side - 1), fill=bright)
        boxes.append([name, left, top, left + side, top + side])
    return boxes


def bomb(side: int) -> bytes:
    """Return a PNG file whose header promises a square picture of this side, without its pixels."""
    signature = b"\x89PNG\r\n\x1a\n"
    # After the sizes: 8 bits a colour, 2 for red, green and blue, then the only methods of
    # compression and of filters, and no interlacing.
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    no_pixels = zlib.compress(b"")
    chunks = [_chunk(b"IHDR", header), _chunk(b"IDAT", no_pixels), _chunk(b"IEND", b"")]
    return signature + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    """Return a part of a PNG file, with its length before it and its checksum after it."""
    length = struct.pack(">I", len(data))
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return length + kind + data + checksum


PARAMS: dict[str, dict[str, Any]] = {
    "mnist": {"any_data": True, "validation": 20},
    "extended-mnist": {"any_data": True, "validation": 20},
    "cifar10": {"any_data": True, "validation": 20},
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
"""Task -> the parameters with which it accepts its small data set."""


def small_data(root: Path) -> Path:
    """Write a small data set of every task into a folder."""
    small_clips(root)
    small_letters(root)
    small_spoken_digits(root)
    small_cifar(root)
    small_mnist(root)
    small_table(root)
    small_images(root)
    small_svhn(root)
    sequence_files.small_table(root)
    return root
