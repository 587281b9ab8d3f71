"""Keep the finished cells of a long comparison in the repository, part by part, and lay them out again.

A comparison that takes days is trained in many sittings. After each of them

    python reports/parts.py keep ROOT NAME

adds the cells that have been finished since as one archive, reports/NAME/parts/NUMBER.tar.gz, and

    python reports/parts.py restore ROOT NAME
    milbench run NAME --root ROOT

goes on from there on another machine. The archives leave when the report is published.

Weights and galleries are not kept. Draws of the search keep their metrics alone, and compared cells their
predictions for whole bags, so that an archive stays small.
"""

import shutil
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from milbench.api.plan import Plan
from milbench.api.predictions import SINGLE, load_predictions, save_predictions
from milbench.engine.cell import CellFolder
from milbench.engine.folders import Root

REPORTS = Path(__file__).parent
LEFT_OUT = shutil.ignore_patterns("weights.safetensors", "gallery.npz", "mlflow.json", ".*")


def keep(root: Root, name: str) -> Path | None:
    """Write an archive of the cells that no earlier one has, with the plan; return it, None without such cells."""
    plan = root.plan(name)
    parts = REPORTS / name / "parts"
    kept = {cell for part in archives(parts) for cell in cells_in(part)}
    new = [cell.id for cell in plan.cells if cell.id not in kept and root.cell(cell.id).is_done]
    if not new:
        return None
    parts.mkdir(parents=True, exist_ok=True)
    archive = parts / f"{len(archives(parts)) + 1:03}.tar.gz"
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(archive, "w:gz") as tar:
        for cell in new:
            slim = slim_copy(root.cell(cell), Path(scratch), is_draw=is_draw(plan, cell))
            tar.add(slim.path, f"runs/cells/{cell}")
            shutil.rmtree(slim.path)
        tar.add(root.runs / f"{name}.json", f"runs/{name}.json")
    return archive


def restore(root: Root, name: str) -> int:
    """Lay out the cells of all archives that the store of a root does not have; return how many they are."""
    root.make()
    restored = 0
    for archive in archives(REPORTS / name / "parts"):
        with tarfile.open(archive) as tar:
            missing = {cell for cell in cells_in(archive) if not root.cell(cell).path.exists()}
            members = [
                member
                for member in tar.getmembers()
                if cell_of(member.name) in missing or member.name == f"runs/{name}.json"
            ]
            tar.extractall(root.path, members, filter="data")
            restored += len(missing)
    return restored


def slim_copy(folder: CellFolder, place: Path, *, is_draw: bool) -> CellFolder:
    """Return a copy of a finished cell with what is kept of it, which is finished too."""
    copy = CellFolder(Path(shutil.copytree(folder.path, place / folder.id, ignore=LEFT_OUT)))
    if is_draw:
        copy.predictions.unlink(missing_ok=True)
    elif copy.predictions.exists():
        by_epoch = {}
        for name, (epoch, predictions) in load_predictions(copy.predictions).items():
            of_bags = {
                split: known
                for split, known in predictions.splits.items()
                if not split.endswith(SINGLE)
            }
            by_epoch[name] = epoch, replace(predictions, splits=of_bags)
        save_predictions(copy.predictions, by_epoch)
    copy.finish(folder.result())  # lists what is there now
    return copy


def is_draw(plan: Plan, cell: str) -> bool:
    """Return whether a cell is one of the search."""
    return plan.search is not None and cell in plan.search.draws


def archives(parts: Path) -> list[Path]:
    """Return the archives in a folder in the order in which they were written."""
    return sorted(parts.glob("*.tar.gz"))


def cells_in(archive: Path) -> set[str]:
    """Return the ids of the cells in an archive."""
    with tarfile.open(archive) as tar:
        return {cell_of(name) for name in tar.getnames()} - {""}


def cell_of(member: str) -> str:
    """Return the cell that a member of an archive belongs to, "" for none."""
    parts = member.split("/")
    return parts[2] if parts[:2] == ["runs", "cells"] and len(parts) > 2 else ""


def main() -> None:
    """Keep or restore the cells of a comparison."""
    match sys.argv[1:]:
        case ["keep", place, name]:
            archive = keep(Root(Path(place)), name)
            if archive is None:
                print("no new finished cells")
            else:
                print(
                    f"{archive}: {len(cells_in(archive))} cells, {archive.stat().st_size >> 10:,} KiB"
                )
        case ["restore", place, name]:
            print(f"{restore(Root(Path(place)), name)} cells restored")
        case _:
            sys.exit("usage: python reports/parts.py keep|restore ROOT NAME")


if __name__ == "__main__":
    main()
