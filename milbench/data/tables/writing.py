"""Write a table to a file of the kind that its name ends in, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from milbench._utils.files import write_atomically
from milbench.data.tables.reading import is_table
from milbench.errors import UsageError


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table.

    Args:
        frame: the table, whose index is left out.
        path: of a file .csv, .tsv, .parquet, .arrow or .feather; its folder is made if there is none.

    Raises:
        UsageError: the name has another ending.
    """
    if not is_table(path):
        raise UsageError(f"{path}: expected a name that ends in {', '.join(_WRITERS)}")
    write_atomically(path, lambda draft: _WRITERS[path.suffix.lower()](frame, draft))


_WRITERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".parquet": lambda frame, path: frame.to_parquet(path, index=False),
    ".arrow": lambda frame, path: frame.to_feather(path),
    ".feather": lambda frame, path: frame.to_feather(path),
}
