"""Damage to files of a store, and the numbers of a store that has none."""

import hashlib
import shutil
from pathlib import Path

from milbench.store.folders import Root

DAMAGES = (
    "truncated",
    "emptied",
    "zeroed",
    "flipped",
    "a line missing",
    "swapped",
    "deleted",
    "a folder",
)


def damage(file: Path, how: str, other: Path) -> None:
    """Damage a file; `other` is the file of its name in another cell."""
    content = file.read_bytes()
    file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how == "swapped":
        shutil.copy(other, file)
    elif how != "deleted":
        middle = len(content) // 2
        lines = content.splitlines(keepends=True)
        damaged = {
            "truncated": content[:middle],
            "emptied": b"",
            "zeroed": bytes(len(content)),
            "flipped": content[:middle]
            + bytes(byte ^ 1 for byte in content[middle : middle + 1])
            + content[middle + 1 :],
            "a line missing": b"".join(lines[:-2] + lines[-1:]) if len(lines) > 1 else b"",
        }
        file.write_bytes(damaged[how])


def numbers(root: Path) -> dict[str, tuple[list[tuple[int, str, float]], str]]:
    """Return every value of every epoch but costs, and a digest of the weights, of each cell; all must be done."""
    place = Root(root)
    plan = place.plan()
    assert {state.status for state in place.states(plan.cells, weights=True).values()} == {"done"}
    return {
        folder.id: (
            [row for row in folder.history() if not row[1].startswith("cost/")],
            hashlib.sha256(folder.weights.read_bytes()).hexdigest(),
        )
        for folder in (place.cell(cell.id) for cell in plan.cells)
    }
