"""In which parameters cells differ from what was published, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = {
    "recipe.steps_per_epoch": "{} steps an epoch", "recipe.epochs": "{} epochs", "task.batch_bags": "{} bags a batch",
}  # fmt: skip
_ABSENT = object()


def deviations(
    protocol: Mapping[str, Any], params: list[dict[str, Any]], defaults: Mapping[str, Any] | None = None
) -> list[str]:
    """Return in words every parameter in which cells differ from what was published.

    A parameter that a cell lacks and that has no default counts as a difference if the cell has other parameters of its
    section: a loss without any parameters cannot deviate in one.

    Args:
        protocol: the published parameters, by the names of `Cell.params`; a tuple or list holds several that are.
        params: the parameters of each cell.
        defaults: what parameters are for a cell that lacks them.

    Examples:
        >>> deviations({"recipe.epochs": 100, "recipe.lr": (0.1, 0.2)}, [{"recipe.epochs": 20, "recipe.lr": 0.1}])
        ['20 epochs (published: 100)']
    """
    found, otherwise = [], {} if defaults is None else defaults
    for name, expected in protocol.items():
        section, accepted = name.partition(".")[0] + ".", expected if isinstance(expected, tuple | list) else [expected]
        known = [p for p in params if name in p or any(key.startswith(section) for key in p)]
        values = [p.get(name, otherwise.get(name, _ABSENT)) for p in known]
        if any(value not in accepted for value in values):
            texts = list(dict.fromkeys(_text(name, value) for value in values))
            ours = _WORDS.get(name, name.partition(".")[2] + " {}").format(" and ".join(texts))
            found.append(f"{ours} (published: {' or '.join(_text(name, value) for value in accepted)})")
    return found


def _text(name: str, value: Any) -> str:
    if value is _ABSENT:
        return "not known"
    if value is None:
        return "all" if name == "recipe.steps_per_epoch" else "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
