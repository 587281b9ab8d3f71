"""The predictions of a published report, from which anyone can compute its metrics again.

Every compared cell has a file predictions/CELL.npz, in the format of the file that a cell keeps.
"""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from milbench._utils.files import write_atomically
from milbench.contracts.predictions import (
    PREDICTIONS_FILE,
    SINGLE,
    Predictions,
    load_predictions,
    save_predictions,
)
from milbench.experiment.plan import Plan
from milbench.report.study import Study
from milbench.report.values import rows_of

FOLDER = "predictions"
"""The folder of these files in the folder of a report."""


def predictions_file(folder: Path, cell: str) -> Path | None:
    """Return the file with the predictions of a cell, or None if there is none.

    `folder` is the folder of the cell, or the folder of a published report.
    """
    for path in (folder / PREDICTIONS_FILE, folder / FOLDER / f"{cell}.npz"):
        if path.is_file():
            return path
    return None


def save_compared(study: Study, report: Path) -> None:
    """Write the predictions of all compared cells that have kept them into the folder of a report.

    Draws of a search are left out: their metrics in the frame say all that a search needs.
    """
    shutil.rmtree(report / FOLDER, ignore_errors=True)
    with_single = _judges_single_instances(study.plan)
    for row in rows_of(study.cells):
        folder = study.results.folders.get(row.cell)
        source = None if folder is None else predictions_file(folder, row.cell)
        if source is None:
            continue
        small = {}
        for epoch, (number, predictions) in load_predictions(source).items():
            # The report shows the last epoch, or else the best one by validation bags.
            if epoch == "last" or study.plan.spec.selection == "validation":
                small[epoch] = number, _without_unused(predictions, with_single=with_single)
        target = report / FOLDER / f"{row.cell}.npz"
        target.parent.mkdir(exist_ok=True)
        write_atomically(target, partial(save_predictions, by_epoch=small))


def _judges_single_instances(plan: Plan) -> bool:
    """Return whether losses are compared by bags of one instance, so that a report needs them."""
    metrics = set(plan.spec.compare_by)
    for task in plan.tasks.values():
        metrics.add(task.primary)
    return "instance_error" in metrics


def _without_unused(predictions: Predictions, *, with_single: bool) -> Predictions:
    """Return predictions without what no verdict of the report is made from.

    That is: the bags of one instance, unless losses are compared by them; the scores that only such
    bags need; and what bags are made of, which test_items.npz has for all cells together.
    """
    splits = {}
    for name, bags in predictions.splits.items():
        is_single = name.endswith(SINGLE)
        if is_single and not with_single:
            continue
        classes = bags.classes if is_single or bags.is_single_instance else None
        splits[name] = replace(bags, classes=classes, group=None, items=None)
    return replace(predictions, splits=splits)
