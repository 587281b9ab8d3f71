"""Two published data sets, clips of ESC-10 and handwritten letters: reading and fetching them."""

import gzip
import hashlib
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from milbench import UsageError
from milbench._utils.files import folder_digest
from milbench.data import esc10, ocr_letters, sources
from milbench.data.catalog import DATASETS, fetch
from tests._helpers.small_data import letter_rows, small_clips, small_letters, write_letters

ANY_DIGEST = "any digest"
"""`esc10.read_all` reads the clips again only if the digest of the data has changed."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test an empty cache, on the disk and in memory."""
    monkeypatch.setenv("MILBENCH_CACHE", str(tmp_path / "cache"))
    esc10.read_all.cache_clear()


def write(root: Path, name: str, samples: np.ndarray, rate: int = 44_100) -> Path:
    """Write a clip below a data directory."""
    path = root / esc10.FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, format="OGG", subtype="VORBIS")
    return path


@pytest.fixture
def tones(tmp_path: Path, cache: None) -> esc10.Clips:
    """Two clips, read at 16 kHz: a second of 1 kHz alone, and the same second between silence.

    The silence is half a second before the tone, and one and a half after it.
    """
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(44_100) / 44_100)
    padded = np.concatenate([np.zeros(22_050), tone, np.zeros(66_150)])
    write(tmp_path, "003 - Sea waves/5-77-B.ogg", padded)
    write(tmp_path, "001 - Dog bark/1-9-A.ogg", tone)
    return esc10.read_all(tmp_path, ANY_DIGEST)


def test_names_of_clips_say_class_and_fold(tones: esc10.Clips) -> None:
    # Clips are sorted by name: class 001 and fold 1, then class 003 and fold 5. In code, classes
    # and folds are counted from 0.
    assert tones.classes.tolist() == [0, 2]
    assert tones.folds.tolist() == [0, 4]


BOTH = pytest.mark.parametrize("number", [0, 1], ids=["alone", "between silence"])


@BOTH
def test_clips_lose_their_padding(tones: esc10.Clips, number: int) -> None:
    seconds = len(tones.waveforms[number]) / 16_000
    # The codec smears the edges of the tone.
    assert seconds == pytest.approx(1, abs=0.03)


@BOTH
def test_clips_keep_their_pitch(tones: esc10.Clips, number: int) -> None:
    waveform = tones.waveforms[number]
    loudest = np.abs(np.fft.rfft(waveform)).argmax() * 16_000 / len(waveform)
    assert loudest == pytest.approx(1000, abs=2)


@BOTH
def test_clips_keep_their_loudness(tones: esc10.Clips, number: int) -> None:
    # From 1/4 to 3/4 of the second, since the edges are softer.
    middle = tones.waveforms[number][4000:12_000]
    assert np.abs(middle).max() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("name", "content", "problem"), [
    pytest.param("011 - Cat/1-9-A.ogg", b"",
                 "expected a name such as '001 - Dog bark/5-9032-A.ogg'", id="class"),
    pytest.param("001 - Dog bark/6-9-A.ogg", b"", "a fold from 1 to 5", id="fold"),
    pytest.param("001 - Dog bark/bark.ogg", b"", "expected a name such as", id="no fold"),
    pytest.param("001 - Dog bark/1-9-A.ogg", b"no sound", "is damaged", id="damaged"),
    pytest.param("001 - Dog bark/1-9-A.ogg", None, "is silent", id="silent"),
])  # fmt: skip
@pytest.mark.usefixtures("cache")
def test_other_files_are_refused_in_one_line(
    name: str, content: bytes | None, problem: str, tmp_path: Path
) -> None:
    silence = np.zeros(4410)
    path = write(tmp_path, name, silence)
    # None: the file stays a clip of silence.
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=problem) as error:
        esc10.read_all(tmp_path, ANY_DIGEST)
    assert path.name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def fetched_clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory, with a small ESC-10 that was fetched into it."""
    published = small_clips(tmp_path / "published") / esc10.FOLDER
    (published / "README.txt").write_text("CC0 or CC BY")

    def download(url: str, folder: str, name: str) -> None:
        assert url.endswith(f"/ESC-10/archive/{sources.ESC10_COMMIT}.tar.gz")
        with tarfile.open(Path(folder) / name, "w:gz") as archive:
            archive.add(published, f"ESC-10-{sources.ESC10_COMMIT}")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    # The catalogue expects the digest of the official clips. Let it expect the small set's digest.
    official = DATASETS["esc10"]
    part = official.parts[0]._replace(digest=folder_digest(published, "*.ogg"))
    monkeypatch.setitem(DATASETS, "esc10", replace(official, parts=(part,)))
    assert fetch("esc10", tmp_path / "data").state == "present"
    return tmp_path / "data"


def test_the_licences_stay_beside_the_clips_that_are_fetched(fetched_clips: Path) -> None:
    assert (fetched_clips / "esc10/README.txt").read_text() == "CC0 or CC BY"


def test_clips_are_complete_without_their_licences(fetched_clips: Path) -> None:
    (fetched_clips / "esc10/README.txt").unlink()
    assert DATASETS["esc10"].status(fetched_clips).state == "present"


def test_a_clip_that_lost_its_content_is_damage(fetched_clips: Path) -> None:
    esc10.clip_files(fetched_clips)[3].write_bytes(b"")
    assert DATASETS["esc10"].status(fetched_clips).state == "damaged"


def pixels_of(rows: list[list[str]]) -> list[list[int]]:
    """Return the pixels of each row, which are behind six other columns."""
    return [[int(pixel) for pixel in row[6:]] for row in rows]


def test_letters_and_words_are_read_as_the_file_has_them(tmp_path: Path) -> None:
    rows = letter_rows(["cab", "a"], [0, 9])
    found = ocr_letters.read(write_letters(tmp_path, rows))
    # The letters c, a, b and a; the words are in the folds 0 and 9.
    assert found.classes.tolist() == [2, 0, 1, 0]
    assert found.folds.tolist() == [0, 0, 0, 9]
    assert found.sizes.tolist() == [3, 1]
    assert found.pixels.tolist() == pixels_of(rows)


def test_the_digest_of_letters_covers_pixels_classes_and_folds(tmp_path: Path) -> None:
    rows = letter_rows(["cab", "a"], [0, 9])
    found = ocr_letters.read(write_letters(tmp_path, rows))
    pixels = b"".join(bytes(pixels_of_row) for pixels_of_row in pixels_of(rows))
    classes = bytes([2, 0, 1, 0])
    folds = bytes([0, 0, 0, 9])
    assert found.digest() == hashlib.sha256(pixels + classes + folds).hexdigest()


LETTER, NEXT, FOLD, PIXEL = 1, 2, 5, 9
"""Columns of a row.

