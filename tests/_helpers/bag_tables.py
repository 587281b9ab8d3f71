"""Small tables of bags, for tests of the tasks on one's own data."""

from __future__ import annotations

from pathlib import Path


def small_table(folder: Path, bags: int = 60) -> Path:
    """Write bags.csv with 1 to 4 instances a bag; every other bag has the label "odd", of its first instance."""
    rows = [
        f"{bag},{'odd' if bag % 2 else ''},{'odd' if bag % 2 and i == 0 else ''},{bag / 7 + i},{bag * i % 5}"
        for bag in range(bags)
        for i in range(1 + bag % 4)
    ]
    (folder / "bags.csv").write_text("\n".join(["bag,labels,instance_label,f0,f1", *rows]))
    return folder
