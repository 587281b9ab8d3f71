"""Small tables of sequences, whose classes are tones of one pitch each."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.io import wavfile
from torch import Tensor

from milbench import generator

RATE = 4000
PITCHES = {"high": 1500.0, "low": 300.0}
SETS: tuple[tuple[str, ...], ...] = ((), ("high",), ("low",), ("high", "low"))


def small_table(folder: Path, count: int = 40, suffix: str = ".npy", events: bool = True) -> Path:
    """Write `count` recordings of a second and a little more, a tone of 0.25 s for each class; return their table."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, rows = np.random.default_rng(0), []
    for number in range(count):
        times = np.arange(round((1.0 + 0.1 * (number % 3)) * RATE)) / RATE
        wave, found = 0.05 * rng.normal(size=len(times)), []
        for place, name in enumerate(SETS[number % len(SETS)]):
            start = 0.5 * place + float(rng.uniform(0, 0.2))
            wave += (
                0.5
                * np.sin(2 * np.pi * PITCHES[name] * times)
                * ((start <= times) & (times < start + 0.25))
            )
            found.append([name, start, start + 0.25])
        path = folder / f"{number:03d}{suffix}"
        if suffix == ".npy":
            np.save(path, wave.astype(np.float32))
        else:
            wavfile.write(path, RATE, wave.astype(np.float32))
        row = {"file": path.name, "labels": ";".join(SETS[number % len(SETS)])}
        rows.append(row | ({"events": json.dumps(found)} if events else {}))
    return write_table(folder / "table.csv", rows)


def write_table(path: Path, rows: list[dict[str, str]]) -> Path:
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def all_bags(problem: Any) -> Iterator[Any]:
    """Yield the batches of a task of sequences: to train on, to evaluate on, and of one event each."""
    yield from problem.train_batches(0, generator("all"))
    for split in problem.splits.values():
        yield from (*split.bags, *split.single_instance)


def assert_tones_are_heard(
    problem: Any, pitches: Tensor, sample_rate: int, seconds: tuple[float, float]
) -> None:
    """Assert that the mel band of each class's tone is loud inside its boxes, and all bands faint outside of them."""
    mel, top = (
        2595 * torch.log10(1 + hertz / 700) for hertz in (pitches, torch.tensor(sample_rate / 2))
    )
    bands = (mel * (problem.format.inputs + 1) / top - 1).round().int().tolist()
    mean, divisor = problem.batches.mean, problem.batches.divisor
    for bags in all_bags(problem):
        spectra, all_classes, all_boxes = (
            bags.instances * divisor + mean,
            bags.truth.classes,
            bags.truth.boxes,
        )
        for frames, classes, boxes in zip(
            spectra, all_classes.tolist(), all_boxes.tolist(), strict=True
        ):
            events = [(cls, box) for cls, box in zip(classes, boxes, strict=True) if cls >= 0]
            quiet = ~frames[0].isnan()
            for _, (start, _, end, _) in events:
                quiet[max(0, int(start) - 1) : int(end) + 2] = False
            assert (frames[:, quiet] < -8).all(), "white noise of a power of 1e-6 has about -13"
            for cls, (start, low, end, high) in events:
                assert (low, high) == (0, problem.format.inputs)
                assert 0 <= start < end <= len(frames[0])
                assert seconds[0] <= (end - start) / problem.format.frames_per_second <= seconds[1]
                near = frames[
                    max(0, bands[cls] - 1) : bands[cls] + 2, int(start) + 2 : int(end) - 1
                ]
                assert (near.amax(dim=0) > -13 + 5).all()
