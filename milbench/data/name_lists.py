"""Lists of names in messages: of classes, bags, columns and files."""

from collections.abc import Iterable, Sequence

from milbench.errors import UsageError, hint


def unknown_class(where: str, name: str, names: list[str]) -> UsageError:
    """Return the error of a name that is no class, with the closest class; `where` is its file and row."""
    return UsageError(
        f"{where}: {name!r} is no class{hint(name, names)} (there are: {abbreviate(names)})"
    )


def set_text(names: Iterable[str]) -> str:
    """Return a label set for a message."""
    return "{" + ", ".join(sorted(names)) + "}"


def abbreviate(names: Sequence[str], most: int = 8) -> str:
    """Return names as text for a message: the first `most`, and how many more there are."""
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text
