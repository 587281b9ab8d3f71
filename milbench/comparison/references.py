"""What names a comparison to be compared: its name, NAME@COMMIT, NAME@LAUNCH, or the file of an export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milbench.api.results import Results
from milbench.errors import UsageError
from milbench.store.existing import existing_workspace

TABLES = (".csv", ".json", ".parquet")


@contextmanager
def referred(reference: str, root: Path) -> Iterator[Results]:
    """Return the results of a comparison, whose files are there while the block lasts.

    Args:
        reference: the name of a comparison; the name, "@" and the beginning of a commit or of a launch's id, for the
            comparison as it was then; or the path of an export, which ends in .zip or has a slash.
        root: the folder of the store, for names.

    Raises:
        UsageError: there is no such comparison, launch or file, or it cannot be read.
    """
    from milbench.store.earlier import collect_at

    if reference.endswith((".zip", *TABLES)) or "/" in reference:
        path = Path(reference)
        _check_export(path)
        from milbench.store.transfer.opened import opened

        with opened(path) as export:
            yield collect_at(export, next(iter(export.experiments)))
        return
    from milbench.store.reader import StoreReader

    name, at, moment = reference.partition("@")
    if not name or (at and not moment):
        raise UsageError(f"{reference!r} names no comparison: give NAME, NAME@COMMIT, NAME@LAUNCH or EXPORT.zip")
    yield collect_at(StoreReader(existing_workspace(root)), name, moment)


def _check_export(path: Path) -> None:
    """Raise UsageError where a path can be no export, with what to give in its place."""
    if path.is_dir() or path.suffix in TABLES:
        what = "a folder" if path.is_dir() else "a table, which lacks the outcomes of test bags"
        raise UsageError(
            f"cannot compare {path}: it is {what}; give the name of a comparison (and perhaps --root), or "
            "what milbench export --out FILE.zip wrote"
        )
