"""`milbench bench`: speed and memory, measured side by side."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milbench.cli import options
from milbench.cli.options import SeveralNames, names
from milbench.errors import UsageError

if TYPE_CHECKING:
    from milbench.bench.files import Measured

app = typer.Typer(no_args_is_help=True, help="Speed and memory, measured side by side.")
STANDARD_OUTPUT = Path("-")
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write the measurements to this file; -: print them instead of the table.")
]

ThreadsOption = Annotated[int, typer.Option("--threads", min=1, help="Threads of PyTorch on the CPU.")]


@app.command()
def training(
    loss: SeveralNames = None,
    task: SeveralNames = None,
    setting: Annotated[
        list[str] | None, typer.Option("-p", "--set", help="As of `milbench run`, such as recipe.precision=float32.")
    ] = None,
    data_dir: options.DataDirOption = None,
    device: options.DeviceOption = "auto",
    threads: ThreadsOption = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter repetitions.")] = False,
    as_json: JsonOption = None,
) -> int:
    """Measure whole training steps, by their parts, and evaluations, beside a plain float32 loop.

    Without --task: the tasks that need no files, and extended-mnist where its files are here. Without --loss: all
    losses that are given label sets alone.
    """
    import torch

    from milbench._utils.devices import resolve
    from milbench.bench import training as benchmark
    from milbench.bench.files import Measured, machine
    from milbench.cli.bench_tables import print_training
    from milbench.engine.precision import check_precision

    _check_target(as_json)
    place = resolve(device)
    torch.set_num_threads(threads)
    planned = benchmark.plan(names(loss), names(task), setting or [], data_dir)
    check_precision(planned.cells, [str(place)])
    facts = machine(str(place), threads)
    rows = benchmark.measure(planned, place, data_dir, quick=quick)
    if as_json != STANDARD_OUTPUT:
        print_training(rows, threads)
    _write(Measured("training", facts, rows), as_json)
    return 0


@app.command()
def losses(
    device: options.DeviceOption = "auto",
    threads: ThreadsOption = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions, without the largest bags.")] = False,
    as_json: JsonOption = None,
) -> int:
    """Measure the exact likelihood from logits. Time and peak memory, beside a plain loop and a log-softmax."""
    import torch

    from milbench._utils.devices import resolve
    from milbench.bench import likelihood as benchmark
    from milbench.bench.files import Measured, machine
    from milbench.cli.bench_tables import print_losses

    _check_target(as_json)
    place = str(resolve(device))
    torch.set_num_threads(threads)
    facts = machine(place, threads)
    measured = benchmark.measure(device=place, quick=quick)
    if as_json != STANDARD_OUTPUT:
        print_losses(measured, threads)
    _write(Measured("losses", facts, benchmark.as_rows(measured)), as_json)
    return 0


@app.command()
def runner(
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cells computed at a time.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="10 and 50 cells instead of 10 to 5,000.")] = False,
    as_json: JsonOption = None,
) -> int:
    """Measure the runner. Seconds a cell that does next to nothing, and how plan, status and report grow."""
    from milbench.bench import runner as benchmark
    from milbench.bench.files import Measured, machine
    from milbench.cli.bench_tables import print_runner

    _check_target(as_json)
    measured = benchmark.measure(jobs, quick=quick)
    if as_json != STANDARD_OUTPUT:
        print_runner(measured, jobs)
    if as_json:
        # Not asked before: the memory of a process that starts another, here with torch, counts as that of the other.
        facts = machine("cpu", max(1, (os.cpu_count() or 1) // jobs))
        _write(Measured("runner", facts, benchmark.as_rows(measured)), as_json)
    return 0


@app.command()
def data(
    torchmil: Annotated[Path | None, typer.Option(help="The Python of an environment that has torchmil.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few and small slides and tables.")] = False,
    as_json: JsonOption = None,
) -> int:
    """Measure bags at real sizes. 100 slides beside torchmil, tables beside pandas: 10 GB of disk, five minutes."""
    from milbench.bench import data as benchmark
    from milbench.bench.files import Measured, machine
    from milbench.cli.bench_tables import print_data

    _check_target(as_json)
    rows = list(benchmark.measure(torchmil, quick=quick))
    if as_json != STANDARD_OUTPUT:
        print_data(rows)
    if as_json:
        _write(Measured("data", machine("cpu", os.cpu_count() or 1), rows), as_json)
    return 0


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="A file of --json.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="Another one, of the same benchmark.", show_default=False)],
) -> int:
    """Compare two measurements. The ratio of each time, memory and rate, the second file's by the first one's."""
    from milbench.bench.files import read
    from milbench.cli.bench_tables import print_comparison

    print_comparison(read(before), read(after))
    return 0


def _check_target(target: Path | None) -> None:
    """Check that a file can be written, before anything is measured for it.

    Args:
        target: the file; None where none is wanted.

    Raises:
        UsageError: its folder is missing or read-only, or it is a folder or read-only itself.
    """
    if target is None or target == STANDARD_OUTPUT:
        return
    folder = target.parent
    if not folder.is_dir():
        raise UsageError(f"cannot write --json {target}: there is no folder {folder}; expected one that exists")
    if target.is_dir():
        raise UsageError(
            f"cannot write --json {target}: it is a folder; expected a file, such as {target / 'bench.json'}"
        )
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise UsageError(f"cannot write --json {target}: permission denied; expected a place that you may write to")


def _write(measured: Measured, target: Path | None) -> None:
    """Write a file, or what would be in it to the standard output. Raises UsageError where it cannot be written."""
    from milbench.bench.files import as_text

    if target == STANDARD_OUTPUT:
        sys.stdout.write(as_text(measured))
    elif target is not None:
        try:
            target.write_text(as_text(measured), "utf-8")
        except OSError as error:
            raise UsageError(f"cannot write --json {target}: {error.strerror or error}") from None
