"""ESC-10: clips read against the sounds that were written, and as a data set."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from milbench import UsageError
from milbench._utils.files import folder_digest
from milbench.data import esc10, sources
from milbench.data.catalog import DATASETS, fetch
from tests._helpers.small_data import small_clips


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILBENCH_CACHE", str(tmp_path / "cache"))
    esc10.read_all.cache_clear()
    return tmp_path / "cache"


def write(root: Path, name: str, samples: np.ndarray, rate: int = 44_100) -> Path:
    path = root / esc10.FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, format="OGG", subtype="VORBIS")
    return path


def test_clips_lose_their_padding_and_keep_their_pitch(tmp_path: Path, cache: Path) -> None:
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


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("011 - Cat/1-9-A.ogg", b"", "expected a name such as '001 - Dog bark/5-9032-A.ogg'"),
        ("001 - Dog bark/6-9-A.ogg", b"", "a fold from 1 to 5"),
        ("001 - Dog bark/bark.ogg", b"", "expected a name such as"),
        ("001 - Dog bark/1-9-A.ogg", b"no sound", "is damaged"),
        ("001 - Dog bark/1-9-A.ogg", None, "is silent"),
    ],
)
def test_other_files_are_refused_in_one_line(
    name: str, content: bytes | None, problem: str, tmp_path: Path, cache: Path
) -> None:
    path = write(tmp_path, name, np.zeros(4410))
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=problem) as error:
        esc10.read_all(tmp_path, "digest")
    assert path.name in str(error.value)
    assert "\n" not in str(error.value)


def test_the_licences_stay_beside_the_clips_that_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = small_clips(tmp_path / "published") / esc10.FOLDER
    (published / "README.txt").write_text("CC0 or CC BY")

    def download(url: str, folder: str, name: str) -> None:
        assert url.endswith(f"/ESC-10/archive/{sources.ESC10_COMMIT}.tar.gz")
        with tarfile.open(Path(folder) / name, "w:gz") as archive:
            archive.add(published, f"ESC-10-{sources.ESC10_COMMIT}")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    with pytest.raises(UsageError, match=r"the download of esc10 is not what was expected: .* expected SHA-256"):
        fetch("esc10", tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())
    part = DATASETS["esc10"].parts[0]._replace(digest=folder_digest(published, "*.ogg"))
    monkeypatch.setitem(DATASETS, "esc10", replace(DATASETS["esc10"], parts=(part,)))
    assert fetch("esc10", tmp_path / "data").state == "present"
    assert (tmp_path / "data/esc10/README.txt").read_text() == "CC0 or CC BY"
    (tmp_path / "data/esc10/README.txt").unlink()  # no sound, and not needed
    assert DATASETS["esc10"].status(tmp_path / "data").state == "present"
    esc10.clip_files(tmp_path / "data")[3].write_bytes(b"")
    assert DATASETS["esc10"].status(tmp_path / "data").state == "damaged"
