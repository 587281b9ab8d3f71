"""Letters of handwritten words: the file read against what was written, and as a data set."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milbench import UsageError
from milbench.data import ocr_letters, sources
from milbench.data.catalog import DATASETS, fetch
from tests._helpers.small_data import letter_rows, small_letters, write_letters


def test_letters_and_words_are_those_of_the_file(tmp_path: Path) -> None:
    rows = letter_rows(["cab", "a"], [0, 9])
    found = ocr_letters.read(write_letters(tmp_path, rows))
    assert found.classes.tolist() == [2, 0, 1, 0]
    assert found.folds.tolist() == [0, 0, 0, 9]
    assert found.sizes.tolist() == [3, 1]
    assert found.pixels.tolist() == [[int(pixel) for pixel in row[6:]] for row in rows]
    pixels = "".join(pixel for row in rows for pixel in row[6:]).replace("0", "\0").replace("1", "\1")
    assert found.digest() == hashlib.sha256(pixels.encode() + bytes([2, 0, 1, 0, 0, 0, 0, 9])).hexdigest()


def changed(row: int, column: int, value: str) -> Callable[[list[list[str]]], None]:
    def change(rows: list[list[str]]) -> None:
        rows[row][column] = value

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (changed(0, 1, "A"), "letters other than a to z"),
        (changed(0, 9, "2"), "pixels other than 0 and 1"),
        (changed(0, 5, "10"), "folds other than 0 to 9"),
        (changed(1, 5, "1"), "a word in two folds"),
        (changed(-1, 2, "5"), "a last word without an end"),
        (changed(0, 9, "x"), "is damaged"),
        (list.clear, "is damaged"),
    ],
)
def test_another_file_is_refused_in_one_line(
    change: Callable[[list[list[str]]], None], problem: str, tmp_path: Path
) -> None:
    rows = letter_rows(["cab", "a"], [0, 9])
    change(rows)
    path = write_letters(tmp_path, rows)
    with pytest.raises(UsageError, match=problem) as error:
        ocr_letters.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_fetched_is_checked_by_its_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same letters in a file of other bytes are right, and another letter in it is not."""
    published = small_letters(tmp_path / "published") / ocr_letters.FILE

    def download(url: str, folder: str, name: str) -> None:
        assert url == sources.LETTERS
        shutil.copy(published, Path(folder) / name)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    with pytest.raises(UsageError, match=r"the download of ocr-letters is not what was expected: .* expected SHA-256"):
        fetch("ocr-letters", tmp_path / "data")
    official = DATASETS["ocr-letters"]
    part = official.parts[0]._replace(digest=ocr_letters.read(published).digest())
    monkeypatch.setitem(DATASETS, "ocr-letters", replace(official, parts=(part,)))
    assert fetch("ocr-letters", tmp_path / "data").state == "present"
    place = tmp_path / "data" / part.path
    text = gzip.decompress(place.read_bytes())
    place.write_bytes(gzip.compress(text, 1))
    assert DATASETS["ocr-letters"].status(tmp_path / "data").state == "present"
    place.write_bytes(gzip.compress(text.replace(b"\t0\t\n", b"\t1\t\n", 1)))
    assert DATASETS["ocr-letters"].status(tmp_path / "data").state == "damaged"
    place.write_bytes(text)
    assert "is damaged" in DATASETS["ocr-letters"].status(tmp_path / "data").note
