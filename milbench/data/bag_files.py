"""The array of one bag in a file: features of patches, frames of a recording, or the pixels of an image."""

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
"""The names of arrays in the files of CLAM and TRIDENT, two programs that compute the features of slides' patches."""

_OTHER_WORDS = {
    "coord", "coords", "coordinate", "coordinates", "position", "positions", "pos", "location", "locations", "xy",
    "id", "ids", "index", "indexes", "indices", "idx", "label", "labels", "class", "classes", "target", "targets", "y",
    "mask", "masks", "loc", "locs", "centroid", "centroids", "bbox", "bboxes", "box", "boxes", "offset", "offsets",
    "barcode", "barcodes", "filename", "filenames", "timestamp", "timestamps",
}  # fmt: skip
"""Words in the names of arrays that hold something else than features."""
_FEATURE_WORDS = {"feature", "features", "feat", "feats", "embedding", "embeddings", "embed"}
"""Words in the names of arrays of features."""
AUDIO = (".wav", ".flac", ".ogg")
WINDOW_STEPS = 2
"""The length of a window of `milbench.data.log_mel`, in steps between frames: neighbours overlap by half."""
BFLOAT16 = "bfloat16"
"""A type that numpy lacks: its bytes are kept as uint16."""
_PARSER = Lock()
"""Held while numpy reads a header, which is text in Python's syntax.

numpy reads it by `ast.literal_eval`, and this failed in several threads at once with Python 3.11.
"""
Arrays = Mapping[str, Any]
"""The arrays of an open file by their names, as its library has them. An array without a name has the name ""."""
Reader = Callable[[Path], AbstractContextManager[Arrays]]


@dataclass(frozen=True, slots=True)
class BagFile:
    """What is known of a file with an array of instances, which are its first dimension, and how to read it."""

    shape: tuple[int, ...]
    dtype: str
    """A name of numpy's, or BFLOAT16."""
    read: Callable[[], NDArray[Any]]
    mapped: bool = False
    """Whether the array is memory-mapped from its file, so that it need not be copied into the store."""
    named: Mapping[str, Callable[[], NDArray[Any]]] = field(default_factory=dict)
    """What reads the other arrays of the file: COORDINATES (K, 2), CLASSES (K,)."""
    kind: str = ""
    """Such as "frames of 20 features", the same in all files of a table."""
    frames_per_second: float = 0.0
    starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    """The rows where bags start: the first row alone, since a file of a user holds one bag.

    Only `milbench.data.bags_store` makes other ones: it cuts a large array of many bags into parts,
    each described by a `BagFile` that holds several bags.
    """
    name: str = ""
    """How messages name it."""


def open_all(
    open_one: Callable[[Path], BagFile],
    table: Path,
    names: Sequence[str],
    rows: Sequence[int] | None = None,
) -> list[BagFile]:
    """Return the files of one kind that a table names, opened. Raises UsageError that names the bad ones.

    `rows` are those that name them; None: each row names one.
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
    """Return the features (K, D) in a file, without unpickling anything.

    Each library has errors of its own for a file without features. `open_all` makes a UsageError of
    all of them.

    `key` names the array of features, see `_choose_array`.
    """
    ending = path.suffix.lower()
    # A zarr store is a folder.
    if path.exists() and ending == ".zarr":
        raise ValueError(f"zarr is not read, expected a file {', '.join(_READERS)}")
    if not path.is_file():
        raise ValueError("not found")
    reader = _READERS.get(ending)
    if reader is None:
        raise ValueError(f"expected a file {', '.join(_READERS)}")
    return _require_numbers(_open_array(reader, path, key), "instances")


def open_frames(path: Path, options: SequenceOptions) -> BagFile:
    """Return the frames (T, F) of a recording: an array of frames or samples, or audio. Errors: see `open_features`."""
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
    """Return the frames in a file .npy, which holds frames or the samples of a waveform."""
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
    """Return the array of features in a file, and how coordinates and classes beside it are read."""

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
    """Return the shape of an array, a tensor or a slice of safetensors, and the name of its type."""
    if hasattr(array, "get_shape"):
        # A slice of safetensors names its type in another way: the tensor of one row is asked.
        return tuple(array.get_shape()), _type_name(array[:1].dtype)
    return tuple(array.shape), _type_name(array.dtype)


def _type_name(dtype: Any) -> str:
    """Return the name of a type of numpy or torch, as `BagFile.dtype` has it."""
    if isinstance(dtype, np.dtype):
        return dtype.str
    return str(dtype).removeprefix("torch.")


def _as_numpy(array: Any) -> NDArray[Any]:
    """Return an array or a tensor as an array; BFLOAT16 as uint16."""
    if isinstance(array, np.ndarray):
        return np.asanyarray(array)
    import torch

    if array.dtype == torch.bfloat16:
        array = array.view(torch.uint16)
    return np.asanyarray(array.numpy())


def _require_numbers(file: BagFile, what: str) -> BagFile:
    """Check that the array of a file holds numbers, and that its shape is (K, D); return the file with its `kind`.

    `what` is the word for the K rows in messages, such as "frames". Raises ValueError.
    """
    if file.dtype != BFLOAT16 and np.dtype(file.dtype).kind not in "biuf":
        raise ValueError(f"expected numbers, got {file.dtype}")
    # Some models return a batch of one slide, (1, K, D). Its file cannot stay mapped: a bag is
    # later mapped from the file anew, and would have three dimensions.
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
    """Return the frames of a waveform with `count` samples, `rate` of them a second."""
    if not count:
        raise ValueError("it is empty")
    import torch

    from milbench.data.log_mel import LogMel

    hop = max(1, round(rate / options.frames_per_second))
    log_mel = LogMel(rate, hop, WINDOW_STEPS * hop, options.bands)

    def frames() -> NDArray[np.float32]:
        # What single precision cannot hold becomes infinite, which is refused.
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
                "it holds pickled objects, which are not read; np.save writes an array of numbers without them"
            )
        # An error if the file is shorter than its header claims.
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
    # The header of an array is read when the array is taken from the file: the lock is held until
    # the caller is done.
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
    # Dictionaries may hold others: a tensor is named by all keys that lead to it, with "/" in
    # between.
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
        # The older format, which is no archive, cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True)


@contextmanager
def _safetensors(path: Path) -> Iterator[Arrays]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        yield {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 it is no dictionary


def _choose_array(key: str, names: list[str]) -> str:
    """Return the name of the array of features: the key, or `features`, or the only one that may be features."""
    if key in names:
        return key
    if key:
        raise ValueError(f"no {key!r}{hint(key, names)}")
    candidates = [name for name in names if _may_be_features(name)]
    groups = _groups_of(candidates)
    # The file holds several bags, such as slide1/feats and slide2/feats. This is checked before the
    # name FEATURES is looked for: an array `features` beside slide1/features, in no group of the
    # file, is the array of one more bag.
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
            f"expected one array, or -p task.key with the name of one (there are: {abbreviate(names)})"
        )
    return candidates[0]


def _may_be_features(name: str) -> bool:
    """Return whether an array may hold features by its name. The last word that says something decides."""
    telling = [word for word in words_of(name) if word in _FEATURE_WORDS | _OTHER_WORDS]
    return not telling or telling[-1] in _FEATURE_WORDS


def _groups_of(names: list[str]) -> list[str]:
    """Return the groups of a file that holds a bag in each of several groups; none for any other file.

    Arrays named slide1/feats and slide2/feats have the groups slide1 and slide2: one array a group,
    all of one name.
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
