"""MNIST's file format, written without the code that reads it."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import torch
from torch import Tensor


def write_idx(path: Path, values: Tensor) -> None:
    """Write bytes in the idx format: 0x0800 + dimensions, the size of each, the values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
    path.write_bytes(header + values.byte().numpy().tobytes())


def small_mnist(root: Path, train: int = 120, test: int = 40, title: str = "MNIST", zipped: bool = False) -> Path:
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
