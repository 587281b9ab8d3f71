"""The records of a cell's plug-ins, which come with the cell into the process that computes it."""

from milbench.errors import UsageError
from milbench.plugins.record import ImportRecord, Target, record_import

_records: dict[tuple[str, str], ImportRecord] = {}
"""(kind, reference) of a plug-in -> the record that its cells were planned with."""


def keep_planned(kind: str, reference: str, record: ImportRecord) -> None:
    """Keep the record that a cell was planned with, for the import of its plug-in here."""
    _records[kind, reference] = record


def record_for(kind: str, reference: str, target: Target) -> ImportRecord:
    """Return the record of a plug-in: the one that came with the cell, else that of an import now.

    Raises UsageError where files were edited since the plan, or the import fails.
    """
    planned = _records.get((kind, reference))
    if planned is None:
        return record_import(target)
    check_as_planned(f"{kind} {reference}", planned)
    return planned


def check_as_planned(plugin: str, record: ImportRecord, *, elsewhere: bool = False) -> None:
    """Raise UsageError, which names the file, where a plug-in was edited after its plan."""
    change = record.first_change(elsewhere=elsewhere)
    if change:
        raise UsageError(
            f"{change}, which the {plugin} depends on, was changed after the cell was planned; "
            "run the same command again"
        )
