"""The instances of bags, memory-mapped, with the mean and spread of each feature and with digests.

A memory-mapped array stays in its file, and the system reads what is used of it. Processes that run
at the same time share the mapped memory.

The instances of a table are scanned once, in blocks that fit into a processor's cache. They are
packed into one array of their own type, unless each bag is a .npy file of that type: then they stay
in these files.
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
"""How many numbers are scanned together: a megabyte in double precision."""
PART = 1 << 22
"""How many numbers of a table with a row for each instance are packed together: 16 MB (float32)."""
_DIGEST_BYTES = 32
"""The length of a SHA-256."""


@dataclass(frozen=True, eq=False)
class BagStore:
    """The N instances of B bags. An instance has D features; for images these are D channels."""

    offsets: NDArray[np.int64]
    """(B + 1,): bag b has the instances offsets[b] to offsets[b + 1] - 1."""
    means: NDArray[np.float64]
    """(B, D), the mean of each feature in each bag."""
    squares: NDArray[np.float64]
    """(B, D), the sum over a bag of the squared distances of each feature from its mean."""
    digests: NDArray[np.uint8]
    """(B, 32), the SHA-256 of the content of each bag."""
    packed: NDArray[Any] | None = None
    """(N, ...), the instances; None where they are in files."""
    files: Sequence[Path] = ()
    """The file of each bag, from which its instances are mapped; () where they are packed."""
    dtype: str = "float32"
    """The type of the stored numbers: as numpy writes it, "float32" or "<f4", or "bfloat16"."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(B,), the number of instances in each bag."""
        return np.diff(self.offsets)

    @property
    def width(self) -> int:
        """D, the number of features."""
        return int(self.means.shape[1])

    def __getitem__(self, bag: int) -> NDArray[Any]:
        """Return the mapped instances (K, ...) of a bag, in the type in which they are stored."""
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
        """Return (4, D): smallest, second smallest, second largest, largest value of each feature.

        Equal values count once. For a feature with a single value the second smallest is inf, and
        the second largest is -inf.
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
        """Copy the instances (K, D) of a bag, or the `chosen` ones, into an array.

        Args:
            bag: the number of the bag.
            out: (K, D), the array in single precision to copy into.
            chosen: the numbers of the instances to copy, counted in the bag; None for all.
        """
        stored = self[bag] if chosen is None else self[bag][chosen]
        # numpy converts floating-point numbers while it copies them, so that they need no array in
        # between. `to_single_precision` converts all other types, such as bfloat16 as uint16.
        is_float = stored.dtype.kind == "f"
        out[:] = stored if is_float else to_single_precision(stored, self.dtype)

    def standard(self, bags: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean (D,) and standard deviation (D,) of all instances of some bags."""
        # The bags are merged as if they were parts of one bag, which starts at part 0.
        starts = np.zeros(1, np.int64)
        counts, means, squares = _merge_moments(
            self.sizes[bags], self.means[bags], self.squares[bags], starts
        )
        return means[0], np.sqrt(squares[0] / counts[0])

    def constant(self) -> NDArray[np.bool_]:
        """Return (D,): which features have one value in all instances."""
        is_constant_in_bags = (self.squares == 0).all(axis=0)
        has_equal_means = (self.means == self.means[:1]).all(axis=0)
        return np.asarray(is_constant_in_bags & has_equal_means)


def _update_two_smallest(two: NDArray[np.float32], values: NDArray[np.float32]) -> None:
    """Update the two smallest values of each feature in place, given more values.

    Args:
        two: (2, D), the smallest and the second smallest value so far.
        values: (K, D), more values.
    """
    # After the first blocks few features have a new value below the second smallest. Only these
    # features are compared further.
    near = np.flatnonzero(values.min(axis=0) < two[1])
    candidates = np.concatenate([two[:, near], values[:, near]])
    smallest = candidates.min(axis=0)
    others = np.where(candidates > smallest, candidates, np.inf)
    two[0, near] = smallest
    two[1, near] = others.min(axis=0)


