"""The Free Spoken Digit Dataset: found or fetched, checked, and read as waveforms."""

from __future__ import annotations

import hashlib
import shutil
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from milbench._utils import digests
from milbench.data.downloads import download, fetch_files
from milbench.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAMPLE_RATE = 8000
FOLDER = Path("spoken-digits/recordings")
"""Where the recordings are, below the data directory."""
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
EACH = 50
"""Recordings of each digit by each speaker."""
COMMIT = "26eb9aaf76e81b692f806f9140c2d2777410d7a1"
ARCHIVE = f"https://github.com/Jakobovski/free-spoken-digit-dataset/archive/{COMMIT}.tar.gz"
SHA256 = "a2e8a660492f28d9eed6270b290d26cbc5c81d6077ce87d3c0ad5adf4d4ee696"
"""The digest of all recordings, see `digest_of`; an archive that GitHub packs anew may differ, its contents may not."""


@dataclass(frozen=True, slots=True, eq=False)
class Recordings:
    """N recordings (S_i,) int16 of one digit each; takes 0 to 4 of each speaker and digit are the official test set."""

    waveforms: Sequence[NDArray[np.int16]]
    digits: Sequence[int]
    takes: Sequence[int]


@dataclass(frozen=True, slots=True)
class SpokenDigitFiles:
    """The data set as `milbench data` lists, fetches and verifies it: Z. Jackson et al., 2016-2024, CC BY-SA 4.0."""

    name: str = "spoken-digits"

    def place(self, root: Path) -> Path:
        """Return the folder of the recordings."""
        return root / FOLDER

    def missing(self, root: Path) -> list[str]:
        """Return the paths, below `root`, of the recordings that do not exist."""
        there = {path.name for path in (root / FOLDER).glob("*.wav")}
        return [path for path in _paths() if Path(path).name not in there]

    def problems(self, root: Path, *, remembered: bool = False) -> list[str]:
        """Read the recordings, if `remembered` where one has changed; say whether a complete set differs."""
        if self.missing(root):
            return []
        paths = wav_files(root)
        found = digests.remembered(self.name, paths, lambda: digest_of(paths)) if remembered else digest_of(paths)
        if found == SHA256:
            return []
        return [f"{root / FOLDER} is damaged: expected SHA-256 {SHA256} over names and contents, found {found}"]

    def identity(self, root: Path) -> str:  # noqa: ARG002
        """Return the beginning of the digest, which is the same wherever the data set is complete."""
        return SHA256[:16]

    def remark(self, root: Path) -> str:  # noqa: ARG002
        """Return an empty note."""
        return ""

    def fetch(self, root: Path) -> None:
        """Download the archive of one commit, check the recordings in it and move them into place."""

        def unpacked(folder: Path) -> None:
            shutil.unpack_archive(download(ARCHIVE, folder), folder, filter="data")
            (folder / FOLDER.parent).mkdir()
            (folder / f"free-spoken-digit-dataset-{COMMIT}/recordings").rename(folder / FOLDER)

        fetch_files(self, root, _paths(), unpacked)


def _paths() -> list[str]:
    names = [f"{digit}_{who}_{take}.wav" for digit in range(10) for who in SPEAKERS for take in range(EACH)]
    return [str(FOLDER / name) for name in names]


def wav_files(root: Path) -> list[Path]:
    """Return the recordings below a data directory, sorted by name."""
    return sorted((root / FOLDER).glob("*.wav"))


def digest_of(paths: Sequence[Path]) -> str:
    """Return a SHA-256 over the names of files and the SHA-256 of each."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def read_all(root: Path, digest: str) -> Recordings:  # noqa: ARG001
    """Return all recordings, sorted by file name; `digest` makes other files in the same place be read anew.

    Raises UsageError: there is none, or one is not named DIGIT_SPEAKER_TAKE.wav or not in 16 bits, mono, 8 kHz.
    """
    paths = wav_files(root)
    if not paths:
        raise UsageError(f"{root / FOLDER} has no .wav files")
    waveforms, digits, takes = zip(*map(_read, paths), strict=True)
    return Recordings(waveforms, digits, takes)


def _read(path: Path) -> tuple[NDArray[np.int16], int, int]:
    import numpy as np

    try:
        digit, _, take = path.stem.split("_")
        number = range(10).index(int(digit)), int(take)
    except ValueError:
        raise UsageError(f"{path}: expected a name such as 7_theo_12.wav, with a digit, a speaker, a number") from None
    try:
        with wave.open(str(path)) as file:
            shape = file.getnchannels(), file.getsampwidth(), file.getframerate()
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    except (wave.Error, EOFError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if shape != (1, 2, SAMPLE_RATE) or not len(samples):
        raise UsageError(f"{path}: expected a mono recording of 16 bits at {SAMPLE_RATE} Hz that is not empty")
    return samples, *number
