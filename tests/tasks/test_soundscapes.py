"""Soundscapes: scenes against the clips that they were made of, tones whose pitch is their class."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from milbench import generator, load_task
from milbench.data import esc10
from tests._helpers.sequence_files import all_bags
from tests._helpers.small_data import small_clips

CPU = torch.device("cpu")
RATE = 16_000 / 512
"""Frames in a second."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_clips(tmp_path_factory.mktemp("clips"))


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    task = load_task("soundscapes", any_data=True, **{"train_bags": 40, **params})
    task.seed, task.evaluation_limit = seed, 40
    task.prepare(root, CPU)
    return task


def module() -> Any:
    return sys.modules[type(load_task("soundscapes")).__module__]


def test_each_sound_is_heard_where_the_truth_says_and_nowhere_else(root: Path) -> None:
    """Class n is a tone of 500 + 500 n Hz: its mel band is loud inside its box, and outside there is faint noise."""
    task = make(root)
    mel = 2595 * torch.log10(1 + (500 + 500 * torch.arange(10.0)) / 700)
    bands = (mel * 41 / (2595 * torch.log10(torch.tensor(1 + 8000 / 700))) - 1).round().int().tolist()
    mean, spread = task._scale
    for bags in all_bags(task):
        assert bags.instances.shape[1:] == (40, 313)
        for frames, labels, classes, boxes in zip(
            bags.instances * spread + mean, bags.labels, bags.truth.classes, bags.truth.boxes, strict=True
        ):
            there = classes >= 0
            assert set(labels.nonzero().flatten().tolist()) == set(classes[there].tolist())
            loud = torch.zeros(313, dtype=torch.bool)
            for cls, (start, low, end, high) in zip(classes[there].tolist(), boxes[there].tolist(), strict=True):
                assert 0.45 <= (end - start) / RATE <= 2.4
                assert 0 <= start < end <= 312.5
                assert (low, high) == (0, 40)
                inside = slice(int(start) + 2, int(end) - 1)
                near = frames[max(0, bands[cls] - 1) : bands[cls] + 2, inside].amax(dim=0)
                assert (near > frames[:, ~loud].median() + 5).all()
                loud[max(0, int(start) - 1) : int(end) + 2] = True
            assert (frames[:, ~loud] < -8).all(), "white noise of a power of 1e-6 has about -13"


def test_levels_are_within_six_decibels_of_the_middle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the power of scenes with one sound, of which none is lost between the bands, without the noise."""
    monkeypatch.setattr(module(), "NOISE", 0.0)
    module()._scenes.cache_clear()
    task, seen = make(root), []
    mean, spread = task._scale
    for bags in task.eval_splits["test"].single_instance:
        for frames, box in zip(bags.instances * spread + mean, bags.truth.boxes[:, 0], strict=True):
            start, _, end, _ = box.tolist()
            seen.append(float(10 * torch.log10(frames[:, int(start) + 2 : int(end) - 1].exp().sum(dim=0).mean())))
            silent = torch.cat([frames[:, : max(0, int(start) - 1)], frames[:, int(end) + 2 :]], dim=1)
            assert silent.max() < np.log(1e-9), "where nothing is heard there is nothing"
    module()._scenes.cache_clear()
    assert 6 < max(seen) - min(seen) < 13


def test_without_overlap_the_same_sounds_come_one_after_the_other(root: Path) -> None:
    free, mixed, apart = (make(root, 2, overlap=share) for share in (1, 0.5, 0))
    assert free.folds == apart.folds
    crossing = []
    for scenes in zip(*map(all_bags, (free, mixed, apart)), strict=True):
        kinds = []
        for bags in scenes:
            start, _, end, _ = bags.truth.boxes.unbind(dim=2)
            there = bags.truth.classes >= 0
            assert (start.diff(dim=1)[there[:, 1:]] >= 0).all(), "in the order in which they begin"
            crosses = (start[:, 1:] < end[:, :-1].cummax(dim=1).values) & there[:, 1:]
            kinds.append(crosses.any(dim=1))
        assert torch.equal(scenes[0].labels, scenes[2].labels)
        lengths = [(bags.truth.boxes[..., 2] - bags.truth.boxes[..., 0]).sort(dim=1).values for bags in scenes]
        torch.testing.assert_close(lengths[0], lengths[2])
        crossing.append(torch.stack(kinds, dim=1))
    shares = torch.cat(crossing).double().mean(dim=0).tolist()
    assert shares[2] == 0
    assert shares[0] > 0.2
    assert shares[1] == pytest.approx(shares[0] / 2, abs=0.1)


def test_splits_share_no_clip_and_use_all_of_them(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 3 tests on the fourth fold and validates on the last one; each clip is used before any is used again."""
    used: list[tuple[set[int], list[int]]] = []
    original = module().in_rounds

    def spy(items: int, count: int, rng: torch.Generator) -> torch.Tensor:
        found: torch.Tensor = original(items, count, rng)
        assert len(set(found.tolist())) == min(items, count)
        return found

    def scenes(root: Path, digest: str, clips: tuple[int, ...], *others: Any) -> Any:
        folds = esc10.read_all(root, digest).folds[list(clips)]
        used.append((set(folds.tolist()), list(clips)))
        return module_scenes(root, digest, clips, *others)

    module_scenes = module()._scenes
    module_scenes.cache_clear()
    monkeypatch.setattr(module(), "in_rounds", spy)
    monkeypatch.setattr(module(), "_scenes", scenes)
    make(root, seed=3)
    assert [folds for folds, _ in used] == [{0, 1, 2}, {4}, {3}, {4}, {3}]
    assert [len(clips) for _, clips in used] == [30, 10, 10, 10, 10]


def test_training_scenes_depend_on_the_seed_and_test_scenes_on_the_fold(root: Path) -> None:
    first = {seed: make(root, seed) for seed in (0, 1, 5)}
    train = {seed: next(task.train_batches(0, generator("t"))).instances for seed, task in first.items()}
    test = {seed: task.eval_splits["test"].bags[0].labels for seed, task in first.items()}
    assert not torch.equal(train[0], train[5])
    assert torch.equal(test[0], test[5])
    assert not torch.equal(test[0], test[1])


def test_the_loudest_part_of_a_long_clip_is_heard() -> None:
    rng = np.random.default_rng(0)
    waveform = (0.01 * rng.normal(size=80_000)).astype(np.float32)
    waveform[30_000:68_400] += np.sin(np.arange(38_400) / 7).astype(np.float32)
    sound = module().sound_of(waveform)
    assert len(sound) == 38_400
    assert float(sound.square().mean()) == pytest.approx(1, abs=1e-4)
    middle = torch.from_numpy(waveform[30_160:68_240])
    assert torch.corrcoef(torch.stack([sound[160:-160], middle]))[0, 1] > 0.99
    assert sound[:3].abs().max() < 0.1
