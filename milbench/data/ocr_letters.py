"""Read handwritten words, letter by letter, from B. Taskar's file `letter.data`."""

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
"""The height of a letter, in pixels."""
COLUMNS = 8
"""The width of a letter, in pixels."""
FOLDS = 10
# The numbers of the columns of the file that are used, counted from 0.
_LETTER = 1
_NEXT = 2
_FOLD = 5
_PIXELS = 6
"""The column of the first pixel. The other pixels follow it."""
_NO_NEXT = -1
"""What the column _NEXT holds at the end of a word, in place of the number of the next letter."""


@dataclass(frozen=True, slots=True, eq=False)
class Letters:
    """The N letters of W words, word after word."""

    pixels: NDArray[np.uint8]
    """(N, 128), the pixels of each letter, 0 or 1, row by row from the top."""
    classes: NDArray[np.int64]
    """(N,), the letters: 0 for a, 25 for z."""
    folds: NDArray[np.int64]
    """(N,), the fold of each letter's word, from 0 to 9."""
    sizes: NDArray[np.int64]
    """(W,), the number of letters in each word."""

    def digest(self) -> str:
        """Return a SHA-256 of pixels, classes and folds.

        It is the same for any file with these letters, however the file is compressed.
        """
        parts = (self.pixels, self.classes.astype(np.uint8), self.folds.astype(np.uint8))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@lru_cache(maxsize=1)
def read_all(root: Path, digest: str) -> Letters:  # noqa: ARG001
    """Return the letters in the data directory `root`.

    They are kept in memory for the next call. `digest` is that of the data: with another one the
    file is read again.
    """
    return read(root / FILE)


def read(path: Path) -> Letters:
    """Return the letters of a file. Raises UsageError where the file is damaged.

    The file has a row for each letter, with tabs between its fields: a running number, the letter,
    the number of the next letter of the word or -1, the number of the word, the position in the
    word, the fold, and the pixels.
    """
    import pandas as pd

    width = _PIXELS + ROWS * COLUMNS
    with reading(path, "is damaged"):
        # A tab may end a row. `usecols` leaves out the column that pandas would read behind it.
        table = pd.read_csv(
            path, sep="\t", header=None, usecols=range(width), keep_default_na=False
        )
        pixels = table.iloc[:, _PIXELS:].to_numpy(np.int64)
        # A view would keep the whole table in memory, so this is a copy.
        folds = table[_FOLD].to_numpy(np.int64, copy=True)
        number_of = {letter: number for number, letter in enumerate(ascii_lowercase)}
        # A text that is no letter from a to z becomes nan.
        classes = table[_LETTER].map(number_of).to_numpy(float)
        is_last = table[_NEXT].to_numpy(np.int64) == _NO_NEXT
    ends = np.flatnonzero(is_last) + 1
    sizes = np.diff(ends, prepend=0)
    has_strange_letters = np.isnan(classes).any()
    has_strange_pixels = not np.isin(pixels, (0, 1)).all()
    has_strange_folds = not np.isin(folds, range(FOLDS)).all()
    if has_strange_letters or has_strange_pixels or has_strange_folds:
        raise UsageError(
            f"{path} has letters other than a to z, pixels other than 0 and 1, "
            f"or folds other than 0 to {FOLDS - 1}"
        )
    word_of_letter = np.repeat(np.arange(len(ends)), sizes)
    is_complete = len(word_of_letter) == len(folds)
    if not is_complete or (folds != folds[ends - 1][word_of_letter]).any():
        raise UsageError(f"{path} has a word in two folds, or a last word without an end")
    return Letters(pixels.astype(np.uint8), classes.astype(np.int64), folds, sizes)
