"""The variants that the contrasts of a spec stand for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from milbench.api.contrast import Contrast, Label
from milbench.api.plan import Cell
from milbench.engine.tables import NamedContrast
from milbench.errors import UsageError, unknown


def resolve(
    given: Sequence[NamedContrast], cells: Iterable[Cell], labels: Mapping[str, tuple[str, str, str]], changed: bool
) -> tuple[list[Contrast], list[str]]:
    """Find the variants of contrasts on every task, in cells with these labels of loss, task and recipe.

    Returns:
        The contrasts, and a remark for each that was left out, since flags have `changed` what a spec compares.

    Raises:
        UsageError: a contrast does not name two variants, one each; or two contrasts are of the same two.
    """
    of_tasks: dict[str, dict[Label, Cell]] = {}
    for cell in cells if given else ():
        loss, task, recipe = labels[cell.id]
        of_tasks.setdefault(task, {}).setdefault((loss, recipe), cell)
    found, notes = list[Contrast](), list[str]()
    for contrast in given:
        try:
            variants = {task: _pair(contrast, known) for task, known in of_tasks.items()}
        except UsageError as error:
            if not changed:
                raise
            notes.append(f"The contrast {contrast.name!r} was left out, since flags changed what is compared: {error}.")
            continue
        for other in found:
            if any(set(other.variants[task]) == set(pair) for task, pair in variants.items()):
                raise UsageError(f"contrasts {other.name!r} and {contrast.name!r} have the same variants")
        found.append(Contrast(contrast.name, contrast.first, contrast.second, contrast.margin, variants))
    return found, notes


def _pair(contrast: NamedContrast, known: Mapping[Label, Cell]) -> tuple[Label, Label]:
    first, second = (_variant(side, contrast, known) for side in (contrast.first, contrast.second))
    if first == second:
        raise UsageError(f"contrast {contrast.name!r}: first and second are one variant, {_joined(first)!r}")
    return first, second


def _variant(side: str, contrast: NamedContrast, known: Mapping[Label, Cell]) -> Label:
    """Return the one variant that a side of a contrast names: that of this label, or the only one that fits."""
    names = {_joined(label): label for label in known}
    if side in names:
        return names[side]
    fitting = [label for label, cell in known.items() if _fits(side, cell)]
    if not fitting:
        raise unknown(f"variant in contrast {contrast.name!r}", side, names)
    if len(fitting) > 1:
        several = ", ".join(repr(_joined(label)) for label in fitting)
        raise UsageError(f"contrast {contrast.name!r}: {side!r} is {len(fitting)} variants, expected one of {several}")
    return fitting[0]


def _fits(text: str, cell: Cell) -> bool:
    """Return whether a cell is of a variant as text: "noisy-or head=softmax" or "exact, lr=0.01", in any order."""
    loss, *_ = re.split(r"[\s,]", text.strip(), maxsplit=1)
    settings = re.findall(r"[\s,](\w+)=(.*?)(?=,?\s+\w+=|$)", text.strip())
    known = cell.recipe | cell.loss_params
    return cell.loss == loss and all(key in known and _is(known[key], value) for key, value in settings)


def _is(value: Any, text: str) -> bool:
    """Return whether a text names a value: as it is printed, or as TOML has it."""
    if text.lower() == str(value).lower():
        return True
    try:
        return bool(tomllib.loads(f"v = {text}")["v"] == value)
    except (ValueError, RecursionError):
        return False


def _joined(label: Label) -> str:
    """Return a variant as reports name it."""
    return ", ".join(filter(None, label))
