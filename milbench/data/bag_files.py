"""Open a file that holds the array of one bag, and read the array later.

The array holds features of patches, frames of a recording, or the pixels of an image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench._utils import extras
from milbench._utils.files import reading
from milbench.data.column_words import words_of
from milbench.data.in_order import read_all
from milbench.data.name_lists import abbreviate
from milbench.data.table_files import row_name
from milbench.data.table_options import SequenceOptions
from milbench.errors import UsageError, hint

FEATURES = "features"
COORDINATES = "coords"
CLASSES = "instance_labels"
"""The names of arrays in the files of CLAM and TRIDENT.

These two programs cut slides of tissue into patches and compute the features of each patch.
"""

_OTHER_WORDS = {
    "coord", "coords", "coordinate", "coordinates", "position", "positions", "pos", "location",
    "locations", "xy", "id", "ids", "index", "indexes", "indices", "idx", "label", "labels",
    "class", "classes", "target", "targets", "y", "mask", "masks", "loc", "locs", "centroid",
    "centroids", "bbox", "bboxes", "box", "boxes", "offset", "offsets", "barcode", "barcodes",
    "filename", "filenames", "timestamp", "timestamps",
}  # fmt: skip
"""Words in the names of arrays that hold something else than features."""
_FEATURE_WORDS = {"feature", "features", "feat", "feats", "embedding", "embeddings", "embed"}
"""Words in the names of arrays of features."""
AUDIO = (".wav", ".flac", ".ogg")
"""The endings of files of audio."""
WINDOW_STEPS = 2
"""The length of a window of `milbench.data.log_mel`, in steps from one frame to the next.

Neighbouring windows thus overlap by half.
"""
BFLOAT16 = "bfloat16"
"""The name of a type that numpy lacks: its bytes are kept as uint16."""
_PARSER = Lock()
"""Held while numpy reads the header of a file, which is text in Python's syntax.

numpy reads it by `ast.literal_eval`, which with Python 3.11 failed in several threads at once.
"""
Arrays = Mapping[str, Any]
"""The arrays of an open file by name, as objects of the library that reads the file.

