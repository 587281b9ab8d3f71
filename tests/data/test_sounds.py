"""Synthetic recordings and log-mel frames: their levels, times and pitches are measured."""

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
    DrawnRecordings,
    draw_recordings,
    make_sounds,
)

MEL = LogMel(sample_rate=8000, hop=100, window=400, bands=20)


def mel(hertz: float) -> float:
    """Return a pitch on the mel scale, without its constant factor."""
    return math.log10(1 + hertz / 700)


@pytest.mark.parametrize("hertz", [150, 440, 1000, 1500, 2500, 3700])
def test_a_tone_is_strongest_in_its_own_band(hertz: float) -> None:
    times = torch.arange(8000) / 8000
    frames = MEL(torch.sin(2 * math.pi * hertz * times).unsqueeze(0))[0]
    # The mel scale up to half the sample rate, 4 kHz, is cut into 21 steps. Band b of 20 is centred
    # at step b + 1.
    expected = round(21 * mel(hertz) / mel(4000) - 1)
    # At both ends, windows are partly empty.
    assert set(frames[:, 3:-3].argmax(dim=0).tolist()) == {expected}


@pytest.mark.parametrize("sample", [50, 449, 450, 1234, 7999])
def test_an_impulse_is_in_the_frame_that_holds_it(sample: int) -> None:
    wave = torch.zeros(1, 8000)
    wave[0, sample] = 1
    assert int(MEL(wave)[0].sum(dim=0).argmax()) == sample // 100


def test_a_second_has_as_many_frames_as_hops() -> None:
    assert MEL.frames_per_second == 80


def test_white_noise_has_its_variance_as_power() -> None:
    # Each frequency has the variance as its power. A band is a weighted sum of frequencies, so that
    # its power is the variance times the sum of its weights.
    noise = 3 * torch.randn(1, 800_000, generator=generator("noise"))
    power = MEL(noise)[0, :, 5:-5].exp().mean(dim=1)
    variance = 3**2
    ratio = power / (variance * MEL.filters().sum(dim=1))
    assert (ratio - 1).abs().max() < 0.06


@pytest.mark.parametrize(
    ("samples", "frames"), [(8000, 80), (8001, 81), (1, 1), (100, 1), (101, 2)]
)
def test_every_sample_is_in_a_frame(samples: int, frames: int) -> None:
    assert MEL(torch.zeros(2, samples)).shape == (2, 20, frames)


@pytest.mark.parametrize("samples", [1, 100, 101, 8000, 8001])
def test_silence_is_finite(samples: int) -> None:
    found = MEL(torch.zeros(2, samples))
    torch.testing.assert_close(found, torch.full_like(found, math.log(LEAST_POWER)))


@pytest.fixture(scope="module")
def recordings() -> DrawnRecordings:
    """3,000 recordings of 0 to 3 sounds."""
    return draw_recordings(3000, 0, 3, 0.0, generator("many"))


def is_sound(recordings: DrawnRecordings) -> Tensor:
    """Return which entries are sounds, not padding, (recordings, most sounds)."""
    return recordings.classes >= 0


def test_recordings_have_their_length(recordings: DrawnRecordings) -> None:
    assert recordings.waveforms.shape == (3000, SAMPLE_RATE * SECONDS)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_every_number_of_sounds_is_equally_likely(recordings: DrawnRecordings, number: int) -> None:
    count = int((is_sound(recordings).sum(dim=1) == number).sum())
    # Of a binomial count: sqrt(n * p * (1 - p)).
    standard_error = math.sqrt(3000 * 1 / 4 * 3 / 4)
    assert count == pytest.approx(3000 / 4, abs=5 * standard_error)


def test_every_class_of_sounds_is_equally_likely(recordings: DrawnRecordings) -> None:
    classes = recordings.classes[is_sound(recordings)]
    shares = torch.bincount(classes, minlength=len(CLASSES)) / len(classes)
    standard_error = math.sqrt(1 / 8 * 7 / 8 / len(classes))
    assert (shares - 1 / 8).abs().max() < 5 * standard_error


