"""Spoken digits in the data set's file format, written without the code that reads them."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

RATE = 8000


def small_spoken_digits(root: Path, takes: int = 12) -> Path:
    """Make a data directory where digit d is a loud tone of 300 + 300 d Hz, 0.2 to 0.4 seconds long, by one speaker."""
    folder = root / "spoken-digits" / "recordings"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for digit in range(10):
        for take in range(takes):
            times = np.arange(rng.integers(RATE // 5, 2 * RATE // 5)) / RATE
            sound = np.sin(2 * np.pi * (300 + 300 * digit) * times)
            with wave.open(str(folder / f"{digit}_ann_{take}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(RATE)
                file.writeframes((20_000 * sound).astype("<i2").tobytes())
    return root
