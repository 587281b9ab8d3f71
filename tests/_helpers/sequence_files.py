"""Small tables of sequences, whose classes are tones of one pitch each."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench import generator

RATE = 4000
PITCHES = {"high": 1500.0, "low": 300.0}
SETS: tuple[tuple[str, ...], ...] = ((), ("high",), ("low",), ("high", "low"))


def tones(names: tuple[str, ...], seconds: float, rng: Any) -> tuple[NDArray[np.float32], list[list[Any]]]:
    """Return a waveform with a tone of 0.25 s for each name, one after the other, and their events."""
    times = np.arange(round(seconds * RATE)) / RATE
    wave = 0.05 * rng.normal(size=len(times))
    events: list[list[Any]] = []
    for place, name in enumerate(names):
        start = 0.5 * place + float(rng.uniform(0, 0.2))
        inside = (start <= times) & (times < start + 0.25)
        wave += 0.5 * np.sin(2 * math.pi * PITCHES[name] * times) * inside
        events.append([name, start, start + 0.25])
    return wave.astype(np.float32), events


def small_table(folder: Path, count: int = 40, suffix: str = ".npy", events: bool = True) -> Path:
    """Write `count` recordings, of a second and a little more each, and their table, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rows = []
    for number in range(count):
        names = SETS[number % len(SETS)]
        wave, found = tones(names, 1.0 + 0.1 * (number % 3), rng)
        path = folder / f"{number:03d}{suffix}"
        if suffix == ".npy":
            np.save(path, wave)
        else:
            import soundfile

            soundfile.write(path, wave, RATE, subtype="FLOAT")
        row = {"file": path.name, "labels": ";".join(names)}
        row |= {"events": json.dumps(found)} if events else {}
        rows.append(row)
    return write_table(folder / "table.csv", rows)


def write_table(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def all_bags(task: Any) -> Iterator[Any]:
    """Yield the batches of a task of sequences: to train on, to evaluate on, and of one event each."""
    yield from task.train_batches(0, generator("all"))
    for split in task.eval_splits.values():
        yield from (*split.bags, *split.single_instance)
