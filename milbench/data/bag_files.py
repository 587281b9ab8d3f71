"""The array of one bag in a file: features of patches, frames of a recording, or the pixels of an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from milbench._utils import extras
from milbench.data.in_order import read_all
from milbench.data.table import abbreviate
from milbench.data.table_files import row_name
from milbench.errors import UsageError, hint

if TYPE_CHECKING:
    from milbench.data.log_mel import LogMel

FEATURES, COORDINATES, CLASSES = "features", "coords", "instance_labels"
"""The names of arrays: instances and their places, as CLAM and TRIDENT write them, and the classes of instances."""
AUDIO = (".wav", ".flac", ".ogg")
Rate = Annotated[float, Field(gt=0, le=100_000)]
Bands = Annotated[int, Field(ge=1, le=512)]
SampleRate = Annotated[int, Field(ge=100)]
FRAMES_PER_SECOND: Final = 62.5
"""Where nothing else is asked for, as below."""
BANDS: Final = 32
WINDOW_STEPS = 2
"""Length of a window of the transform, in steps between frames: neighbours overlap by half."""
BFLOAT16 = "bfloat16"
"""A type that numpy lacks: its bytes are kept as uint16."""
_PARSER = Lock()
"""Held while numpy reads a header, which Python parses: that has failed where threads did it at once, on Python 3.11
(AST constructor recursion depth mismatch)."""
Arrays = Mapping[str, Any]
"""The arrays of an open file by their names, as its library has them; "" is the name of an only one without a name."""
Reader = Callable[[Path], AbstractContextManager[Arrays]]


@dataclass(frozen=True, slots=True)
class BagFile:
    """An open file with an array of instances, which are its first dimension.

    `dtype` is a name of numpy's or "bfloat16". A `mapped` file can stay where it is. `named` returns COORDINATES (K, 2)
    in the plane and CLASSES (K,), as far as there. `kind`, such as "frames of 20 features", has to be the same in all
    files of a table. `starts` are those of bags, where the array has several. `name` is how messages name it.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], NDArray[Any]]
    mapped: bool = False
    named: Mapping[str, Callable[[], NDArray[Any]]] = field(default_factory=dict)
    kind: str = ""
    frames_per_second: float = 0.0
    starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    name: str = ""


@dataclass(frozen=True)
class SequenceColumns:
    """Which columns of a table of sequences hold what, and how files become frames, as the task sequence-bags says it.

    Frames a second of waveforms are approximate.
    """

    kind: ClassVar[Literal["sequences"]] = "sequences"
    file: str = "file"
    labels: str = "labels"
    classes: str = ""
    frames_per_second: Rate = FRAMES_PER_SECOND
    bands: Bands = BANDS
    sample_rate: SampleRate | None = None


def open_all(open_one: Callable[[Path], BagFile], table: Path, names: Sequence[str]) -> list[BagFile]:
    """Return the files that the rows of a table name, opened. Raises UsageError that names the bad ones."""
    named = [f"{row_name(table, row)}: {name or 'no file'}" for row, name in enumerate(names)]
    opened = read_all(open_one, [table.parent / name for name in names], named)
    return [replace(file, name=name) for file, name in zip(opened, named, strict=True)]


def usual_kind(files: Sequence[BagFile]) -> str:
    """Return the kind of all files. Raises UsageError that names those of another kind than most."""
    usual = Counter(file.kind for file in files).most_common(1)[0][0]
    if wrong := [f"{file.name} has {file.kind}" for file in files if file.kind != usual]:
        fault = f"{len(wrong)} of {len(files)} files are not as the others, which have {usual}"
        raise UsageError(f"{fault}: {abbreviate(wrong, 20)}")
    return usual


def open_features(path: Path, key: str = "") -> BagFile:
    """Return the features (K, D) in a file: those of the key, or the only ones, or those named "features".

    Nothing is unpickled. A file that is missing, damaged or without such an array may raise anything, see `open_all`.
    """
    reader = _READERS.get(_present(path).suffix.lower())
    if reader is None:
        raise ValueError(f"expected a file {', '.join(_READERS)}")
    return _numbers(_opened(reader, path, key), "instances by features")


def open_frames(path: Path, columns: SequenceColumns) -> BagFile:
    """Return the frames (T, F) of a recording: a .npy array of frames or of samples, or audio of averaged channels.

    A file that is missing, damaged or of another kind may raise anything, see `open_all`.
    """
    suffix = _present(path).suffix.lower()
    if suffix == ".npy":
        array = _opened(_npy, path, "")
        if np.dtype(array.dtype).kind not in "fiu" or len(array.shape) not in (1, 2):
            raise ValueError("expected numbers of shape (T, F), or (S,) for a waveform")
        if len(array.shape) == 2:
            array = _numbers(array, "frames by features")
            kind = f"frames of {array.shape[1]} features"
            return BagFile(array.shape, array.dtype, array.read, True, {}, kind, columns.frames_per_second)
        if columns.sample_rate is None:
            raise ValueError("it is a waveform, which needs sample_rate")
        return _waveform(array.shape[0], columns.sample_rate, array.read, columns)
    if suffix not in AUDIO:
        raise ValueError(f"its name does not end in .npy or {', '.join(AUDIO)}")
    soundfile = extras.load("soundfile", "audio", str(path))
    about = soundfile.info(path)

    def samples() -> NDArray[np.float32]:
        values: NDArray[np.float32] = soundfile.read(path, dtype="float32", always_2d=True)[0].mean(axis=1)
        return values

    return _waveform(about.frames, int(about.samplerate), samples, columns)


