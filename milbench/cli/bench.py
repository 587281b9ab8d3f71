"""`milbench bench`: speed and memory, measured side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from milbench.cli import options

app = typer.Typer(no_args_is_help=True, help="Speed and memory, measured side by side.")


@app.command()
def losses(
    device: options.DeviceOption = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions, without the largest bags.")] = False,
) -> int:
    """Measure the exact likelihood. Bags per second and peak memory, beside a plain loop and cross-entropy."""
    from milbench._utils.devices import resolve
    from milbench.cli import bench_losses

    bench_losses.print_table(bench_losses.measure(device=str(resolve(device)), quick=quick))
    return 0


@app.command()
def runner(
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cells computed at a time.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="10 and 50 cells instead of 10 to 5,000.")] = False,
) -> int:
    """Measure the runner. Seconds a cell that does next to nothing, and how plan, status and report grow."""
    from milbench.cli import bench_runner

    bench_runner.print_table(bench_runner.measure(jobs, quick=quick), jobs)
    return 0
