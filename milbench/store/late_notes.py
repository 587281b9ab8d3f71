"""What plans and reports say of files that plug-ins imported while they were trained."""

from collections.abc import Iterable, Mapping

from milbench.experiment.cell import Cell


def late_import_notes(
    cells: Iterable[Cell], imported: Mapping[str, Mapping[str, list[str]]]
) -> list[str]:
    """Return lines that name the plug-ins of cells and what they imported while they were trained.

    `imported` is cell id -> what the cell lists, see `LateImports.found` in `milbench.plugins.late`.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        late = imported.get(cell.id)
        if not late:
            continue
        plugins = " and ".join(
            f"{kind} {cell.choices[kind]}" for kind in cell.choices if kind in late["by"]
        )
        for key in ("files", "packages"):
            found.setdefault((plugins, key), set()).update(late[key])
    return [_note(plugins, key, sorted(names)) for (plugins, key), names in found.items() if names]


def _note(plugins: str, key: str, names: list[str]) -> str:
    event = "an edit" if key == "files" else "another version"
    pronoun = "it" if len(names) == 1 else "them"
    return (
        f"{plugins} imported {', '.join(names)} while training; "
        f"{event} of {pronoun} does not make a new cell"
    )
