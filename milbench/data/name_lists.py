"""Write lists of names for messages: names of classes, bags, columns and files."""

from collections.abc import Iterable, Sequence

from milbench.errors import UsageError, hint


def unknown_class(where: str, name: str, names: list[str]) -> UsageError:
    """Return the error that a name is no class. It says which class has the closest name.

    `where` is the file and the row that have the name.
    """
    return UsageError(
        f"{where}: {name!r} is no class{hint(name, names)} (there are: {abbreviate(names)})"
    )


def set_text(names: Iterable[str]) -> str:
    """Return a label set as text for a message, such as "{owl, wren}"."""
    return "{" + ", ".join(sorted(names)) + "}"


def abbreviate(names: Sequence[str], most: int = 8) -> str:
    """Return the first `most` names as text for a message, and how many more there are."""
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text
