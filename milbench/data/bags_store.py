"""The instances of bags, mapped from one packed array or from a file a bag, with their moments, extremes and digests.

Each table is scanned once, in blocks that fit into a processor's cache. Instances are packed in the dtype they came in,
unless each bag is a .npy file. Processes map the same pages, so that ten cells at once hold them once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milbench.data.array_cache import write_header
from milbench.data.bag_files import BFLOAT16, BagFile
from milbench.data.in_order import read_all

BLOCK = 1 << 17
"""Numbers that are scanned together: a megabyte in double precision."""
PART = 1 << 22
"""Numbers that are packed together from a table with a row an instance: 16 MB."""


@dataclass(frozen=True, eq=False)
class BagStore:
    """The instances of B bags, N in all, of D features; for images, of D channels.

    Args:
        offsets: (B + 1,), bag b has the instances offsets[b] to offsets[b + 1] - 1.
        means: (B, D) float64, of each bag.
        squares: (B, D) float64, the sums of squared distances from these means.
        ends: (4, D), the two smallest different values of each feature and the two largest, outermost first and last;
            infinite where they were not computed.
        digests: (B, 32) uint8, equal for bags of equal content.
        packed: (N, ...) the instances; None where they are in files.
        files: of the bags, mapped where they lie.
        dtype: of the numbers, "bfloat16" or a name of numpy's.
    """

    offsets: NDArray[np.int64]
    means: NDArray[np.float64]
    squares: NDArray[np.float64]
    ends: NDArray[np.float32]
    digests: NDArray[np.uint8]
    packed: NDArray[Any] | None = None
    files: Sequence[Path] = ()
    dtype: str = "float32"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(B,)."""
        return np.diff(self.offsets)

    @property
    def width(self) -> int:
        """D."""
        return int(self.means.shape[1])

    def __getitem__(self, bag: int) -> NDArray[Any]:
        """Return the instances (K, ...) of a bag as they are stored, mapped."""
        if self.packed is None:
            mapped: NDArray[Any] = np.load(self.files[bag], mmap_mode="r", allow_pickle=False)
            return mapped
        part: NDArray[Any] = self.packed[self.offsets[bag] : self.offsets[bag + 1]]
        return part

    def single(self, bag: int) -> NDArray[np.float32]:
        """Return the instances (K, D) of a bag in single precision."""
        return single(self[bag], self.dtype)

    def copy(self, bag: int, out: NDArray[np.float32], chosen: NDArray[np.int64] | None = None) -> None:
        """Copy the instances (K, D) of a bag, or those chosen, into an array in single precision."""
        stored = self[bag] if chosen is None else self[bag][chosen]
        out[:] = stored if stored.dtype.kind == "f" else single(stored, self.dtype)

    def standard(self, bags: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean (D,) and standard deviation (D,) of all instances of some bags."""
        start = np.zeros(1, np.int64)
        count, mean, squares = _merged(self.sizes[bags], self.means[bags], self.squares[bags], start)
        return mean[0], np.sqrt(squares[0] / count[0])

    def constant(self) -> NDArray[np.bool_]:
        """Return (D,), which features have one value in all instances."""
        constant: NDArray[np.bool_] = (self.squares == 0).all(axis=0) & (self.means == self.means[:1]).all(axis=0)
        return constant

    def identical_instances(self) -> NDArray[np.bool_]:
        """Return (B,), in which bags all instances are equal."""
        identical: NDArray[np.bool_] = (self.squares == 0).all(axis=1)
        return identical


class Scan(NamedTuple):
    """The statistics of some bags, see `BagStore`; `lows` and `highs` (2, D) make its `ends`."""

    means: NDArray[np.float64]
    squares: NDArray[np.float64]
    lows: NDArray[np.float32]
    highs: NDArray[np.float32]
    digests: list[bytes]


def single(array: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Return numbers in single precision, those of a type that numpy lacks from their bytes."""
    if dtype == BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite, which the checks name
        return np.asarray(array, np.float32)


def scan(rows: NDArray[Any], starts: NDArray[np.int64], dtype: str, *, ends: bool) -> Scan:
    """Scan all instances (K, D) of bags that start at `starts` (n,) once, in blocks, for extremes too if `ends`."""
    count, width = rows.shape
    step = max(1, BLOCK // width)
    cuts = np.union1d(starts, np.arange(0, count, step))
    if len(starts) > 1:  # bags that fit into a block stay in one piece
        size = np.diff(np.append(starts, count))
        large = np.repeat(size > step, size)
        cuts = np.union1d(starts, cuts[large[cuts]])
    cuts = np.append(cuts, count)
    means = np.empty((len(cuts) - 1, width))
    squares = np.empty_like(means)
    lows, highs = np.full((2, 2, width), np.inf, np.float32)
    hashes: list[Any] = []
    is_first = np.isin(cuts[:-1], starts)
    first = 0
    while first < len(means):
        last = max(first + 1, int(np.searchsorted(cuts, cuts[first] + step, side="right")) - 1)
        stored = np.ascontiguousarray(rows[cuts[first] : cuts[last]])
        inside = cuts[first:last] - cuts[first]
        sizes = np.diff(cuts[first : last + 1])
        for piece, (start, size) in enumerate(zip(inside.tolist(), sizes.tolist(), strict=True), start=first):
            if is_first[piece]:
                hashes.append(hashlib.sha256())
            hashes[-1].update(stored[start : start + size].data)
        values = single(stored, dtype)
        means[first:last], squares[first:last] = _moments(values.astype(np.float64), inside, sizes)
        if ends:
            _update(lows, values.min(axis=0), values)
            _update(highs, -values.max(axis=0), values, sign=-1)
        first = last
    sizes = np.diff(cuts)
    if len(sizes) > len(starts):
        _, means, squares = _merged(sizes, means, squares, np.flatnonzero(is_first))
    return Scan(means, squares, lows, highs, [digest.digest() for digest in hashes])


def row_parts(
    features: NDArray[np.float32], order: NDArray[np.int64], offsets: NDArray[np.int64], name: str
) -> list[BagFile]:
    """Return the bags of a table with a row an instance, features (N, D), those of about PART numbers as one file.

    Bag b has the rows order[offsets[b]] to order[offsets[b + 1] - 1] of the table; in their order they stay mapped.
    """
    in_order = bool((order[:-1] < order[1:]).all())
    step = max(1, PART // features.shape[1])
    limits = np.unique(np.searchsorted(offsets, [*range(0, len(order), step), len(order)]))

    def part(low: int, high: int) -> BagFile:
        first, last = offsets[low], offsets[high]
        shape, which = (int(last - first), features.shape[1]), slice(first, last) if in_order else order[first:last]
        starts = offsets[low:high] - first
        return BagFile(shape, "float32", lambda: features[which], mapped=in_order, starts=starts, name=name)

    return [part(low, high) for low, high in pairwise(limits.tolist())]


def write_files(folder: Path, files: Sequence[BagFile], what: str = "files", *, ends: bool = False) -> BagStore:
    """Scan the bags of a table, and write their instances unless all files can be mapped and are of one type.

    The instances are in instances.npy, not in the store that is returned. To look for `ends` too takes images twice as
    long. Raises UsageError that names the first twenty files that cannot be read, or for a full disk.
    """
    kinds = {file.dtype for file in files}
    dtype = kinds.pop() if len(kinds) == 1 else _common(kinds)
    stay = all(file.mapped and file.dtype == dtype for file in files)
    stored = np.dtype(np.uint16 if dtype == BFLOAT16 else dtype)
    ends_of_files = np.cumsum([0, *(file.shape[0] for file in files)])
    starts = [first + file.starts for first, file in zip(ends_of_files.tolist(), files, strict=False)]
    offsets = np.append(np.concatenate(starts), ends_of_files[-1])
    shape = int(offsets[-1]), *files[0].shape[1:]

    def read(file: BagFile) -> tuple[Scan, NDArray[Any] | None]:
        array = file.read()
        if array.shape != file.shape:
            raise ValueError(f"it has the shape {array.shape}, expected {file.shape}")
        if file.dtype != dtype:
            array = single(array, file.dtype) if BFLOAT16 in (dtype, file.dtype) else array.astype(stored)
        rows = array if array.ndim == 2 else np.moveaxis(array, 1, -1).reshape(-1, array.shape[1])  # pixels
        return scan(rows, file.starts, dtype, ends=ends), None if stay else np.ascontiguousarray(array, stored)

    scans: list[Scan] = []
    with (folder / "instances.npy").open("wb") as out:
        write_header(out, stored, shape)
        for scanned, array in read_all(read, files, [file.name for file in files], what):
            scans.append(scanned)
            if array is not None:
                out.write(array.data)
    if stay:
        (folder / "instances.npy").unlink()
    return store_of(offsets, scans, dtype)


def store_of(offsets: NDArray[np.int64], scans: Sequence[Scan], dtype: str = "float32") -> BagStore:
    """Return the store of bags that were scanned in parts, without their instances."""
    lows, highs = (_smallest(np.concatenate(parts)) for parts in zip(*(part[2:4] for part in scans), strict=True))
    digests = np.frombuffer(b"".join(digest for part in scans for digest in part.digests), np.uint8)
    return BagStore(
        offsets,
        np.concatenate([part.means for part in scans]),
        np.concatenate([part.squares for part in scans]),
        np.concatenate([lows, -highs[::-1]]),
        digests.reshape(-1, 32),
        dtype=dtype,
    )


def _moments(
    values: NDArray[np.float64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means (n, D) and sums of squared distances from them of the pieces of a block, which is changed."""
    with np.errstate(invalid="ignore"):  # of infinite numbers, which the checks name
        if len(starts) == 1:
            means = values.mean(axis=0, keepdims=True)
            values -= means
            return means, np.einsum("ij,ij->j", values, values)[None]
        means = np.add.reduceat(values, starts) / sizes[:, None]
        values -= np.repeat(means, sizes, axis=0)
        values *= values
        return means, np.add.reduceat(values, starts)


def _merged(
    counts: NDArray[np.int64], means: NDArray[np.float64], squares: NDArray[np.float64], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Merge the moments of n consecutive parts into m, of which `starts` (m,) says the first part of each.

    T. Chan, G. Golub and R. LeVeque, The American Statistician 37, 1983.
    """
    weights = counts[:, None].astype(np.float64)
    total = np.add.reduceat(counts, starts)
    mean = np.add.reduceat(weights * means, starts) / total[:, None]
    lengths = np.diff(np.append(starts, len(counts)))
    with np.errstate(invalid="ignore"):
        apart = means - np.repeat(mean, lengths, axis=0)
    return total, mean, np.add.reduceat(squares + weights * apart**2, starts)


def _update(ends: NDArray[np.float32], first: NDArray[np.float32], values: NDArray[np.float32], sign: int = 1) -> None:
    """Update the two smallest different values (2, D) of each feature after a block (K, D), whose smallest is known."""
    near = np.flatnonzero(first < ends[1])  # few after the first blocks
    if near.size:
        block = values[:, near] * np.float32(sign) if near.size < len(first) else values * np.float32(sign)
        second = np.where(block == first[near], np.inf, block).min(axis=0)
        ends[:, near] = _smallest(np.stack([*ends[:, near], first[near], second]))


def _smallest(values: NDArray[np.float32]) -> NDArray[np.float32]:
    least = values.min(axis=0)
    return np.stack([least, np.where(values > least, values, np.inf).min(axis=0)]).astype(np.float32)


def _common(dtypes: set[str]) -> str:
    return str(np.result_type(*(np.float32 if dtype == BFLOAT16 else np.dtype(dtype) for dtype in dtypes)).str)
