"""Measure how long bags at real sizes take to be read and trained on, beside torchmil and pandas.

This program first writes the files: slides of a microscope, of which each is a bag of patches, and
tables. So the system has all of them in its cache, and no time of a disk is measured. Then it runs
each command in a process of its own. It measures the time of the process, and its memory without
the pages that it shares with files.
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

SLIDES = 100
PATCHES = (6_000, 14_000)
"""The smallest and the largest number of patches of a slide."""
WIDTH = 1024
"""The number of features of a patch."""
QUICK_SLIDES = 12
QUICK_PATCHES = (600, 1_400)
TRAINED = 0.7
"""The share of slides that is trained on, which is the default of feature-bags."""
TABLES = {"long": (500_000, 64), "wide": (30, 50_000)}
"""The numbers of rows and features of two tables."""
QUICK_SHRINKS = 20
"""By which factor the tables have fewer rows and fewer features with --quick."""
LEAST_ROWS = 30
LEAST_FEATURES = 64
"""The fewest rows and features that --quick leaves."""
EPOCHS = 3

CHECK = (sys.executable, "-m", "milbench", "data", "check")

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
network = make_network(task, problem.format, "mlp", {}, 0)
loss = load_loss("exact")
optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
ends = []
for epoch in range(int(sys.argv[3])):
    for bags in problem.train_batches(epoch, generator("bench", epoch)):
        if not ends:
            ends.append(time.time() - begun)
        value = loss(network(bags.instances), bags.labels, bags.mask)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    ends.append(time.time() - begun)
print(json.dumps(ends))
"""
"""A program that trains on slides, with the settings of memory that `milbench run` has.

It prints the seconds from the command to the first step, and to the end of every epoch.
"""
TORCHMIL = """
import json, sys, time
from pathlib import Path
import torch
from torchmil.data import collate_fn
from torchmil.datasets import ProcessedMILDataset
from torchmil.models import ABMIL
folder = Path(sys.argv[1]).parent
begun = float(sys.argv[2])
names = sorted(path.stem for path in (folder / "features").iterdir())[: int(sys.argv[4])]
features, labels = str(folder / "features"), str(folder / "labels")
bags = ProcessedMILDataset(features, labels, bag_names=names, bag_keys=["X", "Y"])
loader = torch.utils.data.DataLoader(bags, batch_size=1, shuffle=True, collate_fn=collate_fn)
model = ABMIL(in_shape=(1024,))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ends = []
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
"""The same program with torchmil's ABMIL, like the README of torchmil 1.0.2: one bag a step."""


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
    """Measure each command, and yield its row of the table."""
    with TemporaryDirectory(prefix="milbench-data-") as folder:
        yield from _rows_of_slides(Path(folder) / "slides", torchmil, quick)
        for name in TABLES:
            yield from _rows_of_table(name, Path(folder), quick)


def _rows_of_slides(folder: Path, torchmil: Path | None, quick: bool) -> Iterator[dict[str, Any]]:
    """Train on slides in a new folder and check them; yield the rows of these commands."""
    slides = QUICK_SLIDES if quick else SLIDES
    patches = QUICK_PATCHES if quick else PATCHES
    table = write_slides(folder, slides, patches)
    # torchmil trains on as many slides as milbench takes for training.
    trained = round(TRAINED * slides)
    words = [str(table), "{now}", str(EPOCHS), str(trained)]
    ours = [sys.executable, "-c", MILBENCH, *words]
    if torchmil is not None:
        yield timed("slides, torchmil, ABMIL", [torchmil, "-c", TORCHMIL, *words])
    # The first launch reads and checks all slides, and leaves a cache for the later ones.
    yield timed("slides, milbench, first launch", ours)
    yield timed("slides, milbench, second launch", ours)
    yield timed("slides, milbench, two at once: the one with more memory", ours, at_once=2)
    # The cache is removed, so that the check reads the slides.
    shutil.rmtree(folder / ".bags")
    columns = ["bag=slide_id", "labels=label", "features=features/*.npy"]
    parameters = [f"-ptask.{column}" for column in columns]
    yield timed(f"check of {slides} slides", [*CHECK, table, *parameters])


def _rows_of_table(name: str, folder: Path, quick: bool) -> Iterator[dict[str, Any]]:
    """Read a new table with pandas and check it; yield the rows of these commands."""
    rows, width = TABLES[name]
    if quick:
        rows //= QUICK_SHRINKS
        width //= QUICK_SHRINKS
    path = _write_table(folder / f"{name}.csv", max(LEAST_ROWS, rows), max(LEAST_FEATURES, width))
    reading = f"import pandas; pandas.read_csv({str(path)!r})"
    yield timed(f"{name} table, pandas.read_csv", [sys.executable, "-c", reading])
    yield timed(f"{name} table, check", [*CHECK, path])
    # The first check has packed the table into a cache. So a second check takes little more time
    # than the command needs to start.
    yield timed(f"{name} table, check again (start-up)", [*CHECK, path])


