"""The instances of bags, mapped from one packed array or from a file a bag, with their moments and digests.

Each table is scanned once, in blocks that fit into a processor's cache. Instances are packed in the dtype they came in,
unless each bag is a .npy file. Processes map the same pages, so that ten cells at once hold them once.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.data.array_cache import write_header
from milbench.data.bag_files import BFLOAT16, BagFile
from milbench.data.in_order import read_all

BLOCK = 1 << 17  # numbers that are scanned together: a megabyte in double precision
PART = 1 << 22  # numbers that are packed together from a table with a row an instance: 16 MB


@dataclass(frozen=True, eq=False)
class BagStore:
    """The instances of B bags, N in all, of D features; for images, of D channels."""

    offsets: NDArray[np.int64]  # (B + 1,), bag b has the instances offsets[b] to offsets[b + 1] - 1
    means: NDArray[np.float64]  # (B, D), of each bag
    squares: NDArray[np.float64]  # (B, D), the sums of squared distances from these means
    digests: NDArray[np.uint8]  # (B, 32), equal for bags of equal content
    packed: NDArray[Any] | None = None  # (N, ...), the instances; None where they are in files
    files: Sequence[Path] = ()  # of the bags, mapped where they lie
    dtype: str = "float32"  # of the numbers, or "bfloat16"

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
            return np.asanyarray(np.load(self.files[bag], mmap_mode="r", allow_pickle=False))
        return np.asanyarray(self.packed[self.offsets[bag] : self.offsets[bag + 1]])

    def single(self, bag: int) -> NDArray[np.float32]:
        """Return the instances (K, D) of a bag in single precision."""
        return single(self[bag], self.dtype)

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Yield all instances (K, D) in single precision, some at a time."""
        step = max(1, BLOCK // self.width)
        for array in (
            [self.packed] if self.packed is not None else map(self.__getitem__, range(len(self)))
        ):
            for first in range(0, len(array), step):
                yield single(array[first : first + step], self.dtype)

    def ends(self) -> NDArray[np.float32]:
        """Return (4, D), smallest, second, second largest and largest value of each feature; infinite for no second."""
        lows, highs = np.full((2, 2, self.width), np.inf, np.float32)
        for block in self.blocks():
            for two, values in ((lows, block), (highs, -block)):
                near = np.flatnonzero(values.min(axis=0) < two[1])  # few after the first blocks
                both = np.concatenate([two[:, near], values[:, near]])
                least = both.min(axis=0)
                two[:, near] = least, np.where(both > least, both, np.inf).min(axis=0)
        return np.concatenate([lows, -highs[::-1]])

    def copy(
        self, bag: int, out: NDArray[np.float32], chosen: NDArray[np.int64] | None = None
    ) -> None:
        """Copy the instances (K, D) of a bag, or those chosen, into an array in single precision."""
        stored = self[bag] if chosen is None else self[bag][chosen]
        out[:] = stored if stored.dtype.kind == "f" else single(stored, self.dtype)

    def standard(self, bags: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean (D,) and standard deviation (D,) of all instances of some bags."""
        start = np.zeros(1, np.int64)
        count, mean, squares = _merge_moments(
            self.sizes[bags], self.means[bags], self.squares[bags], start
        )
        return mean[0], np.sqrt(squares[0] / count[0])

    def constant(self) -> NDArray[np.bool_]:
        """Return (D,), which features have one value in all instances."""
        return np.asarray(
            (self.squares == 0).all(axis=0) & (self.means == self.means[:1]).all(axis=0)
        )


def single(array: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Return numbers in single precision, those of a type that numpy lacks from their bytes."""
    if dtype == BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(
        over="ignore"
    ):  # what single precision cannot hold becomes infinite, which the checks name
        return np.asarray(array, np.float32)


def scan(
    rows: NDArray[Any], starts: NDArray[np.int64], dtype: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint8]]:
    """Return `means`, `squares` and `digests`, see `BagStore`, of bags that start at `starts` (n,) in (K, D)."""
    count, width = rows.shape
    step = max(1, BLOCK // width)
    cuts = np.union1d(starts, np.arange(0, count, step))
    if len(starts) > 1:  # bags that fit into a block stay in one piece
        size = np.diff(np.append(starts, count))
        large = np.repeat(size > step, size)
        cuts = np.union1d(starts, cuts[large[cuts]])
    cuts = np.append(cuts, count)
    means, squares = np.empty((2, len(cuts) - 1, width))
    is_first, hashes, first = np.isin(cuts[:-1], starts), list[Any](), 0
    while first < len(means):
        last = max(first + 1, int(np.searchsorted(cuts, cuts[first] + step, side="right")) - 1)
        stored = np.ascontiguousarray(rows[cuts[first] : cuts[last]])
        inside = cuts[first:last] - cuts[first]
        sizes = np.diff(cuts[first : last + 1])
        for piece, (start, size) in enumerate(
            zip(inside.tolist(), sizes.tolist(), strict=True), start=first
        ):
            if is_first[piece]:
                hashes.append(hashlib.sha256())
            hashes[-1].update(stored[start : start + size].data)
        means[first:last], squares[first:last] = _moments(
            single(stored, dtype).astype(np.float64), inside, sizes
        )
        first = last
    sizes = np.diff(cuts)
    if len(sizes) > len(starts):
        _, means, squares = _merge_moments(sizes, means, squares, np.flatnonzero(is_first))
    return (
        means,
        squares,
        np.frombuffer(b"".join(digest.digest() for digest in hashes), np.uint8).reshape(-1, 32),
    )


def row_parts(
    features: NDArray[np.float32], order: NDArray[np.int64], offsets: NDArray[np.int64], name: str
) -> list[BagFile]:
    """Return bags, each of which has the rows order[offsets[b]:offsets[b + 1]], in files of about PART numbers."""
    in_order = bool((order[:-1] < order[1:]).all())
    step = max(1, PART // features.shape[1])
    limits = np.unique(np.searchsorted(offsets, [*range(0, len(order), step), len(order)]))

    def part(low: int, high: int) -> BagFile:
        first, last = offsets[low], offsets[high]
        shape, which = (
            (int(last - first), features.shape[1]),
            slice(first, last) if in_order else order[first:last],
        )
        starts = offsets[low:high] - first
        return BagFile(
            shape, "float32", lambda: features[which], mapped=in_order, starts=starts, name=name
        )

    return [part(low, high) for low, high in pairwise(limits.tolist())]


def write_files(folder: Path, files: Sequence[BagFile], what: str = "files") -> BagStore:
    """Scan bags, and write their instances to instances.npy unless all files are of one type and can stay mapped."""
    kinds = {file.dtype for file in files}
    common = np.result_type(*(np.float32 if kind == BFLOAT16 else np.dtype(kind) for kind in kinds))
    dtype = kinds.pop() if len(kinds) == 1 else common.str
    stay = all(file.mapped and file.dtype == dtype for file in files)
    stored = np.dtype(np.uint16 if dtype == BFLOAT16 else dtype)
    ends_of_files = np.cumsum([0, *(file.shape[0] for file in files)])
    starts = [
        first + file.starts for first, file in zip(ends_of_files.tolist(), files, strict=False)
    ]
    offsets = np.append(np.concatenate(starts), ends_of_files[-1])
    shape = int(offsets[-1]), *files[0].shape[1:]

    def read(file: BagFile) -> tuple[tuple[NDArray[Any], ...], NDArray[Any] | None]:
        array = file.read()
        if array.shape != file.shape:
            raise ValueError(f"it has the shape {array.shape}, expected {file.shape}")
        if file.dtype != dtype:
            array = (
                single(array, file.dtype)
                if BFLOAT16 in (dtype, file.dtype)
                else array.astype(stored)
            )
        rows = (
            array if array.ndim == 2 else np.moveaxis(array, 1, -1).reshape(-1, array.shape[1])
        )  # pixels
        return scan(rows, file.starts, dtype), None if stay else np.ascontiguousarray(array, stored)

    scans: list[tuple[NDArray[Any], ...]] = []
    with (folder / "instances.npy").open("wb") as out:
        write_header(out, stored, shape)
        for scanned, array in read_all(read, files, [file.name for file in files], what):
            scans.append(scanned)
            if array is not None:
                out.write(array.data)
    if stay:
        (folder / "instances.npy").unlink()
    means, squares, digests = map(np.concatenate, zip(*scans, strict=True))
    return BagStore(offsets, means, squares, digests, dtype=dtype)


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


def _merge_moments(
    counts: NDArray[np.int64],
    means: NDArray[np.float64],
    squares: NDArray[np.float64],
    starts: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Merge moments of parts from `starts` (T. Chan, G. Golub, R. LeVeque, The American Statistician 1983)."""
    weights, total = counts[:, None].astype(np.float64), np.add.reduceat(counts, starts)
    mean = np.add.reduceat(weights * means, starts) / total[:, None]
    with np.errstate(invalid="ignore"):
        apart = means - np.repeat(mean, np.diff(np.append(starts, len(counts))), axis=0)
    return total, mean, np.add.reduceat(squares + weights * apart**2, starts)
