"""Your own sequences: splits, truth, padding, and one line for what is wrong."""

from __future__ import annotations

import csv
import math
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from milbench import Bags, Scores, UsageError, generator, load_task
from tests._helpers.command_line import Milbench
from tests._helpers.sequence_files import RATE, small_table, write_table

CPU = torch.device("cpu")


def make(table: Path, seed: int = 0, **params: Any) -> Any:
    params = {"sample_rate": RATE, "frames_per_second": 50, "bands": 12, **params}
    task = load_task("sequence-bags", table=table.name, **params)
    task.seed = seed
    task.check_data(table.parent)
    task.prepare(table.parent, CPU)
    return task


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_table(tmp_path_factory.mktemp("sequences"))


def split_bags(task: Any) -> dict[str, list[Bags]]:
    return {"train": [*task.train_batches(0, generator("t"))]} | {
        split: found.bags for split, found in task._eval_splits.items()
    }


def digests(batches: list[Bags]) -> list[bytes]:
    return [one[:, ~one[0].isnan()].numpy().round(3).tobytes() for bags in batches for one in bags.instances]


def test_every_seed_has_a_split_of_its_own_into_all_rows_stratified(table: Path) -> None:
    one, again, other = (split_bags(make(table, seed)) for seed in (0, 0, 1))
    sizes = {split: sum(map(len, bags)) for split, bags in one.items()}
    assert sizes == {"train": 26, "validation": 6, "test": 8}
    for bags in one.values():
        counts = Counter(tuple(row) for batch in bags for row in batch.labels.tolist())
        assert len(counts) == 4, "every label set is in every split"
        assert max(counts.values()) - min(counts.values()) <= 1
    labels = [torch.cat([b.labels for b in found["test"]]) for found in (one, again, other)]
    assert torch.equal(labels[0], labels[1])
    frames = [torch.cat([b.instances[:, :, :50] for b in found["test"]]) for found in (one, again, other)]
    assert torch.equal(frames[0], frames[1])
    assert not torch.equal(frames[0], frames[2])
    parts = [set(digests(bags)) for bags in one.values()]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 40, "no recording is in two splits"


