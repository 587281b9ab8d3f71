"""Your own sequences: splits, truth, padding, and one line for what is wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from milbench import Bags, Scores, generator
from milbench.store.gallery import load
from tests._helpers.command_line import Milbench
from tests._helpers.sequence_files import RATE, small_table, write_table
from tests._helpers.tasks import loaded, new_network


def make(table: Path, seed: int = 0, **params: Any) -> Any:
    params = {"sample_rate": RATE, "frames_per_second": 50, "bands": 12, **params}
    return loaded("sequence-bags", table.parent, seed, table=table.name, **params)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_table(tmp_path_factory.mktemp("sequences"))


def split_bags(problem: Any) -> dict[str, list[Any]]:
    return {"train": [*problem.train_batches(0, generator("t"))]} | {
        split: found.bags for split, found in problem.splits.items()
    }


def test_labels_masks_and_events_are_those_of_the_table(table: Path) -> None:
    problem = make(table)
    assert problem.format.class_names == ("high", "low")
    assert problem.format.num_classes == 2
    assert problem.max_labels == 2
    for batches in split_bags(problem).values():
        for bags in batches:
            lengths = (~bags.instances[:, 0].isnan()).sum(dim=1)
            assert set(lengths.tolist()) <= {50, 55, 60}
            mask = (
                torch.ones(len(bags), bags.instances.shape[2]).bool()
                if bags.mask is None
                else bags.mask
            )
            assert mask.sum(dim=1).tolist() == lengths.tolist()
            assert (mask[:, :-1] | ~mask[:, 1:]).all()
            for row, classes, boxes in zip(
                bags.labels, bags.truth.classes, bags.truth.boxes, strict=True
            ):
                there = classes >= 0
                assert row.tolist() == [0 in classes.tolist(), 1 in classes.tolist()]
                torch.testing.assert_close(
                    (boxes[:, 2] - boxes[:, 0])[there],
                    torch.full((int(there.sum()),), 12.5),
                    atol=0.1,
                    rtol=0,
                )


def test_without_events_nothing_is_said_of_time(tmp_path: Path) -> None:
    problem = make(small_table(tmp_path, events=False), validation=0)
    assert next(problem.train_batches(0, generator("t"))).truth is None
    network = new_network(problem)

    def score(bags: Bags) -> Scores:
        with torch.no_grad():
            probs = network(bags.instances).softmax(dim=1)
        highest = probs[:, :-1].amax(dim=2)
        return Scores(highest, highest, probs)

    metrics = problem.evaluate(score).metrics
    assert "test/set_error" in metrics
    assert not {"test/hit_rate", "test/instance_error", "validation/set_error"} & set(metrics)


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


@pytest.mark.drawn
def test_audio_files_are_learnt_from_end_to_end(tmp_path: Path, milbench: Milbench) -> None:
    """Two pitches and silence are told apart, and found at their time, by the command line."""
    table = small_table(tmp_path / "audio", count=80, suffix=".wav")
    words = [
        "run",
        "--loss",
        "noisy-or",
        "--task",
        "sequence-bags",
        "--seeds",
        "0",
        "--name",
        "tones",
    ]
    shown = milbench(
        "data", "check", str(table), "-p", "task.bands=12", "-p", "task.frames_per_second=50"
    )
    assert shown.code == 0, shown.err
    assert "80, of 50 to 60 frames, median 55" in shown.out
    assert "in 40 of 80 bags" in shown.out
    values = {"task.table": table, "task.bands": 12, "task.frames_per_second": 50, "task.batch_bags": 8,
              "recipe.epochs": 12}  # fmt: skip
    ran = milbench(
        *words, *(word for key, value in values.items() for word in ("-p", f"{key}={value}"))
    )
    assert ran.code == 0, ran.err
    report = milbench("report", "tones")
    assert report.code == 0, report.err
    folder = next((tmp_path / "root" / "reports").iterdir())
    assert list(folder.rglob("gallery-*.png"))
    galleries = [load(path).frames_per_second for path in (tmp_path / "root").rglob("gallery.npz")]
    assert galleries == [50]
    for name in ("003.wav", "007.wav"):
        (table.parent / name).write_bytes(b"RIFFno sound")
    said = milbench("data", "check", str(table)).complaint()
    assert "2 of 80 files cannot be read" in said
    assert "row 5: 003.wav: " in said
    assert "row 9: 007.wav: " in said
