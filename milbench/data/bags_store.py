"""The instances of bags, mapped from one packed array or from a file a bag, with their moments and digests.

Each table is scanned once, in blocks that fit into a processor's cache. Instances are packed in the
dtype they came in, unless each bag is a .npy file. Processes map the same pages, so that ten cells
at once hold them once.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
_DIGEST_BYTES = 32


@dataclass(frozen=True, eq=False)
class BagStore:
    """The instances of B bags, N in all, of D features; for images, of D channels."""

    offsets: NDArray[np.int64]
    """(B + 1,), bag b has the instances offsets[b] to offsets[b + 1] - 1."""
    means: NDArray[np.float64]
    """(B, D), the mean of each feature in each bag."""
    squares: NDArray[np.float64]
    """(B, D), the sums of squared distances from these means."""
    digests: NDArray[np.uint8]
    """(B, 32), the SHA-256 of the content of each bag."""
    packed: NDArray[Any] | None = None
    """(N, ...), the instances; None where they are in files."""
    files: Sequence[Path] = ()
    """The file of each bag, mapped where it lies."""
    dtype: str = "float32"
    """The type of the stored numbers, by its name in numpy or "bfloat16"."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(B,), how many instances each bag has."""
        return np.diff(self.offsets)

    @property
    def width(self) -> int:
        """D, the number of features."""
        return int(self.means.shape[1])

    def __getitem__(self, bag: int) -> NDArray[Any]:
        """Return the instances (K, ...) of a bag as they are stored, mapped."""
        if self.packed is None:
            return np.asanyarray(np.load(self.files[bag], mmap_mode="r", allow_pickle=False))
        return np.asanyarray(self.packed[self.offsets[bag] : self.offsets[bag + 1]])

    def single(self, bag: int) -> NDArray[np.float32]:
        """Return the instances (K, D) of a bag in single precision."""
        return to_single_precision(self[bag], self.dtype)

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Yield all instances (K, D) in single precision, some at a time."""
        rows_a_block = max(1, BLOCK // self.width)
        for array in self._arrays():
            for first in range(0, len(array), rows_a_block):
                yield to_single_precision(array[first : first + rows_a_block], self.dtype)

    def _arrays(self) -> Iterator[NDArray[Any]]:
        """Yield the instances as they are stored: all at once if packed, else bag by bag."""
        if self.packed is not None:
            yield self.packed
            return
        for bag in range(len(self)):
            yield self[bag]

    def ends(self) -> NDArray[np.float32]:
        """Return (4, D), smallest, second, second largest and largest value of each feature.

        Equal values count once. A feature with a single value has inf as the second smallest, and
        -inf as the second largest.
        """
        lows = np.full((2, self.width), np.inf, np.float32)
        negated_highs = np.full((2, self.width), np.inf, np.float32)
        for block in self.blocks():
            _update_two_smallest(lows, block)
            _update_two_smallest(negated_highs, -block)
        highs = -negated_highs
        return np.stack([lows[0], lows[1], highs[1], highs[0]])

    def copy(
        self, bag: int, out: NDArray[np.float32], chosen: NDArray[np.int64] | None = None
    ) -> None:
        """Copy the instances (K, D) of a bag, or those chosen, into an array in single precision."""
        stored = self[bag] if chosen is None else self[bag][chosen]
        # numpy converts floating-point numbers while it copies them, without an array in between.
        is_float = stored.dtype.kind == "f"
        out[:] = stored if is_float else to_single_precision(stored, self.dtype)

    def standard(self, bags: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean (D,) and standard deviation (D,) of all instances of some bags."""
        # All bags are parts of one.
        starts = np.zeros(1, np.int64)
        counts, means, squares = _merge_moments(
            self.sizes[bags], self.means[bags], self.squares[bags], starts
        )
        return means[0], np.sqrt(squares[0] / counts[0])

    def constant(self) -> NDArray[np.bool_]:
        """Return (D,), which features have one value in all instances."""
        is_constant_in_bags = (self.squares == 0).all(axis=0)
        has_equal_means = (self.means == self.means[:1]).all(axis=0)
        return np.asarray(is_constant_in_bags & has_equal_means)


def _update_two_smallest(two: NDArray[np.float32], values: NDArray[np.float32]) -> None:
    """Replace `two` (2, D), the smallest and second smallest value of each feature, given more values (K, D)."""
    # After the first blocks few features change, and only these are compared.
    near = np.flatnonzero(values.min(axis=0) < two[1])
    candidates = np.concatenate([two[:, near], values[:, near]])
    smallest = candidates.min(axis=0)
    others = np.where(candidates > smallest, candidates, np.inf)
    two[0, near] = smallest
    two[1, near] = others.min(axis=0)