def test_labels_masks_and_events_are_those_of_the_table(table: Path) -> None:
    task = make(table)
    assert task.class_names == ["high", "low"]
    assert task.num_classes == 2
    assert task.max_labels == 2
    for batches in split_bags(task).values():
        for bags in batches:
            assert bags.truth is not None
            assert bags.truth.boxes is not None
            lengths = (~bags.instances[:, 0].isnan()).sum(dim=1)
            assert set(lengths.tolist()) <= {50, 55, 60}
            mask = torch.ones(len(bags), -(-bags.instances.shape[2] // 4)).bool() if bags.mask is None else bags.mask
            assert mask.sum(dim=1).tolist() == [-(-n // 4) for n in lengths.tolist()]
            assert (mask[:, :-1] | ~mask[:, 1:]).all()
            for row, classes, boxes in zip(bags.labels, bags.truth.classes, bags.truth.boxes, strict=True):
                there = classes >= 0
                assert row.tolist() == [0 in classes.tolist(), 1 in classes.tolist()]
                torch.testing.assert_close(
                    (boxes[:, 2] - boxes[:, 0])[there], torch.full((int(there.sum()),), 12.5), atol=0.1, rtol=0
                )


def test_the_band_of_a_tone_is_loud_while_its_event_lasts(table: Path) -> None:
    """High tones in high bands, low ones in low bands, at the times of the table."""
    for bags in split_bags(make(table))["test"]:
        assert bags.truth is not None
        assert bags.truth.boxes is not None
        for frames, classes, boxes in zip(bags.instances, bags.truth.classes, bags.truth.boxes, strict=True):
            for cls, box in zip(classes.tolist(), boxes.tolist(), strict=True):
                if cls < 0:
                    continue
                share = math.log10(1 + (1500 if cls == 0 else 300) / 700) / math.log10(1 + RATE / 2 / 700)
                band = frames[round(13 * share - 1)]
                band = band[~band.isnan()]
                inside = torch.zeros(len(band), dtype=torch.bool)
                inside[round(box[0]) : round(box[2])] = True
                assert band[inside].mean() > band[~inside].mean() + 1


def test_splits_of_the_table_are_kept(tmp_path: Path) -> None:
    found = split_bags(make(small_table(tmp_path, split=True), seed=3))
    assert {split: sum(map(len, bags)) for split, bags in found.items()} == {"train": 24, "validation": 8, "test": 8}


def test_without_events_nothing_is_said_of_time(tmp_path: Path) -> None:
    task = make(small_table(tmp_path, events=False), validation=0)
    assert next(task.train_batches(0, generator("t"))).truth is None
    network = task.network(0)

    def score(bags: Bags) -> Scores:
        with torch.no_grad():
            probs = network(bags.instances).softmax(dim=1)
        highest = probs[:, :-1].amax(dim=2)
        return Scores(highest, highest, probs)

    metrics = task.evaluate(score).metrics
    assert "test/set_error" in metrics
    assert not {"test/hit_rate", "test/instance_error", "validation/set_error"} & set(metrics)


def test_frames_without_a_rate_and_one_length_need_no_mask(tmp_path: Path) -> None:
    rows = []
    for number in range(20):
        frames = np.random.default_rng(number).normal(size=(9, 5))
        np.save(tmp_path / f"{number}.npy", frames)
        rows.append({"file": f"{number}.npy", "labels": "a;b" if number % 2 else "a"})
    task = make(write_table(tmp_path / "t.csv", rows), sample_rate=None, network="gru", stride=2)
    bags = next(task.train_batches(0, generator("t")))
    assert bags.mask is None
    assert bags.instances.shape[1:] == (5, 9)
    assert task.network(0)(bags.instances).shape == (len(bags), 3, 5)


def changed(table: Path, folder: Path, number: int, **cells: str) -> Path:
    """A copy of a table and its files where one row has other cells."""
    shutil.copytree(table.parent, folder, dirs_exist_ok=True)
    with (folder / table.name).open(encoding="utf-8") as file:
        rows: list[dict[str, str]] = list(csv.DictReader(file))
    rows[number] |= cells
    return write_table(folder / table.name, rows)


def test_what_is_wrong_with_a_table_is_one_line(table: Path, tmp_path: Path) -> None:
    wrong: Iterator[tuple[dict[str, str], dict[str, Any], str]] = iter([
        ({"file": "000.npy"}, {}, r"line 7: .*000.npy is the same as .*000.npy, and could get into two splits"),
        ({"file": "gone.npy"}, {}, r"1 of 40 files cannot be read: .*gone.npy: not found"),
        ({"labels": "high", "events": '[["high", 1.5, 2]]'}, {}, r"line 7: event .* begins after the end of .*005.npy"),
        ({}, {"frames_per_second": 1.0, "stride": 8}, r"2 classes and only 1 positions"),
        ({}, {"sample_rate": None}, "40 of 40 files cannot be read: .*sample_rate.*; and 20 more"),
        ({}, {"bands": 400}, "400 bands are too many for windows of 160 samples"),
    ])  # fmt: skip
    for case, (cells, params, complaint) in enumerate(wrong):
        path = changed(table, tmp_path / str(case), 5, **cells)
        with pytest.raises(UsageError, match=complaint) as caught:
            make(path, **params)
        assert "\n" not in str(caught.value)


def test_a_recording_in_two_splits_is_refused_even_under_another_name(tmp_path: Path) -> None:
    table = small_table(tmp_path / "a", split=True)
    shutil.copy(table.parent / "000.npy", table.parent / "copy.npy")
    same_split = changed(table, tmp_path / "b", 1, file="copy.npy", labels="", events="[]")
    make(same_split)  # twice in the training split is the user's choice
    two = changed(table, tmp_path / "c", 12, file="copy.npy")
    with pytest.raises(UsageError, match=r"copy.npy is the same as .*000.npy, in train and test"):
        make(two)


@pytest.mark.parametrize(("only", "missing"), [("train", "test"), ("test", "train")])
def test_a_split_that_is_empty_is_named(only: str, missing: str, tmp_path: Path) -> None:
    table = small_table(tmp_path, count=4)
    rows = [{"file": f"{n:03d}.npy", "labels": "x", "split": only} for n in range(4)]
    write_table(table, rows)
    with pytest.raises(UsageError, match=f"none of its 4 rows is in the split {missing}"):
        make(table)


def test_the_digest_is_that_of_the_table_and_every_file(table: Path, tmp_path: Path) -> None:
    copy = changed(table, tmp_path, 0)

    def digest() -> str:
        return load_task("sequence-bags", table=copy.name, sample_rate=RATE).check_data(tmp_path)

    before = digest()
    assert before.startswith("40 sequences, sha256 ")
    assert digest() == before
    wave = np.load(tmp_path / "007.npy")
    wave[5] += 1
    np.save(tmp_path / "007.npy", wave)
    assert digest() != before


def test_shares_that_leave_nothing_are_refused(table: Path) -> None:
    with pytest.raises(UsageError, match=r"test = 0.6 and validation = 0.5 leave nothing to train on"):
        load_task("sequence-bags", table="t.csv", test=0.6, validation=0.5)
    with pytest.raises(UsageError, match="needs a value for 'table'"):
        load_task("sequence-bags")


def test_audio_files_are_learnt_from_end_to_end(tmp_path: Path, milbench: Milbench) -> None:
    """Two pitches and silence are told apart, and found at their time, by the command line."""
    table = small_table(tmp_path / "audio", count=80, suffix=".wav")
    words = ["run", "--loss", "noisy-or", "--task", "sequence-bags", "--seeds", "0", "--name", "tones"]
    values = {"task.table": table, "task.bands": 12, "task.frames_per_second": 50, "task.batch_bags": 8,
              "recipe.epochs": 12}  # fmt: skip
    ran = milbench(*words, *(word for key, value in values.items() for word in ("-p", f"{key}={value}")))
    assert ran.code == 0, ran.err
    report = milbench("report", "tones")
    assert report.code == 0, report.err
    folder = next((tmp_path / "root" / "reports").iterdir())
    assert list(folder.rglob("gallery-*.png"))
