"""The results of a comparison as one tidy frame, a row a cell and metric."""

from __future__ import annotations

import pandas as pd

from milbench.report.study import Study

COLUMNS = (
    "comparison", "task", "loss", "recipe", "supervision", "seed", "status", "rule", "epoch", "split", "metric",
    "value", "cell", "run",
)  # fmt: skip


def tidy_frame(study: Study) -> pd.DataFrame:
    """Return every metric of every finished cell at the epoch by which losses are compared.

    Args:
        study: the results.

    Returns:
        The columns COLUMNS: a row a cell and metric, with its split, "" for one that belongs to none. A cell that is
        not done has one row without a metric, so that none is hidden.
    """
    rows = []
    for task in study.tasks:
        rule = study.rule(task)
        for variant in study.variants_of(task):
            for cell, seed, status, run in study.group(task, variant)[["seed", "status", "run_id"]].itertuples():
                epoch = study.epochs.get((str(cell), rule))
                values = study.picked.get((str(cell), rule), {})
                shared = (
                    study.results.name,
                    task,
                    variant.loss,
                    variant.recipe,
                    variant.supervision,
                    int(seed),
                    status,
                )
                for name, value in (values if status == "done" else {}).items() or [("", float("nan"))]:
                    split, _, metric = name.rpartition("/")
                    rows.append((*shared, rule, epoch, split, metric, value, str(cell), run))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame["epoch"] = frame["epoch"].astype("Int64")
    return frame
