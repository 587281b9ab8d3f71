"""Bags at real sizes, from the command to the first epoch, beside torchmil and pandas.

Slides are written first, so that all files are in the page cache. Every command is a process of its own, which is
watched while it runs: its time, and the most memory that it shares with no file.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from _measuring import QuickOption, show, start

from milbench.errors import UsageError

SLIDES, PATCHES, WIDTH = 100, (6_000, 14_000), 1024
QUICK_SLIDES, QUICK_PATCHES = 12, (600, 1_400)
TRAINED = 0.7
"""The share of slides that is trained on, here and by the default of feature-bags."""
LONG, WIDE = (500_000, 64), (30, 50_000)
"""Rows and features of two tables."""
EPOCHS = 3
SETTLED = 3.0
"""Seconds after which the digests of new files are remembered: those that have just changed are read again."""

MILBENCH = """
import json, os, sys, time
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as milbench.running.launch does
import torch
from milbench import generator, load_loss, load_task
from milbench.networks.known_networks import make_network
begun = float(sys.argv[2])
table = {"table": sys.argv[1], "bag": "slide_id", "labels": "label", "features": "features/*.npy"}
task = load_task("feature-bags", **table, batch_bags=1)
task.check_data(None)
problem = task.load()
network, loss = make_network(task, problem.format, "mlp", {}, 0), load_loss("exact")
optimizer, ends = torch.optim.AdamW(network.parameters(), 1e-3), []
for epoch in range(int(sys.argv[3])):
    for bags in problem.train_batches(epoch, generator("bench", epoch)):
        if not ends:
            ends.append(time.time() - begun)
        value = loss(network(bags.instances), bags.labels, bags.mask).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    ends.append(time.time() - begun)
