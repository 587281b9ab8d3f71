"""Spoken digits: bags against the files that they were made of, and the files as a data set."""

import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.io import wavfile

from milbench import UsageError, generator
from milbench._utils.files import folder_digest
from milbench.data import free_spoken_digits, sources
from milbench.data.catalog import DATASETS, Part, fetch
from tests._helpers.sequence_files import assert_tones_are_heard
from tests._helpers.small_data import small_spoken_digits
from tests._helpers.tasks import loaded


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_spoken_digits(tmp_path_factory.mktemp("spoken"))


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("spoken-digits", root, seed, 40, any_data=True, **{"train_bags": 40, **params})


def test_each_digit_is_heard_where_the_truth_says_alone(root: Path) -> None:
    assert_tones_are_heard(make(root), 300 + 300 * torch.arange(10.0), 8000, (0.2, 0.4))


def test_digits_follow_one_another_with_silence_between(root: Path) -> None:
    for bags in make(root, least=3, most=3).train_batches(0, generator("t")):
        start, _, end, _ = bags.truth.boxes.unbind(dim=2)
        assert (bags.truth.classes >= 0).all(), "all bags have three digits"
        frames_per_second = 62.5
        seconds = (start[:, 1:] - end[:, :-1]) / frames_per_second
        assert (seconds > 0.1 - 1e-3).all()
        assert (seconds < 0.5 + 1e-3).all()


def test_splits_share_no_recording_and_use_each_before_any_again(root: Path) -> None:
    """A recording is known by its digit and its length. Takes 0 to 4 are the official test set."""
    problem = make(root, seed=7, most=5)
    batches = {part: split.bags for part, split in problem.splits.items()}
    batches["train"] = problem.train_batches(0, generator("t"))
    takes = {"test": range(5), "validation": range(5, 10), "train": range(10, 12)}
    for part, takes_of_part in takes.items():
        used = Counter(recording for bags in batches[part] for recording in heard_in(bags))
        assert set(used) == recordings_of(root, takes_of_part)
        assert max(used.values()) - min(used.values()) <= 1


def heard_in(bags: Any) -> list[tuple[int, int]]:
    """Return digit and length, in samples, of every recording in a batch."""
    start, _, end, _ = bags.truth.boxes.unbind(dim=2)
    lengths = ((end - start) * 128).round().int()
    is_digit = bags.truth.classes >= 0
    digits = bags.truth.classes[is_digit].tolist()
    return list(zip(digits, lengths[is_digit].tolist(), strict=True))


def recordings_of(root: Path, takes: range) -> set[tuple[int, int]]:
    """Return digit and length of the recordings of some takes."""
    spoken = free_spoken_digits.read_all(root, "any")
    found = set()
    for digit, waveform, take in zip(spoken.digits, spoken.waveforms, spoken.takes, strict=True):
        if take in takes:
            found.add((digit, len(waveform)))
    return found


def test_items_are_the_recordings_that_are_heard(root: Path) -> None:
    """Items are numbered as their files, in the order of file names.

    A recording is known by its digit, which its file name begins with, and its length.
    """
    files = sorted((root / free_spoken_digits.FOLDER).glob("*.wav"))
    heard_in_file = [(int(file.name[0]), len(wavfile.read(file)[1])) for file in files]
    for bag in evaluated_one_by_one(make(root)):
        (row,) = bag.origin.items
        items = row[row >= 0].tolist()
        assert [heard_in_file[item] for item in items] == heard_in(bag)


def evaluated_one_by_one(problem: Any) -> Iterator[Any]:
    """Yield each evaluated bag as a batch of its own."""
    for split in problem.splits.values():
        for batch in (*split.bags, *split.single_instance):
            for number in range(len(batch)):
                yield batch.selected(torch.tensor([number]))


def test_two_bags_that_share_an_item_share_its_sound(root: Path) -> None:
    """An item is recognised by its loudest band, which is the same wherever it is heard."""
    bands_of: dict[int, list[int]] = {}
    for bags in make(root).splits["test"].bags:
        for bag in range(len(bags)):
            for item, band in loudest_bands(bags, bag):
                bands_of.setdefault(item, []).append(band)
    heard_again = [bands for bands in bands_of.values() if len(bands) > 1]
    assert sum(len(bands) - 1 for bands in heard_again) > 10
    assert all(len(set(bands)) == 1 for bands in heard_again)


def loudest_bands(bags: Any, bag: int) -> list[tuple[int, int]]:
    """Return the items of a bag, and the band in which each is loudest on average."""
    items = bags.origin.items[bag].tolist()
    boxes = bags.truth.boxes[bag].tolist()
    found = []
    for item, (start, _, end, _) in zip(items, boxes, strict=True):
        # -1 fills up the row of a bag that has fewer items.
        if item >= 0:
            # Frames at the edges of a box may hold only a part of the sound.
            frames = bags.instances[bag][:, round(start) + 2 : round(end) - 2]
            found.append((item, int(frames.mean(dim=1).argmax())))
    return found


@pytest.fixture
def downloads(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every download by an archive of the recordings, laid out as the published one."""

    def download(url: str, folder: str, name: str) -> None:
        assert url.endswith(f"/{sources.COMMIT}.tar.gz")
        recordings = f"free-spoken-digit-dataset-{sources.COMMIT}/recordings"
        with tarfile.open(Path(folder) / name, "w:gz") as archive:
            archive.add(root / free_spoken_digits.FOLDER, recordings)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)


@pytest.mark.usefixtures("downloads")
def test_an_archive_with_other_recordings_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the download of spoken-digits is not what was expected"):
        fetch("spoken-digits", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("downloads")
def test_an_archive_as_expected_is_moved_into_the_data_directory(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = free_spoken_digits.FOLDER
    expected = Part(str(folder), folder_digest(root / folder))
    dataset = replace(DATASETS["spoken-digits"], parts=(expected,))
    monkeypatch.setitem(DATASETS, "spoken-digits", dataset)
    assert fetch("spoken-digits", tmp_path).state == "present"
    assert not DATASETS["spoken-digits"].problems(tmp_path)
