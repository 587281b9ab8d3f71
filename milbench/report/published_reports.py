"""Published reports: a comparison as small files, from which `milbench report --from` makes its page again."""

import gzip
import json
import zlib
from functools import partial
from pathlib import Path

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
from milbench.report.evidence import ClassCounts, evidence_in
from milbench.report.study import Study
from milbench.store.results import COLUMNS, Results

PLAN, FRAME = "comparison.json.gz", "results.csv.gz"
_NUMBERS = ("seed", "epoch", "draw", "value")


def save(results: Results, folder: Path) -> None:
    """Write what a page is made from, as small files, or raise a UsageError where the folder cannot be written.

    They are comparison.json.gz (the plan), results.csv.gz (the frame, with the column `final` of `Study.is_final`) and,
    where cells have them, outcomes.npz (of the metrics that losses are compared by) and classes.json.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        frame = results.frame[list(COLUMNS)].assign(final=Study(results).is_final())
        texts = {
            PLAN: plan_to_json(results.plan),
            FRAME: frame.to_csv(index=False, float_format="%.8g"),
        }
        _save_outcomes(results, folder / OUTCOMES_FILE)
        counts: dict[str, ClassCounts] = {}
        for source in {*results.folders.values()}:
            counts |= evidence_in(source).counts
        if counts:
            texts[CLASSES_FILE] = (
                json.dumps(dict(sorted(counts.items())), separators=(",", ":")) + "\n"
            )
        for name, text in texts.items():  # the same bytes for the same frame
            content = (
                gzip.compress(text.encode(), mtime=0) if name.endswith(".gz") else text.encode()
            )
            write_atomically(folder / name, partial(Path.write_bytes, data=content))
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror or error}") from None


def read(folder: Path) -> Results:
    """Return the results that `save` wrote into a folder. Raises UsageError where a file is missing or damaged."""
    for name in (PLAN, FRAME):
        if not (folder / name).is_file():
            raise UsageError(f"{folder} is not a published report: it lacks {name}")
    try:
        plan = plan_from_json(gzip.decompress((folder / PLAN).read_bytes()))
        text = {name: str for name in COLUMNS if name not in _NUMBERS}
        frame = pd.read_csv(folder / FRAME, dtype=text | dict.fromkeys(_NUMBERS[:3], "Int64"), keep_default_na=False,
                            na_values={name: [""] for name in _NUMBERS})  # fmt: skip
        frame = frame.astype({"seed": int, "value": float})[list(COLUMNS)]
    except (OSError, ValueError, KeyError, EOFError, zlib.error) as error:
        raise UsageError(f"{folder} cannot be read: {error}") from None
    has_outcomes = (folder / OUTCOMES_FILE).is_file()
    done = frame.loc[(frame["status"] == "done") & has_outcomes, "cell"]
    return Results(plan, frame, dict.fromkeys(map(str, done), folder))


def _save_outcomes(results: Results, path: Path) -> None:
    """Write the outcomes of all cells for the metrics that losses are compared by."""
    if path.parent in results.folders.values():
        return  # published before: nothing has changed
    study = Study(results)
    names = {
        *results.plan.spec.compare_by,
        *map(study.primary, study.tasks),
        *map(study.line_metric, study.tasks),
    }
    # An excess over an optimum differs between losses by the same as the metric itself.
    compared = {name.removeprefix("excess_") for name in names}
    outcomes: dict[str, Outcomes] = {}
    for cell, folder in sorted(results.folders.items()):
        by_epoch = evidence_in(folder).outcomes
        if not by_epoch:
            continue
        chosen = by_epoch[-1] if results.plan.spec.selection == "validation" else by_epoch[0]
        for name, of_items in chosen.items():
            if name in compared:
                outcomes[f"{cell}/{name}"] = of_items
    if not outcomes:
        path.unlink(missing_ok=True)
        return
    write_atomically(path, lambda draft: save_outcomes(draft, outcomes))
