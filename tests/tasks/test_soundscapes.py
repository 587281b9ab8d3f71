"""The task `soundscapes`: scenes against the clips that they were made of.

The clips of these tests are tones, whose pitch tells their class.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

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
    """Return the module of the task, which was loaded from a file."""
    return sys.modules[type(load_task("soundscapes")).__module__]


def test_each_sound_is_heard_where_the_truth_says_alone(root: Path) -> None:
    assert_tones_are_heard(make(root), 500 + 500 * torch.arange(10.0), 16_000, (0.45, 2.4))


def test_levels_are_within_six_decibels_of_the_middle(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The levels of sounds span at most 12 dB, measured in scenes of one sound without noise.

    The power of a scene is the sum over all bands.
    """
    decibels = []
    for frames, start, end in noiseless_scenes_of_one_sound(root, monkeypatch):
        # Frames at the edges of the sound hold only a part of it, so they are left out.
        power = frames[:, start + 2 : end - 1].exp().sum(dim=0)
        decibels.append(float(10 * torch.log10(power.mean())))
    assert 6 < max(decibels) - min(decibels) < 13


def test_nothing_is_heard_outside_of_the_sounds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for frames, start, end in noiseless_scenes_of_one_sound(root, monkeypatch):
        before = frames[:, : max(0, start - 1)]
        after = frames[:, end + 2 :]
        assert torch.cat([before, after], dim=1).max() < np.log(1e-9)


def noiseless_scenes_of_one_sound(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Tensor, int, int]]:
    """Return test scenes: log-mel frames (F, T), and the first and the last frame of the sound."""
    monkeypatch.setattr(module(), "NOISE", 0.0)
    module()._scenes.cache_clear()
    problem = make(root)
    scenes = []
    for bags in problem.splits["test"].single_instance:
        spectra = bags.instances * problem.batches.divisor + problem.batches.mean
        for frames, box in zip(spectra, bags.truth.boxes[:, 0], strict=True):
            start, _, end, _ = box.tolist()
            scenes.append((frames, int(start), int(end)))
    # No other test must get these scenes without noise from the cache.
    module()._scenes.cache_clear()
    return scenes


def test_without_overlap_the_same_sounds_come_one_after_the_other(root: Path) -> None:
    free = all_bags(make(root, 2, overlap=1))
    apart = all_bags(make(root, 2, overlap=0))
    for overlapping, separate in zip(free, apart, strict=True):
        assert torch.equal(overlapping.labels, separate.labels)
        torch.testing.assert_close(sorted_lengths(overlapping), sorted_lengths(separate))


def sorted_lengths(bags: Any) -> Tensor:
    start, _, end, _ = bags.truth.boxes.unbind(dim=2)
    lengths: Tensor = (end - start).sort(dim=1).values
    return lengths


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_events_are_in_the_order_in_which_they_begin(root: Path, share: float) -> None:
    for bags in all_bags(make(root, 2, overlap=share)):
        start = bags.truth.boxes[..., 0]
        is_event = bags.truth.classes >= 0
        assert (start.diff(dim=1)[is_event[:, 1:]] >= 0).all()


def test_the_parameter_is_the_share_of_scenes_that_may_overlap(root: Path) -> None:
    shares = {overlap: share_that_overlaps(root, overlap) for overlap in (0, 0.5, 1)}
    assert shares[0] == 0
    assert shares[1] > 0.2
    assert shares[0.5] == pytest.approx(shares[1] / 2, abs=0.1)


def share_that_overlaps(root: Path, overlap: float) -> float:
    """Return the share of scenes in which a sound begins before all earlier sounds have ended."""
    overlapping = []
    for bags in all_bags(make(root, 2, overlap=overlap)):
        start, _, end, _ = bags.truth.boxes.unbind(dim=2)
        is_event = bags.truth.classes >= 0
        last_end_so_far = end.cummax(dim=1).values
        begins_early = start[:, 1:] < last_end_so_far[:, :-1]
        overlapping.append((begins_early & is_event[:, 1:]).any(dim=1))
    return float(torch.cat(overlapping).double().mean())


def test_splits_share_no_clip_and_use_all_of_them(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 3 tests on the fourth fold and validates on the last one."""
    make_scenes = module()._scenes
    # The clips of scenes, by their part and their largest number of sounds.
    used: dict[tuple[str, int], tuple[int, ...]] = {}

    def make_and_note(root: Path, digest: str, clips: tuple[int, ...], sampling: Any) -> Any:
        _, part, _ = sampling.axes
        most_sounds = sampling.most
        used[part, most_sounds] = clips
        return make_scenes(root, digest, clips, sampling)

    monkeypatch.setattr(module(), "_scenes", make_and_note)
    make(root, seed=3)
    fold_of_clip = esc10.read_all(root, "any").folds.tolist()
    folds = {scenes: {fold_of_clip[clip] for clip in clips} for scenes, clips in used.items()}
    # Bags have up to four sounds, and single instances one.
    assert folds == {
        ("train", 4): {0, 1, 2},
        ("validation", 4): {4},
        ("validation", 1): {4},
        ("test", 4): {3},
        ("test", 1): {3},
    }
    # Each fold has ten clips.
    number_of_clips = {scenes: len(set(clips)) for scenes, clips in used.items()}
    assert number_of_clips == {
        ("train", 4): 30,
        ("validation", 4): 10,
        ("validation", 1): 10,
        ("test", 4): 10,
        ("test", 1): 10,
    }


def test_items_are_the_clips_that_are_heard(root: Path) -> None:
    """A clip is recognised by its class and its length, of which at most 2.4 seconds are heard."""
    clips = esc10.read_all(root, "any")
    # 2.4 seconds of 16,000 samples.
    longest = 24 * 1600
    sound_of_clip = [
        (int(cls), min(len(waveform), longest))
        for cls, waveform in zip(clips.classes, clips.waveforms, strict=True)
    ]
    used = set()
    for seed in range(5):
        for items, sounds in items_and_sounds(make(root, seed)):
            assert sorted(sound_of_clip[item] for item in items) == sounds
            used.update(items)
    assert used == set(range(len(sound_of_clip)))


def items_and_sounds(problem: Any) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """Yield the items of each evaluated scene, and class and samples of its sounds, sorted."""
    for split in problem.splits.values():
        for bags in (*split.bags, *split.single_instance):
            start, _, end, _ = bags.truth.boxes.unbind(dim=2)
            lengths = ((end - start) * 512).round().int()
            for row, classes, samples in zip(
                bags.origin.items, bags.truth.classes, lengths, strict=True
            ):
                is_sound = classes >= 0
                sounds = zip(classes[is_sound].tolist(), samples[is_sound].tolist(), strict=True)
                yield row[row >= 0].tolist(), sorted(sounds)


def test_the_loudest_part_of_a_long_clip_is_heard() -> None:
    rng = np.random.default_rng(0)
    waveform = (0.01 * rng.normal(size=80_000)).astype(np.float32)
    # A tone of 38,400 samples, which are 2.4 seconds, in five seconds of quiet noise.
    waveform[30_000:68_400] += np.sin(np.arange(38_400) / 7).astype(np.float32)
    sound = module().cut_sound(waveform)
    assert len(sound) == 38_400
    # The power is normalised to 1.
    assert float(sound.square().mean()) == pytest.approx(1, abs=1e-4)
    # The first and last 160 samples are faded in and out, so they are not compared.
    middle = torch.from_numpy(waveform[30_160:68_240])
    assert torch.corrcoef(torch.stack([sound[160:-160], middle]))[0, 1] > 0.99
    assert sound[:3].abs().max() < 0.1
