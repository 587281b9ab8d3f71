"""Says which cells a comparison leaves out, since their code or data were replaced."""

from __future__ import annotations

from collections import Counter

from milbench.store.reader import StoreReader
from milbench.store.records import CellRun


def superseded_note(store: StoreReader, name: str | None, until: str, runs: dict[str, CellRun]) -> str:
    """Return a sentence on the cells of earlier code or data that a comparison leaves out; "" where there are none.

    Args:
        store: the store to read.
        name: the comparison; None stands for the one launched last.
        until: the id of the launch of it that counts as the last; "": the newest.
        runs: the runs that count, by cell id.
    """
    cells = store.superseded(name, until)
    named = Counter((cell.loss, cell.task, runs[cell.id].status if cell.id in runs else "missing") for cell in cells)
    found = ", ".join(f"{loss} on {task}: {count} {status}" for (loss, task, status), count in named.items())
    return f"Left out are cells of earlier code or data, which a newer launch replaced ({found})." if cells else ""
