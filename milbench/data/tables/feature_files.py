"""The features of one bag from a file: a numpy array, an HDF5 data set or a torch tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.data.tables.reading import row_name, shown
from milbench.errors import UsageError, closest


def bag_features(table: Path, files: Sequence[str], key: str = "") -> list[NDArray[np.float32]]:
    """Return the features (K, D) of every bag.

    Args:
        table: the table that names the files, which are relative to its folder.
        files: one a bag, in the order of the rows.
        key: of the array in files that hold several; "": the only one.

    Raises:
        UsageError: files are missing or cannot be read, all of which are named; or two differ in width.
    """
    found, broken = [], []
    for row, name in enumerate(files):
        try:
            found.append(read_features(table.parent / name if name else None, key))
        except Exception as error:  # noqa: BLE001 every format has errors of its own for a damaged file
            broken.append(f"{row_name(table, row)}: {name or 'no file'}: {error}")
    if broken:
        raise UsageError(f"{len(broken)} of {len(files)} files cannot be read: {shown(broken, 20)}")
    widths = [part.shape[1] for part in found]
    for row, width in enumerate(widths):
        if width != widths[0]:
            raise UsageError(
                f"{row_name(table, row)}: {files[row]} has {width} features, expected {widths[0]} as in {files[0]}"
            )
    return found


def read_features(path: Path | None, key: str = "") -> NDArray[np.float32]:
    """Return the features (K, D) in a file.

    Args:
        path: of the file; None: none is named.
        key: of the array in a file that holds several; "": the only one.

    Raises:
        ValueError: the file is missing or holds no such array. Readers of damaged files raise errors of their own.
    """
    if path is None or not path.is_file():
        raise ValueError("there is no such file" if path is not None else "the field is empty")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"expected a file {', '.join(_READERS)}")
    array = np.asarray(reader(path, key))
    if array.dtype.kind not in "biuf":
        raise ValueError(f"expected numbers, got {array.dtype}")
    if array.ndim != 2 or not array.size:
        raise ValueError(f"expected an array of instances by features, got the shape {array.shape}")
    return array.astype(np.float32)


def _npy(path: Path, key: str) -> Any:  # noqa: ARG001
    return np.load(path, allow_pickle=False)


def _npz(path: Path, key: str) -> Any:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[_chosen(key, list(arrays.files))]


def _hdf5(path: Path, key: str) -> Any:
    import h5py

    with h5py.File(path) as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        return file[_chosen(key, names)][()]


def _torch(path: Path, key: str) -> Any:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001 the messages of torch tell how to run what a pickle holds
        raise ValueError("it holds more than tensors, or is damaged; only tensors are read (weights_only)") from None
    if isinstance(found, dict):
        found = found[_chosen(key, list(found))]
    return found.numpy()


def _chosen(key: str, names: list[str]) -> str:
    """Return the name of the array: the key, or the only one there is."""
    if key in names or (not key and len(names) == 1):
        return key or names[0]
    near = closest(key, names) if key else None
    hint = f"; did you mean {near!r}?" if near else ""
    raise ValueError(f"expected one array, or a key (there are: {shown(names)})" if not key else f"no {key!r}{hint}")


_READERS: dict[str, Callable[[Path, str], Any]] = {
    ".npy": _npy, ".npz": _npz, ".h5": _hdf5, ".hdf5": _hdf5, ".pt": _torch, ".pth": _torch,
}  # fmt: skip
FEATURE_FILES = tuple(_READERS)
"""The endings of files that are read."""
