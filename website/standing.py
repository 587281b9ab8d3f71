"""The results of a loss beside those of all losses, as a table and a picture.

They come from the published comparison of all losses.
"""

import io
from functools import cache
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from milbench._utils.palette import MUTED
from milbench.report.formatting import readable
from milbench.report.published_reports import read
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.tables import NO_SKILL, main_table
from website import REPOSITORY

REPORT = "all-losses"
OTHERS = "#9aa3af"
"""The colour of the losses that the picture is not about."""


@cache
def study() -> Study:
    """Return the published comparison."""
    return Study(read(REPOSITORY / "reports" / REPORT))


@cache
def set_errors() -> pd.DataFrame:
    """Return the set error of every variant (rows) on every task, as the report shows it."""
    errors = main_table(study()).frame.filter(like=": set error")

    def task_of(head: str) -> str:
        return head.partition(":")[0]

    return errors.rename(columns=task_of)


def variants(loss: str) -> list[str]:
    """Return the variants of a loss in the report, such as noisy-or (sigmoid)."""
    return [name for name in set_errors().index if name.split()[0] == loss]


def of_network(network: str) -> list[str]:
    """Return the variants in the report with a network that pools instances."""
    return [name for name in set_errors().index if name.endswith(f" with {network}")]


def table(names: list[str]) -> str:
    """Return a Markdown table of the set errors of some variants and of no skill.

    It is "" if there are no variants.
    """
    if not names:
        return ""
    shown = set_errors().loc[[*names, NO_SKILL]].T.rename_axis("task")
    return Table("", shown).markdown()


def _means() -> pd.DataFrame:
    """Return the mean set error of every variant (rows) on every task, NaN where there is none."""

    def text_of_mean(text: str) -> str:
        # The mean is the first word, as in "8.0 ± 1.6".
        return text.split(maxsplit=1)[0]

    means: pd.DataFrame = set_errors().map(text_of_mean).apply(pd.to_numeric, errors="coerce")
    return means


def picture(loss: str) -> bytes:
    """Return a PNG: for each task a line with the mean set errors of all losses.

    The variants of `loss` are in colour.
    """
    means = _means()
    rows = range(means.shape[1])
    # A little more than 100 %, so that symbols at the end are whole.
    highest = 102
    figure = Figure(figsize=(9.6, 0.55 * len(rows) + 0.7), layout="constrained")
    axes = figure.subplots()
    axes.hlines(rows, 0, highest, color="#e6e9ee", lw=1, zorder=0)
    axes.plot(means.T, rows, "o", color=OTHERS, ms=7, mec="white", mew=0.6)
    looks = {readable(variant): look for variant, look in study().looks.items()}
    style: dict[str, Any] = {"ms": 9, "mec": "white", "mew": 0.8}
    for name in variants(loss):
        colour, marker = looks[name]
        axes.plot(means.loc[name], rows, marker, color=colour, label=name, **style)
    axes.set_yticks(rows, means.columns)
    axes.set(xlim=(0, highest), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xlabel("set error (%)", fontsize=9, color=MUTED)
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)
    if len(variants(loss)) > 1:
        axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()
