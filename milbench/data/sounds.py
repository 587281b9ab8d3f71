"""Make short random recordings, in which sounds of eight classes occur and overlap in noise."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SAMPLE_RATE = 8000
"""Samples a second."""
SECONDS = 2.0
"""The length of a recording."""
SAMPLES = int(SAMPLE_RATE * SECONDS)
"""The length of a recording, in samples."""
SHORTEST = 0.2
LONGEST = 0.5
"""Sounds last from `SHORTEST` to `LONGEST` seconds. Lengths are uniform between these."""
FADE = 0.01
"""How many seconds a sound takes to fade in, and to fade out. Sharp ends would sound as clicks."""
CLASSES = ("tone", "rise", "fall", "warble", "beeps", "buzz", "clicks", "hiss")


@dataclass(frozen=True, slots=True)
class DrawnRecordings:
    """N recordings in noise of mean 0 and variance 1, each with up to M sounds."""

    waveforms: Tensor
    """(N, S), S samples of each recording."""
    classes: Tensor
    """(N, M), the classes of the sounds, in the order in which sounds begin.

    After the sounds of a recording with fewer than M the class is -1.
    """
    starts: Tensor
    """(N, M), when each sound begins, in seconds."""
    ends: Tensor
    """(N, M), when each sound ends, in seconds."""


def draw_recordings(
    count: int, least: int, most: int, snr_db: float, rng: torch.Generator
) -> DrawnRecordings:
    """Return random recordings of two seconds.

    The number of sounds, their classes, lengths and starts are uniform and independent, so
    sounds may overlap.

    Args:
        count: the number of recordings.
        least: the fewest sounds in a recording.
        most: the most sounds in a recording.
        snr_db: the mean power of a sound, in decibels above that of the noise, which is white.
        rng: the random generator.
    """
    # The order of these calls must stay: it decides which recordings a seed makes.
    numbers = torch.randint(least, most + 1, (count, 1), generator=rng)
    is_absent = torch.arange(most) >= numbers
    lengths = SHORTEST + (LONGEST - SHORTEST) * torch.rand(count, most, generator=rng)
    starts = (SECONDS - lengths) * torch.rand(count, most, generator=rng)
    classes = torch.randint(len(CLASSES), (count, most), generator=rng)
    classes = classes.masked_fill(is_absent, -1)
    # Sort by start. Absent sounds start at infinity, and so come last.
    order = starts.masked_fill(is_absent, math.inf).argsort(dim=1)
    classes = classes.gather(1, order)
    lengths = lengths.gather(1, order)
    starts = starts.gather(1, order).masked_fill(classes < 0, 0)
    # Round the start to a whole number of samples.
    starts = (starts * SAMPLE_RATE).round() / SAMPLE_RATE
    waveforms = _noisy(classes, starts, lengths, snr_db, rng)
    return DrawnRecordings(waveforms, classes, starts, starts + lengths)


def _noisy(
    classes: Tensor, starts: Tensor, lengths: Tensor, snr_db: float, rng: torch.Generator
) -> Tensor:
    """Return recordings (N, S): white noise of variance 1, with these sounds (N, M) in it."""
    amplitude = 10 ** (snr_db / 20)
    longest = round(LONGEST * SAMPLE_RATE)
    # All sounds of a class are made with the same number of samples: shorter sounds end in silence.
    # This silence may reach beyond the end of the recording, so `total` is longer.
    total = torch.zeros(len(classes), SAMPLES + longest)
    total[:, :SAMPLES] = torch.randn(len(classes), SAMPLES, generator=rng)
    for cls in range(len(CLASSES)):
        recordings, slots = (classes == cls).nonzero(as_tuple=True)
        sounds = amplitude * make_sounds(cls, lengths[recordings, slots], rng)
        first_samples = (starts[recordings, slots] * SAMPLE_RATE).round().long()
        # Sounds are added one by one. With a single index, only one of two sounds of this class
        # that overlap in a recording would be added.
        placed = zip(recordings.tolist(), first_samples.tolist(), sounds, strict=True)
        for recording, first, sound in placed:
            total[recording, first : first + longest] += sound
    return total[:, :SAMPLES]


def make_sounds(cls: int, lengths: Tensor, rng: torch.Generator) -> Tensor:
    """Return n sounds (n, L) of a class, where L is the number of samples in `LONGEST` seconds.

    Each sound has the mean power 1 over its length, and 0 after it.

    Args:
        cls: the number of the class in `CLASSES`.
        lengths: (n,), the length of each sound in seconds.
        rng: the random generator.
    """
    times = torch.arange(round(LONGEST * SAMPLE_RATE)).unsqueeze(0) / SAMPLE_RATE
    lengths = lengths.unsqueeze(1)
    # These numbers are sampled for every class, even for "hiss", which does not use them. A seed
    # would make other sounds otherwise.
    uniform = torch.rand(len(lengths), 3, generator=rng)
    if CLASSES[cls] == "hiss":
        # Differences of white noise: noise in which high frequencies are stronger.
        sounds = torch.randn(len(lengths), times.shape[1] + 1, generator=rng).diff(dim=1)
    else:
        sounds = _pitched(CLASSES[cls], times, lengths, uniform)
    # After the end of a sound this is negative. `clamp` then makes silence of it.
    seconds_to_an_end = torch.minimum(times, lengths - times)
    sounds = sounds * (seconds_to_an_end / FADE).clamp(0, 1)
    energy = sounds.square().sum(dim=1, keepdim=True)
    return sounds * (lengths * SAMPLE_RATE / energy).sqrt()


def _pitched(name: str, times: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    """Return the waveforms (n, L) of sounds of a class, before they are faded in and out.

    Args:
        name: the name of the class.
        times: (1, L), the times of the samples in seconds.
        lengths: (n, 1), the lengths of the sounds in seconds.
        uniform: (n, 3), random numbers from 0 to 1, which decide on the pitch and rate of a sound.
    """
    first, second, third = uniform.split(1, dim=1)
    if name == "tone":
        return _sine(_between(400, 2500, first) * times)
    if name == "rise":
        # The pitch rises evenly, to two to three times its beginning.
        low = _between(400, 1200, first)
        growth = _between(1, 2, second)
        return _sine(low * times + low * growth * times**2 / (2 * lengths))
    if name == "fall":
        # A rise backwards.
        return _pitched("rise", lengths - times, lengths, uniform)
    if name == "warble":
        # The pitch goes up and down by a fifth of itself.
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
    """Return `low` for 0, `high` for 1, and for numbers between them values even in the logarithm.

    The ear hears pitches in this way: equal ratios as equal steps.
    """
    return low * (high / low) ** uniform


def _sine(cycles: Tensor) -> Tensor:
    """Return a sine wave, given at each sample how many cycles have passed."""
    return torch.sin(2 * math.pi * cycles)