def to_single_precision(array: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Return stored numbers in single precision.

    Args:
        array: the numbers. Those of type bfloat16 are stored as uint16.
        dtype: the type of the numbers, as in `BagStore.dtype`.
    """
    if dtype == BFLOAT16:
        # The 16 bits of such a number are the upper half of the same number in single precision.
        return (array.astype(np.uint32) << 16).view(np.float32)
    # A number too large for single precision becomes infinite, which the checks of bags report.
    with np.errstate(over="ignore"):
        return np.asarray(array, np.float32)


class Scan(NamedTuple):
    """The means, squares and digests of some bags, which are explained in `BagStore`."""

    means: NDArray[np.float64]
    squares: NDArray[np.float64]
    digests: NDArray[np.uint8]


def scan(rows: NDArray[Any], starts: NDArray[np.int64], dtype: str) -> Scan:
    """Return the means, squares and digests of n bags, read in blocks of rows.

    Args:
        rows: (K, D), the rows of all these bags.
        starts: (n,), the first row of each bag.
        dtype: the type of the numbers, as in `BagStore.dtype`.
    """
    count, width = rows.shape
    rows_a_block = max(1, BLOCK // width)
    cuts = _cut_into_pieces(starts, count, rows_a_block)
    pieces = len(cuts) - 1
    begins_bag = np.isin(cuts[:-1], starts)
    means = np.empty((pieces, width))
    squares = np.empty((pieces, width))
    hashes: list[Any] = []
    # A block holds the pieces from `first` to the one before `end`: as many as fit into it. No
    # piece is larger than a block, so that there is at least one.
    first = 0
    while first < pieces:
        limit = cuts[first] + rows_a_block
        end = int(np.searchsorted(cuts, limit, side="right")) - 1
        stored = np.ascontiguousarray(rows[cuts[first] : cuts[end]])
        piece_starts = cuts[first:end] - cuts[first]
        piece_sizes = np.diff(cuts[first : end + 1])
        _update_hashes(hashes, stored, piece_starts, piece_sizes, begins_bag[first:end])
        values = to_single_precision(stored, dtype).astype(np.float64)
        means[first:end], squares[first:end] = _moments(values, piece_starts, piece_sizes)
        first = end
    # A bag may have several pieces, whose moments are merged.
    if pieces > len(starts):
        first_pieces = np.flatnonzero(begins_bag)
        _, means, squares = _merge_moments(np.diff(cuts), means, squares, first_pieces)
    joined = b"".join(bag_hash.digest() for bag_hash in hashes)
    digests = np.frombuffer(joined, np.uint8).reshape(-1, _DIGEST_BYTES)
    return Scan(means, squares, digests)


def _cut_into_pieces(starts: NDArray[np.int64], count: int, rows_a_block: int) -> NDArray[np.int64]:
    """Return the rows at which pieces start, and at the end `count`, the number of all rows.

    A piece is a whole bag that fits into a block, or a part of a larger bag that does.

    Args:
        starts: (n,), the first row of each bag.
        count: the number of rows.
        rows_a_block: the number of rows that fit into a block.
    """
    cuts = np.union1d(starts, np.arange(0, count, rows_a_block))
    # The cuts at the blocks are meant for large bags. Those inside bags that fit into a block are
    # dropped.
    sizes = np.diff(np.append(starts, count))
    bag_of_cut = np.searchsorted(starts, cuts, side="right") - 1
    is_in_large_bag = sizes[bag_of_cut] > rows_a_block
    is_start_of_bag = np.isin(cuts, starts)
    return np.append(cuts[is_start_of_bag | is_in_large_bag], count)


def _update_hashes(
    hashes: list[Any],
    stored: NDArray[Any],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    begins_bag: NDArray[np.bool_],
) -> None:
    """Update the hashes of bags, one for each bag so far, with the pieces of a block.

    Args:
        hashes: the hashes. A piece that begins a bag adds a new one.
        stored: the rows of the block.
        starts: the first row of each piece.
        sizes: the number of rows of each piece.
        begins_bag: whether a piece begins a bag.
    """
    pieces = zip(starts.tolist(), sizes.tolist(), begins_bag.tolist(), strict=True)
    for start, size, is_first in pieces:
        if is_first:
            hashes.append(hashlib.sha256())
        hashes[-1].update(stored[start : start + size].data)


def row_parts(
    features: NDArray[np.float32], order: NDArray[np.int64], offsets: NDArray[np.int64], name: str
) -> list[BagFile]:
    """Cut an array of the rows of many bags into parts of about PART numbers, each of whole bags.

    Args:
        features: (N, D), a row for each instance, mapped from a file.
        order: (N,), the rows in the order of their bags.
        offsets: (B + 1,): bag b has the rows order[offsets[b]:offsets[b + 1]].
        name: how messages name the array.
    """
    width = features.shape[1]
    in_order = bool((order[:-1] < order[1:]).all())
    rows_a_part = max(1, PART // width)
    every_part = [*range(0, len(order), rows_a_part), len(order)]
    # The nearest bag at or after each of these rows begins a part, so that no bag is cut.
    limits = np.unique(np.searchsorted(offsets, every_part))
    parts = []
    for first_bag, last_bag in pairwise(limits.tolist()):
        first = offsets[first_bag]
        last = offsets[last_bag]
        # A slice of a mapped array is mapped, too. Rows taken by their numbers are copied.
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
    """Scan the instances of all files, pack them if needed, and return the store.

    The store has neither `packed` nor `files` yet. Where the instances may stay in files, the
    caller adds the paths of these. `milbench.data.load_bags` opens the packed instances, when
    `folder` has become the cache of the table.

    Args:
        folder: where instances.npy is written, with all instances packed. If all files are of one
            type and can be memory-mapped, the instances stay in these files and nothing is written.
        files: the files, in the order of their bags.
        what: how messages call the files.

    Raises:
        UsageError: where files cannot be read.
    """
    dtype = _common_dtype(files)
    # numpy has no type for bfloat16.
    stored = np.dtype(np.uint16 if dtype == BFLOAT16 else dtype)
    all_stay = all(file.mapped and file.dtype == dtype for file in files)
    offsets = _bag_offsets(files)

    def scan_file(file: BagFile) -> Scan:
        array = _read_as(file, dtype, stored)
        return scan(_as_rows(array), file.starts, dtype)

    def scan_and_convert(file: BagFile) -> tuple[Scan, NDArray[Any]]:
        array = _read_as(file, dtype, stored)
        scanned = scan(_as_rows(array), file.starts, dtype)
        return scanned, np.ascontiguousarray(array, stored)

    names = [file.name for file in files]
    scans: list[Scan] = []
    if all_stay:
        scans += read_all(scan_file, files, names, what)
    else:
        with (folder / "instances.npy").open("wb") as packed:
            write_header(packed, stored, (int(offsets[-1]), *files[0].shape[1:]))
            for scanned, array in read_all(scan_and_convert, files, names, what):
                scans.append(scanned)
                packed.write(array.data)
    return BagStore(
        offsets,
        means=np.concatenate([scanned.means for scanned in scans]),
        squares=np.concatenate([scanned.squares for scanned in scans]),
        digests=np.concatenate([scanned.digests for scanned in scans]),
        dtype=dtype,
    )


def _common_dtype(files: Sequence[BagFile]) -> str:
    """Return the type in which the numbers of all files can be stored.

    If the files have several types, this is the smallest type that holds the numbers of each.
    """
    dtypes = {file.dtype for file in files}
    if len(dtypes) == 1:
        return dtypes.pop()
    # numpy has no type for bfloat16, but single precision holds every number of that type.
    known = [np.dtype(np.float32 if dtype == BFLOAT16 else dtype) for dtype in dtypes]
    return np.result_type(*known).str


def _bag_offsets(files: Sequence[BagFile]) -> NDArray[np.int64]:
    """Return the offsets (B + 1,) of the bags of all files, as in `BagStore.offsets`."""
    ends = np.cumsum([0, *(file.shape[0] for file in files)])
    starts = [first + file.starts for first, file in zip(ends[:-1].tolist(), files, strict=True)]
    return np.append(np.concatenate(starts), ends[-1])


def _read_as(file: BagFile, dtype: str, stored: np.dtype[Any]) -> NDArray[Any]:
    """Return the array of a file as numbers of the type `dtype`.

    `stored` is the type of numpy in which these numbers are stored. Numbers of the type bfloat16
    come in single precision, where `dtype` is another type: whoever stores them converts them once
    more. Raises ValueError where the
    array has another shape than the header of its file said.
    """
    array = file.read()
    if array.shape != file.shape:
        raise ValueError(f"it has the shape {array.shape}, expected {file.shape}")
    if file.dtype == dtype:
        return array
    if file.dtype == BFLOAT16:
        return to_single_precision(array, file.dtype)
    return array.astype(stored)


def _as_rows(array: NDArray[Any]) -> NDArray[Any]:
    """Return instances (K, D) as they are, and the pixels of images as a row each.

    Images (K, channels, h, w) become (K * h * w, channels): the channels are the features.
    """
    if array.ndim == 2:
        return array
    return np.moveaxis(array, 1, -1).reshape(-1, array.shape[1])


def _moments(
    values: NDArray[np.float64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the moments of n pieces: means (n, D), and sums (n, D) of squared distances from them.

    Args:
        values: (K, D), the rows of all pieces. They are overwritten.
        starts: (n,), the first row of each piece.
        sizes: (n,), the number of rows of each piece.
    """
    # Infinite numbers give nan, which the checks of bags report.
    with np.errstate(invalid="ignore"):
        if len(starts) == 1:
            # For a single piece this is several times faster than `reduceat`.
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
    """Merge the moments of parts into those of whole bags; return counts, means and squares.

    The method is by T. Chan, G. Golub, R. LeVeque, The American Statistician, 1983.

    Args:
        counts: (n,), the number of rows of each part of a bag, such as a piece.
        means: (n, D), the means of each part.
        squares: (n, D), the sums of squared distances from these means.
        starts: (B,), the number of the first part of each bag.
    """
    weights = counts[:, None].astype(np.float64)
    totals = np.add.reduceat(counts, starts)
    merged = np.add.reduceat(weights * means, starts) / totals[:, None]
    parts_of_each = np.diff(np.append(starts, len(counts)))
    # The mean of infinite numbers is infinite, and the difference of two infinite means is nan.
    with np.errstate(invalid="ignore"):
        distances = means - np.repeat(merged, parts_of_each, axis=0)
    return totals, merged, np.add.reduceat(squares + weights * distances**2, starts)
