"""Log-mel frames against tones, impulses and noise whose place in time and frequency is known."""

from __future__ import annotations

import math

import pytest
import torch

from milbench import generator
from milbench.data.log_mel import LEAST_POWER, LogMel

MEL = LogMel(sample_rate=8000, hop=100, window=400, bands=20)


def mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


@pytest.mark.parametrize("hertz", [150, 440, 1000, 1500, 2500, 3700])
def test_a_tone_is_strongest_in_its_own_band(hertz: float) -> None:
    """Band b is centred at (b + 1) / (F + 1) of the mel scale up to half the sample rate."""
    wave = torch.sin(2 * math.pi * hertz * torch.arange(8000) / 8000)
    frames = MEL(wave.unsqueeze(0))[0]
    expected = mel(hertz) / mel(4000) * 21 - 1
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


@pytest.mark.parametrize(("samples", "frames"), [(8000, 80), (8001, 81), (1, 1), (100, 1), (101, 2)])
def test_every_sample_is_in_a_frame_and_silence_is_finite(samples: int, frames: int) -> None:
    found = MEL(torch.zeros(2, samples))
    assert found.shape == (2, 20, frames)
    torch.testing.assert_close(found, torch.full_like(found, math.log(LEAST_POWER)))
