"""Your own sequences: splits, truth, padding, and one line for what is wrong."""

from __future__ import annotations

import csv
import json
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
from milbench.api.gallery import load
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
    assert sizes == {"train": 28, "validation": 4, "test": 8}
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
        ({"file": "000.npy"}, {}, r"table.csv, row 7: '000.npy' is the sequence of row 2 too"),
        ({"file": "gone.npy"}, {}, r"1 of 40 files cannot be read: .*row 7: gone.npy: not found"),
        ({"labels": "high", "events": '[["high", 1.5, 2]]'}, {}, r"005.npy \(row 7\) lasts 1.2 .* 'high' from 1.5"),
        ({}, {"frames_per_second": 1.0, "stride": 8}, r"003.npy \(row 5\) has 2 classes and 1 positions"),
        ({}, {"sample_rate": None}, "40 of 40 files cannot be read: .*sample_rate.* and 20 more"),
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
    with pytest.raises(UsageError, match=r"equal sequences in two parts: 1: 000.npy \(row 2\) = copy.npy \(row 14\)"):
        make(two)


def test_seeds_are_the_folds_and_groups_stay_together(table: Path, tmp_path: Path) -> None:
    shutil.copytree(table.parent, tmp_path, dirs_exist_ok=True)
    with table.open(encoding="utf-8") as file:
        rows = [row | {"group": f"place {number // 4}"} for number, row in enumerate(csv.DictReader(file))]
    grouped = write_table(tmp_path / "grouped.csv", rows)
    tested = [make(grouped, seed, folds=5, validation=0)._split.test for seed in range(5)]
    assert sorted(np.concatenate(tested).tolist()) == list(range(40))
    places = [{number // 4 for number in part} for part in tested]
    assert sum(map(len, places)) == 10, "no place is in two folds"
    names = [[[rows[number]["file"] for number in part] for part in tested]]
    (tmp_path / "grouped.folds.json").write_text(json.dumps(names))
    read = make(grouped, 3, folds=5, folds_file="*.folds.json", validation=0)
    assert read._split.test.tolist() == tested[3].tolist()


def test_a_long_recording_and_one_of_silence_share_a_batch_with_others(tmp_path: Path) -> None:
    """A long one does not change what a network says of a short one, and silence gives finite logits."""
    table = small_table(tmp_path, count=12)
    np.save(tmp_path / "000.npy", np.zeros(RATE, np.float32))
    np.save(tmp_path / "004.npy", np.random.default_rng(9).normal(size=9 * RATE).astype(np.float32))
    split = ["train"] * 8 + ["test"] * 4
    with table.open(encoding="utf-8") as file:
        rows = [row | {"split": part} for row, part in zip(csv.DictReader(file), split, strict=True)]
    task = make(write_table(table, rows))
    (bags,) = task.train_batches(0, generator("t"))
    assert bags.instances.shape == (8, 12, 450)
    network = task.network(0).eval()
    with torch.no_grad():
        logits = network(bags.instances)
        for number, mask in enumerate(bags.mask):
            count = int(mask.sum())
            frames = bags.instances[number : number + 1, :, : int((~bags.instances[number, 0].isnan()).sum())]
            assert logits[number, :, :count].isfinite().all()
            torch.testing.assert_close(network(frames)[0], logits[number, :, :count], atol=1e-4, rtol=1e-4)


def test_the_digest_is_that_of_the_table_and_every_file(table: Path, tmp_path: Path) -> None:
    copy = changed(table, tmp_path, 0)

    def digest() -> str:
        return load_task("sequence-bags", table=copy.name, sample_rate=RATE).check_data(tmp_path)

    before = digest()
    assert before.startswith("table.csv: 40 sequences, 2 classes, sha256 ")
    assert digest() == before
    wave = np.load(tmp_path / "007.npy")
    wave[5] += 1
    np.save(tmp_path / "007.npy", wave)
    assert digest() != before


@pytest.mark.drawn
def test_audio_files_are_learnt_from_end_to_end(tmp_path: Path, milbench: Milbench) -> None:
    """Two pitches and silence are told apart, and found at their time, by the command line."""
    table = small_table(tmp_path / "audio", count=80, suffix=".wav")
    words = ["run", "--loss", "noisy-or", "--task", "sequence-bags", "--seeds", "0", "--name", "tones"]
    shown = milbench("data", "check", str(table), "--bands", "12", "--frames-per-second", "50", "--stride", "8")
    assert shown.code == 0, shown.err
    assert "80, of 50 to 60 frames, median 55" in shown.out
    assert "in 40 of 80 bags" in shown.out
    values = {"task.table": table, "task.bands": 12, "task.frames_per_second": 50, "task.batch_bags": 8,
              "recipe.epochs": 12}  # fmt: skip
    ran = milbench(*words, *(word for key, value in values.items() for word in ("-p", f"{key}={value}")))
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


def test_batches_hold_as_many_sequences_as_fit_a_number_of_frames(tmp_path: Path) -> None:
    task = make(small_table(tmp_path, 24), batch_instances=130)  # a recording has 50 to 60 frames
    sizes = [len(bags.labels) for bags in task.train_batches(0, generator("x"))]
    assert max(sizes) == 2
    assert len(sizes) == task.steps_per_epoch
    assert {len(bags.labels) for bags in task._eval_splits["test"].bags} <= {1, 2}
