"""Contrasts as a spec names them, and the variants that they stand for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from milbench.api.contrast import Contrast, Label
from milbench.api.plan import Cell
from milbench.errors import UsageError, unknown

Margin = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""The largest difference that counts as none, in the unit of a metric."""


class NamedContrast(BaseModel):
    """The difference of two variants that a comparison is made for: the first less the second.

    Args:
        name: what the difference shows.
        first: a variant as reports name it: a loss, and behind it the settings that set it apart, KEY=VALUE.
        second: another one.
        margin: metric -> the largest difference that counts as none; it takes the place of that of the spec.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    first: str
    second: str
    margin: dict[str, Margin] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selector:
    """A variant as text, such as "noisy-or head=softmax" or "exact, lr=0.01": a loss and settings in any order.

    Args:
        loss: the name of the loss.
        settings: parameters of the loss or settings of the recipe, by name.
    """

    loss: str
    settings: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a text says.

        Examples:
            >>> Selector.parse("exact divide_by=batch, lr=0.01")
            Selector(loss='exact', settings={'divide_by': 'batch', 'lr': '0.01'})
        """
        loss, *_ = re.split(r"[\s,]", text.strip(), maxsplit=1)
        return cls(loss, dict(re.findall(r"[\s,](\w+)=(.*?)(?=,?\s+\w+=|$)", text.strip())))

    def fits_loss(self, loss: str, params: Mapping[str, Any]) -> bool:
        """Return whether a loss with these parameters may be meant."""
        known = [(params[key], value) for key, value in self.settings.items() if key in params]
        return loss == self.loss and all(_is(value, text) for value, text in known)

    def fits(self, cell: Cell) -> bool:
        """Return whether a cell is one of this variant."""
        other = {key: text for key, text in self.settings.items() if key not in cell.loss_params}
        fitting = all(key in cell.recipe and _is(cell.recipe[key], text) for key, text in other.items())
        return fitting and self.fits_loss(cell.loss, cell.loss_params)


def check_losses(given: Sequence[NamedContrast], variants: Sequence[tuple[str, Mapping[str, Any]]], owner: str) -> None:
    """Raise UsageError where a contrast names a loss, or parameters of one, that are not compared.

    Args:
        given: the contrasts.
        variants: the name and the parameters of every loss.
        owner: the spec, for messages.
    """
    for contrast in given:
        for side in (contrast.first, contrast.second):
            if not any(Selector.parse(side).fits_loss(loss, params) for loss, params in variants):
                raise _unknown(side, contrast, [_written(*variant, among=variants) for variant in variants], owner)


def resolve(
    given: Sequence[NamedContrast], cells: Iterable[Cell], labels: Mapping[str, tuple[str, str, str]], changed: bool
) -> tuple[list[Contrast], list[str]]:
    """Find the variants of contrasts on every task.

    Args:
        given: the contrasts of a spec.
        cells: of the plan.
        labels: the labels of the loss, the task and the recipe of every cell, by its id.
        changed: whether flags have changed what the spec compares. A contrast that they leave without its variants is
            then left out.

    Returns:
        The contrasts, and a remark for each that was left out.

    Raises:
        UsageError: a contrast does not name two variants, one each; or two contrasts are of the same two.
    """
    of_tasks: dict[str, dict[Label, Cell]] = {}
    for cell in cells if given else ():
        loss, task, recipe = labels[cell.id]
        of_tasks.setdefault(task, {}).setdefault((loss, recipe), cell)
    found: list[Contrast] = []
    notes: list[str] = []
    for contrast in given:
        try:
            variants = {task: _pair(contrast, known) for task, known in of_tasks.items()}
        except UsageError as error:
            if not changed:
                raise
            notes.append(f"The contrast {contrast.name!r} was left out, since flags changed what is compared: {error}.")
            continue
        for other in found:
            if other.name == contrast.name or any(set(other.variants[t]) == set(pair) for t, pair in variants.items()):
                raise UsageError(f"contrasts {other.name!r} and {contrast.name!r} have one name, or the same variants")
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
    fitting = [label for label, cell in known.items() if Selector.parse(side).fits(cell)]
    if not fitting:
        raise _unknown(side, contrast, names)
    if len(fitting) > 1:
        several = ", ".join(repr(_joined(label)) for label in fitting)
        raise UsageError(f"contrast {contrast.name!r}: {side!r} is {len(fitting)} variants, expected one of {several}")
    return fitting[0]


def _joined(label: Label) -> str:
    """Return a variant as reports name it."""
    return ", ".join(filter(None, label))


def _unknown(side: str, contrast: NamedContrast, known: Iterable[str], owner: str = "") -> UsageError:
    return unknown(f"variant in contrast {contrast.name!r}{owner and f' of {owner}'}", side, known)


def _written(loss: str, params: Mapping[str, Any], among: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return a loss with the parameters that set it apart from others of its name."""
    others = [other for name, other in among if name == loss]
    apart = [key for key, value in params.items() if any(other.get(key) != value for other in others)]
    return " ".join([loss, *(f"{key}={params[key]}" for key in apart)])


def _is(value: Any, text: str) -> bool:
    """Return whether a text names a value: as it is printed, or as TOML has it."""
    if text.lower() == str(value).lower():
        return True
    try:
        return bool(tomllib.loads(f"v = {text}")["v"] == value)
    except (ValueError, RecursionError):
        return False
