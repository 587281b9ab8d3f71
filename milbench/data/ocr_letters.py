"""Handwritten words, letter by letter, in the form of B. Taskar's file `letter.data`."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import reading
from milbench.errors import UsageError

FILE = Path("ocr-letters/letter.data.gz")
"""Where the letters are, below the data directory."""
ROWS = 16
COLUMNS = 8
"""Pixels of a letter."""
FOLDS = 10
_LETTER = 1
_NEXT = 2
_FOLD = 5
_PIXELS = 6
"""The columns of the file; pixels are those from this one on."""
_NO_NEXT = -1
"""In the place of the number of the next letter, at the end of a word."""


@dataclass(frozen=True, slots=True, eq=False)
class Letters:
    """N letters, those of a word one after the other."""

    pixels: NDArray[np.uint8]
    """(N, 128), 0 or 1, the rows of a letter from the top."""
    classes: NDArray[np.int64]
    """(N,), 0 for a."""
    folds: NDArray[np.int64]
    """(N,), from 0 to 9."""
    sizes: NDArray[np.int64]
    """(W,), how many letters each word has."""

    def digest(self) -> str:
        """Return a SHA-256 of pixels, classes and folds: the bytes of the file may differ."""
        parts = (self.pixels, self.classes.astype(np.uint8), self.folds.astype(np.uint8))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@lru_cache(maxsize=1)
def read_all(root: Path, digest: str) -> Letters:  # noqa: ARG001
    """Return the letters below a data directory; `digest` makes another file in the same place be read anew."""
    return read(root / FILE)


def read(path: Path) -> Letters:
    """Return the letters of a file.

    It has a row a letter, of numbers between tabs but for the letter: a running number, the letter,
    the number of the next one of the word or -1, the number of the word, the place in it, the fold,
    and the pixels. Raises UsageError.
    """
    import pandas as pd

    width = _PIXELS + ROWS * COLUMNS
    with reading(path, "is damaged"):
        # A tab may end a row.
        table = pd.read_csv(
            path, sep="\t", header=None, usecols=range(width), keep_default_na=False
        )
        pixels = table.iloc[:, _PIXELS:].to_numpy(np.int64)
        # A copy: the table would stay in memory as long as a view of it.
        folds = table[_FOLD].to_numpy(np.int64, copy=True)
        number_of = {letter: number for number, letter in enumerate(ascii_lowercase)}
        # What is no letter becomes nan.
        classes = table[_LETTER].map(number_of).to_numpy(float)
        is_last = table[_NEXT].to_numpy(np.int64) == _NO_NEXT
    ends = np.flatnonzero(is_last) + 1
    sizes = np.diff(ends, prepend=0)
    has_strange_letters = np.isnan(classes).any()
    has_strange_pixels = not np.isin(pixels, (0, 1)).all()
    has_strange_folds = not np.isin(folds, range(FOLDS)).all()
    if has_strange_letters or has_strange_pixels or has_strange_folds:
        values = f"letters other than a to z, pixels other than 0 and 1, or folds other than 0 to {FOLDS - 1}"
        raise UsageError(f"{path} has {values}")
    word_of_letter = np.repeat(np.arange(len(ends)), sizes)
    is_complete = len(word_of_letter) == len(folds)
    if not is_complete or (folds != folds[ends - 1][word_of_letter]).any():
        raise UsageError(f"{path} has a word in two folds, or a last word without an end")
    return Letters(pixels.astype(np.uint8), classes.astype(np.int64), folds, sizes)
