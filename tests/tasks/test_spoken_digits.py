"""Spoken digits: bags against the files that they were made of, and the files as a data set."""

from __future__ import annotations

import io
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import UsageError, generator, load_task
from milbench._utils.files import folder_digest
from milbench.data import sources, spoken_digits
from milbench.data.catalog import DATASETS, Part, fetch
from tests._helpers.sequence_files import all_bags
from tests._helpers.small_data import small_spoken_digits
from tests._helpers.tasks import prepared


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_spoken_digits(tmp_path_factory.mktemp("spoken"))


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    return prepared("spoken-digits", root, seed, 40, any_data=True, **{"train_bags": 40, **params})


def test_each_digit_is_heard_where_the_truth_says_and_nowhere_else(root: Path) -> None:
    """Digit d is a tone of 300 + 300 d Hz: its mel band is the loudest inside its box, and all are soft outside."""
    task = make(root)
    mel = 2595 * torch.log10(1 + (300 + 300 * torch.arange(10.0)) / 700)
    bands = (mel * 33 / (2595 * torch.log10(torch.tensor(1 + 4000 / 700))) - 1).round().int().tolist()
    mean, spread = task._scale
    for bags in all_bags(task):
        for frames, labels, classes, boxes in zip(
            bags.instances * spread + mean, bags.labels, bags.truth.classes, bags.truth.boxes, strict=True
        ):
            there = classes >= 0
            assert set(labels.nonzero().flatten().tolist()) == set(classes[there].tolist())
            loud = torch.zeros(frames.shape[1], dtype=torch.bool)
            for digit, (start, low, end, high) in zip(classes[there].tolist(), boxes[there].tolist(), strict=True):
                assert 0.2 <= (end - start) / task.frames_per_second <= 0.4
                assert (low, high) == (0, 32)
                inside = slice(round(start) + 1, round(end) - 1)
                assert (frames[:, inside].argmax(dim=0) - bands[digit]).abs().max() <= 1
                loud[max(0, round(start) - 1) : round(end) + 1] = True
            silent = frames[:, ~loud & ~frames[0].isnan()]
            assert (silent < frames[:, loud].nan_to_num(-99).amax() - 5).all()


def test_digits_follow_one_another_with_silence_between(root: Path) -> None:
    for bags in make(root, least=3, most=3).train_batches(0, generator("t")):
        start, _, end, _ = bags.truth.boxes.unbind(dim=2)
        gaps = (start[:, 1:] - end[:, :-1]) / 62.5
        assert ((gaps > 0.1 - 1e-3) & (gaps < 0.5 + 1e-3)).all()
        assert (bags.truth.classes >= 0).all()


def test_splits_share_no_recording(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes 0 to 4 are the official test set; each recording is used once before any is used again."""
    used: dict[str, list[int]] = {}
    module = sys.modules[type(load_task("spoken-digits")).__module__]
    original = module._in_turn

    def spy(items: list[int], count: int, rng: torch.Generator) -> list[int]:
        found: list[int] = original(items, count, rng)
        assert len(set(found)) == min(len(items), count)
        used[",".join(sorted({str(takes[n]) for n in items}, key=int))] = found
        return found

    takes = spoken_digits.read_all(root, "any").takes
    monkeypatch.setattr(module, "_in_turn", spy)
    make(root, seed=7, most=5)
    assert set(used) == {"0,1,2,3,4", "5,6,7,8,9", "10,11"}


def test_the_archive_is_checked_and_moved_into_place(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = spoken_digits.wav_files(root)

    def download(url: str, folder: str, name: str) -> None:
        assert url.endswith(f"/{sources.COMMIT}.tar.gz")
        with tarfile.open(Path(folder) / name, "w:gz") as archive:
            for path in files:
                member = tarfile.TarInfo(f"free-spoken-digit-dataset-{sources.COMMIT}/recordings/{path.name}")
                member.size = path.stat().st_size
                archive.addfile(member, io.BytesIO(path.read_bytes()))

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)
    with pytest.raises(UsageError, match="the download of spoken-digits is not what was expected"):
        fetch("spoken-digits", tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())
    part = Part(str(spoken_digits.FOLDER), folder_digest(root / spoken_digits.FOLDER))
    monkeypatch.setitem(DATASETS, "spoken-digits", replace(DATASETS["spoken-digits"], parts=(part,)))
    for _ in range(2):
        assert fetch("spoken-digits", tmp_path / "data").state == "present"
        assert [p.name for p in spoken_digits.wav_files(tmp_path / "data")] == [p.name for p in files]
        (tmp_path / "data" / spoken_digits.FOLDER / "3_ann_1.wav").write_bytes(b"")
        assert DATASETS["spoken-digits"].problems(tmp_path / "data")
