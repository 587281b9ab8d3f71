"""Sequences from files: arrays of frames, and waveforms that become log-mel frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.data.log_mel import LogMel
from milbench.errors import UsageError

AUDIO = (".wav", ".flac", ".ogg")
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

    frames_per_second: float
    bands: int
    sample_rate: int | None = None


@dataclass(frozen=True, slots=True)
class LoadedFrames:
    """The frames of many files.

    Args:
        frames: a tensor (F, T) of each file.
        frames_per_second: of all of them.
    """

    frames: list[Tensor]
    frames_per_second: float


class _WrongFileError(Exception):
    """What is wrong with one file."""


def load_frames(paths: Sequence[Path], settings: FrameSettings) -> LoadedFrames:
    """Return the frames of files: `.npy` with (T, F) frames or an (S,) waveform, or audio (.wav, .flac, .ogg).

    Channels of audio are averaged. Files are all frames with one number of features, or all waveforms of one rate.

    Raises:
        UsageError: files are missing, cannot be read, or do not fit together; the message names all of them.
    """
    frames: list[Tensor] = []
    kinds: list[str] = []
    rates: list[float] = []
    wrong: list[str] = []
    for path in paths:
        try:
            values, rate = _read(path, settings)
        except _WrongFileError as error:
            wrong.append(f"{path}: {error}")
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
        raise _of_files("cannot be read", wrong, len(paths))
    usual = max(dict.fromkeys(kinds), key=kinds.count)
    wrong = [f"{path} has {kind}" for path, kind in zip(paths, kinds, strict=True) if kind != usual]
    if wrong:
        raise _of_files(f"are not as the others, which have {usual}", wrong, len(paths))
    return LoadedFrames(frames, rates[0])


@cache
def _log_mel(rate: int, settings: FrameSettings) -> LogMel:
    hop = max(1, round(rate / settings.frames_per_second))
    return LogMel(rate, hop, WINDOW_STEPS * hop, settings.bands)


def _of_files(fault: str, wrong: list[str], count: int) -> UsageError:
    more = f"; and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else ""
    return UsageError(f"{len(wrong)} of {count} files {fault}: {'; '.join(wrong[:MOST_NAMED])}{more}")


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
        raise _WrongFileError("it is a waveform, which needs the parameter sample_rate")
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
