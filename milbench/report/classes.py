"""How well each class is recognised: its precision and recall with every loss, and what the best loss confuses."""

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


def class_tables(study: Study, task: str) -> list[Table]:
    """Return precision and recall of each class with every loss, and the confusion of the best; [] without counts."""
    counts = {}
    for variant in map(str, study.summary(task).index):
        rows = _pooled_counts(study, task, variant)
        if len(rows):
            counts[readable(variant)] = rows
    if not counts:
        return []
    scores = {
        variant: (100 * rows[2] / rows[1]).map(significant)
        + " / "
        + (100 * rows[2] / rows[0]).map(significant)
        for variant, rows in counts.items()
    }
    tables = [
        Table(f"Precision / recall (%) by class on {readable(task)}", pd.DataFrame(scores), SCORES)
    ]
    (best, rows), *_ = counts.items()
    instead = rows.iloc[:, 3:].set_axis(rows.index[: rows.shape[1] - 3], axis="columns")
    if len(instead.columns) > 1:
        shares = instead.mask(np.eye(len(rows), dtype=bool), rows[2], axis=0).div(rows[0], axis=0)
        title = f"What {best} takes for what on {readable(task)}"
        tables.append(Table(title, (100 * shares).map(significant), CONFUSION))
    return tables


def _pooled_counts(study: Study, task: str, variant: str) -> pd.DataFrame:
    """Return the counts of a loss over all seeds that kept them, a row a class."""
    tables = []
    for cell in study.done_cells(task, variant):
        counts = study.evidence(cell).counts.get(cell, {})
        tables.append(pd.DataFrame.from_dict(counts, orient="index"))
    rows = pd.concat(tables or [pd.DataFrame()])
    return rows.groupby(level=0, sort=False).sum().rename_axis("class")
