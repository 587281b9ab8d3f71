"""Export and import: the folders of a comparison as one zip file, and back, with its names checked."""

import lzma
import re
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

from milbench._utils import locks
from milbench._utils.files import scratch_folder, write_atomically
from milbench._utils.words import counted
from milbench.api.plan import Plan
from milbench.engine.cell import EXPORTED, CellFolder
from milbench.engine.folders import Root, damaged
from milbench.errors import UsageError, disk_failure

PLAN = "comparison.json"
MEMBER = f"cells/([0-9a-f]{{16}})/({EXPORTED})"
"""The names of files of cells in an archive: nothing else is unpacked."""
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
    OSError,
    UnicodeError,
)


def export(
    root: Root, name: str | None, out: Path, left_out: Collection[str] = ()
) -> tuple[str, list[str]]:
    """Write a comparison to a file but for files `left_out`; return what was written, and a line per damaged cell."""
    plan = root.plan(name)
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder: name the file, such as {out / plan.name}.zip")
    states = root.states(plan.cells, weights=True)
    problems = damaged(plan, states)
    folders = [root.cell(cell.id) for cell in plan.cells if not states[cell.id].is_damaged]
    folders = [folder for folder in folders if folder.path.is_dir()]

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(PLAN, plan.to_json())
            for folder in folders:
                for file, content in folder.export(left_out).items():
                    archive.writestr(f"cells/{folder.id}/{file}", content)
            archive.comment = (
                f"{len(archive.namelist())} files".encode()
            )  # of which a flipped bit may hide some

    try:
        write_atomically(out, write)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror or error}") from None
    size = f"{out.stat().st_size / 1e6:.1f} MB"
    return f"wrote {counted(len(folders), 'cell')} of {plan.name} to {out} ({size})", problems


def import_(file: Path, root: Root) -> tuple[Plan, str]:
    """Add the cells of an export to the store, all of them or none; return its plan and what was added.

    A cell that is done in the store stays. Raises UsageError where the file is no export, or one with a damaged cell.
    """
    if not file.is_file():
        raise UsageError(
            f"{file} is {'a folder or a device, not a file' if file.exists() else 'not there'}"
        )
    try:
        with zipfile.ZipFile(file) as archive:
            plan, cells = _read_members(archive, file)
            plan_lock = root.make().runs / f"{plan.name}.lock"
            with scratch_folder(root.runs, "import") as scratch, locks.lock(plan_lock):
                if plan.name in root.names():
                    plan = plan.joined(root.plan(plan.name))
                archive.extractall(scratch)
                for cell_id in cells:  # before any of them is moved
                    folder = CellFolder(scratch / "cells" / cell_id)
                    if (state := folder.state(weights=True)).is_damaged:
                        raise UsageError(f"{file}: cell {cell_id} is {state.reason}")
                    if not folder.is_described():
                        raise UsageError(f"{file}: cell.json of {cell_id} describes another cell")
                added = _add(scratch, cells, root, plan)
    except UNREADABLE as error:
        raise UsageError(
            disk_failure(error) or f"{file} is not a milbench export: {error}"
        ) from None
    return plan, f"added {added} of {counted(len(cells), 'cell')} to {plan.name} in {root.runs}"


def _read_members(archive: zipfile.ZipFile, file: Path) -> tuple[Plan, list[str]]:
    members = archive.infolist()
    if PLAN not in archive.namelist():
        raise UsageError(f"{file} is not a milbench export: it has no {PLAN}")
    try:
        plan = Plan.from_json(archive.read(PLAN))
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    planned = {cell.id for cell in plan.cells}
    cells: dict[str, None] = {}
    for member in members:
        match = re.fullmatch(MEMBER, member.filename)
        if match and match[1] in planned:
            cells[match[1]] = None
        elif member.filename != PLAN:
            raise UsageError(f"{file}: an export has no {member.filename[:100]!r}")
    if archive.comment != f"{len(members)} files".encode():
        raise UsageError(
            f"{file} is damaged: it has {len(members)} files of {archive.comment!r:.20}"
        )
    return plan, [*cells]


def _add(scratch: Path, cells: list[str], root: Root, plan: Plan) -> int:
    """Move folders of cells into the store, all or none, and save the plan; return how many were not done there."""
    moves: list[tuple[Path, Path]] = []
    added = 0
    (scratch / "before").mkdir()
    try:
        for cell_id in cells:
            folder, unpacked = root.cell(cell_id), CellFolder(scratch / "cells" / cell_id)
            with folder.lock() as acquired:
                if (
                    not acquired
                    or folder.is_done
                    or (folder.path.exists() and not unpacked.is_done)
                ):
                    continue
                if folder.path.exists():
                    moves.append((folder.path, scratch / "before" / cell_id))
                    folder.path.rename(scratch / "before" / cell_id)
                moves.append((unpacked.path, folder.path))
                unpacked.path.rename(folder.path)
                added += 1
        root.save(plan)
    except BaseException:
        for before, now in reversed(moves):
            if not before.exists():
                now.rename(before)
        raise
    return added
