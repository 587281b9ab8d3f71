"""Bags to predict, with their names and what their positions are called outside."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from milbench.api.bags import Bags


@dataclass(frozen=True, slots=True)
class NamedBags:
    """A batch of bags whose label sets are not known, read from a file of the user.

    Args:
        kind: the column that names a bag in the task's tables, such as "bag" or "image".
        names: of the B bags.
        bags: the bags, whose labels are all False.
        places: where the positions are, by the name of a column such as "instance", "x" or "start": each
            (B, *positions), in the units of what was read (instances from 0, pixels of the image, seconds).
    """

    kind: str
    names: list[str]
    bags: Bags
    places: dict[str, Tensor] = field(default_factory=dict)