def write_slides(folder: Path, count: int, patches: tuple[int, int]) -> Path:
    """Write slides with random features, and return the table that lists them.

    The features are in the folder `features`, and labels for torchmil in the folder `labels`.

    Args:
        folder: where to write.
        count: the number of slides.
        patches: the smallest and the largest number of patches of a slide.
    """
    rng = np.random.default_rng(0)
    least, most = patches
    # Noise takes longer to generate than to write. So it is generated once for all slides, and each
    # slide adds a number of its own.
    noise = rng.standard_normal((most, WIDTH), dtype=np.float32)
    for part in ("features", "labels"):
        (folder / part).mkdir(parents=True)
    rows = ["slide_id,label"]
    for number in range(count):
        slide = f"s{number:03d}"
        size = int(rng.integers(least, most, endpoint=True))
        features = noise[:size] + np.float32(number / 100)
        is_positive = number % 2 == 1
        if is_positive:
            # A tumour shows in a few features of a few patches.
            features[:20, :8] += 6
        np.save(folder / f"features/{slide}.npy", features)
        np.save(folder / f"labels/{slide}.npy", np.array([int(is_positive)]))
        label = "tumour" if is_positive else ""
        rows.append(f"{slide},{label}")
    table = folder / "slides.csv"
    table.write_text("\n".join(rows))
    return table


def _write_table(path: Path, rows: int, width: int) -> Path:
    """Write a table of random instances, and return its path.

    A bag has ten instances if the table has a hundred rows or more. Smaller tables have smaller
    bags, so that there are about ten bags.
    """
    rng = np.random.default_rng(0)
    instances_of_bag = max(1, min(10, rows // 10))
    names = [f"f{number}" for number in range(width)]
    with path.open("w") as file:
        file.write(",".join(["bag", "labels", *names]) + "\n")
        for row in range(rows):
            bag = row // instances_of_bag
            label = "x" if bag % 2 else ""
            features = ",".join(f"{value:.4f}" for value in rng.standard_normal(width))
            file.write(f"{bag},{label},{features}\n")
    return path


def timed(name: str, command: Sequence[Any], at_once: int = 1) -> dict[str, Any]:
    """Run a command, and return its row of the table: seconds and MiB.

    The command may print the seconds to its first step and to the end of each epoch, which are then
    in the row.

    Args:
        name: what the row is called.
        command: the words of the command. The word "{now}" is replaced by the time of the start, in
            seconds as of `time.time`.
        at_once: how often the command is run at the same time. The row is about the process that
            used most memory.
    """
    begun = time.time()
    words = [str(begun) if word == "{now}" else str(word) for word in command]
    processes = _start_processes(words, at_once)
    most = [0] * at_once
    while any(process.poll() is None for process in processes):
        for index, process in enumerate(processes):
            most[index] = max(most[index], _own_memory(process.pid))
        time.sleep(0.02)
    seconds = time.time() - begun

    outputs = []
    for process in processes:
        output, errors = process.communicate()
        if process.returncode:
            raise UsageError(
                f"{' '.join(words)[:60]}... ended with exit code {process.returncode}: "
                f"{errors[-300:]}"
            )
        outputs.append(output)
    largest = int(np.argmax(most))
    memory = {"MiB": max(most) / 2**20}
    try:
        first_step, *epochs = json.loads(outputs[largest])
    except ValueError:
        # The command printed no list of seconds.
        return {"": name, "all": seconds, **memory}
    return {
        "": name,
        "first step": first_step,
        "first epoch": epochs[0],
        "later epoch": float(np.median(np.diff(epochs))),
        **memory,
    }


def _start_processes(words: list[str], at_once: int) -> list[subprocess.Popen[str]]:
    """Start a command several times at once, each with its share of the processors."""
    environment = dict(os.environ)
    # This variable moves milbench's cache elsewhere. Without it the cache is beside the files, and
    # `_rows_of_slides` removes it there.
    environment.pop("MILBENCH_CACHE", None)
    # The processes share the processors as those of `milbench run` do.
    threads = max(1, (os.cpu_count() or 1) // at_once)
    environment["OMP_NUM_THREADS"] = str(threads)
    return [
        subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(at_once)
    ]


def _own_memory(pid: int) -> int:
    """Return the bytes of memory of a process, without pages that it shares with files.

    It is 0 if the process has ended, or the system has no /proc.
    """
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    start(main)
