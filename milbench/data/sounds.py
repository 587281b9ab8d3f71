"""Draws short recordings in which sounds of eight classes occur, overlap, and lie in noise."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SAMPLE_RATE = 8000
SECONDS = 2.0
SAMPLES = int(SAMPLE_RATE * SECONDS)
SHORTEST, LONGEST = 0.2, 0.5  # seconds that a sound lasts; lengths are uniform between these
FADE = 0.01  # seconds in which a sound begins and ends, so that its edges are no clicks
CLASSES = ("tone", "rise", "fall", "warble", "beeps", "buzz", "clicks", "hiss")


@dataclass(frozen=True, slots=True)
class DrawnRecordings:
    """N recordings of one length in noise of mean 0 and variance 1, with what is in them, M sounds at most."""

    waveforms: Tensor  # (N, S)
    classes: Tensor  # (N, M), in the order in which sounds begin, -1 where there are fewer
    starts: Tensor  # (N, M), in seconds
    ends: Tensor


def draw_recordings(
    count: int, least: int, most: int, snr_db: float, rng: torch.Generator
) -> DrawnRecordings:
    """Return random recordings of two seconds with `least` to `most` sounds, `snr_db` decibels above white noise.

    Their number, classes, lengths and beginnings are uniform and independent, so sounds may overlap.
    """
    numbers = torch.randint(least, most + 1, (count, 1), generator=rng)
    there = torch.arange(most) < numbers
    lengths = SHORTEST + (LONGEST - SHORTEST) * torch.rand(count, most, generator=rng)
    starts = ((SECONDS - lengths) * torch.rand(count, most, generator=rng)).masked_fill(
        ~there, math.inf
    )
    classes = torch.randint(len(CLASSES), (count, most), generator=rng).masked_fill(~there, -1)
    order = starts.argsort(dim=1)
    starts, lengths, classes = (values.gather(1, order) for values in (starts, lengths, classes))
    starts = (
        starts.masked_fill(classes < 0, 0) * SAMPLE_RATE
    ).round() / SAMPLE_RATE  # sounds begin with a sample
    return DrawnRecordings(
        _noisy(classes, starts, lengths, snr_db, rng), classes, starts, starts + lengths
    )


def _noisy(
    classes: Tensor, starts: Tensor, lengths: Tensor, snr_db: float, rng: torch.Generator
) -> Tensor:
    longest = round(LONGEST * SAMPLE_RATE)
    total = torch.zeros(len(classes), SAMPLES + longest)
    total[:, :SAMPLES] = torch.randn(len(classes), SAMPLES, generator=rng)
    for cls in range(len(CLASSES)):
        bag, slot = (classes == cls).nonzero(as_tuple=True)
        sounds = 10 ** (snr_db / 20) * make_sounds(cls, lengths[bag, slot], rng)
        first = (starts[bag, slot] * SAMPLE_RATE).round().long()
        for row, begin, sound in zip(bag.tolist(), first.tolist(), sounds, strict=True):
            total[row, begin : begin + longest] += sound
    return total[:, :SAMPLES]


def make_sounds(cls: int, lengths: Tensor, rng: torch.Generator) -> Tensor:
    """Return (n, L) sounds of a class, each of mean power 1 over its length (n,) in seconds, and 0 after it."""
    times = torch.arange(round(LONGEST * SAMPLE_RATE)).unsqueeze(0) / SAMPLE_RATE
    lengths = lengths.unsqueeze(1)
    drawn = torch.rand(len(lengths), 3, generator=rng)
    if CLASSES[cls] == "hiss":  # the one sound that is made of noise
        sounds = torch.randn(len(lengths), times.shape[1] + 1, generator=rng).diff(dim=1)
    else:
        sounds = _pitched(CLASSES[cls], times, lengths, drawn)
    sounds = sounds * (torch.minimum(times, lengths - times) / FADE).clamp(0, 1)
    energy = sounds.square().sum(dim=1, keepdim=True)
    return sounds * (lengths * SAMPLE_RATE / energy).sqrt()


def _pitched(name: str, times: Tensor, lengths: Tensor, drawn: Tensor) -> Tensor:
    """Return waveforms (n, L), given times (1, L) in seconds, lengths (n, 1), and numbers (n, 3) uniform in [0, 1]."""

    def between(low: float, high: float, number: int) -> Tensor:
        return (low * (high / low) ** drawn[:, number]).unsqueeze(1)

    def wave(cycles: Tensor) -> Tensor:
        return torch.sin(2 * math.pi * cycles)

    if name == "tone":
        return wave(between(400, 2500, 0) * times)
    if name == "rise":  # evenly, to the two- to threefold
        low = between(400, 1200, 0)
        return wave(low * times + low * between(1, 2, 1) * times**2 / (2 * lengths))
    if name == "fall":  # a rise backwards
        return _pitched("rise", lengths - times, lengths, drawn)
    if name == "warble":  # up and down by a fifth
        pitch, rate = between(500, 2500, 0), between(5, 10, 1)
        return wave(
            pitch * times + 0.2 * pitch / (2 * math.pi * rate) * wave(rate * times + drawn[:, 2:])
        )
    if name == "beeps":  # a tone that is on for half of the time
        return _pitched("tone", times, lengths, drawn) * ((between(8, 14, 1) * times) % 1 < 0.5)
    if name == "buzz":  # a saw-tooth: a low pitch with all of its overtones
        return 2 * ((between(120, 240, 0) * times) % 1) - 1
    rate = between(15, 25, 0)  # clicks: knocks of a few milliseconds
    since = ((rate * times) % 1) / rate
    return torch.exp(-since / 0.004) * wave(between(800, 2500, 1) * since)
