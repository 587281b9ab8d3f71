"""Writes the runs of a comparison to a file for import into another store."""

from __future__ import annotations

import math
import sys
import zipfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, get_args

from milbench._utils.files import write_atomically
from milbench._version import __version__
from milbench.api.plan import Plan
from milbench.errors import UsageError
from milbench.store.artifacts import CHECKPOINT, GALLERY, PLAN, WEIGHTS, Artifact
from milbench.store.reader import StoreReader
from milbench.store.records import ORIGIN, PARENT, ROOT, MetricValue, RunRecord, RunSummary
from milbench.store.transfer.archive import (
    EXPORT_FORMAT,
    EXPORT_MANIFEST,
    CellCopy,
    LaunchCopy,
    Manifest,
    add,
    counts_text,
    sha256,
)

WEIGHTS_AND_GALLERY = (WEIGHTS, GALLERY)
"""The artifacts that an export may leave out: trained networks, which are large, and pictures of test bags, which may
have a licence of their own. A report without galleries needs neither."""


def export(
    store: StoreReader, name: str | None, out: Path, leave_out: Collection[str] = (), *, unfinished: bool = False
) -> str:
    """Write the launches whose plans make up a comparison, and its cells that are done or failed, to a file.

    Args:
        store: the store to read.
        name: the comparison; None stands for the one launched last.
        out: the file to write; its folder is made if it does not exist.
        leave_out: names of artifacts to leave out, such as "model.safetensors".
        unfinished: whether cells that were interrupted are written as well, with the checkpoints from which they go on.

    Returns:
        One line on what was written.

    Raises:
        UsageError: there is nothing to write, or the file cannot be written.
    """
    plan = store.plan(name, superseded=True)[0]
    runs = store.cell_runs()
    # A cell that was interrupted would have to start again elsewhere without its checkpoint.
    wanted = {c.id for c in plan.cells if c.id in runs and runs[c.id].status in ("done", "failed")}
    if unfinished:
        left = {c.id for c in plan.cells if c.id in runs and runs[c.id].status == "interrupted"}
        wanted |= {cell_id for cell_id in left if store.workspace.checkpoint(cell_id).is_file()}
    ended = {c.id: runs[c.id].run_id for c in plan.cells if c.id in wanted}
    if not ended:
        or_left = ", or was interrupted with a checkpoint" if unfinished else ""
        raise UsageError(f"nothing to export: no cell of {plan.name} is done or failed{or_left}")
    try:
        if out.is_dir():
            raise UsageError(f"cannot write {out}: it is a folder; name the file, such as {out / plan.name}.zip")
        write_atomically(out, lambda path: _write(path, store, plan, ended, leave_out))
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror or error}") from None
    counts = Counter(runs[c.id].status if c.id in ended else "left out" for c in plan.cells)
    return f"wrote {out}: {counts_text(counts, plan.name)}"


def origin(run: RunSummary) -> str:
    """Return the id that a run had in the store where it was made."""
    return run.tags.get(ORIGIN, run.run_id)


def _write(path: Path, store: StoreReader, plan: Plan, ended: dict[str, str], leave_out: Collection[str]) -> None:
    """Write the archive; ended: the ids of the runs to export by cell id."""
    with zipfile.ZipFile(path, "w") as archive:
        parents = [run.run_id for run in store.launches(plan.name) if store.artifact(run.run_id, PLAN)]
        launches = {run_id: LaunchCopy(**_snapshot(archive, store, run_id, leave_out)) for run_id in parents}
        cells = []
        for cell in plan.cells:
            if cell.id in ended:
                fields = _snapshot(archive, store, ended[cell.id], leave_out)
                if fields["status"] == "KILLED":
                    content = store.workspace.checkpoint(cell.id).read_bytes()
                    add(archive, f"{fields['run_id']}/{CHECKPOINT}", content)
                    fields["artifacts"][CHECKPOINT] = sha256(content)
                # A cell done in a launch that no longer counts is shown under the newest one.
                parent = launches.get(fields["tags"].get(PARENT), launches[parents[0]])
                cells.append(CellCopy(**fields, cell=cell, launch=parent.run_id))
        manifest = Manifest(
            format=EXPORT_FORMAT, milbench=__version__, name=plan.name, launches=list(launches.values()), cells=cells
        )
        add(archive, EXPORT_MANIFEST, manifest.model_dump_json().encode())


def _snapshot(archive: zipfile.ZipFile, store: StoreReader, run_id: str, leave_out: Collection[str]) -> dict[str, Any]:
    """Put the artifacts of a run into the archive and return the fields of its copy."""
    run, history = store.run(run_id), store.histories([run_id])[run_id]
    return {
        "run_id": origin(run),
        # A launch that is still going on has ended as far as the copy is concerned.
        "status": "KILLED" if run.is_open else run.status,
        "start": run.start,
        "end": run.start if run.is_open else run.end,
        # The path of the store's folder concerns nobody else, and a run that has ended does not need it.
        "tags": {name: tag for name, tag in sorted(run.tags.items()) if name != ROOT},
        "params": dict(sorted(run.params.items())),
        "metrics": {k: _values(history[k]) for k in sorted(history) if not k.startswith("system/")},
        "artifacts": _add_artifacts(archive, store, run, leave_out),
    }


def _values(history: list[MetricValue]) -> list[tuple[float | None, int, int]]:
    # Python's sort keeps the order of writing among the values of an epoch.
    return [(_value(v.value), v.time, v.epoch) for v in sorted(history, key=lambda v: v.epoch)]


def _value(value: float) -> float | None:
    """Return a value as JSON has it: an infinite one is the largest double, as in MLflow's own tables."""
    most = sys.float_info.max
    return None if math.isnan(value) else min(max(value, -most), most)


def _add_artifacts(
    archive: zipfile.ZipFile, store: StoreReader, run: RunRecord, leave_out: Collection[str]
) -> dict[Artifact, str]:
    """Put the artifacts of a run into the archive; return their SHA-256 by name."""
    digests: dict[Artifact, str] = {}
    for name in get_args(Artifact):
        if name not in leave_out and (file := store.artifact(run.run_id, name)):
            content = file.read_bytes()
            if not store.is_local:
                file.unlink()  # the copy of a server's artifact: those of thousands of cells would fill the disk
            add(archive, f"{origin(run)}/{name}", content)
            digests[name] = sha256(content)
    return digests
