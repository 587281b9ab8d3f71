"""The variants that the contrasts of a spec stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from milbench.api.plan import Cell, Contrast, Label
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
    """Return the variant that a side of a contrast names, as reports name it."""
    names = {_joined(label): label for label in known}
    if side not in names:
        raise unknown(f"variant in contrast {contrast.name!r}", side, names)
    return names[side]


def _joined(label: Label) -> str:
    """Return a variant as reports name it."""
    return ", ".join(filter(None, label))
