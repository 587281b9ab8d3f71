"""Drawn recordings and log-mel frames, against levels, times and pitches that are measured or known."""

import math

import pytest
import torch
from torch import Tensor

from milbench import generator
from milbench.data.log_mel import LEAST_POWER, LogMel
from milbench.data.sounds import (
    CLASSES,
    LONGEST,
    SAMPLE_RATE,
    SECONDS,
    SHORTEST,
    draw_recordings,
    make_sounds,
)

MEL = LogMel(sample_rate=8000, hop=100, window=400, bands=20)


@pytest.mark.parametrize("hertz", [150, 440, 1000, 1500, 2500, 3700])
def test_a_tone_is_strongest_in_its_own_band(hertz: float) -> None:
    """Band b is centred at (b + 1) / (F + 1) of the mel scale up to half the sample rate."""
    wave = torch.sin(2 * math.pi * hertz * torch.arange(8000) / 8000)
    frames = MEL(wave.unsqueeze(0))[0]
    expected = math.log10(1 + hertz / 700) / math.log10(1 + 4000 / 700) * 21 - 1
    assert set(frames[:, 3:-3].argmax(dim=0).tolist()) == {round(expected)}


def test_an_impulse_is_in_the_frame_that_holds_its_sample() -> None:
    for sample in (50, 449, 450, 1234, 7999):
        wave = torch.zeros(1, 8000)
        wave[0, sample] = 1
        assert int(MEL(wave)[0].sum(dim=0).argmax()) == sample // 100
    assert MEL.frames_per_second == 80


def test_white_noise_has_its_variance_as_power() -> None:
    """The power of one frequency is the variance, so that of a band is the variance times its summed weights."""
    noise = 3 * torch.randn(1, 800_000, generator=generator("noise"))
    power = MEL(noise)[0, :, 5:-5].exp().mean(dim=1)
    ratio = power / (9 * MEL.filters().sum(dim=1))
    assert (ratio - 1).abs().max() < 0.06


@pytest.mark.parametrize(
    ("samples", "frames"), [(8000, 80), (8001, 81), (1, 1), (100, 1), (101, 2)]
)
def test_every_sample_is_in_a_frame_and_silence_is_finite(samples: int, frames: int) -> None:
    found = MEL(torch.zeros(2, samples))
    assert found.shape == (2, 20, frames)
    torch.testing.assert_close(found, torch.full_like(found, math.log(LEAST_POWER)))


def test_recordings_follow_their_distribution() -> None:
    drawn = draw_recordings(3000, 0, 3, 0.0, generator("many"))
    there = drawn.classes >= 0
    assert drawn.waveforms.shape == (3000, SAMPLE_RATE * SECONDS)
    for number in range(4):
        assert int((there.sum(dim=1) == number).sum()) == pytest.approx(
            750, abs=5 * math.sqrt(3000 * 3 / 16)
        )
    kinds = torch.bincount(drawn.classes[there], minlength=len(CLASSES)) / there.sum()
    assert (kinds - 1 / 8).abs().max() < 5 * math.sqrt(7 / 64 / int(there.sum()))
    lengths = (drawn.ends - drawn.starts)[there]
    assert SHORTEST <= float(lengths.min()) < 0.21
    assert 0.49 < float(lengths.max()) <= LONGEST + 1e-4
    assert drawn.starts[there].min() >= 0
    assert drawn.ends[there].max() <= SECONDS + 1e-3
    assert (there[:, :-1] | ~there[:, 1:]).all(), "what is not there comes last"
    assert (drawn.starts[:, 1:] >= drawn.starts[:, :-1])[there[:, 1:]].all(), (
        "in the order in which they begin"
    )


def test_noise_has_variance_one_and_a_sound_its_level_above_it_while_it_lasts() -> None:
    snr = 12.0
    drawn = draw_recordings(400, 1, 1, snr, generator("levels"))
    outside, inside = [], []
    for wave, start, end in zip(
        drawn.waveforms, drawn.starts[:, 0].tolist(), drawn.ends[:, 0].tolist(), strict=True
    ):
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
    torch.testing.assert_close(
        waves.square().sum(dim=1) / (lengths * SAMPLE_RATE), torch.ones(len(waves))
    )
    for wave, length in zip(waves, lengths.tolist(), strict=True):
        assert not wave[round(length * SAMPLE_RATE) + 1 :].any()


def pitch(wave: Tensor) -> float:
    """The mean frequency in hertz, from how often the sign changes."""
    return float((wave[1:].sign() != wave[:-1].sign()).sum()) / 2 / len(wave) * SAMPLE_RATE


@pytest.mark.parametrize(
    ("name", "low", "high"), [("tone", 0.97, 1.03), ("rise", 1.15, 3), ("fall", 1 / 3, 0.87)]
)
def test_pitches_stay_rise_and_fall(name: str, low: float, high: float) -> None:
    for wave, length in zip(*sounds(name), strict=True):
        quarter = int(length * SAMPLE_RATE / 4)
        assert low <= pitch(wave[3 * quarter : 4 * quarter - 20]) / pitch(wave[20:quarter]) <= high