def _present(path: Path) -> Path:
    if not path.is_file():
        raise ValueError("not found")
    return path


def _opened(reader: Reader, path: Path, key: str) -> BagFile:

    def read(name: str) -> NDArray[Any]:
        with reader(path) as arrays:
            return _as_numpy(arrays[name])

    def flat(name: str) -> NDArray[Any]:
        try:
            array = read(name)
        except Exception as error:  # noqa: BLE001 every format has errors of its own
            raise UsageError(f"{path}: {name} cannot be read: {error}") from None
        return array[0] if array.ndim > 1 + (name == COORDINATES) and array.shape[0] == 1 else array

    with reader(path) as arrays:
        chosen = "" if "" in arrays else _chosen(key, list(arrays))
        array = arrays[chosen]
        shape = tuple(array.shape if hasattr(array, "shape") else array.get_shape())
        dtype = array.dtype if hasattr(array, "dtype") else array[:1].dtype
        named = {name: partial(flat, name) for name in (COORDINATES, CLASSES) if name in arrays}
    dtype_name = dtype.str if isinstance(dtype, np.dtype) else str(dtype).removeprefix("torch.")
    return BagFile(shape, dtype_name, partial(read, chosen), mapped=reader is _npy, named=named)


def _numbers(file: BagFile, axes: str) -> BagFile:
    if file.dtype != BFLOAT16 and np.dtype(file.dtype).kind not in "biuf":
        raise ValueError(f"expected numbers, got {file.dtype}")
    if len(file.shape) == 3 and file.shape[0] == 1:  # as a model has returned it for one slide
        read = file.read
        file = replace(file, shape=file.shape[1:], read=lambda: read()[0], mapped=False)
    if len(file.shape) != 2:
        raise ValueError(f"expected an array of {axes}, got the shape {file.shape}")
    if 0 in file.shape:
        raise ValueError(f"it is empty, of shape {file.shape}")
    return file


def _waveform(count: int, rate: int, samples: Callable[[], NDArray[Any]], columns: SequenceColumns) -> BagFile:
    import torch

    log_mel = _log_mel(rate, columns)

    def frames() -> NDArray[np.float32]:
        with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite, which is refused
            wave = torch.from_numpy(np.array(samples(), np.float32))
        log_mel_frames: NDArray[np.float32] = log_mel(wave.unsqueeze(0))[0].T.contiguous().numpy()
        return log_mel_frames

    if not count:
        raise ValueError("it is empty")
    shape = (log_mel.count(count), columns.bands)
    kind = f"a waveform of {rate} samples a second"
    return BagFile(shape, "float32", frames, kind=kind, frames_per_second=log_mel.frames_per_second)


@cache
def _log_mel(rate: int, columns: SequenceColumns) -> LogMel:
    from milbench.data.log_mel import LogMel

    hop = max(1, round(rate / columns.frames_per_second))
    return LogMel(rate, hop, WINDOW_STEPS * hop, columns.bands)


@contextmanager
def _npy(path: Path) -> Iterator[Arrays]:
    if path.stat().st_size == 0:
        raise ValueError("it is empty")
    with _PARSER:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)  # an error if it is shorter than its header claims
    yield {"": mapped}


@contextmanager
def _npz(path: Path) -> Iterator[Arrays]:
    with _PARSER, np.load(path, allow_pickle=False) as file:
        yield file


@contextmanager
def _hdf5(path: Path) -> Iterator[Arrays]:
    h5py = extras.load("h5py", "h5", str(path))
    arrays: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: arrays.update({name: item} if isinstance(item, h5py.Dataset) else {}))
        yield arrays


@contextmanager
def _torch(path: Path) -> Iterator[Arrays]:
    import torch

    try:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # the older format, which is no archive, cannot be mapped
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001 the messages of torch tell how to run what a pickle holds
        raise ValueError("it holds more than tensors, or is damaged; only tensors are read (weights_only)") from None
    tensors = content.items() if isinstance(content, dict) else [("", content)]
    yield {name: tensor for name, tensor in tensors if isinstance(tensor, torch.Tensor)}


@contextmanager
def _safetensors(path: Path) -> Iterator[Arrays]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        yield {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 it is no dictionary


def _as_numpy(stored: Any) -> NDArray[Any]:
    whole = stored[:]
    if not isinstance(whole, np.ndarray):
        import torch

        whole = (whole.view(torch.uint16) if whole.dtype == torch.bfloat16 else whole).numpy()
    array: NDArray[Any] = whole
    return array


def _chosen(key: str, names: list[str]) -> str:
    if key in names:
        return key
    if not key and (FEATURES in names or len(names) == 1):
        return FEATURES if FEATURES in names else names[0]
    if key:
        raise ValueError(f"no {key!r}{hint(key, names)}")
    raise ValueError(f"expected one array, or a key (there are: {abbreviate(names)})")


_READERS: dict[str, Reader] = {
    ".npy": _npy, ".npz": _npz, ".h5": _hdf5, ".hdf5": _hdf5, ".pt": _torch, ".pth": _torch,
    ".safetensors": _safetensors,
}  # fmt: skip
FEATURE_FILES = tuple(_READERS)
"""The endings of files of features that are read."""
