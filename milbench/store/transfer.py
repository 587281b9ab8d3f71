"""Runs as one file that another store takes in: `milbench export` and `milbench import`.

The file is a zip of `manifest.json` and of artifacts named RUN/ARTIFACT, whose SHA-256 is in the manifest. The names in
it are compared with those that the manifest implies and never used as paths; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from milbench._utils import locks
from milbench._utils.files import write_atomically
from milbench._version import __version__
from milbench.api.plan import COMPARISON_NAME, Plan
from milbench.errors import UsageError
from milbench.store import run_copies
from milbench.store.import_lease import import_lease
from milbench.store.mlflow_store import CELL, PARENT, Store
from milbench.store.run_copies import Artifact, CellCopy, LaunchCopy
from milbench.store.workspace import Workspace

FORMAT = 1
"""Raise it when this version would misread what an older one wrote, or an older one what this one writes."""
MANIFEST = "manifest.json"
IMPORTED, IMPORTED_FROM = "milbench.imported", "milbench.imported_from"
"""Tags that say when a run came here, and the SHA-256 of the file that it came in."""


class Manifest(BaseModel):
    """What is in an export: the launches of a comparison that count, the newest first, and the runs of its cells."""

    model_config = ConfigDict(extra="forbid")

    format: int
    milbench: str = Field(description="the version that wrote it")
    name: str = Field(pattern=COMPARISON_NAME)
    launches: list[LaunchCopy] = Field(min_length=1)
    cells: list[CellCopy]

    @property
    def runs(self) -> list[LaunchCopy]:
        """Return all runs, the launches first."""
        return [*self.launches, *self.cells]

    def members(self) -> dict[str, str]:
        """Return name and digest of everything that belongs beside the manifest."""
        return {f"{run.run_id}/{name}": digest for run in self.runs for name, digest in run.artifacts.items()}


# -- out of a store -------------------------------------------------------------------------------------------------


def export(store: Store, name: str | None, out: Path, leave_out: Collection[str] = ()) -> str:
    """Write a comparison's launches that count, and its cells that are done or failed; say what was written.

    Raises UsageError where there is nothing to write, or no way to.
    """
    plan = store.plan(name)[0]
    runs = store.cell_runs()
    # What was interrupted would have to start again elsewhere: its checkpoint stays here.
    ended = {c.id: runs[c.id].run_id for c in plan.cells if c.id in runs and runs[c.id].status in ("done", "failed")}
    if not ended:
        raise UsageError(f"nothing to export: no cell of {plan.name} is done or failed")
    try:
        write_atomically(out, lambda path: _write(path, store, plan, ended, leave_out))
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror or error}") from None
    counts = Counter(runs[c.id].status if c.id in ended else "left out" for c in plan.cells)
    return f"wrote {out}: {_cells(counts, plan.name)}"


def _write(path: Path, store: Store, plan: Plan, ended: dict[str, str], leave_out: Collection[str]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        parents = [run.info.run_id for run in store.launches(plan.name)]
        launches = {run_id: LaunchCopy(**_copied(archive, store, run_id, leave_out)) for run_id in parents}
        cells = []
        for cell in plan.cells:
            if cell.id in ended:
                fields = _copied(archive, store, ended[cell.id], leave_out)
                # A cell done in a launch that no longer counts is shown under the newest one.
                parent = launches.get(fields["tags"].get(PARENT), launches[parents[0]])
                cells.append(CellCopy(**fields, cell=cell, launch=parent.run_id))
        manifest = Manifest(
            format=FORMAT, milbench=__version__, name=plan.name, launches=list(launches.values()), cells=cells
        )
        _add(archive, MANIFEST, manifest.model_dump_json().encode())


def _copied(archive: zipfile.ZipFile, store: Store, run_id: str, leave_out: Collection[str]) -> dict[str, Any]:
    """Put the artifacts of a run into the archive and return the fields of its copy."""
    fields = run_copies.snapshot(store, run_id)
    digests = {}
    for name in get_args(Artifact):
        if name not in leave_out and (file := store.artifact(run_id, name)):
            content = file.read_bytes()
            _add(archive, f"{fields['run_id']}/{name}", content)
            digests[name] = _sha256(content)
    return {**fields, "artifacts": digests}


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name)  # dated 1980: the same runs make the same bytes
    member.external_attr = 0o644 << 16
    archive.writestr(member, content, zipfile.ZIP_DEFLATED)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -- into a store ---------------------------------------------------------------------------------------------------


def import_(path: Path, root: Workspace) -> str:
    """Take an export into the store under a root, all of it or nothing; say what came.

    Raises UsageError, with the store as it was, where the file is damaged, written by another version, or holds
    results of cells that the store has results of its own for.
    """
    with ExitStack() as stack:
        with _blaming(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            manifest = _checked(archive)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        store = Store(root.make())
        if not stack.enter_context(locks.try_lock(root.lock("import"))):
            raise UsageError(f"another import into {root.path} is going on")
        stack.enter_context(import_lease(store, manifest.name))
        return _join(manifest, archive, digest, store)


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file raises into one line that names it."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"cannot import {path}: {where} in its manifest: {first['msg']}") from None
    except OSError as error:
        raise UsageError(f"cannot import {path}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 zipfile, zlib, json and what reads their output fail in many ways
        raise UsageError(f"cannot import {path}: {str(error)[:300] or type(error).__name__}") from None


def _checked(archive: zipfile.ZipFile) -> Manifest:
    """Return the manifest of an export, all of which is as it says. Raises ValueError and more."""
    raw = json.loads(archive.read(MANIFEST))
    if raw.get("format") != FORMAT:
        raise ValueError(
            f"it has format {raw.get('format')}, written by milbench {raw.get('milbench')}; "
            f"this is milbench {__version__}, which reads format {FORMAT}"
        )
    manifest = Manifest.model_validate(raw)
    _check_members(manifest, archive)
    _check_runs(manifest, archive)
    return manifest


def _check_members(manifest: Manifest, archive: zipfile.ZipFile) -> None:
    expected, found = manifest.members(), set(archive.namelist()) - {MANIFEST}
    if lacking := sorted(set(expected) - found):
        raise ValueError(f"it lacks {lacking[0]}")
    if strange := sorted(found - set(expected)):
        raise ValueError(f"its manifest says nothing of {strange[0]!r}")
    for name, digest in expected.items():
        if _sha256(archive.read(name)) != digest:
            raise ValueError(f"{name} has another SHA-256 than its manifest says")


def _check_runs(manifest: Manifest, archive: zipfile.ZipFile) -> None:
    run_id, count = Counter(run.run_id for run in manifest.runs).most_common(1)[0]
    if count > 1:
        raise ValueError(f"its manifest names run {run_id} {count} times")
    for launch in manifest.launches:
        plan = Plan.from_json(archive.read(f"{launch.run_id}/plan.json").decode())
        if plan.name != manifest.name:
            raise ValueError(f"it holds a launch of {plan.name!r} among those of {manifest.name!r}")
        _check_same(launch, {cell.id for cell in plan.cells}, set(plan.labels))
    for run in manifest.cells:
        _check_same(run, {run.cell.id}, {run.tags.get(CELL, "")})
        if run.launch not in {launch.run_id for launch in manifest.launches}:
            raise ValueError(f"it lacks the launch of run {run.run_id}")


def _check_same(run: LaunchCopy, computed: set[str], recorded: set[str]) -> None:
    if computed != recorded:
        raise ValueError(
            f"run {run.run_id} was recorded under other cell ids than its content has: the file is damaged, or from a "
            "version of milbench that computes something else from the same cells"
        )


def _join(manifest: Manifest, archive: zipfile.ZipFile, digest: str, store: Store) -> str:
    def files(run: LaunchCopy) -> dict[Artifact, bytes]:
        return {name: archive.read(f"{run.run_id}/{name}") for name in run.artifacts}

    here = run_copies.origins(store)
    new = [run for run in manifest.runs if run.run_id not in here]
    _refuse_clashes(new, store)
    run_copies.discard(store)
    # What came without its weights or pictures gets them where this file has them.
    old = [run for run in manifest.runs if run.run_id in here]
    added = Counter(name for run in old for name in run_copies.complete(store, here[run.run_id], files(run)))
    moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    for run in new:
        tags = {IMPORTED: moment, IMPORTED_FROM: f"sha256:{digest}"}
        if isinstance(run, CellCopy):
            tags[PARENT] = here[run.launch]
        here[run.run_id] = run_copies.insert(store, manifest.name, run, files(run), tags)
    for run in new:
        run_copies.publish(store, here[run.run_id], run)
    came = {run.run_id: "done" if run.status == "FINISHED" else "failed" for run in new}
    counts = Counter(came.get(run.run_id, "already here") for run in manifest.cells)
    if not new and not added:
        return f"nothing to import: {_cells(counts, manifest.name)}"
    parts = ", ".join(f"{name} of {n}" for name, n in sorted(added.items()))
    extra = f"; what was here had lacked {parts}" if added else ""
    return f"imported {_cells(counts, manifest.name)}{extra}; next: milbench report {manifest.name}"


def _refuse_clashes(new: Iterable[LaunchCopy], store: Store) -> None:
    """Raise UsageError where a cell would have two results, of which one would have to be left out of every report."""
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


def _cells(counts: Counter[str], name: str) -> str:
    """Return such as "3 cells of demo (2 done, 1 failed)"."""
    total = counts.total()
    return f"{total} cell{'s' * (total != 1)} of {name} ({', '.join(f'{n} {what}' for what, n in counts.items())})"
