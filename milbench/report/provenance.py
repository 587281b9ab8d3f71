"""The origin of every number: runs, code, machines, parameters and data of every cell, on the page and as JSON and CSV.

`manifest.json` holds it for programs, beside a digest of every file of the report; `results.csv` has a row a cell.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from milbench._version import __version__
from milbench.api.published import Rule
from milbench.api.results import STATUSES
from milbench.report.formatting import NOTHING, counted, decimals, number, shortened
from milbench.report.study import Study, seeds_named
from milbench.report.tables import group_anchor

REPORT_MANIFEST = "manifest.json"
ENVIRONMENT_TAGS = r"version|code|dirty|python|platform|machine|device|device_name|threads|library\..*"
"""The tags of runs that should be equal in all cells that are compared, as a regular expression."""
RULE_COLUMNS: dict[Rule, str] = {"last": "last", "validation": "chosen_on_validation", "test": "best_on_test"}


@dataclass(frozen=True, slots=True)
class CellOrigin:
    """One planned cell, its status and value, and its run in the store.

    Args:
        anchor: the id of the part of the page where its line stands.
        task: the label of the task.
        label: the label of the variant.
        seed: the seed.
        status: one of `milbench.api.results.STATUSES`.
        epoch: the epoch that the rule of the comparison chose.
        value: the primary metric on test bags at that epoch.
        run_id: the run in MLflow, "" where the cell was never started.
        origin: of an imported run, its first run's id, machine and device; "" otherwise.
        cell: the content hash of the cell.
        group: the parameters and tags that it shares with all started cells of its variant on its task, and not with
            all of the report.
        differs: those that it does not share with them either.
    """

    anchor: str
    task: str
    label: str
    seed: int
    status: str
    epoch: str
    value: str
    run_id: str
    origin: str
    cell: str
    group: str
    differs: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of every number of a report.

    Args:
        lines: every planned cell.
        shared: the parameters and tags that all started cells have in common.
        data: task -> name and digest of its data.
        warnings: what differs between cells and should not, a sentence each.
    """

    lines: list[CellOrigin]
    shared: dict[str, str]
    data: dict[str, str]
    warnings: list[str]


def provenance(study: Study) -> Provenance:
    """Return the origin of every number of a study."""
    known = {cell: _circumstances(study, cell) for cell in map(str, study.cells.index)}
    common = _in_common(study, known)
    lines = []
    for task in study.tasks:
        metric, rule = study.metric(task), study.rule(task)
        for variant in study.variants_of(task):
            group = study.group(task, variant)
            sample = study.sample(task, variant)
            digits = decimals(sample.mean, sample.spread, metric)
            shared = _in_common(study, {cell: known[cell] for cell in map(str, group.index)})
            for cell, seed, status, run in zip(
                map(str, group.index), group["seed"], group["status"], group["run_id"], strict=True
            ):
                value = number(float(sample.by_seed.get(seed, float("nan"))), digits + 1, metric)
                own = [item for item in known[cell].items() if item not in common]
                together = _listed(item for item in own if item in shared)
                differs = _listed(item for item in own if item not in shared)
                epoch = str(study.epochs.get((cell, rule), NOTHING))
                anchor = group_anchor(study, task, variant)
                origin = _origin(study.results.provenance.get(cell, {}))
                lines.append(
                    CellOrigin(
                        anchor=anchor,
                        task=task,
                        label=variant.label,
                        seed=seed,
                        status=status,
                        epoch=epoch,
                        value=value,
                        run_id=run,
                        origin=origin,
                        cell=cell,
                        group=together,
                        differs=differs,
                    )
                )
    data = {}
    for label, group in study.cells.groupby("task_label", sort=False):
        kinds = dict.fromkeys(f"{n} ({d})" for n, d in zip(group["task"], group["data_digest"], strict=True))
        data[str(label)] = "; ".join(kinds)
    return Provenance(lines, dict(sorted(common)), data, _warnings(study))


def status_counts(study: Study, task: str = "") -> dict[str, int]:
    """Return the number of cells of each status that occurs, of a task or of all, in the order of `STATUSES`."""
    cells = study.cells[study.cells["task_label"] == task] if task else study.cells
    counts = Counter(cells["status"].astype(str))
    order = [*STATUSES, *sorted(set(counts) - set(STATUSES))]
    return {status: counts[status] for status in order if counts[status]}


def unfinished(study: Study) -> list[str]:
    """Return the cells that are not done with their reasons; cells of one variant with the same reason share a line."""
    groups: dict[tuple[str, str, str, str], list[tuple[int, str]]] = {}
    for task in study.tasks:
        for variant in study.variants_of(task):
            group = study.group(task, variant)
            for seed, status, reason, run in group[["seed", "status", "reason", "run_id"]].itertuples(index=False):
                if status != "done":
                    key = (variant.label, task, str(status), shortened(reason or "", 300))
                    groups.setdefault(key, []).append((seed, str(run)))
    lines = []
    for (label, task, status, reason), members in groups.items():
        runs = ", ".join(run for _, run in members if run)
        text = f"{label} on {task}, {seeds_named([seed for seed, _ in members])}: {status}"
        text += f": {reason}" if reason else ""
        lines.append(f"{text} (run {runs})" if runs else text)
    return lines