def to_single_precision(array: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Return numbers in single precision, those of a type that numpy lacks from their bytes."""
    if dtype == BFLOAT16:
        # Its 16 bits are the upper half of a number in single precision.
        return (array.astype(np.uint32) << 16).view(np.float32)
    # What single precision cannot hold becomes infinite, which the checks name.
    with np.errstate(over="ignore"):
        return np.asarray(array, np.float32)


class Scan(NamedTuple):
    """What one reading of some bags finds, as in `BagStore`."""

    means: NDArray[np.float64]
    squares: NDArray[np.float64]
    digests: NDArray[np.uint8]


def scan(rows: NDArray[Any], starts: NDArray[np.int64], dtype: str) -> Scan:
    """Return what is found in bags that start at `starts` (n,) in `rows` (K, D), reading them in blocks."""
    count, width = rows.shape
    rows_a_block = max(1, BLOCK // width)
    cuts = _cut_into_pieces(starts, count, rows_a_block)
    pieces = len(cuts) - 1
    begins_bag = np.isin(cuts[:-1], starts)
    means = np.empty((pieces, width))
    squares = np.empty((pieces, width))
    hashes: list[Any] = []
    first = 0
    while first < pieces:
        # The pieces that fit into a block together, and one at least.
        next_block = int(np.searchsorted(cuts, cuts[first] + rows_a_block, side="right")) - 1
        last = max(first + 1, next_block)
        stored = np.ascontiguousarray(rows[cuts[first] : cuts[last]])
        piece_starts = cuts[first:last] - cuts[first]
        piece_sizes = np.diff(cuts[first : last + 1])
        _update_hashes(hashes, stored, piece_starts, piece_sizes, begins_bag[first:last])
        values = to_single_precision(stored, dtype).astype(np.float64)
        means[first:last], squares[first:last] = _moments(values, piece_starts, piece_sizes)
        first = last
    if pieces > len(starts):
        first_pieces = np.flatnonzero(begins_bag)
        _, means, squares = _merge_moments(np.diff(cuts), means, squares, first_pieces)
    joined = b"".join(one.digest() for one in hashes)
    digests = np.frombuffer(joined, np.uint8).reshape(-1, _DIGEST_BYTES)
    return Scan(means, squares, digests)


def _cut_into_pieces(starts: NDArray[np.int64], count: int, rows_a_block: int) -> NDArray[np.int64]:
    """Return where pieces of `count` rows start, and last `count`.

    A piece is a bag that fits into a block, or a part of a larger bag.
    """
    cuts = np.union1d(starts, np.arange(0, count, rows_a_block))
    # A single bag is cut at every block. Among several bags only the large ones are cut inside.
    if len(starts) > 1:
        sizes = np.diff(np.append(starts, count))
        is_row_of_large_bag = np.repeat(sizes > rows_a_block, sizes)
        cuts_in_large_bags = cuts[is_row_of_large_bag[cuts]]
        cuts = np.union1d(starts, cuts_in_large_bags)
    return np.append(cuts, count)


def _update_hashes(
    hashes: list[Any],
    stored: NDArray[Any],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    begins_bag: NDArray[np.bool_],
) -> None:
    """Add the pieces of a block to `hashes`, one a bag: a piece that begins a bag begins a hash, too."""
    pieces = zip(starts.tolist(), sizes.tolist(), begins_bag.tolist(), strict=True)
    for start, size, is_first in pieces:
        if is_first:
            hashes.append(hashlib.sha256())
        hashes[-1].update(stored[start : start + size].data)


def row_parts(
    features: NDArray[np.float32], order: NDArray[np.int64], offsets: NDArray[np.int64], name: str
) -> list[BagFile]:
    """Return bags, each of which has the rows order[offsets[b]:offsets[b + 1]], in files of about PART numbers."""
    width = features.shape[1]
    in_order = bool((order[:-1] < order[1:]).all())
    rows_a_part = max(1, PART // width)
    every_part = [*range(0, len(order), rows_a_part), len(order)]
    # A part ends with a bag.
    limits = np.unique(np.searchsorted(offsets, every_part))
    parts = []
    for first_bag, last_bag in pairwise(limits.tolist()):
        first = offsets[first_bag]
        last = offsets[last_bag]
        # A slice of a mapped array is mapped, while rows by their numbers are copied.
        rows = slice(first, last) if in_order else order[first:last]
        part = BagFile(
            shape=(int(last - first), width),
            dtype="float32",
            read=partial(features.__getitem__, rows),
            mapped=in_order,
            starts=offsets[first_bag:last_bag] - first,
            name=name,
        )
        parts.append(part)
    return parts


def write_files(folder: Path, files: Sequence[BagFile], what: str = "files") -> BagStore:
    """Scan bags, and write their instances to instances.npy unless all files are of one type and can stay mapped."""
    dtype = _common_dtype(files)
    stored = np.dtype(np.uint16 if dtype == BFLOAT16 else dtype)
    all_stay = all(file.mapped and file.dtype == dtype for file in files)
    offsets = _bag_offsets(files)

    def read(file: BagFile) -> tuple[Scan, NDArray[Any] | None]:
        array = _read_as(file, dtype, stored)
        scanned = scan(_as_rows(array), file.starts, dtype)
        if all_stay:
            return scanned, None
        return scanned, np.ascontiguousarray(array, stored)

    names = [file.name for file in files]
    scans: list[Scan] = []
    packed = folder / "instances.npy"
    with packed.open("wb") as out:
        write_header(out, stored, (int(offsets[-1]), *files[0].shape[1:]))
        for scanned, array in read_all(read, files, names, what):
            scans.append(scanned)
            if array is not None:
                out.write(array.data)
    if all_stay:
        packed.unlink()
    return BagStore(
        offsets,
        means=np.concatenate([scanned.means for scanned in scans]),
        squares=np.concatenate([scanned.squares for scanned in scans]),
        digests=np.concatenate([scanned.digests for scanned in scans]),
        dtype=dtype,
    )


def _common_dtype(files: Sequence[BagFile]) -> str:
    """Return the type of all files, or where they have several the smallest that holds the numbers of each."""
    dtypes = {file.dtype for file in files}
    if len(dtypes) == 1:
        return dtypes.pop()
    # numpy has no type for bfloat16, all numbers of which are numbers in single precision.
    known = [np.float32 if dtype == BFLOAT16 else np.dtype(dtype) for dtype in dtypes]
    return np.result_type(*known).str


def _bag_offsets(files: Sequence[BagFile]) -> NDArray[np.int64]:
    """Return (B + 1,), where the bags of all files start if one file follows the other, and where the last ends."""
    ends = np.cumsum([0, *(file.shape[0] for file in files)])
    starts = [first + file.starts for first, file in zip(ends[:-1].tolist(), files, strict=True)]
    return np.append(np.concatenate(starts), ends[-1])


def _read_as(file: BagFile, dtype: str, stored: np.dtype[Any]) -> NDArray[Any]:
    """Return the array of a file as another type, whose numbers are kept as `stored`."""
    array = file.read()
    if array.shape != file.shape:
        raise ValueError(f"it has the shape {array.shape}, expected {file.shape}")
    if file.dtype == dtype:
        return array
    if BFLOAT16 in (dtype, file.dtype):
        return to_single_precision(array, file.dtype)
    return array.astype(stored)


def _as_rows(array: NDArray[Any]) -> NDArray[Any]:
    """Return instances (K, D), or the pixels of images (K, channels, h, w), as (rows, D), channels for D."""
    if array.ndim == 2:
        return array
    return np.moveaxis(array, 1, -1).reshape(-1, array.shape[1])


def _moments(
    values: NDArray[np.float64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means (n, D) of the n pieces in `values` (K, D), and sums of squared distances; `values` are changed."""
    # Infinite numbers give nan here; the checks name them.
    with np.errstate(invalid="ignore"):
        if len(starts) == 1:
            # For a single piece this is several times faster than below.
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
    """Merge the moments of parts of bags, which begin at the parts `starts`; return counts, means and squares of bags.

    By T. Chan, G. Golub, R. LeVeque, The American Statistician, 1983.
    """
    weights = counts[:, None].astype(np.float64)
    totals = np.add.reduceat(counts, starts)
    merged = np.add.reduceat(weights * means, starts) / totals[:, None]
    parts_of_each = np.diff(np.append(starts, len(counts)))
    # Means of infinite numbers are infinite, and their difference is nan.
    with np.errstate(invalid="ignore"):
        distances = means - np.repeat(merged, parts_of_each, axis=0)
    return totals, merged, np.add.reduceat(squares + weights * distances**2, starts)
