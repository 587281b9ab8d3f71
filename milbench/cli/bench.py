"""`milbench bench`: speed and memory, measured side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from milbench.cli import options
from milbench.cli.bench_files import STANDARD_OUTPUT
from milbench.cli.options import SeveralNames, names

app = typer.Typer(no_args_is_help=True, help="Speed and memory, measured side by side.")
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
    from milbench.cli import bench_files, bench_training
    from milbench.engine.precision import check_precision

    bench_files.check_target(as_json)
    place = resolve(device)
    torch.set_num_threads(threads)
    planned = bench_training.plan(names(loss), names(task), setting or [], data_dir)
    check_precision(planned.cells, [str(place)])
    facts = bench_files.machine(str(place), threads)
    rows = bench_training.measure(planned, place, data_dir, quick=quick)
    if as_json != STANDARD_OUTPUT:
        bench_training.print_table(rows, threads)
    if as_json:
        bench_files.write(bench_files.Measured("training", facts, rows), as_json)
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
    from milbench.cli import bench_files, bench_losses

    bench_files.check_target(as_json)
    place = str(resolve(device))
    torch.set_num_threads(threads)
    facts = bench_files.machine(place, threads)
    measured = bench_losses.measure(device=place, quick=quick)
    if as_json != STANDARD_OUTPUT:
        bench_losses.print_table(measured)
    if as_json:
        bench_files.write(bench_files.Measured("losses", facts, bench_losses.as_rows(measured)), as_json)
    return 0


@app.command()
def runner(
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cells computed at a time.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="10 and 50 cells instead of 10 to 5,000.")] = False,
    as_json: JsonOption = None,
) -> int:
    """Measure the runner. Seconds a cell that does next to nothing, and how plan, status and report grow."""
    from milbench.cli import bench_files, bench_runner

    bench_files.check_target(as_json)
    measured = bench_runner.measure(jobs, quick=quick)
    if as_json != STANDARD_OUTPUT:
        bench_runner.print_table(measured, jobs)
    if as_json:
        # Not asked before: the memory of a process that starts another, here with torch, counts as that of the other.
        facts = bench_files.machine("cpu", max(1, (os.cpu_count() or 1) // jobs))
        bench_files.write(bench_files.Measured("runner", facts, bench_runner.as_rows(measured)), as_json)
    return 0


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="A file of --json.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="Another one, of the same benchmark.", show_default=False)],
) -> int:
    """Compare two measurements. The ratio of each time, memory and rate, the second file's by the first one's."""
    from milbench.cli import bench_compare, bench_files

    bench_compare.print_comparison(bench_files.read(before), bench_files.read(after))
    return 0