def results_frame(study: Study) -> pd.DataFrame:
    """Return a row a planned cell: its identity and status, every metric under every rule, costs, parameters and tags.

    The epoch of a rule is chosen by the primary metric, and all metrics under that rule are those of that epoch. Cells
    that are not done have no values, since an unfinished run is no result.
    """
    results = study.results
    costs = results.costs.to_dict("index")
    values: dict[str, dict[str, Any]] = {}
    for cell in map(str, study.cells.index):
        row: dict[str, Any] = {}
        for rule, name in RULE_COLUMNS.items():
            if (cell, rule) in study.epochs:
                row[f"{name}/epoch"] = study.epochs[cell, rule]
                row |= {f"{name}/{metric}": value for metric, value in sorted(study.picked[cell, rule].items())}
        row |= {f"cost/{name}": value for name, value in costs.get(cell, {}).items()}
        row |= {f"param/{name}": value for name, value in results.params.get(cell, {}).items()}
        row |= {f"tag/{name}": value for name, value in results.provenance.get(cell, {}).items()}
        values[cell] = row
    frame = pd.DataFrame.from_dict(values, orient="index")
    epochs = [name for name in frame.columns if name.endswith("/epoch")]
    frame[epochs] = frame[epochs].astype("Int64")  # else one missing epoch would turn the others into floats, 12.0
    # The order of columns must not depend on which cell was the first to have a value.
    order = {name.partition("/")[0]: i for i, name in enumerate([*RULE_COLUMNS.values(), "cost", "param", "tag"])}
    columns = sorted(frame.columns, key=lambda name: (order[name.partition("/")[0]], not name.endswith("/epoch")))
    joined = study.cells.assign(comparison=results.name).join(frame[columns])
    joined["reason"] = joined["reason"].fillna("").map(lambda reason: " ".join(str(reason).split()))
    return joined.rename_axis("cell")


def write_manifest(folder: Path, study: Study, provenance: Provenance) -> None:
    """Write manifest.json: the comparison, what its cells have in common, their runs, and a digest of every file.

    Its `shared` holds the parameters, the versions of code and libraries and the devices that all started cells have
    in common. What differs is in `cells`, and in `warnings` where it should not differ.

    Args:
        folder: the report's folder; all its other files must have been written, since their SHA-256 digests go in.
        study: the results.
        provenance: what `provenance` returned for them.
    """
    results = study.results
    content: dict[str, Any] = {
        "comparison": results.name,
        "title": results.title,
        "preset": results.preset,
        "command": results.command,
        "launched": results.launched,
        "store": results.tracking_uri,
        "rendered_by": f"milbench {__version__}",
        "data": provenance.data,
        "shared": provenance.shared,
        "warnings": provenance.warnings,
        "cells": [
            {
                "cell": line.cell,
                "what": f"{line.label} on {line.task}, seed {line.seed}",
                "status": line.status,
                "run": line.run_id,
                "origin": line.origin,
                "differs": ", ".join(filter(None, [line.group, line.differs])),
            }
            for line in provenance.lines
        ],
        "sha256": {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    }
    (folder / REPORT_MANIFEST).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _in_common(study: Study, known: Mapping[str, Mapping[str, str]]) -> set[tuple[str, str]]:
    """Return the parameters and tags that the started ones of these cells have in common."""
    started = [set(items.items()) for cell, items in known.items() if study.results.provenance.get(cell)]
    return set.intersection(*started) if started else set()


def _listed(items: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in items)


def _circumstances(study: Study, cell: str) -> dict[str, str]:
    """Return the parameters of a cell and those tags of its run that should be equal in all cells, as text."""
    params = study.results.params.get(cell, {})
    tags = study.results.provenance.get(cell, {})
    return {k: str(v) for k, v in params.items() if k not in ("loss", "task", "seed")} | {
        k: str(v) for k, v in tags.items() if re.fullmatch(ENVIRONMENT_TAGS, k)
    }


def _origin(tags: dict[str, str]) -> str:
    if "origin_run" not in tags:
        return ""
    return f"imported: run {tags['origin_run']} on {tags.get('host') or 'an unknown host'}, " + (
        tags.get("device_name") or tags.get("device") or "unknown device"
    )


def _warnings(study: Study) -> list[str]:
    seen: dict[str, Counter[str]] = {}
    for cell in map(str, study.cells.index):
        for key, value in study.results.provenance.get(cell, {}).items():
            if re.fullmatch(ENVIRONMENT_TAGS, key):
                # Which of a machine's GPUs computed a cell does not matter; their names are another tag.
                kind = str(value).partition(":")[0] if key == "device" else str(value)
                seen.setdefault(key, Counter())[kind] += 1
    warnings = []
    for key, counts in sorted(seen.items()):
        if len(counts) > 1:
            listed = ", ".join(f"{value or 'unknown'} ({counted(n, 'cell')})" for value, n in counts.most_common())
            warnings.append(f"Cells differ in {key}: {listed}.")
    changed = sum(n for value, n in seen.get("dirty", Counter()).items() if value.lower() in ("yes", "true", "1"))
    if changed:
        warnings.append(f"The code of {counted(changed, 'cell')} had changes that its revision does not contain.")
    for task, group in study.cells.groupby("task_label", sort=False):
        if len(set(group["data_digest"])) > 1:
            warnings.append(f"Cells of {task} were made from different data.")
    return warnings
