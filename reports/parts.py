"""Keep the finished cells of a long comparison in the repository, and restore them from it.

A comparison that takes days is trained in many sittings. After each of them

    python reports/parts.py keep ROOT NAME

adds the cells that have been finished since as one archive, reports/NAME/parts/NUMBER.tar.gz, and

    python reports/parts.py restore ROOT NAME
    milbench run NAME --root ROOT

goes on from there on another machine. Delete the archives when the report is published; git keeps
the history.

An archive stays small, as it has no weights and no galleries. For a draw of the search it has only
the metrics; for a compared cell it has the metrics and the predictions for whole bags.
"""

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from milbench._utils.files import write_atomically
from milbench.contracts.predictions import SINGLE, load_predictions, save_predictions
from milbench.experiment.plan import Plan
from milbench.experiment.plan_file import plan_to_json
from milbench.report.published_predictions import judges_single_instances
from milbench.store.cell_folder import CellFolder
from milbench.store.folders import Root

REPORTS = Path(__file__).parent
LEFT_OUT = shutil.ignore_patterns("weights.safetensors", "gallery.npz", "mlflow.json", ".*")


def keep(root: Root, name: str) -> Path | None:
    """Archive the plan and the finished cells that no earlier archive has.

    Return the archive, or None if nothing is new.
    """
    plan = root.plan(name)
    parts = REPORTS / name / "parts"
    kept: set[str] = set()
    for archive in archives(parts):
        kept |= cells_in(archive)
    new: list[CellFolder] = []
    for cell in plan.cells:
        folder = root.cell(cell.id)
        if cell.id not in kept and folder.is_done:
            new.append(folder)
    if not new:
        return None

    archive = parts / f"{next_number(parts):03}.tar.gz"
    # Atomically, since a half written archive would be taken for a whole one.
    write_atomically(archive, lambda path: write_archive(path, name, plan, new))
    return archive


def write_archive(path: Path, name: str, plan: Plan, folders: Sequence[CellFolder]) -> None:
    """Write an archive with the plan of a comparison and slim copies of some of its cells."""
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(path, "w:gz") as tar:
        for folder in folders:
            slim = slim_copy(folder, Path(scratch))
            if is_draw(plan, folder.id):
                remove_predictions(slim)
            elif not judges_single_instances(plan):
                keep_whole_bags(slim)
            # The result lists the files that are there now.
            slim.finish(folder.result())
            tar.add(slim.path, f"runs/cells/{folder.id}")
            shutil.rmtree(slim.path)
        plan_file = Path(scratch) / "plan.json"
        plan_file.write_text(plan_to_json(without_folders(plan)), "utf-8")
        tar.add(plan_file, f"runs/{name}.json")


def restore(root: Root, name: str) -> int:
    """Lay out those cells of all archives that a root lacks. Return how many cells these are."""
    root.make()
    restored = 0
    for archive in archives(REPORTS / name / "parts"):
        missing = {cell for cell in cells_in(archive) if not root.cell(cell).path.exists()}
        with tarfile.open(archive) as tar:
            members = []
            for member in tar.getmembers():
                is_plan = member.name == f"runs/{name}.json"
                if is_plan or cell_of(member.name) in missing:
                    members.append(member)
            tar.extractall(root.path, members, filter="data")
        restored += len(missing)
    return restored


def without_folders(plan: Plan) -> Plan:
    """Return a plan without its command, which may name folders of this machine."""
    return replace(plan, command="")


def slim_copy(folder: CellFolder, parent: Path) -> CellFolder:
    """Return a copy of the folder of a cell below `parent`, without weights and gallery."""
    copy = shutil.copytree(folder.path, parent / folder.id, ignore=LEFT_OUT)
    return CellFolder(Path(copy))


def remove_predictions(folder: CellFolder) -> None:
    """Remove the predictions of a cell."""
    folder.predictions.unlink(missing_ok=True)


def keep_whole_bags(folder: CellFolder) -> None:
    """Remove the predictions of a cell for bags of one instance, and keep those for whole bags."""
    if not folder.predictions.exists():
        return
    smaller = {}
    for epoch, (number, predictions) in load_predictions(folder.predictions).items():
        splits = predictions.splits
        of_whole_bags = [name for name in splits if not name.endswith(SINGLE)]
        kept = {name: splits[name] for name in of_whole_bags}
        smaller[epoch] = (number, replace(predictions, splits=kept))
    save_predictions(folder.predictions, smaller)


def is_draw(plan: Plan, cell: str) -> bool:
    """Return whether a cell belongs to the search of settings."""
    return plan.search is not None and cell in plan.search.draws


def archives(folder: Path) -> list[Path]:
    """Return the archives in a folder in the order in which they were written."""
    return sorted(folder.glob("[0-9]*.tar.gz"), key=number_of)


def number_of(archive: Path) -> int:
    """Return the number in the name of an archive: 7 for 007.tar.gz."""
    return int(archive.name.removesuffix(".tar.gz"))


def next_number(folder: Path) -> int:
    """Return the number after the largest number of an archive. Earlier ones may be deleted."""
    numbers = [number_of(archive) for archive in archives(folder)]
    return max(numbers, default=0) + 1


def cells_in(archive: Path) -> set[str]:
    """Return the ids of the cells in an archive."""
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    return {cell_of(name) for name in names} - {""}


def cell_of(member: str) -> str:
    """Return the id of the cell that a member of an archive belongs to, or "" if it has none."""
    match member.split("/"):
        case ["runs", "cells", cell, *_]:
            return cell
    return ""


def main() -> None:
    """Keep or restore the cells of a comparison."""
    match sys.argv[1:]:
        case ["keep", root, name]:
            archive = keep(Root(Path(root)), name)
            if archive is None:
                print("no new finished cells")
            else:
                count = len(cells_in(archive))
                kibibytes = archive.stat().st_size // 1024
                print(f"{archive}: {count} cells, {kibibytes:,} KiB")
        case ["restore", root, name]:
            restored = restore(Root(Path(root)), name)
            print(f"{restored} cells restored")
        case _:
            sys.exit("usage: python reports/parts.py keep|restore ROOT NAME")


if __name__ == "__main__":
    main()
