"""Sequences from files: arrays of frames, and waveforms that become log-mel frames."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.data.log_mel import LogMel
from milbench.data.tables.reading import file_state, row_name, shown
from milbench.errors import UsageError

AUDIO = (".wav", ".flac", ".ogg")
FRAMES_PER_SECOND: Final = 62.5
"""Frames a second, where nothing else is asked for."""
BANDS: Final = 32
"""Log-mel bands, likewise."""
Stride = Literal[1, 2, 4, 8, 16, 32]
"""Frames that a position stands for."""
STRIDE: Final = 4
"""The one where nothing else is asked for."""
WINDOW_STEPS = 2
"""Length of a window of the transform, in steps between frames: neighbours overlap by half."""
MOST_NAMED = 20
"""At most how many wrong files a message names; it counts the others."""


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """How files become frames.

    Args:
        frames_per_second: of arrays, where it relates frames to the times of events; of waveforms approximately, as a
            step is a whole number of samples.
        bands: of log-mel frames.
        sample_rate: of waveforms in .npy files, samples a second; audio files say theirs. All files need the same.
    """

    frames_per_second: float = FRAMES_PER_SECOND
    bands: int = BANDS
    sample_rate: int | None = None


@dataclass(frozen=True, slots=True)
class LoadedFrames:
    """The frames of B files.

    Args:
        frames: a tensor (F, T) of each file.
        frames_per_second: of all of them.
        kind: what all of them are, such as "a waveform of 16000 samples a second".
    """

    frames: list[Tensor]
    frames_per_second: float
    kind: str

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(B,), the number of frames of each file."""
        return np.array([one.shape[1] for one in self.frames])

    def digest(self, number: int) -> str:
        """Return a digest of the frames of a file, equal for files that a network cannot tell apart."""
        return hashlib.sha256(self.frames[number].numpy().tobytes()).hexdigest()


class _WrongFileError(Exception):
    """What is wrong with one file."""


def load_frames(table: Path, files: Sequence[str], settings: FrameSettings) -> LoadedFrames:
    """Return the frames of files: `.npy` with (T, F) frames or an (S,) waveform, or audio (.wav, .flac, .ogg).

    Channels of audio are averaged. Files are all frames with one number of features, or all waveforms of one rate. The
    last files stay in memory for further cells of a comparison, and are read anew where one of them has changed.

    Args:
        table: the table that names the files, which are relative to its folder.
        files: one a row, in the order of the rows.
        settings: how they become frames.

    Raises:
        UsageError: files are missing, cannot be read, or do not fit together; the message names all with their rows.
    """
    states = tuple(file_state(table.parent / name) for name in files)
    return _load(table, tuple(files), settings, states)


@lru_cache(maxsize=1)
def _load(table: Path, files: tuple[str, ...], settings: FrameSettings, _states: object) -> LoadedFrames:
    frames: list[Tensor] = []
    kinds: list[str] = []
    rates: list[float] = []
    wrong: list[str] = []
    for row, name in enumerate(files):
        try:
            values, rate = _read(table.parent / name, settings)
        except _WrongFileError as error:
            wrong.append(f"{row_name(table, row)}: {name}: {error}")
            continue
        if rate is None:
            kinds.append(f"frames of {values.shape[1]} features")
            rates.append(settings.frames_per_second)
            frames.append(torch.from_numpy(values.T.copy()))
        else:
            log_mel = _log_mel(rate, settings)
            kinds.append(f"a waveform of {rate} samples a second")
            rates.append(log_mel.frames_per_second)
            frames.append(log_mel(torch.from_numpy(values).unsqueeze(0))[0])
    if wrong:
        raise UsageError(f"{len(wrong)} of {len(files)} files cannot be read: {shown(wrong, MOST_NAMED)}")
    usual = max(dict.fromkeys(kinds), key=kinds.count)
    wrong = [f"{row_name(table, row)}: {files[row]} has {kind}" for row, kind in enumerate(kinds) if kind != usual]
    if wrong:
        fault = f"{len(wrong)} of {len(files)} files are not as the others, which have {usual}"
        raise UsageError(f"{fault}: {shown(wrong, MOST_NAMED)}")
    return LoadedFrames(frames, rates[0], usual)


@cache
def _log_mel(rate: int, settings: FrameSettings) -> LogMel:
    hop = max(1, round(rate / settings.frames_per_second))
    return LogMel(rate, hop, WINDOW_STEPS * hop, settings.bands)


def _read(path: Path, settings: FrameSettings) -> tuple[NDArray[np.float32], int | None]:
    """Return frames (T, F) and None, or a waveform (S,) and its samples a second."""
    if not path.is_file():
        raise _WrongFileError("not found")
    if path.suffix.lower() == ".npy":
        values, rate = _read_array(path, settings)
    elif path.suffix.lower() in AUDIO:
        values, rate = _read_audio(path)
    else:
        raise _WrongFileError(f"its name does not end in .npy or {', '.join(AUDIO)}")
    if not values.size:
        raise _WrongFileError("it is empty")
    if not np.isfinite(values).all():
        raise _WrongFileError("it holds values that are not finite")
    return values, rate


def _read_array(path: Path, settings: FrameSettings) -> tuple[NDArray[np.float32], int | None]:
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _WrongFileError(str(error).split("\n")[0] or "it is damaged") from None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu" or values.ndim not in (1, 2):
        raise _WrongFileError("expected numbers of shape (T, F), or (S,) for a waveform")
    if values.ndim == 1 and settings.sample_rate is None:
        raise _WrongFileError("it is a waveform, which needs sample_rate")
    with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite, which is refused
        return values.astype(np.float32), settings.sample_rate if values.ndim == 1 else None


def _read_audio(path: Path) -> tuple[NDArray[np.float32], int | None]:
    try:
        import soundfile
    except ImportError:
        raise UsageError(f"{path}: audio files are read by soundfile: pip install milbench[audio]") from None
    try:
        values, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:
        raise _WrongFileError(str(error).split("\n")[0]) from None
    return values.mean(axis=1), int(rate)