print(json.dumps(ends))
"""
"""Prints the seconds from the command to the first step and to the end of every epoch, in memory as a launch has it."""
TORCHMIL = """
import json, sys, time
from pathlib import Path
import torch
from torchmil.data import collate_fn
from torchmil.datasets import ProcessedMILDataset
from torchmil.models import ABMIL
folder, begun = Path(sys.argv[1]).parent, float(sys.argv[2])
names = sorted(path.stem for path in (folder / "features").iterdir())[: int(sys.argv[4])]
bags = ProcessedMILDataset(str(folder / "features"), str(folder / "labels"), bag_names=names, bag_keys=["X", "Y"])
loader = torch.utils.data.DataLoader(bags, batch_size=1, shuffle=True, collate_fn=collate_fn)
model = ABMIL(in_shape=(1024,))
optimizer, ends = torch.optim.AdamW(model.parameters(), 1e-3), []
for epoch in range(int(sys.argv[3])):
    for batch in loader:
        if not ends:
            ends.append(time.time() - begun)
        value = model.criterion(model(batch["X"], batch["mask"]), batch["Y"].float().flatten())
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    ends.append(time.time() - begun)
print(json.dumps(ends))
"""
"""The same with ABMIL, as the README of torchmil 1.0.2 does it: one bag a step, as above."""


def main(
    torchmil: Annotated[
        Path | None,
        typer.Option(metavar="PYTHON", help="Python of an environment that has torchmil."),
    ] = None,
    quick: QuickOption = False,
) -> None:
    """Measure bags at real sizes: 100 slides beside torchmil, large tables beside pandas.

    It takes five minutes and 10 GB of disk.

    Example: python benchmarks/data.py --quick
    """
    columns = ["", "all", "first step", "first epoch", "later epoch", "MiB"]
    frame = pd.DataFrame(list(_rows(torchmil, quick)), columns=columns)
    show(frame, "Seconds from the command on, and MiB of memory shared with no file")


def _rows(torchmil: Path | None, quick: bool) -> Iterator[dict[str, Any]]:
    slides, patches = (QUICK_SLIDES, QUICK_PATCHES) if quick else (SLIDES, PATCHES)
    shrunk = 20 if quick else 1
    with TemporaryDirectory(prefix="milbench-data-") as folder:
        root = Path(folder)
        table = write_slides(root / "slides", slides, patches)
        time.sleep(SETTLED)
        words = [str(table), "{now}", str(EPOCHS), str(round(TRAINED * slides))]
        ours = [sys.executable, "-c", MILBENCH, *words]
        if torchmil is not None:
            yield timed("slides, torchmil, ABMIL", [torchmil, "-c", TORCHMIL, *words])
        yield timed("slides, milbench, first launch", ours)
        yield timed("slides, milbench, second launch", ours)
        yield timed("slides, milbench, the larger of two at once", ours, at_once=2)
        check = [sys.executable, "-m", "milbench", "data", "check"]
        shutil.rmtree(table.parent / ".bags")
        columns = ("bag=slide_id", "labels=label", "features=features/*.npy")
        yield timed(
            f"check of {slides} slides",
            [*check, table, *(f"-ptask.{column}" for column in columns)],
        )
        for name, (rows, width) in (("long", LONG), ("wide", WIDE)):
            path = _write_table(
                root / f"{name}.csv", max(30, rows // shrunk), max(64, width // shrunk)
            )
            time.sleep(SETTLED)
            reading = f"import pandas; pandas.read_csv({str(path)!r})"
            yield timed(f"{name} table, pandas.read_csv", [sys.executable, "-c", reading])
            yield timed(f"{name} table, check", [*check, path])
            yield timed(f"{name} table, check again (start-up)", [*check, path])


def write_slides(folder: Path, count: int, patches: tuple[int, int]) -> Path:
    """Write a table of slides with their folders `features` and, for torchmil, `labels`; return the table.

    The features are drawn, from the least to the most `patches` a slide.
    """
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((patches[1], WIDTH), dtype=np.float32)
    rows = ["slide_id,label"]
    for part in ("features", "labels"):
        (folder / part).mkdir(parents=True)
    for number in range(count):
        positive = number % 2
        features = drawn[: int(rng.integers(*patches))] + np.float32(number / 100)
        features[:20, :8] += 6 * positive
        np.save(folder / f"features/s{number:03d}.npy", features)
        np.save(folder / f"labels/s{number:03d}.npy", np.array([positive]))
        rows.append(f"s{number:03d},{'tumour' * positive}")
    (folder / "slides.csv").write_text("\n".join(rows))
    return folder / "slides.csv"


def _write_table(path: Path, rows: int, width: int) -> Path:
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        file.write(",".join(["bag", "labels", *(f"f{n}" for n in range(width))]) + "\n")
        for row in range(rows):
            bag = row // max(1, min(10, rows // 10))
            features = ",".join(f"{value:.4f}" for value in rng.standard_normal(width))
            file.write(f"{bag},{'x' * (bag % 2)},{features}\n")
    return path


def timed(name: str, command: Sequence[Any], at_once: int = 1) -> dict[str, Any]:
    """Run a command, or several of it at once, and return what the one with most memory took, in seconds and MiB.

    "{now}" in it becomes the time. It may print the seconds to its first step and to the end of each epoch.
    """
    begun = time.time()
    words = [str(begun) if word == "{now}" else str(word) for word in command]
    environment = {name: value for name, value in os.environ.items() if name != "MILBENCH_CACHE"}
    environment["OMP_NUM_THREADS"] = str(
        max(1, (os.cpu_count() or 1) // at_once)
    )  # as a launch shares them out
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(words, env=environment, **pipes) for _ in range(at_once)]
    most = [0] * at_once
    while any(process.poll() is None for process in processes):
        most = [
            max(before, _own_memory(process.pid))
            for before, process in zip(most, processes, strict=True)
        ]
        time.sleep(0.02)
    seconds = time.time() - begun
    said = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, said, strict=True):
        if process.returncode:
            raise UsageError(
                f"{' '.join(words)[:60]}... ended with exit code {process.returncode}: {errors[-300:]}"
            )
    memory = {"MiB": max(most) / 2**20}
    try:
        first_step, *epochs = json.loads(said[int(np.argmax(most))][0])
    except ValueError:
        return {"": name, "all": seconds, **memory}
    later = float(np.median(np.diff(epochs)))
    return {
        "": name,
        "first step": first_step,
        "first epoch": epochs[0],
        "later epoch": later,
        **memory,
    }


def _own_memory(pid: int) -> int:
    """Return the bytes of memory that a process shares with no file, 0 where it has ended or there is no /proc."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    start(main)
