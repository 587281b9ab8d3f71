"""Small tables of sequences, whose classes are tones of one pitch each."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.io import wavfile
from torch import Tensor

from milbench import generator

RATE = 4000
"""Samples in a second."""
PITCHES = {"high": 1500.0, "low": 300.0}
"""Class -> the frequency of its tone in hertz."""
SETS: tuple[tuple[str, ...], ...] = ((), ("high",), ("low",), ("high", "low"))
"""The label sets of recordings, in turn."""
SECONDS = 0.25
"""The length of a tone."""


def small_table(folder: Path, count: int = 40, suffix: str = ".npy", events: bool = True) -> Path:
    """Write `count` recordings of 1.0 to 1.2 seconds; return the path of their table.

    A recording has a tone for each class of its label set. With `events`, the table says when each
    tone begins and ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rows = []
    for number in range(count):
        label_set = SETS[number % len(SETS)]
        seconds = 1.0 + 0.1 * (number % 3)
        wave, tones = _recording(rng, label_set, seconds)
        path = folder / f"{number:03d}{suffix}"
        if suffix == ".npy":
            np.save(path, wave.astype(np.float32))
        else:
            wavfile.write(path, RATE, wave.astype(np.float32))
        row = {"file": path.name, "labels": ";".join(label_set)}
        if events:
            row["events"] = json.dumps(tones)
        rows.append(row)
    return write_table(folder / "table.csv", rows)


def _recording(
    rng: np.random.Generator, label_set: tuple[str, ...], seconds: float
) -> tuple[NDArray[np.float64], list[list[str | float]]]:
    """Return a wave with a tone for each class, in faint noise; and the tones.

    A tone is the name of its class, its start and its end in seconds.
    """
    times = np.arange(round(seconds * RATE)) / RATE
    wave = 0.05 * rng.normal(size=len(times))
    tones: list[list[str | float]] = []
    for number, name in enumerate(label_set):
        # The second tone begins after the first one has ended.
        start = 0.5 * number + float(rng.uniform(0, 0.2))
        end = start + SECONDS
        sounds = (start <= times) & (times < end)
        wave += 0.5 * np.sin(2 * np.pi * PITCHES[name] * times) * sounds
        tones.append([name, start, end])
    return wave, tones


def write_table(path: Path, rows: list[dict[str, str]]) -> Path:
    """Write rows as a CSV file; return its path."""
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def all_bags(problem: Any) -> Iterator[Any]:
    """Yield all batches of a task of sequences: for training, evaluation, and of single events."""
    yield from problem.train_batches(0, generator("all"))
    for split in problem.splits.values():
        yield from split.bags
        yield from split.single_instance


def assert_tones_are_heard(
    problem: Any, pitches: Tensor, sample_rate: int, seconds: tuple[float, float]
) -> None:
    """Assert that each class's tone is loud in its mel band inside its events, and not outside.

    Outside all events, all bands are faint.

    Args:
        problem: a loaded task of sequences.
        pitches: the hertz of the tone of each class.
        sample_rate: samples of a recording in a second.
        seconds: how long an event lasts, at least and at most.
    """
    bands = _bands(pitches, sample_rate, problem.format.inputs)
    mean = problem.batches.mean
    divisor = problem.batches.divisor
    for bags in all_bags(problem):
        spectra = bags.instances * divisor + mean
        all_classes = bags.truth.classes.tolist()
        all_boxes = bags.truth.boxes.tolist()
        for frames, classes, boxes in zip(spectra, all_classes, all_boxes, strict=True):
            # -1 stands where a bag has fewer events.
            events = [(cls, box) for cls, box in zip(classes, boxes, strict=True) if cls >= 0]
            _assert_silence(frames, [box for _, box in events])
            for cls, box in events:
                _assert_event(frames, bands[cls], box)
                start, _, end, _ = box
                length = (end - start) / problem.format.frames_per_second
                assert seconds[0] <= length <= seconds[1]


def _bands(pitches: Tensor, sample_rate: int, count: int) -> list[int]:
    """Return which of `count` mel bands each pitch is in."""
    top = _mel(torch.tensor(sample_rate / 2))
    return (_mel(pitches) * (count + 1) / top - 1).round().int().tolist()


def _mel(hertz: Tensor) -> Tensor:
    return 2595 * torch.log10(1 + hertz / 700)


def _assert_silence(frames: Tensor, boxes: list[list[float]]) -> None:
    """Assert that all bands are faint outside the boxes of events; `frames` are (bands, frames)."""
    # Frames beyond the end of a shorter sequence are NaN.
    is_quiet = ~frames[0].isnan()
    for start, _, end, _ in boxes:
        # The window of a frame is a little longer than the frame.
        is_quiet[max(0, int(start) - 1) : int(end) + 2] = False
    assert (frames[:, is_quiet] < -8).all(), "white noise of a power of 1e-6 has about -13"


def _assert_event(frames: Tensor, band: int, box: list[float]) -> None:
    """Assert that a box lies within the frames (bands, frames), and that its tone is loud.

    A box of an event reaches over all bands.
    """
    start, low, end, high = box
    assert low == 0
    assert high == len(frames)
    assert 0 <= start < end <= len(frames[0])
    inner = frames[:, int(start) + 2 : int(end) - 1]
    near = inner[max(0, band - 1) : band + 2]
    # White noise with a power of 1e-6 has about -13 in every band.
    noise = -13
    assert (near.amax(dim=0) > noise + 5).all()
