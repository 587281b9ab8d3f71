"""The Free Spoken Digit Dataset, read as waveforms."""

import wave
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import reading
from milbench.errors import UsageError

SAMPLE_RATE = 8000
FOLDER = Path("spoken-digits/recordings")  # where the recordings are, below the data directory


class Recordings(NamedTuple):
    """N recordings (S_i,) int16 of one digit each; takes 0 to 4 of each speaker and digit are the official test set."""

    waveforms: Sequence[NDArray[np.int16]]
    digits: Sequence[int]
    takes: Sequence[int]


def wav_files(root: Path) -> list[Path]:
    """Return the recordings below a data directory, sorted by name. Raises UsageError where there are none."""
    if not (paths := sorted((root / FOLDER).glob("*.wav"))):
        raise UsageError(f"{root / FOLDER} has no .wav files")
    return paths


@lru_cache(maxsize=1)
def read_all(root: Path, digest: str) -> Recordings:  # noqa: ARG001
    """Return all recordings, sorted by file name; `digest` makes other files in the same place be read anew."""
    return Recordings(*zip(*map(_read, wav_files(root)), strict=True))


def _read(path: Path) -> tuple[NDArray[np.int16], int, int]:
    try:
        digit, _, take = path.stem.split("_")
        number = range(10).index(int(digit)), int(take)
    except ValueError:
        raise UsageError(
            f"{path}: expected a name such as 7_theo_12.wav, with a digit, a speaker, a number"
        ) from None
    with reading(path, "is damaged"), wave.open(str(path)) as file:
        shape = file.getnchannels(), file.getsampwidth(), file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    if shape != (1, 2, SAMPLE_RATE) or not len(samples):
        raise UsageError(
            f"{path}: expected a mono recording of 16 bits at {SAMPLE_RATE} Hz that is not empty"
        )
    return samples, *number
