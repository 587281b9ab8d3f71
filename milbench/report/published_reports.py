"""Published reports: a comparison as small files.

`milbench report --from` makes the page of the comparison from them.
"""

import gzip
import json
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from milbench._utils.files import write_atomically
from milbench.contracts.outcomes import (
    CLASSES_FILE,
    OUTCOMES_FILE,
    Outcomes,
    save_outcomes,
)
from milbench.errors import UsageError
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.report.bag_items import BAG_ITEMS_FILE, BagItems, save_bag_items
from milbench.report.evidence import ClassCounts
from milbench.report.learning import main_learning_metric, other_learning_metrics
from milbench.report.published_predictions import FOLDER as PREDICTIONS_FOLDER
from milbench.report.published_predictions import save_compared
from milbench.report.study import Study
from milbench.report.uses import USES
from milbench.store.results import COLUMNS, Results

PLAN = "comparison.json.gz"
"""The file of the plan: what was asked for, and the cells."""

FRAME = "results.csv.gz"
"""The file of the frame of results: a row for each value of a cell, by epoch and metric."""

_WHOLE_NUMBERS = ("seed", "epoch", "draw")
"""The columns of the frame that are whole numbers."""
_NUMBERS = (*_WHOLE_NUMBERS, "value")
"""All columns of the frame that are numbers."""


def save(results: Results, folder: Path) -> None:
    """Write what a page is made from as small files.

    They are the plan, and the frame of results. If cells have kept them, there are also
    outcomes.npz with the outcomes by the metrics that losses are judged by, test_items.npz with the
    items of test bags, classes.json with the counts by class, and the folder predictions with the
    predictions of every compared cell.

    Raises UsageError if the folder cannot be written.
    """
    study = Study(results)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_compressed(folder / PLAN, plan_to_json(results.plan))
        # The column `final` says which rows the report shows. It is for people who open the file:
        # `read` leaves it out, since a `Study` can always compute it again.
        frame = results.frame[list(COLUMNS)].assign(final=study.is_final())
        _write_compressed(folder / FRAME, frame.to_csv(index=False, float_format="%.8g"))
        # Results that `read` has returned for this folder have all their evidence in these files.
        # The files stay as they are: to write them again, they would have to be read while they are
        # replaced.
        were_read_from_here = folder in results.folders.values()
        if not were_read_from_here:
            _save_outcomes(study, folder / OUTCOMES_FILE)
            _save_bag_items(study, folder / BAG_ITEMS_FILE)
            _save_counts(study, folder / CLASSES_FILE)
            save_compared(study, folder)
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror or error}") from None


def _write_compressed(path: Path, text: str) -> None:
    # By default gzip writes the time into the file. Without it, equal texts give equal bytes.
    write_atomically(path, partial(Path.write_bytes, data=gzip.compress(text.encode(), mtime=0)))


def _compared(study: Study) -> list[str]:
    """Return the compared cells with a folder. Of the draws of a search the frame has enough."""
    folders = study.results.folders
    return [cell for cell in sorted(study.cells["cell"]) if cell in folders]


def _save_outcomes(study: Study, path: Path) -> None:
    """Write the outcomes of compared cells for the metrics that losses are judged by.

    Outcomes say of one network, for every test item, what the item adds to a metric.
    """
    kept = _judged_metrics(study)
    outcomes: dict[str, Outcomes] = {}
    for cell in _compared(study):
        by_epoch = study.evidence(cell).outcomes
        if not by_epoch:
            continue
        # The outcomes after the last epoch come first. Those after the best epoch on validation
        # bags follow, unless this was the last epoch.
        of_last = by_epoch[0]
        of_best = by_epoch[-1]
        chosen = of_best if study.plan.spec.selection == "validation" else of_last
        for name, of_items in chosen.items():
            # Where the results are of a published report in another folder, `chosen` has the
            # outcomes of all cells, by CELL/METRIC. The names of other cells keep their prefix, so
            # that they are not among `kept`.
            metric = name.removeprefix(f"{cell}/")
            if metric in kept:
                outcomes[f"{cell}/{metric}"] = of_items
    if outcomes:
        write_atomically(path, lambda draft: save_outcomes(draft, outcomes))
    else:
        path.unlink(missing_ok=True)


def _judged_metrics(study: Study) -> set[str]:
    """Return the metrics by which losses are compared, by which learning shows, and of each use."""
    names = {*study.plan.spec.compare_by}
    for task in study.tasks:
        judged = [study.metric_of_use(task, use) for use in USES]
        names.add(study.primary(task))
        names.add(main_learning_metric(study, task))
        names.update(other_learning_metrics(study, task))
        names |= {name for name in judged if name is not None}
    # Some tasks know the optimum of a metric, and have a further metric: the excess over it. Two
    # losses differ by the excess as much as by the metric itself, whose outcomes are kept.
    return {name.removeprefix("excess_") for name in names}


def _save_bag_items(study: Study, path: Path) -> None:
    """Write the groups and items of the test bags of compared cells.

    The items are what test bags are made of, and may be in several bags. Bags of one group, such as
    a patient, are not independent.
    """
    found: dict[str, BagItems] = {}
    for cell in _compared(study):
        found |= study.evidence(cell).bag_items
    if found:
        save_bag_items(path, found)
    else:
        path.unlink(missing_ok=True)


def _save_counts(study: Study, path: Path) -> None:
    """Write the counts by class of compared cells."""
    counts: dict[str, ClassCounts] = {}
    for cell in _compared(study):
        counts |= study.evidence(cell).counts
    if counts:
        text = json.dumps(dict(sorted(counts.items())), separators=(",", ":")) + "\n"
        write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
    else:
        path.unlink(missing_ok=True)


def read(folder: Path) -> Results:
    """Return the results that `save` wrote into a folder.

    Raises UsageError if a file is missing or damaged.
    """
    for name in (PLAN, FRAME):
        if not (folder / name).is_file():
            raise UsageError(f"{folder} is not a published report: it lacks {name}")
    try:
        plan = plan_from_json(gzip.decompress((folder / PLAN).read_bytes()))
        frame = _read_frame(folder / FRAME)
    except (OSError, ValueError, KeyError, EOFError, zlib.error) as error:
        raise UsageError(f"{folder} cannot be read: {error}") from None
    folders: dict[str, Path] = {}
    evidence = (OUTCOMES_FILE, BAG_ITEMS_FILE, CLASSES_FILE, PREDICTIONS_FOLDER)
    if any((folder / name).exists() for name in evidence):
        # Each is for all cells together, so that all done cells have the same folder.
        done = frame.loc[frame["status"] == "done", "cell"]
        folders = dict.fromkeys(map(str, done), folder)
    return Results(plan, frame, folders, is_published=True)


def _read_frame(path: Path) -> pd.DataFrame:
    """Return the frame that `save` wrote, without the column `final`.

    An empty field is a missing value in a column of numbers, and an empty text elsewhere.
    """
    dtypes: dict[str, Any] = {name: str for name in COLUMNS if name not in _NUMBERS}
    # Int64 of pandas allows missing values: most rows have no draw, and some have no epoch.
    dtypes |= dict.fromkeys(_WHOLE_NUMBERS, "Int64")
    frame = pd.read_csv(
        path,
        dtype=dtypes,
        keep_default_na=False,
        na_values={name: [""] for name in _NUMBERS},
    )
    return frame.astype({"seed": int, "value": float})[list(COLUMNS)]
