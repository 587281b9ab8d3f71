"""Soundscapes: scenes against the clips that they were made of, tones whose pitch is their class."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from milbench import load_task
from milbench.data import esc10
from tests._helpers.sequence_files import all_bags, assert_tones_are_heard
from tests._helpers.small_data import small_clips
from tests._helpers.tasks import loaded


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_clips(tmp_path_factory.mktemp("clips"))


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("soundscapes", root, seed, 40, any_data=True, **{"train_bags": 40, **params})


def module() -> Any:
    return sys.modules[type(load_task("soundscapes")).__module__]


def test_each_sound_is_heard_where_the_truth_says_and_nowhere_else(root: Path) -> None:
    assert_tones_are_heard(make(root), 500 + 500 * torch.arange(10.0), 16_000, (0.45, 2.4))


def test_levels_are_within_six_decibels_of_the_middle(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the power of scenes with one sound, of which none is lost between the bands, without the noise."""
    monkeypatch.setattr(module(), "NOISE", 0.0)
    module()._scenes.cache_clear()
    problem, seen = make(root), []
    mean, spread = problem.batches.mean, problem.batches.divisor
    for bags in problem.splits["test"].single_instance:
        for frames, box in zip(bags.instances * spread + mean, bags.truth.boxes[:, 0], strict=True):
            start, _, end, _ = box.tolist()
            seen.append(
                float(
                    10
                    * torch.log10(frames[:, int(start) + 2 : int(end) - 1].exp().sum(dim=0).mean())
                )
            )
            silent = torch.cat(
                [frames[:, : max(0, int(start) - 1)], frames[:, int(end) + 2 :]], dim=1
            )
            assert silent.max() < np.log(1e-9), "where nothing is heard there is nothing"
    module()._scenes.cache_clear()
    assert 6 < max(seen) - min(seen) < 13


def test_without_overlap_the_same_sounds_come_one_after_the_other(root: Path) -> None:
    free, mixed, apart = (make(root, 2, overlap=share) for share in (1, 0.5, 0))
    crossing = []
    for scenes in zip(*map(all_bags, (free, mixed, apart)), strict=True):
        start, _, end, _ = torch.stack([bags.truth.boxes for bags in scenes]).unbind(dim=3)
        there = scenes[0].truth.classes >= 0
        assert (start.diff(dim=2)[:, there[:, 1:]] >= 0).all(), "in the order in which they begin"
        assert torch.equal(scenes[0].labels, scenes[2].labels)
        lengths = (end - start).sort(dim=2).values
        torch.testing.assert_close(lengths[0], lengths[2])
        crossing.append(
            ((start[:, :, 1:] < end[:, :, :-1].cummax(dim=2).values) & there[:, 1:]).any(dim=2)
        )
    shares = torch.cat(crossing, dim=1).double().mean(dim=1).tolist()
    assert shares[2] == 0
    assert shares[0] > 0.2
    assert shares[1] == pytest.approx(shares[0] / 2, abs=0.1)


def test_splits_share_no_clip_and_use_all_of_them(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 3 tests on the fourth fold and validates on the last one."""
    make_scenes = module()._scenes
    used: dict[tuple[str, int], list[int]] = {}

    def spy(root: Path, digest: str, clips: tuple[int, ...], drawn: Any) -> Any:
        _, part, _ = drawn.axes
        used[part, drawn.most] = list(clips)
        return make_scenes(root, digest, clips, drawn)

    monkeypatch.setattr(module(), "_scenes", spy)
    make(root, seed=3)
    fold_of_clip = esc10.read_all(root, "any").folds.tolist()
    folds = {scenes: {fold_of_clip[clip] for clip in clips} for scenes, clips in used.items()}
    assert folds == {
        ("train", 4): {0, 1, 2},
        ("validation", 4): {4},
        ("validation", 1): {4},
        ("test", 4): {3},
        ("test", 1): {3},
    }
    number_of_clips = {scenes: len(set(clips)) for scenes, clips in used.items()}
    assert number_of_clips.pop(("train", 4)) == 30
    assert set(number_of_clips.values()) == {10}


def test_items_are_the_clips_that_are_heard(root: Path) -> None:
    """By the class and the length of each sound, of which 2.4 seconds are heard at most."""
    clips = esc10.read_all(root, "any")
    in_clip = [
        (int(clips.classes[n]), min(len(clips.waveforms[n]), 24 * 1600))
        for n in range(len(clips.classes))
    ]
    used = set()
    for seed in range(5):
        for split in make(root, seed).splits.values():
            for bags in (*split.bags, *split.single_instance):
                start, end = bags.truth.boxes[..., 0], bags.truth.boxes[..., 2]
                lengths = ((end - start) * 512).round().int().tolist()
                classes = bags.truth.classes.tolist()
                for scene, row in enumerate(bags.origin.items.tolist()):
                    items = [item for item in row if item >= 0]
                    heard = zip(classes[scene], lengths[scene], strict=True)
                    expected = sorted(pair for pair in heard if pair[0] >= 0)
                    assert sorted(in_clip[item] for item in items) == expected
                    used.update(items)
    assert used == {*range(len(in_clip))}


def test_the_loudest_part_of_a_long_clip_is_heard() -> None:
    rng = np.random.default_rng(0)
    waveform = (0.01 * rng.normal(size=80_000)).astype(np.float32)
    waveform[30_000:68_400] += np.sin(np.arange(38_400) / 7).astype(np.float32)
    sound = module().cut_sound(waveform)
    assert len(sound) == 38_400
    assert float(sound.square().mean()) == pytest.approx(1, abs=1e-4)
    middle = torch.from_numpy(waveform[30_160:68_240])
    assert torch.corrcoef(torch.stack([sound[160:-160], middle]))[0, 1] > 0.99
    assert sound[:3].abs().max() < 0.1
