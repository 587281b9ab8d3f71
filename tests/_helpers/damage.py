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
    if how == "deleted":
        return
    if how == "a folder":
        file.mkdir()
    elif how == "swapped":
        shutil.copy(other, file)
    else:
        file.write_bytes(damaged_content(content, how))


def damaged_content(content: bytes, how: str) -> bytes:
    """Return other bytes in place of the content of a file."""
    middle = len(content) // 2
    match how:
        case "truncated":
            return content[:middle]
        case "emptied":
            return b""
        case "zeroed":
            return bytes(len(content))
        case "flipped":
            flipped = bytearray(content)
            if flipped:
                flipped[middle] ^= 1
            return bytes(flipped)
        case "a line missing":
            # The line before the last; a file of one line has none left.
            lines = content.splitlines(keepends=True)
            if len(lines) < 2:
                return b""
            return b"".join([*lines[:-2], lines[-1]])
    raise ValueError(how)


def numbers(root: Path) -> dict[str, tuple[list[tuple[int, str, float]], str]]:
    """Return every value of every epoch but costs, and a digest of the weights, of each cell; all must be done."""
    place = Root(root)
    plan = place.plan()
    states = place.states(plan.cells, weights=True)
    assert {state.status for state in states.values()} == {"done"}
    found = {}
    for cell in plan.cells:
        folder = place.cell(cell.id)
        # Costs differ from run to run.
        rows = [row for row in folder.history() if not row[1].startswith("cost/")]
        digest = hashlib.sha256(folder.weights.read_bytes()).hexdigest()
        found[cell.id] = (rows, digest)
    return found
