"""What plans and reports say of files that plug-ins imported during the training."""

from collections.abc import Iterable, Mapping

from milbench.experiment.cell import Cell


def late_import_notes(
    cells: Iterable[Cell], imported: Mapping[str, Mapping[str, list[str]]]
) -> list[str]:
    """Return lines that say which plug-ins imported what during the training of their cells.

    `imported` is cell id -> what the cell lists: see `LateImports.found` in
    `milbench.plugins.late`.
    """
    # (plug-ins, "files" or "packages") -> the names of what they imported. Cells with the same
    # plug-ins share a line.
    found: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        late = imported.get(cell.id)
        if not late:
            continue
        plugins = _plugins_of(cell, late["by"])
        for key in ("files", "packages"):
            found.setdefault((plugins, key), set()).update(late[key])
    notes = []
    for (plugins, key), names in found.items():
        if names:
            notes.append(_note(plugins, key, sorted(names)))
    return notes


def _plugins_of(cell: Cell, kinds: list[str]) -> str:
    """Return the plug-ins of these kinds in words, such as "loss mine and network wide"."""
    named = [f"{kind} {choice}" for kind, choice in cell.choices.items() if kind in kinds]
    return " and ".join(named)


def _note(plugins: str, key: str, names: list[str]) -> str:
    """Return the line about what plug-ins imported; the `key` is "files" or "packages"."""
    event = "an edit" if key == "files" else "another version"
    pronoun = "it" if len(names) == 1 else "them"
    return (
        f"{plugins} imported {', '.join(names)} while training; "
        f"{event} of {pronoun} does not make a new cell"
    )
