"""The task `sequence-bags`, made from a user's own sequences: truth, padding, audio, messages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from milbench import Bags, Scores, generator
from milbench.store.gallery import load
from tests._helpers.command_line import Milbench, assignments
from tests._helpers.sequence_files import RATE, small_table, write_table
from tests._helpers.tasks import loaded, mask_of, new_network


def make(table: Path, seed: int = 0, **params: Any) -> Any:
    params = {"sample_rate": RATE, "frames_per_second": 50, "bands": 12, **params}
    return loaded("sequence-bags", table.parent, seed, table=table.name, **params)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_table(tmp_path_factory.mktemp("sequences"))


def batches_of(problem: Any) -> Iterator[Any]:
    """Yield the batches to train on and those to evaluate on."""
    yield from problem.train_batches(0, generator("t"))
    for split in problem.splits.values():
        yield from split.bags


def test_classes_are_taken_from_the_table(table: Path) -> None:
    problem = make(table)
    assert problem.format.class_names == ("high", "low")
    assert problem.max_labels == 2


def test_the_mask_hides_the_frames_that_are_padding(table: Path) -> None:
    """Recordings last 1, 1.1 or 1.2 seconds, with 50 frames a second; padding is NaN."""
    for bags in batches_of(make(table)):
        mask = mask_of(bags, of_sequences=True)
        assert torch.equal(mask, ~bags.instances[:, 0].isnan())
        assert set(mask.sum(dim=1).tolist()) <= {50, 55, 60}
        is_true_after_false = ~mask[:, :-1] & mask[:, 1:]
        assert not is_true_after_false.any()


def test_label_sets_are_the_classes_of_the_events(table: Path) -> None:
    for bags in batches_of(make(table)):
        for labels, classes in zip(bags.labels.tolist(), bags.truth.classes.tolist(), strict=True):
            assert labels == [0 in classes, 1 in classes]


def test_events_last_as_long_as_in_the_table(table: Path) -> None:
    """Each event lasts 1/4 second, which are 12.5 of the 50 frames in a second."""
    for bags in batches_of(make(table)):
        start, _, end, _ = bags.truth.boxes[bags.truth.classes >= 0].unbind(dim=1)
        torch.testing.assert_close(end - start, torch.full((len(start),), 12.5), atol=0.1, rtol=0)


def test_without_events_nothing_is_said_of_time(tmp_path: Path) -> None:
    problem = make(small_table(tmp_path, events=False), validation=0)
    assert next(problem.train_batches(0, generator("t"))).truth is None
    network = new_network(problem)

    def score(bags: Bags) -> Scores:
        with torch.no_grad():
            probs = network(bags.instances).softmax(dim=1)
        highest = probs[:, :-1].amax(dim=2)
        return Scores(highest, highest, probs)

    metrics = set(problem.evaluate(score).metrics)
    of_events = {"test/hit_rate", "test/instance_error"}
    assert "test/set_error" in metrics
    assert not metrics & of_events
    # The problem was made with validation=0, so it has no validation bags.
    assert "validation/set_error" not in metrics


def test_frames_without_a_rate_and_one_length_need_no_mask(tmp_path: Path) -> None:
    rows = []
    for number in range(20):
        frames = np.random.default_rng(number).normal(size=(9, 5))
        np.save(tmp_path / f"{number}.npy", frames)
        rows.append({"file": f"{number}.npy", "labels": "a;b" if number % 2 else "a"})
    problem = make(write_table(tmp_path / "t.csv", rows), sample_rate=None)
    bags = next(problem.train_batches(0, generator("t")))
    assert bags.mask is None
    assert bags.instances.shape[1:] == (5, 9)
    assert new_network(problem, "gru", stride=2)(bags.instances).shape == (len(bags), 3, 5)


FRAMES = assignments({"task.bands": 12, "task.frames_per_second": 50})


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """A table of 80 audio files."""
    return small_table(tmp_path / "audio", count=80, suffix=".wav")


def test_a_check_counts_the_frames_and_classes_of_audio_files(
    audio: Path, milbench: Milbench
) -> None:
    said = milbench("data", "check", str(audio), *FRAMES).done()
    assert "80, of 50 to 60 frames, median 55" in said
    assert "in 40 of 80 bags" in said


def test_audio_files_that_cannot_be_read_are_named_with_their_rows(
    audio: Path, milbench: Milbench
) -> None:
    for name in ("003.wav", "007.wav"):
        (audio.parent / name).write_bytes(b"RIFFno sound")
    said = milbench("data", "check", str(audio)).complaint()
    assert "2 of 80 files cannot be read" in said
    assert "row 5: 003.wav: " in said
    assert "row 9: 007.wav: " in said


@pytest.mark.drawn
def test_audio_files_are_trained_on_and_drawn_by_the_command_line(
    audio: Path, root: Path, milbench: Milbench
) -> None:
    training = assignments({"task.table": audio, "task.batch_bags": 8, "recipe.epochs": 12})
    asked = ["--loss", "noisy-or", "--task", "sequence-bags", "--seeds", "0", "--name", "tones"]
    milbench("run", *asked, *FRAMES, *training).done()
    milbench("report", "tones").done()
    (report,) = (root / "reports").iterdir()
    assert list(report.rglob("gallery-*.png"))
    (gallery,) = root.rglob("gallery.npz")
    assert load(gallery).frames_per_second == 50
