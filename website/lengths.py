"""Set errors at each length of training: a table for the page of a loss or a network, and a picture of some tasks.

    python -m website.lengths docs/lengths.png 3 spoken-digits handwritten-words soundscapes
    python -m website.lengths docs/lengths-narrow.png 1 spoken-digits handwritten-words soundscapes

The number is how many panels stand side by side: one, for a telephone. Both are made from
reports/lengths, once it is there.
"""

import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pandas as pd

from milbench.report.figures.lines import LENGTHS, lengths_figure
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
Set error in %, mean ± standard deviation over seeds; ✓: may be the best of nine at that length, ≤: then
worse than the best by at most so many points ([{title}](../../reports/lengths/index.html)).

{table}
"""


@cache
def lengths() -> list[Lengths]:
    """Return the tasks of the published comparison of lengths; none before it is published."""
    return lengths_of(Study(read(REPORT))) if REPORT.is_dir() else []


def section(loss: str = "", network: str = "") -> str:
    """Return the section of a loss, or of a network that it had, with a row a task; "" where nothing is known."""
    rows, most = [], max((len(one.studies) for one in lengths()), default=0)
    for one in lengths():
        no_skill = number(
            float(one.longest.constant_answer(one.task).mean()), 1, one.longest.metric(one.task)
        )
        for variant, errors in lengths_table(one).frame.iterrows():
            name, _, its_network = str(variant).partition(" with ")
            if loss == name.split()[0] or (network and network == its_network):
                rows.append(
                    [
                        readable(one.task),
                        readable(str(variant)),
                        *errors,
                        *[NOTHING] * (most - len(errors)),
                        no_skill,
                    ]
                )
    if not rows:
        return ""
    spans = [
        [length for one in lengths() for length in [*one.studies][k : k + 1]] for k in range(most)
    ]
    texts = [dict.fromkeys(f"{bound(span):,.0f}" for bound in (min, max)) for span in spans]
    heads = [f"{' to '.join(text)} {lengths()[0].unit}" for text in texts]
    frame = pd.DataFrame(rows, columns=["task", "loss", *heads, NO_SKILL]).set_index("task")
    if {*frame["loss"]} == {loss}:
        frame = frame.drop(columns="loss")
    return SECTION.format(
        title=lengths()[0].longest.plan.spec.title, table=Table("", frame).markdown()
    )


@styled()
def picture(tasks: Collection[str], columns: int) -> bytes:
    """Return a PNG: the set error against the length of training on some tasks, as the report draws it on all."""
    shown = [one for one in lengths() if one.task in tasks]
    return pictures_of("lengths", "", LENGTHS, lengths_figure(shown, columns))[0].png()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(picture(sys.argv[3:], int(sys.argv[2])))