The array in a file .npy has no name, and is found here by the name "".
"""
Reader = Callable[[Path], AbstractContextManager[Arrays]]
"""Opens a file, and closes it when the context ends."""


@dataclass(frozen=True, slots=True)
class BagFile:
    """A file that holds an array of instances: what its header says, and how to read it.

    The first dimension of the array counts the instances.
    """

    shape: tuple[int, ...]
    dtype: str
    """The type of the numbers: a name of numpy, or BFLOAT16."""
    read: Callable[[], NDArray[Any]]
    """Returns the array."""
    mapped: bool = False
    """Whether the array is memory-mapped from its file, and need not be copied into the store."""
    named: Mapping[str, Callable[[], NDArray[Any]]] = field(default_factory=dict)
    """Name -> what reads another array of the file: COORDINATES (K, 2) or CLASSES (K,)."""
    kind: str = ""
    """What the file holds, such as "frames of 20 features": the same in all files of a table."""
    frames_per_second: float = 0.0
    """0 where the instances are no frames."""
    starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    """The rows where bags start: row 0 alone in a user's file, which holds one bag.

    Only `milbench.data.bags_store` makes a `BagFile` of several bags: it cuts a large array of many
    bags into parts, and describes each part by a `BagFile`.
    """
    name: str = ""
    """How messages name the file."""


def open_all(
    open_one: Callable[[Path], BagFile],
    table: Path,
    names: Sequence[str],
    rows: Sequence[int] | None = None,
) -> list[BagFile]:
    """Return the opened files that a table names.

    Args:
        open_one: opens a file; any error that it raises means that the file cannot be read.
        table: the path of the table, from whose folder the files are named.
        names: the names of the files.
        rows: the row of the table that names each file; None: the rows from 0 on.

    Raises:
        UsageError: where files cannot be read, or are not all of one kind; it names these files.
    """
    if rows is None:
        rows = range(len(names))
    places = []
    for row, name in zip(rows, names, strict=True):
        places.append(f"{row_name(table, row)}: {name or 'no file'}")
    opened = read_all(open_one, [table.parent / name for name in names], places)
    files = [replace(file, name=place) for file, place in zip(opened, places, strict=True)]
    kinds = Counter(file.kind for file in files)
    usual = max(kinds, key=lambda kind: kinds[kind])
    wrong = [f"{file.name} has {file.kind}" for file in files if file.kind != usual]
    if wrong:
        fault = f"{len(wrong)} of {len(files)} files are not as the others, which have {usual}"
        raise UsageError(f"{fault}: {abbreviate(wrong, 20)}")
    return files


def open_features(path: Path, key: str = "") -> BagFile:
    """Open a file that holds the features (K, D) of a bag. Nothing is unpickled.

    Each library raises errors of its own for a file without features. `open_all` turns any of them
    into a UsageError.

    Args:
        path: of the file.
        key: the name of the array of features; "": found as `_choose_array` says.
    """
    ending = path.suffix.lower()
    # A zarr store is a folder, for which the next message would be wrong.
    if path.exists() and ending == ".zarr":
        raise ValueError(f"zarr is not read, expected a file {', '.join(_READERS)}")
    if not path.is_file():
        raise ValueError("not found")
    reader = _READERS.get(ending)
    if reader is None:
        raise ValueError(f"expected a file {', '.join(_READERS)}")
    return _require_numbers(_open_array(reader, path, key), "instances")


def open_frames(path: Path, options: SequenceOptions) -> BagFile:
    """Open a file that holds a sequence, as frames (T, F).

    The file is audio, or an array of frames or of samples. Samples become log-mel frames. For a
    file that cannot be read, each library raises errors of its own, as in `open_features`.
    """
    if not path.is_file():
        raise ValueError("not found")
    ending = path.suffix.lower()
    if ending == ".npy":
        return _array_frames(path, options)
    if ending not in AUDIO:
        raise ValueError(f"its name does not end in .npy or {', '.join(AUDIO)}")
    soundfile = extras.load("soundfile", "audio", str(path))
    about = soundfile.info(path)

    def samples() -> NDArray[np.float32]:
        channels, _ = soundfile.read(path, dtype="float32", always_2d=True)
        return np.asarray(channels.mean(axis=1))

    return _wave_frames(about.frames, int(about.samplerate), samples, options)


def _array_frames(path: Path, options: SequenceOptions) -> BagFile:
    """Open a file .npy as frames; it holds frames (T, F) or the samples (S,) of a waveform."""
    array = _open_array(_npy, path, "")
    dimensions = len(array.shape)
    if np.dtype(array.dtype).kind not in "fiu" or dimensions not in (1, 2):
        raise ValueError("expected numbers of shape (T, F), or (S,) for a waveform")
    if dimensions == 2:
        frames = _require_numbers(array, "frames")
        return replace(frames, frames_per_second=options.frames_per_second)
    if options.sample_rate is None:
        raise ValueError("it is a waveform, which needs -p task.sample_rate (samples a second)")
    return _wave_frames(array.shape[0], options.sample_rate, array.read, options)


def _open_array(reader: Reader, path: Path, key: str) -> BagFile:
    """Open the array of features in a file, with the coordinates and classes beside it, if any."""

    def read(name: str) -> NDArray[Any]:
        with reader(path) as arrays:
            return _as_numpy(arrays[name][:])

    def read_beside(name: str) -> NDArray[Any]:
        with reading(f"{path}: {name}"):
            array = read(name)
        # Some models return a batch of one slide, (1, K, 2) or (1, K).
        dimensions = 2 if name == COORDINATES else 1
        is_batch_of_one = array.ndim > dimensions and array.shape[0] == 1
        return array[0] if is_batch_of_one else array

    with reader(path) as arrays:
        chosen = "" if "" in arrays else _choose_array(key, list(arrays))
        shape, dtype = _shape_and_type(arrays[chosen])
        beside = [name for name in (COORDINATES, CLASSES) if name in arrays]
    return BagFile(
        shape=shape,
        dtype=dtype,
        read=partial(read, chosen),
        mapped=reader is _npy,
        named={name: partial(read_beside, name) for name in beside},
    )


def _shape_and_type(array: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape and the name of the type of an array, a tensor or a slice of safetensors."""
    if hasattr(array, "get_shape"):
        # A slice of safetensors spells its type in its own way. Its first row is a tensor of torch.
        return tuple(array.get_shape()), _type_name(array[:1].dtype)
    return tuple(array.shape), _type_name(array.dtype)


