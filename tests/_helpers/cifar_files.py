"""CIFAR-10's file format as Python 2 wrote it, without the code that reads it."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import torch

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


def small_cifar(root: Path, a_file: int = 24, test: int = 40) -> Path:
    """Make a data directory with random images in CIFAR-10's files."""
    rng = torch.Generator().manual_seed(0)
    for name, count in (*((name, a_file) for name in TRAIN), (TEST, test)):
        pixels = torch.randint(256, (count, 3072), generator=rng).byte().numpy()
        labels = [(i + count) % 10 for i in range(count)]
        write_batch(root / name, {"data": pixels, "labels": labels, "batch_label": b"made up", "filenames": [b"x.png"]})
    return root
