"""Export and import: the folders of a comparison as one zip file, and back, with its names and sizes checked."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Collection
from pathlib import Path

from milbench._utils.files import write_atomically
from milbench._utils.words import counted
from milbench.api.plan import COMPARISON_NAME, Plan
from milbench.engine.cell import CellFolder
from milbench.engine.folders import Root
from milbench.errors import UsageError

PLAN = "comparison.json"
MOST_BYTES = 50_000_000_000
MOST_PLAN_BYTES, MOST_FILES = 500_000_000, 1_000_000
MEMBER = r"cells/([0-9a-f]{16})/[a-z][a-z_]*\.(json|csv|npz|safetensors|txt|pt)"
"""The names of files of cells in an archive: nothing else is unpacked."""
EXCLUDED = ("mlflow.json", "progress.json")  # files that mean nothing on another machine


def export(root: Root, name: str | None, out: Path, left_out: Collection[str] = ()) -> str:
    """Write the cells of a comparison that are done, failed or have a checkpoint to a file; describe it in one line.

    `left_out` are names of files to leave out, such as "weights.safetensors".
    """
    plan = root.plan(name)
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder: name the file, such as {out / plan.name}.zip")
    files = [file for cell in plan.cells for file in sorted((root.cells / cell.id).glob("*"))]
    files = [file for file in files if file.name not in (*left_out, *EXCLUDED) and re.fullmatch(MEMBER, member(file))]

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(PLAN, plan.to_json())
            for file in files:
                archive.write(file, member(file))

    try:
        write_atomically(out, write)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror or error}") from None
    count = len({file.parent for file in files})
    return f"wrote {counted(count, 'cell')} of {plan.name} to {out} ({out.stat().st_size / 1e6:.1f} MB)"


def member(file: Path) -> str:
    """Return the name in an archive of a file of a cell."""
    return f"cells/{file.parent.name}/{file.name}"


def import_(file: Path, root: Root) -> str:
    """Add the cells of an export to the store, all of them or none; return what was added.

    A cell that is done in the store stays as it is. Raises UsageError, and adds nothing, where the file is no export,
    is too large or has a member that no export has.
    """
    if not file.is_file():
        raise UsageError(f"{file} is {'a folder or a device, not a file' if file.exists() else 'not there'}")
    try:
        with zipfile.ZipFile(file) as archive:
            plan, cells = _read_members(archive, file)
            root.make()
            with tempfile.TemporaryDirectory(prefix=".import-", dir=root.runs, ignore_cleanup_errors=True) as scratch:
                archive.extractall(scratch)
                for cell_id in cells:  # before any of them is moved
                    _check_cell(CellFolder(Path(scratch) / "cells" / cell_id), file)
                added = _add(Path(scratch) / "cells", cells, root)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, UnicodeError) as error:
        raise UsageError(f"{file} is not a milbench export: {error}") from None
    if plan.name in root.names():
        plan = plan.joined(root.plan(plan.name))
    root.save(plan)
    return f"added {added} of {counted(len(cells), 'cell')} to {plan.name} in {root.runs}"


def _read_members(archive: zipfile.ZipFile, file: Path) -> tuple[Plan, list[str]]:
    members = archive.infolist()
    if PLAN not in archive.namelist():
        raise UsageError(f"{file} is not a milbench export: it has no {PLAN}")
    if len(members) > MOST_FILES or (size := sum(member.file_size for member in members)) > MOST_BYTES:
        raise UsageError(f"{file} would take {size:,} bytes in {len(members):,} files, more than {MOST_BYTES:,}")
    if archive.getinfo(PLAN).file_size > MOST_PLAN_BYTES:
        raise UsageError(f"{file}: {PLAN} is larger than {MOST_PLAN_BYTES:,} bytes")
    try:
        plan = Plan.from_json(archive.read(PLAN).decode("utf-8"))
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    if not re.fullmatch(COMPARISON_NAME, plan.name):
        raise UsageError(f"{file}: {plan.name!r} is no name of a comparison")
    planned = {cell.id for cell in plan.cells}
    cells: dict[str, None] = {}
    for member in members:
        match = re.fullmatch(MEMBER, member.filename)
        if match and match[1] in planned and Path(member.filename).name not in EXCLUDED:
            cells[match[1]] = None
        elif member.filename != PLAN:
            raise UsageError(f"{file}: an export has no {member.filename[:100]!r}")
    return plan, [*cells]


def _check_cell(folder: CellFolder, file: Path) -> None:
    """Raise UsageError if an unpacked cell has another id than its folder, or its numbers cannot be read."""
    try:
        is_other = folder.cell().id != folder.id
        folder.result()
        folder.history()
    except UsageError:
        raise UsageError(f"{file}: cell {folder.id} is damaged") from None
    if is_other:
        raise UsageError(f"{file}: cell.json of {folder.id} describes another cell")


def _add(unpacked: Path, cells: list[str], root: Root) -> int:
    """Move folders of cells into the store; return how many were not done there."""
    added = 0
    for cell_id in cells:
        folder = root.cell(cell_id)
        with folder.lock() as acquired:
            if folder.is_done or not acquired or (folder.path.exists() and not CellFolder(unpacked / cell_id).is_done):
                continue
            shutil.rmtree(folder.path, ignore_errors=True)
            (unpacked / cell_id).rename(folder.path)
            added += 1
    return added
