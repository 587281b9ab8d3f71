"""Drawn recordings against what they say of themselves: levels, times and pitches are measured from the samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from milbench import generator
from milbench.data.sounds import CLASSES, LONGEST, SAMPLE_RATE, SECONDS, SHORTEST, draw_recordings, make_sounds


def test_recordings_follow_their_distribution() -> None:
    drawn = draw_recordings(3000, 0, 3, 0.0, generator("many"))
    there = drawn.classes >= 0
    assert drawn.waveforms.shape == (3000, SAMPLE_RATE * SECONDS)
    for number in range(4):
        assert int((there.sum(dim=1) == number).sum()) == pytest.approx(750, abs=5 * math.sqrt(3000 * 3 / 16))
    kinds = torch.bincount(drawn.classes[there], minlength=len(CLASSES)) / there.sum()
    assert (kinds - 1 / 8).abs().max() < 5 * math.sqrt(7 / 64 / int(there.sum()))
    lengths = (drawn.ends - drawn.starts)[there]
    assert SHORTEST <= float(lengths.min()) < 0.21
    assert 0.49 < float(lengths.max()) <= LONGEST + 1e-4
    assert drawn.starts[there].min() >= 0
    assert drawn.ends[there].max() <= SECONDS + 1e-3
    assert (there[:, :-1] | ~there[:, 1:]).all(), "what is not there comes last"
    assert (drawn.starts[:, 1:] >= drawn.starts[:, :-1])[there[:, 1:]].all(), "in the order in which they begin"


def test_noise_has_variance_one_and_a_sound_its_level_above_it_while_it_lasts() -> None:
    snr = 12.0
    drawn = draw_recordings(400, 1, 1, snr, generator("levels"))
    outside, inside = [], []
    for wave, start, end in zip(drawn.waveforms, drawn.starts[:, 0].tolist(), drawn.ends[:, 0].tolist(), strict=True):
        first, last = round(start * SAMPLE_RATE), round(end * SAMPLE_RATE)
        outside += [wave[:first], wave[last + 1 :]]
        inside.append(float(wave[first:last].square().mean()))
    assert float(torch.cat(outside).square().mean()) == pytest.approx(1, abs=0.01)
    level = 10 * math.log10(sum(inside) / len(inside) - 1)
    assert level == pytest.approx(snr, abs=0.1)


def sounds(name: str, count: int = 50) -> tuple[Tensor, Tensor]:
    lengths = torch.linspace(SHORTEST, LONGEST, count)
    return make_sounds(CLASSES.index(name), lengths, generator(name)), lengths


@pytest.mark.parametrize("name", CLASSES)
def test_a_sound_has_mean_power_one_over_its_length_and_ends(name: str) -> None:
    waves, lengths = sounds(name)
    torch.testing.assert_close(waves.square().sum(dim=1) / (lengths * SAMPLE_RATE), torch.ones(len(waves)))
    for wave, length in zip(waves, lengths.tolist(), strict=True):
        assert not wave[round(length * SAMPLE_RATE) + 1 :].any()


def pitch(wave: Tensor) -> float:
    """The mean frequency in hertz, from how often the sign changes."""
    return float((wave[1:].sign() != wave[:-1].sign()).sum()) / 2 / len(wave) * SAMPLE_RATE


@pytest.mark.parametrize(("name", "low", "high"), [("tone", 0.97, 1.03), ("rise", 1.15, 3), ("fall", 1 / 3, 0.87)])
def test_pitches_stay_rise_and_fall(name: str, low: float, high: float) -> None:
    for wave, length in zip(*sounds(name), strict=True):
        quarter = int(length * SAMPLE_RATE / 4)
        assert low <= pitch(wave[3 * quarter : 4 * quarter - 20]) / pitch(wave[20:quarter]) <= high