NEXT has the id of the next letter of the word, -1 at its end. PIXEL is one of many pixels.
"""


@pytest.mark.parametrize(("row", "column", "value", "problem"), [
    pytest.param(0, LETTER, "A", "letters other than a to z", id="letter"),
    pytest.param(0, PIXEL, "2", "pixels other than 0 and 1", id="pixel"),
    pytest.param(0, FOLD, "10", "folds other than 0 to 9", id="fold"),
    pytest.param(1, FOLD, "1", "a word in two folds", id="word in two folds"),
    pytest.param(-1, NEXT, "5", "a last word without an end", id="word without end"),
    pytest.param(0, PIXEL, "x", "is damaged", id="no number"),
])  # fmt: skip
def test_other_letters_are_refused_in_one_line(
    row: int, column: int, value: str, problem: str, tmp_path: Path
) -> None:
    rows = letter_rows(["cab", "a"], [0, 9])
    rows[row][column] = value
    path = write_letters(tmp_path, rows)
    with pytest.raises(UsageError, match=problem) as error:
        ocr_letters.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def fetched_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory, with small letters that were fetched into it."""
    published = small_letters(tmp_path / "published") / ocr_letters.FILE

    def download(url: str, folder: str, name: str) -> None:
        assert url == sources.LETTERS
        shutil.copy(published, Path(folder) / name)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    # Let the catalogue expect the digest of the small letters.
    official = DATASETS["ocr-letters"]
    part = official.parts[0]._replace(digest=ocr_letters.read(published).digest())
    monkeypatch.setitem(DATASETS, "ocr-letters", replace(official, parts=(part,)))
    assert fetch("ocr-letters", tmp_path / "data").state == "present"
    return tmp_path / "data"


def compress_otherwise(text: bytes) -> bytes:
    # Level 1, where the published file has another level.
    return gzip.compress(text, 1)


def change_a_pixel(text: bytes) -> bytes:
    # In the first row whose last pixel is 0, this pixel becomes 1.
    changed = text.replace(b"\t0\t\n", b"\t1\t\n", 1)
    return gzip.compress(changed)


def leave_uncompressed(text: bytes) -> bytes:
    return text


@pytest.mark.parametrize(
    ("change", "state"),
    [
        pytest.param(compress_otherwise, "present", id="the same letters in other bytes"),
        pytest.param(change_a_pixel, "damaged", id="another letter"),
        pytest.param(leave_uncompressed, "damaged", id="no archive"),
    ],
)
def test_fetched_letters_are_checked_by_their_uncompressed_content(
    fetched_letters: Path, change: Callable[[bytes], bytes], state: str
) -> None:
    path = fetched_letters / ocr_letters.FILE
    path.write_bytes(change(gzip.decompress(path.read_bytes())))
    assert DATASETS["ocr-letters"].status(fetched_letters).state == state
