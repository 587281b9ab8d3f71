"""The import records of a cell's plug-ins, in the process that computes the cell.

They come with the cell from the process that planned it.
"""

from milbench.errors import UsageError
from milbench.plugins.record import ImportRecord, Target, record_import

_records: dict[tuple[str, str], ImportRecord] = {}
"""(kind, reference) of a plug-in -> the record that its cells were planned with."""


def keep_planned(kind: str, reference: str, record: ImportRecord) -> None:
    """Keep the record that a cell was planned with, until this process imports the plug-in."""
    _records[kind, reference] = record


def record_for(kind: str, reference: str, target: Target) -> ImportRecord:
    """Return the record of a plug-in: the one that came with the cell, or else a new one.

    Raises UsageError where files were edited since the plan, or the import for a new record fails.
    """
    planned = _records.get((kind, reference))
    if planned is None:
        return record_import(target)
    check_as_planned(f"{kind} {reference}", planned)
    return planned


def check_as_planned(plugin: str, record: ImportRecord, *, elsewhere: bool = False) -> None:
    """Raise UsageError, which names the file, where a plug-in was edited after the plan.

    With `elsewhere`, files may be missing, see `ImportRecord.first_change`.
    """
    change = record.first_change(elsewhere=elsewhere)
    if change:
        raise UsageError(
            f"{change}, which the {plugin} depends on, was changed after the cell was planned; "
            "run the same command again"
        )
