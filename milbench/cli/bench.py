"""`milbench bench`: speed and memory, measured side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milbench.cli import options
from milbench.cli.options import SeveralNames, names

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(no_args_is_help=True, help="Measure speed and memory.\n\nExample: milbench bench losses --quick")
ThreadsOption = Annotated[int, typer.Option("--threads", min=1, help="Threads of PyTorch on the CPU.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="Repeat less, and leave out the largest bags.")]


@app.command()
def training(
    loss: SeveralNames = None,
    task: SeveralNames = None,
    setting: options.SettingOption = None,
    data_dir: options.DataDirOption = None,
    device: options.DeviceOption = "auto",
    threads: ThreadsOption = 1,
    quick: QuickOption = False,
) -> int:
    """Measure the parts of training steps and evaluations, beside a plain float32 step of the same network.

    Default tasks: those that need no files, and extended-mnist if its files are here. Default losses: those that learn
    from label sets.

    Example: milbench bench training --loss exact --quick
    """
    from milbench._utils.devices import resolve
    from milbench.bench import training as benchmark
    from milbench.engine.worker import set_torch_defaults

    place = resolve(device)
    set_torch_defaults(threads)
    planned = benchmark.plan(names(loss), names(task), setting or [], data_dir, str(place))
    _print(
        benchmark.measure(planned, place, data_dir, quick=quick),
        f"training steps, {threads} threads: medians ± half the width of the middle half",
        "data to optimiser: ms of a step; data: the mean of an epoch's batches. MiB: the most "
        "that the tensors of a step occupy.\nplain/ours: time of a step in float32 with AdamW, in that of ours, "
        "without data.",
    )
    return 0


@app.command()
def losses(device: options.DeviceOption = "auto", threads: ThreadsOption = 1, quick: QuickOption = False) -> int:
    """Measure time and peak memory of the exact likelihood, beside a plain loop and a log-softmax.

    Example: milbench bench losses --quick
    """
    from milbench._utils.devices import resolve
    from milbench.bench import likelihood as benchmark
    from milbench.engine.worker import set_torch_defaults

    place = str(resolve(device))
    set_torch_defaults(threads)
    frame = benchmark.measure(device=place, quick=quick)
    _print(
        frame.assign(**{benchmark.SPREAD: frame[benchmark.SPREAD].map("{:.0%}".format)}),
        f"exact likelihood from logits: bags x classes x positions, {threads} threads, medians ± half the width of the "
        "middle half",
    )
    return 0


def _print(frame: pd.DataFrame, title: str, explanation: str = "") -> None:
    from milbench._utils.console import console

    table = frame.to_string(index=False, na_rep="", float_format=_rounded)
    console.print(f"{title}\n\n{table}\n{explanation}", soft_wrap=True, highlight=False, markup=False)


def _rounded(value: float) -> str:
    """Format with three significant digits and no exponent."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


@app.command()
def data(
    torchmil: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="Python of an environment that has torchmil.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure few and small slides and tables.")] = False,
) -> int:
    """Measure bags at real sizes: 100 slides beside torchmil, tables beside pandas.

    It takes five minutes and 10 GB of disk.

    Example: milbench bench data --quick
    """
    from milbench.bench.data import measure

    _print(measure(torchmil, quick=quick), "Seconds from the command on, and MiB of memory shared with no file")
    return 0
