"""Where a loss stands in the published comparison of all losses, as a table and a picture."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from functools import cache

from matplotlib.figure import Figure

from milbench._utils.palette import MUTED
from website import REPOSITORY

REPORT = "all-losses"
VALUE = re.compile(r"([\d.]+)( ± [\d.]+)?( ✓)?")
OTHERS = "#c3cad4"
COLOURS = ("#0f766e", "#c2410c", "#1d4ed8", "#7e22ce")
"""Of the variants of a loss."""


@dataclass(frozen=True)
class Place:
    """The set error of a variant of a loss on a task.

    Args:
        shown: mean ± standard deviation in %, with a tick if it may be the best.
        mean: in %.
    """

    shown: str
    mean: float


@cache
def places() -> dict[str, dict[str, Place]]:
    """Return, for each task, the place of every variant.

    Raises:
        ValueError: the table of the report is not found.
    """
    lines = (REPOSITORY / "reports" / REPORT / "report.md").read_text("utf-8").splitlines()
    if "**All losses**" not in lines:
        raise ValueError(f"reports/{REPORT}/report.md has no table of all losses: render it again")
    start = lines.index("**All losses**") + 2
    head, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[start : lines.index("", start)]
        if not line.startswith("|:")
    )
    found = {}
    for number, title in enumerate(head):
        task, _, metric = title.partition(": ")
        if metric.startswith("set error"):
            values = {row[0]: row[number] for row in rows if VALUE.match(row[number])}
            found[task] = {name: Place(text, float(text.split()[0])) for name, text in values.items()}
    return found


def variants(loss: str) -> list[str]:
    """Return the variants of a loss that the report has, such as those of noisy-or by its heads."""
    every = dict.fromkeys(name for task in places().values() for name in task)
    return [name for name in every if name.split()[0] == loss]


def table(loss: str) -> str:
    """Return the places of a loss as a table of Markdown; "" where the report lacks it."""
    if not variants(loss):
        return ""
    tasks = places()
    rows = [["loss", *tasks], ["---"] * (len(tasks) + 1)]
    rows += [[name, *(at[name].shown if name in at else "" for at in tasks.values())] for name in variants(loss)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def picture(loss: str) -> bytes:
    """Return a PNG: a line a task with the mean set errors of all losses, those of this one in colour."""
    tasks = places()
    figure = Figure(figsize=(9.6, 0.55 * len(tasks) + 0.7), layout="constrained")
    axes = figure.subplots()
    for row, at in enumerate(tasks.values()):
        axes.axhline(row, color="#e6e9ee", lw=1, zorder=0)
        axes.plot([p.mean for p in at.values()], [row] * len(at), "o", color=OTHERS, ms=7, mec="white", mew=0.6)
        for colour, name in zip(COLOURS, variants(loss), strict=False):
            if name in at:
                axes.plot(
                    at[name].mean, row, "D", color=colour, ms=9, mec="white", mew=0.8, label=name if row == 0 else None
                )
    axes.set_yticks(range(len(tasks)), list(tasks))
    axes.set(xlim=(0, 102), ylim=(len(tasks) - 0.5, -0.5))
    axes.set_xlabel("set error (%)", fontsize=9, color=MUTED)
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)
    if len(variants(loss)) > 1:
        axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()
