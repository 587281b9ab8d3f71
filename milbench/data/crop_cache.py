"""Crops of a folder of house numbers, made once, cached, and memory-mapped afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.data import array_cache, digit_struct
from milbench.data.array_cache import ArrayCache
from milbench.data.crops import CROP_SIDE, Crop, CropVariant, Protocol, crop, crop_parameters
from milbench.data.digit_struct import Record
from milbench.errors import UsageError

CACHE_FORMAT = 2
"""Version of the layout of a cache."""
KIND = "crops"
"""Name of the folder of caches beside a folder of pictures, where it is hidden."""
How = tuple[CropVariant, Protocol]
"""How pictures are cropped."""
AT_ONCE = 256
"""Pictures that are cropped in memory before they are written."""


@dataclass(frozen=True, slots=True)
class Crops:
    """The crops of a folder, in the order of its digitStruct.mat. Arrays are mapped from files: copy before a change.

    Args:
        crops: (N, 64, 64, 3) uint8.
        classes: (N, M) int8, the digits in the order of reading, -1 where a number has fewer than M.
        boxes: (N, M, 4) float32, (left, top, right, bottom) in pixels of the crop, clipped to it; 0 where a number has
            fewer than M digits.
        windows: (N, 4) int32, (left, top, right, bottom) of the part of the picture that a crop shows, in its pixels.
        names: (N,) text, the file names of the pictures.
        digest: SHA-256 of the pictures and their records, which depends neither on dates nor on how they are cropped.
    """

    crops: NDArray[np.uint8]
    classes: NDArray[np.int8]
    boxes: NDArray[np.float32]
    windows: NDArray[np.int32]
    names: NDArray[np.str_]
    digest: str

    def __len__(self) -> int:
        return len(self.crops)

    def most_classes(self) -> int:
        """Return the largest number of different digits in a house number."""
        ordered = np.sort(self.classes, axis=1)
        new = (ordered >= 0) & (np.diff(ordered, axis=1, prepend=np.int8(-1)) > 0)
        return int(new.sum(axis=1).max())


def load(folder: Path, variant: CropVariant, most_digits: int, protocol: Protocol = "ours") -> Crops:
    """Return the crops of a folder with pictures and a digitStruct.mat, made first if there is no current cache.

    Args:
        folder: a part of a data set, such as svhn/train.
        variant: how the crops are made.
        most_digits: the largest number of digits that a picture may have: the number of positions of the network.
        protocol: whose convention is followed, see `milbench.data.crops.window`; each has a cache of its own.

    Returns:
        The crops of all pictures of the folder, mapped into memory from the cache.

    Raises:
        UsageError: the folder, a record or a picture is damaged; or the disk is full, and nothing is left then.
    """
    kind = f"{folder.name}-{variant}" + ("" if protocol == "ours" else f"-by-{protocol}")
    place = cache_place(folder) / kind
    how = variant, protocol
    cache = ArrayCache(place, CACHE_FORMAT, mode="c")
    made_from = {"inputs": _fingerprint(folder), "parameters": crop_parameters(*how)}
    try:
        arrays, known = cache.load(
            lambda known: {key: known[key] for key in made_from} == made_from,
            lambda new: made_from | {"digest": _write(folder, new, how, most_digits)},
        )
    except OSError as error:
        raise UsageError(f"cannot keep crops of {folder} in {place}: {error.strerror or error}") from error
    crops = Crops(**arrays, digest=known["digest"])
    if crops.classes.shape[1] > most_digits:
        raise UsageError(f"{folder} has a number of {crops.classes.shape[1]} digits, {_too_many(most_digits)}")
    return crops


def cache_place(folder: Path) -> Path:
    """Return the folder of the caches of a part, see `milbench.data.array_cache.cache_place`."""
    return array_cache.cache_place(folder, KIND)


def _fingerprint(folder: Path) -> str:
    """Return a digest of the names, sizes and times of the files, which changes with a file and reads none."""
    if not folder.is_dir():
        raise UsageError(f"{folder} not found")
    digest = hashlib.sha256()
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if _counts(entry.name):
                    stat = entry.stat()
                    digest.update(f"{entry.name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}\n".encode())
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _counts(name: str) -> bool:
    return not name.startswith(".") and (name == digit_struct.FILE or name.lower().endswith(".png"))


def _check_records(folder: Path, records: Sequence[Record], most_digits: int) -> None:
    named = {record.name for record in records}
    there = {entry.name for entry in os.scandir(folder) if _counts(entry.name)} - {digit_struct.FILE}
    if missing := sorted(named - there):
        raise UsageError(f"{folder / missing[0]} not found ({len(missing)} of {len(named)} pictures are missing)")
    if extra := sorted(there - named):
        raise UsageError(f"{folder / digit_struct.FILE} has no record of {extra[0]} ({len(extra)} pictures have none)")
    for record in records:
        if len(record.classes) > most_digits:
            raise UsageError(f"{folder / record.name} has {len(record.classes)} digits, {_too_many(most_digits)}")


def _too_many(most_digits: int) -> str:
    return f"more than the network has positions ({most_digits})"


def _write(folder: Path, new: Path, how: How, most_digits: int) -> str:
    """Crop every picture, write the arrays and return the digest of what they were made from.

    Crops are appended to the file batch by batch: a full disk is then an error that can be caught, while writing to
    mapped memory would kill the process.
    """
    records = digit_struct.read(folder / digit_struct.FILE)
    _check_records(folder, records, most_digits)
    most = max(len(record.classes) for record in records)
    classes = np.full((len(records), most), -1, dtype=np.int8)
    boxes = np.zeros((len(records), most, 4), dtype=np.float32)
    windows = np.zeros((len(records), 4), dtype=np.int32)
    digest = hashlib.sha256()
    with (new / "crops.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(records), CROP_SIDE, CROP_SIDE, 3)}
        np.lib.format.write_array_header_1_0(file, header)
        for n, (record, made, inputs) in enumerate(_all_crops(folder, records, how)):
            file.write(made.pixels.tobytes())
            count = len(record.classes)
            classes[n, :count], boxes[n, :count], windows[n] = record.classes, made.boxes, made.window
            digest.update(inputs)
    names = np.array([record.name for record in records], dtype=np.str_)
    arrays: dict[str, NDArray[Any]] = {"classes": classes, "boxes": boxes, "windows": windows, "names": names}
    for key, array in arrays.items():
        np.save(new / f"{key}.npy", array, allow_pickle=False)
    return digest.hexdigest()


def _all_crops(folder: Path, records: Sequence[Record], how: How) -> Iterator[tuple[Record, Crop, bytes]]:
    """Yield every record in order, with its crop and the bytes it adds to the digest of the inputs.

    Threads suffice: decoding and resizing release Python's global lock.
    """

    def one(record: Record) -> tuple[Record, Crop, bytes]:
        path = folder / record.name
        try:
            picture = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        inputs = f"{record.name} {record.classes} {hashlib.sha256(picture).hexdigest()} ".encode()
        return record, crop(picture, path, record, *how), inputs + record.boxes.astype("<f8").tobytes()

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(records), AT_ONCE):
            yield from pool.map(one, records[start : start + AT_ONCE])
