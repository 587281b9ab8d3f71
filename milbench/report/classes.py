"""Tables of how well each class is recognised.

One table has precision and recall of each class with every loss. The other says which classes the
best loss confuses.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from milbench.report.formatting import readable, significant
from milbench.report.study import Study
from milbench.report.table import Table

SCORES = "Of the label sets of test bags, over all seeds."
"""The note below the table of precision and recall."""
CONFUSION = (
    "In % of the test bags that have the class of the row. On the diagonal: the class is "
    "predicted. Elsewhere: it is missed, and the class of the column is wrongly predicted."
)
"""The note below the table of confusion."""

_PRESENT = 0
_PREDICTED = 1
_BOTH = 2
_FIRST_INSTEAD = 3
"""The columns of `ClassCounts`, a row of which is about one class.

They count the bags in which the class is present, is predicted, and both. Then there is a column
for each class: it counts the bags in which the class of the row is present and the class of the
column is predicted wrongly.
"""


def class_tables(study: Study, task: str) -> list[Table]:
    """Return the tables of precision and recall, and of confusion; [] if no counts were kept.

    Only the best loss has a table of confusion.
    """
    counts = {}
    for variant in study.summary(task).index:
        counts_of_variant = _pooled_counts(study, task, str(variant))
        if len(counts_of_variant):
            counts[readable(str(variant))] = counts_of_variant
    if not counts:
        return []
    scores = pd.DataFrame({name: _scores(table) for name, table in counts.items()})
    tables = [Table(f"Precision / recall (%) by class on {readable(task)}", scores, SCORES)]
    # A summary begins with the best mean.
    best = next(iter(counts))
    confusion = _confusion(counts[best])
    if len(confusion.columns) > 1:
        title = f"What {best} takes for what on {readable(task)}"
        tables.append(Table(title, confusion, CONFUSION))
    return tables


def _pooled_counts(study: Study, task: str, variant: str) -> pd.DataFrame:
    """Return the counts of a loss, summed over the seeds that kept them, a row for each class."""
    tables = []
    for cell in study.done_cells(task, variant):
        counts = study.evidence(cell).counts.get(cell, {})
        tables.append(pd.DataFrame.from_dict(counts, orient="index"))
    if not tables:
        return pd.DataFrame()
    return pd.concat(tables).groupby(level=0, sort=False).sum().rename_axis("class")


def _scores(counts: pd.DataFrame) -> pd.Series[str]:
    """Return "precision / recall" of each class as text, in percent."""
    precision = 100 * counts[_BOTH] / counts[_PREDICTED]
    recall = 100 * counts[_BOTH] / counts[_PRESENT]
    return precision.map(significant) + " / " + recall.map(significant)


def _confusion(counts: pd.DataFrame) -> pd.DataFrame:
    """Return what was predicted in bags with each class, in percent of these bags.

    A row is the class that is present, a column a predicted class: the row's own class on the
    diagonal, wrongly predicted classes elsewhere. With many classes the counts lack what was
    predicted instead, and the result has no columns.
    """
    instead = counts.iloc[:, _FIRST_INSTEAD:]
    classes = counts.index[: instead.shape[1]]
    instead = instead.set_axis(classes, axis="columns")
    is_diagonal = np.eye(len(counts), len(classes), dtype=bool)
    found = instead.mask(is_diagonal, counts[_BOTH], axis=0)
    return (100 * found.div(counts[_PRESENT], axis=0)).map(significant)