def _type_name(dtype: Any) -> str:
    """Return the name of a type of numpy or torch, as `BagFile.dtype` spells it."""
    if isinstance(dtype, np.dtype):
        return dtype.str
    return str(dtype).removeprefix("torch.")


def _as_numpy(array: Any) -> NDArray[Any]:
    """Return an array or a tensor as an array of numpy; numbers of BFLOAT16 become uint16."""
    if isinstance(array, np.ndarray):
        return np.asanyarray(array)
    import torch

    if array.dtype == torch.bfloat16:
        array = array.view(torch.uint16)
    return np.asanyarray(array.numpy())


def _require_numbers(file: BagFile, what: str) -> BagFile:
    """Return the file with its `kind`, if its array holds numbers in the shape (K, D).

    Otherwise raise ValueError. `what` is the word of messages for the K rows, such as "frames".
    """
    if file.dtype != BFLOAT16 and np.dtype(file.dtype).kind not in "biuf":
        raise ValueError(f"expected numbers, got {file.dtype}")
    # Some models return a batch of one slide, (1, K, D). The instances cannot stay in such a file:
    # the store would map them from it, and get three dimensions.
    is_batch_of_one = len(file.shape) == 3 and file.shape[0] == 1
    if is_batch_of_one:
        read = file.read
        file = replace(file, shape=file.shape[1:], read=lambda: read()[0], mapped=False)
    if len(file.shape) != 2:
        raise ValueError(f"expected an array of {what} by features, got the shape {file.shape}")
    if 0 in file.shape:
        raise ValueError(f"it is empty, of shape {file.shape}")
    return replace(file, kind=f"{what} of {file.shape[1]} features")


def _wave_frames(
    count: int, rate: int, samples: Callable[[], NDArray[Any]], options: SequenceOptions
) -> BagFile:
    """Describe the log-mel frames of a waveform, which are computed when they are read.

    Args:
        count: the number of samples of the waveform.
        rate: the number of samples in a second.
        samples: returns the samples (S,).
        options: of the task, which say how many frames and bands there are.
    """
    if not count:
        raise ValueError("it is empty")
    import torch

    from milbench.data.log_mel import LogMel

    hop = max(1, round(rate / options.frames_per_second))
    log_mel = LogMel(rate, hop, WINDOW_STEPS * hop, options.bands)

    def frames() -> NDArray[np.float32]:
        # A number too large for single precision becomes infinite, which the checks of bags refuse.
        with np.errstate(over="ignore"):
            wave = torch.from_numpy(np.array(samples(), np.float32))
        bands = log_mel(wave.unsqueeze(0))[0]
        return np.asarray(bands.T.contiguous())

    return BagFile(
        shape=(log_mel.count(count), options.bands),
        dtype="float32",
        read=frames,
        kind=f"a waveform of {rate} samples a second",
        frames_per_second=log_mel.frames_per_second,
    )


@contextmanager
def _npy(path: Path) -> Iterator[Arrays]:
    with _PARSER:
        if _npy_type(path).hasobject:
            raise ValueError(
                "it holds pickled objects, which are not read; np.save writes an array of numbers "
                "without them"
            )
        # np.load raises an error if the file is shorter than its header claims.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    yield {"": mapped}