def test_sounds_have_lengths_of_the_whole_range(recordings: DrawnRecordings) -> None:
    lengths = (recordings.ends - recordings.starts)[is_sound(recordings)]
    assert SHORTEST <= float(lengths.min()) < 0.21
    assert 0.49 < float(lengths.max()) <= LONGEST + 1e-4


def test_sounds_lie_inside_their_recording(recordings: DrawnRecordings) -> None:
    assert recordings.starts[is_sound(recordings)].min() >= 0
    assert recordings.ends[is_sound(recordings)].max() <= SECONDS + 1e-3


def test_sounds_stand_in_the_order_in_which_they_begin(recordings: DrawnRecordings) -> None:
    sound = is_sound(recordings)
    # Padding comes last.
    assert (sound[:, :-1] | ~sound[:, 1:]).all()
    is_later = recordings.starts[:, 1:] >= recordings.starts[:, :-1]
    assert is_later[sound[:, 1:]].all()


SNR = 12.0
"""The level of a sound above the noise, in decibels."""


@pytest.fixture(scope="module")
def around_sounds() -> tuple[list[Tensor], list[Tensor]]:
    """The samples of 400 recordings outside their sound, and the samples inside it."""
    drawn = draw_recordings(400, 1, 1, SNR, generator("levels"))
    outside = []
    inside = []
    for number, wave in enumerate(drawn.waveforms):
        first = round(float(drawn.starts[number, 0]) * SAMPLE_RATE)
        last = round(float(drawn.ends[number, 0]) * SAMPLE_RATE)
        outside += [wave[:first], wave[last + 1 :]]
        inside.append(wave[first:last])
    return outside, inside


def test_noise_has_variance_one(around_sounds: tuple[list[Tensor], list[Tensor]]) -> None:
    outside, _ = around_sounds
    assert float(torch.cat(outside).square().mean()) == pytest.approx(1, abs=0.01)


def test_a_sound_has_its_level_above_the_noise(
    around_sounds: tuple[list[Tensor], list[Tensor]],
) -> None:
    _, inside = around_sounds
    powers = torch.stack([wave.square().mean() for wave in inside])
    # The noise has the power 1.
    power_of_sounds = float(powers.mean()) - 1
    assert 10 * math.log10(power_of_sounds) == pytest.approx(SNR, abs=0.1)


def sounds(name: str, count: int = 50) -> tuple[Tensor, Tensor]:
    """Return sounds of a class from the shortest to the longest, and their lengths in seconds."""
    lengths = torch.linspace(SHORTEST, LONGEST, count)
    return make_sounds(CLASSES.index(name), lengths, generator(name)), lengths


@pytest.mark.parametrize("name", CLASSES)
def test_a_sound_has_mean_power_one_over_its_length(name: str) -> None:
    waves, lengths = sounds(name)
    powers = waves.square().sum(dim=1) / (lengths * SAMPLE_RATE)
    torch.testing.assert_close(powers, torch.ones(len(waves)))


@pytest.mark.parametrize("name", CLASSES)
def test_a_sound_is_silent_after_its_end(name: str) -> None:
    for wave, length in zip(*sounds(name), strict=True):
        assert not wave[round(float(length) * SAMPLE_RATE) + 1 :].any()


def pitch(wave: Tensor) -> float:
    """Return the mean frequency in hertz: the sign changes twice in each period."""
    changes = int((wave[1:].sign() != wave[:-1].sign()).sum())
    return changes / 2 / len(wave) * SAMPLE_RATE


@pytest.mark.parametrize(
    ("name", "low", "high"), [("tone", 0.97, 1.03), ("rise", 1.15, 3), ("fall", 1 / 3, 0.87)]
)
def test_pitches_stay_rise_and_fall(name: str, low: float, high: float) -> None:
    for wave, length in zip(*sounds(name), strict=True):
        quarter = int(length * SAMPLE_RATE / 4)
        # At both ends the sound fades in or out: 20 samples are left out.
        at_first = pitch(wave[20:quarter])
        at_last = pitch(wave[3 * quarter : 4 * quarter - 20])
        assert low <= at_last / at_first <= high
