"""Set errors at each length of training, from reports/lengths.

They are a table for the page of a loss or a network, and a picture for docs/, made by

    python -m website.lengths docs/lengths.png 3 spoken-digits handwritten-words soundscapes
    python -m website.lengths docs/lengths-narrow.png 1 spoken-digits handwritten-words soundscapes

The number is how many panels are side by side: one for a telephone.
"""

import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pandas as pd

from milbench.report.figures.lines import LENGTHS_CAPTION, lengths_figure
from milbench.report.figures.picture import pictures_of
from milbench.report.figures.style import styled
from milbench.report.formatting import NOTHING, number, readable
from milbench.report.lengths import Lengths, lengths_of, lengths_table
from milbench.report.published_reports import read
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.tables import NO_SKILL
from website import REPOSITORY

REPORT = REPOSITORY / "reports" / "lengths"
SECTION = """
## At each length of training
Set error in %, mean ± standard deviation over seeds; ✓: may be the best of nine at that length,
≤: then worse than the best by at most so many points
([{title}](../../reports/lengths/index.html)).

{table}
"""


@cache
def lengths() -> list[Lengths]:
    """Return the tasks of the published comparison of lengths; [] if it is not published yet."""
    if not REPORT.is_dir():
        return []
    return lengths_of(Study(read(REPORT)))


def section(loss: str = "", network: str = "") -> str:
    """Return the section of a loss, or of all losses with a network; "" if it has no results."""
    tasks = lengths()
    # Tasks with fewer lengths than others leave the last columns empty.
    columns = max((len(one.studies) for one in tasks), default=0)
    rows = []
    for one in tasks:
        rows += _rows_of(one, loss, network, columns)
    if not rows:
        return ""
    heads = [_head(tasks, column) for column in range(columns)]
    frame = pd.DataFrame(rows, columns=["task", "loss", *heads, NO_SKILL]).set_index("task")
    is_of_one_variant = set(frame["loss"]) == {loss}
    if is_of_one_variant:
        frame = frame.drop(columns="loss")
    title = tasks[0].longest.plan.spec.title
    return SECTION.format(title=title, table=Table("", frame).markdown())


def _rows_of(one: Lengths, loss: str, network: str, columns: int) -> list[list[str]]:
    """Return a row for each variant of a loss, or with a network, on one task.

    A row has the task, the variant, its errors by length in `columns` columns, and no skill.
    """
    no_skill = float(one.longest.constant_answer(one.task).mean())
    shown_no_skill = number(no_skill, 1, one.longest.metric(one.task))
    rows = []
    for variant, errors in lengths_table(one).frame.iterrows():
        name, _, its_network = str(variant).partition(" with ")
        is_of_loss = name.split()[0] == loss
        # A variant with the default network of the task names no network.
        is_of_network = bool(network) and its_network == network
        if is_of_loss or is_of_network:
            empty = [NOTHING] * (columns - len(errors))
            names = [readable(one.task), readable(str(variant))]
            rows.append([*names, *errors, *empty, shown_no_skill])
    return rows


def _head(tasks: list[Lengths], column: int) -> str:
    """Return the head of a column: the shortest and the longest training that tasks have in it."""
    lengths_of_column = []
    for one in tasks:
        lengths_of_task = list(one.studies)
        if column < len(lengths_of_task):
            lengths_of_column.append(lengths_of_task[column])
    shortest = f"{min(lengths_of_column):,.0f}"
    longest = f"{max(lengths_of_column):,.0f}"
    span = shortest if shortest == longest else f"{shortest} to {longest}"
    return f"{span} {tasks[0].unit}"


@styled()
def picture(tasks: Collection[str], columns: int) -> bytes:
    """Return a PNG of the set error by the length of training, on some tasks.

    The report has the same picture of all tasks.
    """
    shown = [one for one in lengths() if one.task in tasks]
    (made,) = pictures_of("lengths", "", LENGTHS_CAPTION, lengths_figure(shown, columns))
    return made.png()


def main() -> None:
    """Write the picture that the command line asks for."""
    file, columns, *tasks = sys.argv[1:]
    Path(file).write_bytes(picture(tasks, int(columns)))


if __name__ == "__main__":
    main()
