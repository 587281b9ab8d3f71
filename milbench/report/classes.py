"""How well each class is recognised: its precision and recall with every loss, and what the best loss confuses."""

from __future__ import annotations

import numpy as np
import pandas as pd

from milbench.report.formatting import readable, significant
from milbench.report.study import Study
from milbench.report.table import Table

SCORES = "Of the label sets of test bags, over all seeds."
CONFUSION = (
    "In % of the test bags with the row's class: it is predicted, or missed, and the column's wrongly "
    "predicted."
)

_PRESENT = 0
_PREDICTED = 1
_BOTH = 2
_FIRST_INSTEAD = 3
"""The columns of `ClassCounts`: bags with a class, with its prediction and with both, then the classes instead."""


def class_tables(study: Study, task: str) -> list[Table]:
    """Return precision and recall of each class with every loss, and the confusion of the best; [] without counts."""
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
    """Return the counts of a loss over all seeds that kept them, a row a class."""
    tables = []
    for cell in study.done_cells(task, variant):
        counts = study.evidence(cell).counts.get(cell, {})
        tables.append(pd.DataFrame.from_dict(counts, orient="index"))
    if not tables:
        return pd.DataFrame()
    return pd.concat(tables).groupby(level=0, sort=False).sum().rename_axis("class")


def _scores(counts: pd.DataFrame) -> pd.Series[str]:
    """Return precision / recall of each class in percent."""
    precision = 100 * counts[_BOTH] / counts[_PREDICTED]
    recall = 100 * counts[_BOTH] / counts[_PRESENT]
    return precision.map(significant) + " / " + recall.map(significant)


def _confusion(counts: pd.DataFrame) -> pd.DataFrame:
    """Return in percent of the bags with the class of a row how often it is found, or that of a column instead.

    There are no columns where there are too many classes to count what was predicted instead.
    """
    instead = counts.iloc[:, _FIRST_INSTEAD:]
    classes = counts.index[: instead.shape[1]]
    instead = instead.set_axis(classes, axis="columns")
    is_diagonal = np.eye(len(counts), len(classes), dtype=bool)
    found = instead.mask(is_diagonal, counts[_BOTH], axis=0)
    return (100 * found.div(counts[_PRESENT], axis=0)).map(significant)
