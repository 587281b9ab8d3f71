"""Draws short recordings in which sounds of eight classes occur, overlap, and lie in noise."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SAMPLE_RATE = 8000
SECONDS = 2.0
SAMPLES = int(SAMPLE_RATE * SECONDS)
SHORTEST = 0.2
LONGEST = 0.5
"""Seconds that a sound lasts; lengths are uniform between these."""
FADE = 0.01
"""Seconds in which a sound begins and ends, so that its edges are no clicks."""
CLASSES = ("tone", "rise", "fall", "warble", "beeps", "buzz", "clicks", "hiss")


@dataclass(frozen=True, slots=True)
class DrawnRecordings:
    """N recordings of one length in noise of mean 0 and variance 1, with what is in them, M sounds at most."""

    waveforms: Tensor
    """(N, S)"""
    classes: Tensor
    """(N, M), in the order in which sounds begin, -1 where there are fewer."""
    starts: Tensor
    """(N, M), in seconds."""
    ends: Tensor
    """(N, M), in seconds."""


def draw_recordings(
    count: int, least: int, most: int, snr_db: float, rng: torch.Generator
) -> DrawnRecordings:
    """Return random recordings of two seconds with `least` to `most` sounds, `snr_db` decibels above white noise.

    Their number, classes, lengths and beginnings are uniform and independent, so sounds may
    overlap.
    """
    # The order of these draws decides what a seed gives.
    numbers = torch.randint(least, most + 1, (count, 1), generator=rng)
    is_absent = torch.arange(most) >= numbers
    lengths = SHORTEST + (LONGEST - SHORTEST) * torch.rand(count, most, generator=rng)
    starts = (SECONDS - lengths) * torch.rand(count, most, generator=rng)
    classes = torch.randint(len(CLASSES), (count, most), generator=rng)
    classes = classes.masked_fill(is_absent, -1)
    # What is no sound is sorted behind all sounds.
    order = starts.masked_fill(is_absent, math.inf).argsort(dim=1)
    classes = classes.gather(1, order)
    lengths = lengths.gather(1, order)
    starts = starts.gather(1, order).masked_fill(classes < 0, 0)
    # Sounds begin with a sample.
    starts = (starts * SAMPLE_RATE).round() / SAMPLE_RATE
    waveforms = _noisy(classes, starts, lengths, snr_db, rng)
    return DrawnRecordings(waveforms, classes, starts, starts + lengths)


def _noisy(
    classes: Tensor, starts: Tensor, lengths: Tensor, snr_db: float, rng: torch.Generator
) -> Tensor:
    """Return noise (N, S) of variance 1 with these sounds in it."""
    amplitude = 10 ** (snr_db / 20)
    longest = round(LONGEST * SAMPLE_RATE)
    # All sounds of a class are made with the same number of samples, silence behind the end of
    # shorter ones. The silence of the last sound of a recording may reach beyond it.
    total = torch.zeros(len(classes), SAMPLES + longest)
    total[:, :SAMPLES] = torch.randn(len(classes), SAMPLES, generator=rng)
    for cls in range(len(CLASSES)):
        recordings, slots = (classes == cls).nonzero(as_tuple=True)
        sounds = amplitude * make_sounds(cls, lengths[recordings, slots], rng)
        first_samples = (starts[recordings, slots] * SAMPLE_RATE).round().long()
        # One by one: two sounds of a class may be in one recording, and overlap.
        placed = zip(recordings.tolist(), first_samples.tolist(), sounds, strict=True)
        for recording, first, sound in placed:
            total[recording, first : first + longest] += sound
    return total[:, :SAMPLES]


def make_sounds(cls: int, lengths: Tensor, rng: torch.Generator) -> Tensor:
    """Return (n, L) sounds of a class, each of mean power 1 over its length (n,) in seconds, and 0 after it."""
    times = torch.arange(round(LONGEST * SAMPLE_RATE)).unsqueeze(0) / SAMPLE_RATE
    lengths = lengths.unsqueeze(1)
    # Drawn for every class, also where they are not used: what a seed gives stays as it is.
    uniform = torch.rand(len(lengths), 3, generator=rng)
    if CLASSES[cls] == "hiss":
        # The one sound that is made of noise.
        sounds = torch.randn(len(lengths), times.shape[1] + 1, generator=rng).diff(dim=1)
    else:
        sounds = _pitched(CLASSES[cls], times, lengths, uniform)
    # Behind the end of a sound this is negative, and so silence.
    seconds_to_an_end = torch.minimum(times, lengths - times)
    sounds = sounds * (seconds_to_an_end / FADE).clamp(0, 1)
    energy = sounds.square().sum(dim=1, keepdim=True)
    return sounds * (lengths * SAMPLE_RATE / energy).sqrt()


def _pitched(name: str, times: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    """Return waveforms (n, L), given times (1, L) in seconds, lengths (n, 1), and numbers (n, 3) uniform in [0, 1]."""
    # Each sound has its own pitch and rate: columns (n, 1) of these numbers make them.
    first, second, third = uniform.split(1, dim=1)
    if name == "tone":
        return _sine(_between(400, 2500, first) * times)
    if name == "rise":
        # The pitch rises evenly, to the two- to threefold.
        low = _between(400, 1200, first)
        growth = _between(1, 2, second)
        return _sine(low * times + low * growth * times**2 / (2 * lengths))
    if name == "fall":
        # A rise backwards.
        return _pitched("rise", lengths - times, lengths, uniform)
    if name == "warble":
        # The pitch goes up and down by a fifth.
        pitch = _between(500, 2500, first)
        rate = _between(5, 10, second)
        swing = 0.2 * pitch / (2 * math.pi * rate)
        return _sine(pitch * times + swing * _sine(rate * times + third))
    if name == "beeps":
        # A tone that is on for half of the time.
        is_on = (_between(8, 14, second) * times) % 1 < 0.5
        return _pitched("tone", times, lengths, uniform) * is_on
    if name == "buzz":
        # A saw-tooth: a low pitch with all of its overtones.
        return 2 * ((_between(120, 240, first) * times) % 1) - 1
    # Clicks: knocks of a few milliseconds, which ring at a pitch.
    rate = _between(15, 25, first)
    since_knock = ((rate * times) % 1) / rate
    return torch.exp(-since_knock / 0.004) * _sine(_between(800, 2500, second) * since_knock)


def _between(low: float, high: float, uniform: Tensor) -> Tensor:
    """Return numbers from `low` to `high` for numbers from 0 to 1, evenly in the logarithm, as pitches are heard."""
    return low * (high / low) ** uniform


def _sine(cycles: Tensor) -> Tensor:
    """Return the sine wave after so many cycles."""
    return torch.sin(2 * math.pi * cycles)
