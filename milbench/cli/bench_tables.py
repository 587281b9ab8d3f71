"""The tables that `milbench bench` prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from milbench._utils.console import PlainConsole, console
from milbench.bench.ratios import differences, ratios

if TYPE_CHECKING:
    import pandas as pd

    from milbench.bench.files import Measured, Row


def print_training(rows: Sequence[Row], threads: int) -> None:
    """Print what a training step takes, a row a task and loss."""
    from milbench.bench import training

    table = Table(title=f"training steps, {threads} threads: medians ± half the width of the middle half")
    table.add_column("task, loss", no_wrap=True)
    for heading in ("bags/s", "ms a step", *training.PARTS, "product", "MiB", "evaluation s", "share", "plain/ours"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.name, *_of_step(row, training.PARTS))
    wide = PlainConsole(width=150 + max(len(row.name) for row in rows))
    wide.print(table)
    wide.print(
        "data to optimiser: ms of a step; data: the mean of an epoch's batches. product: FLOP/s of the step as a share "
        "of those of a large matrix product in its precision, here and now.\nMiB: the most that the tensors of a step "
        "occupy. share: of all evaluations of a training in the time of its steps.\nplain/ours: time of a plain loop "
        "in float32 that draws bags one by one, with the same loss and network, in that of ours.",
        markup=False,
    )


def _of_step(row: Row, parts: Sequence[str]) -> Iterator[str]:
    step, numbers = row.seconds["step"], row.numbers
    yield f"{numbers['bags/s']:,.0f}"
    yield f"{1e3 * step.median:.3g} ± {500 * (step.spread or 0):.2g}"
    for part in parts:
        yield f"{1e3 * row.seconds[part].median:.3g}"
    yield f"{numbers['share of a matrix product']:.0%}"
    yield f"{row.bytes['step'] / 2**20:,.0f}"
    yield f"{row.seconds['evaluation'].median:.3g}"
    yield f"{numbers['evaluation share']:.1%}"
    yield f"{numbers['plain/ours']:.2f}" if "plain/ours" in numbers else ""


def print_losses(frame: pd.DataFrame, threads: int) -> None:
    """Print what the exact likelihood takes, a row a batch of logits."""
    from milbench.bench import likelihood

    table = Table(
        title=f"exact likelihood from logits: bags x classes x positions, {threads} threads, "
        "medians ± half the width of the middle half"
    )
    spread = frame[likelihood.SPREAD].map("{:.0%}".format)
    frame = frame.drop(columns=likelihood.TIMINGS).assign(**{likelihood.SPREAD: spread})
    for column in frame.columns:
        table.add_column(column, justify="left" if column == "configuration" else "right", no_wrap=True)
    for row in frame.itertuples(index=False):
        table.add_row(*(cell if isinstance(cell, str) else _rounded(cell) for cell in row))
    PlainConsole(width=190).print(table)


def _rounded(value: float) -> str:
    """Format with three significant digits and no exponent; not a number is left empty."""
    if value != value:
        return ""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def print_runner(rows: list[dict[str, Any]], jobs: int) -> None:
    """Print what cells and commands take, a row a number of cells."""
    table = Table(title=f"cells that do next to nothing, {jobs} at a time", title_justify="left")
    headings = list(rows[-1])
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*("" if heading not in row else _measured(heading, row[heading]) for heading in headings))
    PlainConsole(width=190).print(table)


def print_data(rows: list[Row]) -> None:
    """Print the seconds and the memory of bags at real sizes."""
    table = Table(title="seconds from the command on, and memory shared with no file", title_justify="left")
    headings = ("all", "first step", "first epoch", "later epoch")
    for heading in ("", *headings, "MiB"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows:
        times = [f"{row.seconds[heading].median:.1f}" if heading in row.seconds else "" for heading in headings]
        table.add_row(row.name, *times, f"{row.bytes['memory'] / 2**20:,.0f}")
    PlainConsole(width=190).print(table)


def _measured(heading: str, value: float) -> str:
    if heading == "cells" or heading.endswith("MiB"):
        return f"{value:,.0f}"
    return f"{value:.3f}" if heading.endswith("cell") else f"{value:.1f}"


def print_comparison(before: Measured, after: Measured) -> None:
    """Print in what the machines differ, the ratios, and the rows that only one file has."""
    found = ratios(before, after)
    for line in differences(before, after):
        console.print(f"the measurements differ in {line}", markup=False, soft_wrap=True)
    title = "second by first: a time or memory below 1 is that of a second that is faster, or smaller"
    table = Table(title=title, title_justify="left")
    for heading in ("row", "what", "first", "second", "ratio", ""):
        table.add_column(heading, justify="right" if heading in ("first", "second", "ratio") else "left", no_wrap=True)
    for one in found:
        ratio = "" if math.isnan(one.value) else f"{one.value:.3f}"
        table.add_row(one.row, one.quantity, one.text(one.before), one.text(one.after), ratio, one.remark)
    console.print(table, markup=False)
    names = [{row.name for row in measured.rows} for measured in (before, after)]
    for which, alone in (("first", names[0] - names[1]), ("second", names[1] - names[0])):
        if alone:
            console.print(f"only in the {which}: {'; '.join(sorted(alone))}", markup=False, soft_wrap=True)