def _npy_type(path: Path) -> np.dtype[Any]:
    """Return the type of the array in a file .npy, from its header."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        if version > (1, 0):
            read = np.lib.format.read_array_header_2_0
        _shape, _is_fortran_order, dtype = read(file)
        return np.dtype(dtype)


@contextmanager
def _npz(path: Path) -> Iterator[Arrays]:
    # numpy reads the header of an array only when the caller takes the array from the file. So the
    # lock is held until the caller is done with the file.
    with _PARSER, np.load(path, allow_pickle=False) as file:
        yield file


@contextmanager
def _hdf5(path: Path) -> Iterator[Arrays]:
    h5py = extras.load("h5py", "h5", str(path))
    arrays: dict[str, Any] = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item

    with h5py.File(path) as file:
        file.visititems(collect)
        yield arrays


@contextmanager
def _torch(path: Path) -> Iterator[Arrays]:
    import torch

    try:
        content = _load_tensors(path)
    except Exception:  # noqa: BLE001 the messages of torch tell how to run what a pickle holds
        raise ValueError(
            "it holds more than tensors, or is damaged; only tensors are read (weights_only)"
        ) from None
    # Dictionaries may hold dictionaries: the name of a tensor is all the keys that lead to it, with
    # "/" between them.
    tensors: dict[str, Any] = {}
    values = [("", content)]
    while values:
        name, value = values.pop()
        if isinstance(value, dict):
            values += [(f"{name}/{key}".lstrip("/"), inner) for key, inner in value.items()]
        elif isinstance(value, torch.Tensor):
            tensors[name] = value
    yield tensors


def _load_tensors(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:
        # Only archives can be mapped. A file in the format of torch before version 1.6 is none.
        return torch.load(path, map_location="cpu", weights_only=True)


@contextmanager
def _safetensors(path: Path) -> Iterator[Arrays]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        # The file is no dictionary, and can be iterated over only by its keys.
        yield {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118


def _choose_array(key: str, names: list[str]) -> str:
    """Return the name of the array of features in a file.

    This is the key if one is given, else `features`, else the name of the only array that may hold
    features. Raises ValueError where there is no such array, or where the file holds several bags.
    """
    if key in names:
        return key
    if key:
        raise ValueError(f"no {key!r}{hint(key, names)}")
    candidates = [name for name in names if _may_be_features(name)]
    groups = _groups_of(candidates)
    # In several groups, such as slide1/feats and slide2/feats, the file holds several bags. This is
    # checked before the name FEATURES is looked for, since an array `features` in no group, beside
    # slide1/features, is the array of one more bag.
    if len(groups) > 1:
        raise ValueError(
            f"it holds {len(candidates)} arrays in {len(groups)} groups ({abbreviate(groups, 3)}); "
            "expected a file for each bag, or -p task.key=… with the name of one array"
        )
    if names and not candidates:
        raise ValueError(f"it holds only {abbreviate(names)}; expected features")
    if FEATURES in names:
        return FEATURES
    if len(candidates) != 1:
        raise ValueError(
            "expected one array, or -p task.key with the name of one "
            f"(there are: {abbreviate(names)})"
        )
    return candidates[0]


def _may_be_features(name: str) -> bool:
    """Return whether an array may hold features, by its name.

    The last word decides that is in one of the two lists of words, `_FEATURE_WORDS` and
    `_OTHER_WORDS`. A name with no such word may be one of features.
    """
    telling = [word for word in words_of(name) if word in _FEATURE_WORDS | _OTHER_WORDS]
    return not telling or telling[-1] in _FEATURE_WORDS


def _groups_of(names: list[str]) -> list[str]:
    """Return the groups of a file that holds one bag in each group; [] for any other file.

    Arrays named slide1/feats and slide2/feats are in the groups slide1 and slide2. A file holds a
    bag in each group if every group has one array, and all these arrays have one name.
    """
    groups = []
    array_names = []
    for name in names:
        group, _, array_name = name.rpartition("/")
        groups.append(group)
        array_names.append(array_name)
    are_different = len(set(groups)) == len(groups)
    have_one_name = len(set(array_names)) == 1
    if len(groups) > 1 and are_different and have_one_name:
        return groups
    return []


_READERS: dict[str, Reader] = {
    ".npy": _npy, ".npz": _npz, ".h5": _hdf5, ".hdf5": _hdf5, ".pt": _torch, ".pth": _torch,
    ".safetensors": _safetensors,
}  # fmt: skip
