"""Imports an export into a store, all of it or nothing.

Runs are inserted unpublished: no command but another import finds them. They are published when all of them are
complete. The next import deletes the runs that a killed import has left unpublished.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from milbench._utils import locks
from milbench._utils.files import write_atomically
from milbench.errors import UsageError, as_usage
from milbench.store.artifacts import CHECKPOINT, Artifact
from milbench.store.records import HOST, KIND, ORIGIN, PARENT, ROOT, WORKSPACE, CellRun, MetricValue, logged
from milbench.store.transfer.archive import (
    STATES,
    CellCopy,
    LaunchCopy,
    Manifest,
    counts_text,
    open_export,
)
from milbench.store.transfer.export import origin
from milbench.store.transfer.lease import import_lease
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter

IMPORTED, IMPORTED_FROM = "milbench.imported", "milbench.imported_from"
"""Tags of an imported run: when it was imported, and the SHA-256 of the file that it was in."""
UNPUBLISHED = "staged"
"""The kind of a run that is inserted, not yet published."""


def import_(path: Path, workspace: Workspace) -> str:
    """Import an export into the store of a workspace, all of it or nothing.

    Args:
        path: the file that `export` wrote.
        workspace: the folder whose store takes the runs; it is made if it does not exist.

    Returns:
        One line on what was imported.

    Raises:
        UsageError: the file is damaged or of a version that this one cannot read, another import is going on, or the
            store has results of its own for cells of the file. The store is left as it was.
    """
    with ExitStack() as stack:
        archive, manifest = stack.enter_context(open_export(path, "import"))
        with as_usage(), path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        store = StoreWriter(workspace.make(), waits=False)
        if not stack.enter_context(locks.try_lock(workspace.lock("import"))):
            raise UsageError(f"another import into {workspace.path} is going on")
        stack.enter_context(import_lease(store, manifest.name))
        return _join(manifest, archive, digest, store)


def _join(manifest: Manifest, archive: zipfile.ZipFile, digest: str, store: StoreWriter) -> str:
    """Insert the runs that the store lacks, complete those it has; return one line on what was done."""
    here, known = _origins(store), store.cell_runs()
    new = [run for run in manifest.runs if run.run_id not in here and not _is_begun_here(run, known)]
    _refuse_clashes(new, store)
    _discard_unpublished(store)
    # Runs that were imported without weights or pictures get them if this file has them.
    old = [run for run in manifest.runs if run.run_id in here]
    added = Counter(name for run in old for name in _complete(store, here[run.run_id], run, archive))
    moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    for run in new:
        tags = {IMPORTED: moment, IMPORTED_FROM: f"sha256:{digest}"}
        if isinstance(run, CellCopy):
            tags[PARENT] = here[run.launch]
        here[run.run_id] = _insert(store, manifest.name, run, archive, tags)
    for run in new:
        _publish(store, here[run.run_id], run)
    states = {run.run_id: STATES[run.status] for run in new}
    counts = Counter(states.get(run.run_id, "already here") for run in manifest.cells)
    if not new and not added:
        return f"nothing to import: {counts_text(counts, manifest.name)}"
    parts = ", ".join(f"{name} of {n}" for name, n in sorted(added.items()))
    extra = f"; what was here had lacked {parts}" if added else ""
    return f"imported {counts_text(counts, manifest.name)}{extra}; next: milbench report {manifest.name}"


def _is_begun_here(run: LaunchCopy, known: Mapping[str, CellRun]) -> bool:
    """Return whether a run is of an interrupted cell which the store has begun itself, and goes on with by itself."""
    return isinstance(run, CellCopy) and run.status == "KILLED" and run.cell.id in known


def _origins(store: StoreWriter) -> dict[str, str]:
    """Return the ids of all runs in the store, by the ids that they had in the stores where they were made."""
    return {origin(run): run.run_id for run in [*store.search("launch"), *store.search("cell")]}


def _refuse_clashes(new: Iterable[LaunchCopy], store: StoreWriter) -> None:
    """Raise UsageError if a cell would have two results: a report can show only one of them."""
    runs = store.cell_runs()
    clashes = [
        run
        for run in new
        if isinstance(run, CellCopy)
        and run.status == "FINISHED"
        and run.cell.id in runs
        and runs[run.cell.id].status == "done"
    ]
    if clashes:
        first = clashes[0]
        raise UsageError(
            f"nothing was imported: {len(clashes)} of its cells were done here by other runs, the first {first.cell} "
            f"(run {first.run_id} there, {runs[first.cell.id].run_id} here); another --root can hold them"
        )


def _insert(store: StoreWriter, name: str, copy: LaunchCopy, archive: zipfile.ZipFile, tags: dict[str, str]) -> str:
    """Write a copy into the store as a run that is not yet published; return its id there.

    Args:
        store: the store.
        name: the comparison.
        copy: the run as it was exported.
        archive: the export, which has its artifacts.
        tags: further tags.
    """
    # An unpublished run belongs to this machine and workspace, whose next import may discard it.
    run_id = store.create(name, {**copy.tags, ORIGIN: copy.run_id, **tags, KIND: UNPUBLISHED}, start=copy.start)
    values = [
        (metric, MetricValue(math.nan if value is None else logged(value), moment, epoch))
        for metric, history in copy.metrics.items()
        for value, moment, epoch in history
    ]
    store.log_values(run_id, copy.params, values)
    if isinstance(copy, CellCopy):
        store.log_data(run_id, copy.cell)
    _log_files(store, run_id, copy, archive, copy.artifacts)
    store.end(run_id, copy.status, moment=copy.end)
    return run_id


def _complete(store: StoreWriter, run_id: str, copy: LaunchCopy, archive: zipfile.ZipFile) -> list[Artifact]:
    """Add the artifacts of which a run in the store has nothing or only a part; return their names."""
    sizes = store.artifact_sizes(run_id)
    there: list[Artifact] = [a for a in copy.artifacts if a != CHECKPOINT]  # the cell may have gone on here since
    lacking = [a for a in there if sizes.get(a) != archive.getinfo(f"{copy.run_id}/{a}").file_size]
    _log_files(store, run_id, copy, archive, lacking)
    return lacking


def _log_files(
    store: StoreWriter, run_id: str, copy: LaunchCopy, archive: zipfile.ZipFile, artifacts: Iterable[Artifact]
) -> None:
    """Copy artifacts from the export into the store, and checkpoints to where they lie, none as a whole in memory."""
    for artifact in artifacts:
        member = f"{copy.run_id}/{artifact}"
        if artifact == CHECKPOINT and isinstance(copy, CellCopy):
            write_atomically(store.workspace.checkpoint(copy.cell.id), partial(_unpack, archive, member))
            continue
        with tempfile.TemporaryDirectory(prefix="milbench-") as folder:
            path = Path(folder) / artifact
            _unpack(archive, member, path)
            store.log_file(run_id, path)


def _unpack(archive: zipfile.ZipFile, member: str, path: Path) -> None:
    with archive.open(member) as content, path.open("wb") as file:
        shutil.copyfileobj(content, file)


def _publish(store: StoreWriter, run_id: str, copy: LaunchCopy) -> None:
    """Publish a run: make it an ordinary one, of the machine and workspace that computed it."""
    kind = "cell" if isinstance(copy, CellCopy) else "launch"
    store.tag(run_id, {KIND: kind, **{name: copy.tags.get(name, "") for name in (HOST, ROOT, WORKSPACE)}})


def _discard_unpublished(store: StoreWriter) -> None:
    """Delete the unpublished runs that a killed import of this workspace has left."""
    for run in store.search(UNPUBLISHED):
        if store.is_own(run):
            store.delete(run.run_id)
            if store.is_local:  # MLflow marks the run as deleted and keeps its files
                shutil.rmtree(store.workspace.artifacts / run.run_id, ignore_errors=True)
