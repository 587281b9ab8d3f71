"""A contrast: the difference of two variants that a comparison was made for, named in its spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

Label = tuple[str, str]
"""The labels of the loss and of the recipe of a variant, see `milbench.api.plan.labels`."""


@dataclass(frozen=True)
class Contrast:
    """The difference of two variants: the first less the second.

    Args:
        name: what the difference shows, such as "what the softmax adds".
        first: the first variant, as the spec names it.
        second: the second one.
        margin: metric -> the largest difference that counts as none; it takes the place of that of the comparison.
        variants: label of the task -> the labels of the first and the second variant on it.
    """

    name: str
    first: str
    second: str
    margin: dict[str, float] = field(default_factory=dict)
    variants: dict[str, tuple[Label, Label]] = field(default_factory=dict)

    @property
    def asked(self) -> tuple[str, str, tuple[tuple[str, float], ...]]:
        """What has to be the same for a contrast to count as named before: its variants and margins."""
        return self.first, self.second, tuple(sorted(self.margin.items()))

    @classmethod
    def from_raw(cls, raw: dict[str, Any]) -> Self:
        """Return the contrast from its fields in JSON."""
        variants = {
            task: ((first[0], first[1]), (second[0], second[1])) for task, (first, second) in raw["variants"].items()
        }
        return cls(**{**raw, "variants": variants})
