"""Draws short recordings in which sounds of eight classes occur, overlap, and lie in noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

SAMPLE_RATE = 8000
SECONDS = 2.0
SAMPLES = int(SAMPLE_RATE * SECONDS)
SHORTEST, LONGEST = 0.2, 0.5
"""How long a sound lasts, in seconds; lengths are uniform between these."""
FADE = 0.01
"""Seconds in which a sound begins and ends, so that its edges are no clicks."""

Sound = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From times (1, L) in seconds, lengths (n, 1) in seconds and numbers (n, 3) uniform in [0, 1] to waveforms (n, L)."""


@dataclass(frozen=True, slots=True)
class Recordings:
    """N recordings (N, S) of one length in noise of mean 0 and variance 1, with what is in them, M sounds at most.

    `classes` (N, M) are in the order in which sounds begin, -1 where there are fewer; `starts` and `ends` are in
    seconds.
    """

    waveforms: Tensor
    classes: Tensor
    starts: Tensor
    ends: Tensor


def draw_recordings(count: int, least: int, most: int, snr_db: float, rng: torch.Generator) -> Recordings:
    """Return random recordings of two seconds in white noise.

    A recording has `least` to `most` sounds. The number, their classes, lengths and beginnings are uniform and
    independent, so sounds may overlap, also with those of their own class. The mean power of a sound is `snr_db`
    decibels above the noise.
    """
    numbers = torch.randint(least, most + 1, (count, 1), generator=rng)
    there = torch.arange(most) < numbers
    lengths = SHORTEST + (LONGEST - SHORTEST) * torch.rand(count, most, generator=rng)
    starts = ((SECONDS - lengths) * torch.rand(count, most, generator=rng)).masked_fill(~there, math.inf)
    classes = torch.randint(len(CLASSES), (count, most), generator=rng).masked_fill(~there, -1)
    order = starts.argsort(dim=1)
    starts, lengths, classes = (values.gather(1, order) for values in (starts, lengths, classes))
    starts = (starts.masked_fill(classes < 0, 0) * SAMPLE_RATE).round() / SAMPLE_RATE  # sounds begin with a sample
    return Recordings(_noisy(classes, starts, lengths, snr_db, rng), classes, starts, starts + lengths)


def _noisy(classes: Tensor, starts: Tensor, lengths: Tensor, snr_db: float, rng: torch.Generator) -> Tensor:
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
        noise = torch.randn(len(lengths), times.shape[1] + 1, generator=rng)
        sounds = noise.diff(dim=1)
    else:
        sounds = _SOUNDS[CLASSES[cls]](times, lengths, drawn)
    sounds = sounds * (torch.minimum(times, lengths - times) / FADE).clamp(0, 1)
    energy = sounds.square().sum(dim=1, keepdim=True)
    return sounds * (lengths * SAMPLE_RATE / energy).sqrt()


def _between(low: float, high: float, drawn: Tensor) -> Tensor:
    return (low * (high / low) ** drawn).unsqueeze(1)


def _wave(cycles: Tensor) -> Tensor:
    return torch.sin(2 * math.pi * cycles)


def _tone(times: Tensor, lengths: Tensor, drawn: Tensor) -> Tensor:  # noqa: ARG001
    return _wave(_between(400, 2500, drawn[:, 0]) * times)


def _rise(times: Tensor, lengths: Tensor, drawn: Tensor) -> Tensor:
    """Return a pitch that rises evenly to its two- to threefold."""
    low = _between(400, 1200, drawn[:, 0])
    return _wave(low * times + low * _between(1, 2, drawn[:, 1]) * times**2 / (2 * lengths))


def _fall(times: Tensor, lengths: Tensor, drawn: Tensor) -> Tensor:
    return _rise(lengths - times, lengths, drawn)  # a rise backwards


def _warble(times: Tensor, lengths: Tensor, drawn: Tensor) -> Tensor:  # noqa: ARG001
    """Return a pitch that goes up and down by a fifth of itself."""
    pitch, rate = _between(500, 2500, drawn[:, 0]), _between(5, 10, drawn[:, 1])
    return _wave(pitch * times + 0.2 * pitch / (2 * math.pi * rate) * _wave(rate * times + drawn[:, 2:]))


def _beeps(times: Tensor, lengths: Tensor, drawn: Tensor) -> Tensor:
    """Return a tone that is on for half of the time."""
    rate = _between(8, 14, drawn[:, 1])
    return _tone(times, lengths, drawn) * ((rate * times) % 1 < 0.5)


def _buzz(times: Tensor, lengths: Tensor, drawn: Tensor) -> Tensor:  # noqa: ARG001
    """Return a saw-tooth: a low pitch with all of its overtones."""
    return 2 * ((_between(120, 240, drawn[:, 0]) * times) % 1) - 1


def _clicks(times: Tensor, lengths: Tensor, drawn: Tensor) -> Tensor:  # noqa: ARG001
    """Return a train of knocks of a few milliseconds."""
    rate = _between(15, 25, drawn[:, 0])
    since = ((rate * times) % 1) / rate
    return torch.exp(-since / 0.004) * _wave(_between(800, 2500, drawn[:, 1]) * since)


_SOUNDS: dict[str, Sound] = {
    "tone": _tone, "rise": _rise, "fall": _fall, "warble": _warble, "beeps": _beeps, "buzz": _buzz, "clicks": _clicks,
}  # fmt: skip
CLASSES = (*_SOUNDS, "hiss")
"""The names of the classes, in their order."""
