"""How well each class is recognised: its precision and recall with every loss, and what the best loss confuses."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from milbench.api.outcomes import CLASSES_FILE
from milbench.report.formatting import readable, significant
from milbench.report.study import Study
from milbench.report.tables import Table

Counts = dict[str, dict[str, list[int]]]
"""Cell -> class -> its counts."""
SCORES = "Of the label sets of test bags, over all seeds."
CONFUSION = (
    "In % of the test bags with the row's class: it is predicted, or missed, and the column's wrongly "
    "predicted."
)


def class_tables(study: Study, task: str) -> list[Table]:
    """Return precision and recall of each class with every loss, and the confusion of the best; [] without counts."""
    # In a published report all cells are in one large file, which is read once.
    read = cache(load_counts)
    counts = {}
    for variant in map(str, study.summary(task).index):
        rows = _pooled_counts(study, task, variant, read)
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


def load_counts(path: Path) -> Counts:
    """Return the counts of each class by cell; nothing where the file is missing or damaged."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _pooled_counts(
    study: Study, task: str, variant: str, read: Callable[[Path], Counts]
) -> pd.DataFrame:
    """Return the counts of a loss over all seeds that kept them, a row a class."""
    known = [
        read(path).get(cell, {}) for cell, path in study.files(task, variant, CLASSES_FILE).items()
    ]
    rows = pd.concat(
        [pd.DataFrame.from_dict(counts, orient="index") for counts in known] or [pd.DataFrame()]
    )
    return rows.groupby(level=0, sort=False).sum().rename_axis("class")
