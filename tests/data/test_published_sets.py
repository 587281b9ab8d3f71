"""Clips of ESC-10 and handwritten letters: read against what was written, and as data sets."""

import gzip
import hashlib
import shutil
import tarfile
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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILBENCH_CACHE", str(tmp_path / "cache"))
    esc10.read_all.cache_clear()


def write(root: Path, name: str, samples: np.ndarray, rate: int = 44_100) -> Path:
    path = root / esc10.FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, format="OGG", subtype="VORBIS")
    return path


def test_clips_lose_their_padding_and_keep_their_pitch(tmp_path: Path, cache: None) -> None:
    """A tone of 1 kHz between silence: as long afterwards as it sounds, and of the same pitch at 16 kHz."""
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(44_100) / 44_100)
    padded = np.concatenate([np.zeros(22_050), tone, np.zeros(66_150)])
    write(tmp_path, "003 - Sea waves/5-77-B.ogg", padded)
    write(tmp_path, "001 - Dog bark/1-9-A.ogg", tone)
    found = esc10.read_all(tmp_path, "digest")
    assert (found.classes.tolist(), found.folds.tolist()) == ([0, 2], [0, 4])
    for waveform in found.waveforms:
        assert len(waveform) / 16_000 == pytest.approx(1, abs=0.03)  # the codec smears an edge
        loudest = np.abs(np.fft.rfft(waveform)).argmax() * 16_000 / len(waveform)
        assert loudest == pytest.approx(1000, abs=2)
        assert np.abs(waveform[4000:12_000]).max() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("name", "content", "problem"), [
    ("011 - Cat/1-9-A.ogg", b"", "expected a name such as '001 - Dog bark/5-9032-A.ogg'"),
    ("001 - Dog bark/6-9-A.ogg", b"", "a fold from 1 to 5"),
    ("001 - Dog bark/bark.ogg", b"", "expected a name such as"),
    ("001 - Dog bark/1-9-A.ogg", b"no sound", "is damaged"),
    ("001 - Dog bark/1-9-A.ogg", None, "is silent"),
])  # fmt: skip
@pytest.mark.usefixtures("cache")
def test_other_files_are_refused_in_one_line(
    name: str, content: bytes | None, problem: str, tmp_path: Path
) -> None:
    path = write(tmp_path, name, np.zeros(4410))
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=problem) as error:
        esc10.read_all(tmp_path, "digest")
    assert path.name in str(error.value)
    assert "\n" not in str(error.value)


def test_the_licences_stay_beside_the_clips_that_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = small_clips(tmp_path / "published") / esc10.FOLDER
    (published / "README.txt").write_text("CC0 or CC BY")

    def download(url: str, folder: str, name: str) -> None:
        assert url.endswith(f"/ESC-10/archive/{sources.ESC10_COMMIT}.tar.gz")
        with tarfile.open(Path(folder) / name, "w:gz") as archive:
            archive.add(published, f"ESC-10-{sources.ESC10_COMMIT}")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    part = DATASETS["esc10"].parts[0]._replace(digest=folder_digest(published, "*.ogg"))
    monkeypatch.setitem(DATASETS, "esc10", replace(DATASETS["esc10"], parts=(part,)))
    assert fetch("esc10", tmp_path / "data").state == "present"
    assert (tmp_path / "data/esc10/README.txt").read_text() == "CC0 or CC BY"
    (tmp_path / "data/esc10/README.txt").unlink()  # no sound, and not needed
    assert DATASETS["esc10"].status(tmp_path / "data").state == "present"
    esc10.clip_files(tmp_path / "data")[3].write_bytes(b"")
    assert DATASETS["esc10"].status(tmp_path / "data").state == "damaged"


def test_letters_and_words_are_those_of_the_file(tmp_path: Path) -> None:
    rows = letter_rows(["cab", "a"], [0, 9])
    found = ocr_letters.read(write_letters(tmp_path, rows))
    assert found.classes.tolist() == [2, 0, 1, 0]
    assert found.folds.tolist() == [0, 0, 0, 9]
    assert found.sizes.tolist() == [3, 1]
    assert found.pixels.tolist() == [[int(pixel) for pixel in row[6:]] for row in rows]
    pixels = (
        "".join(pixel for row in rows for pixel in row[6:]).replace("0", "\0").replace("1", "\1")
    )
    assert (
        found.digest()
        == hashlib.sha256(pixels.encode() + bytes([2, 0, 1, 0, 0, 0, 0, 9])).hexdigest()
    )


@pytest.mark.parametrize(("row", "column", "value", "problem"), [
    (0, 1, "A", "letters other than a to z"),
    (0, 9, "2", "pixels other than 0 and 1"),
    (0, 5, "10", "folds other than 0 to 9"),
    (1, 5, "1", "a word in two folds"),
    (-1, 2, "5", "a last word without an end"),
    (0, 9, "x", "is damaged"),
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


def test_what_is_fetched_is_checked_by_its_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same letters in a file of other bytes are right, and another letter in it is not."""
    published = small_letters(tmp_path / "published") / ocr_letters.FILE

    def download(url: str, folder: str, name: str) -> None:
        assert url == sources.LETTERS
        shutil.copy(published, Path(folder) / name)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    official = DATASETS["ocr-letters"]
    part = official.parts[0]._replace(digest=ocr_letters.read(published).digest())
    monkeypatch.setitem(DATASETS, "ocr-letters", replace(official, parts=(part,)))
    assert fetch("ocr-letters", tmp_path / "data").state == "present"
    states, text = [], gzip.decompress(published.read_bytes())
    for content in (
        gzip.compress(text, 1),
        gzip.compress(text.replace(b"\t0\t\n", b"\t1\t\n", 1)),
        text,
    ):
        (tmp_path / "data" / part.path).write_bytes(content)
        states.append(DATASETS["ocr-letters"].status(tmp_path / "data").state)
    assert states == ["present", "damaged", "damaged"]
