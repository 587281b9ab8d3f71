"""Ways to damage files of a store, and the numbers of a store without damage."""

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
    """Damage a file in one of the ways of DAMAGES.

    `other` is the file of the same name in another cell, with which it may be swapped.
    """
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
    """Return the content of a file after damage to its bytes."""
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
            # The line before the last is left out; a file of one line becomes empty.
            lines = content.splitlines(keepends=True)
            if len(lines) < 2:
                return b""
            return b"".join([*lines[:-2], lines[-1]])
    raise ValueError(how)


def numbers(root: Path) -> dict[str, tuple[list[tuple[int, str, float]], str]]:
    """Return cell id -> the values of every epoch, and a digest of the weights.

    Check that all cells of the root are done. Costs, which differ from run to run, are left out.
    """
    store = Root(root)
    plan = store.plan()
    states = store.states(plan.cells, weights=True)
    assert {state.status for state in states.values()} == {"done"}
    found = {}
    for cell in plan.cells:
        folder = store.cell(cell.id)
        rows = [row for row in folder.history() if not row[1].startswith("cost/")]
        digest = hashlib.sha256(folder.weights.read_bytes()).hexdigest()
        found[cell.id] = (rows, digest)
    return found
