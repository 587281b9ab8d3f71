"""Rendered street numbers in SVHN's format: what `svhn` asks, without a download."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from milbench.data.crops import Variant
from milbench.data.rendering.generate import manifest
from milbench.families.street_numbers import Contrast, Size, StreetNumbers


class HouseNumbers(StreetNumbers):
    """Find which digits a rendered house number has, from crops of 64x64 pixels and the set of their digits alone.

    The game of `svhn` on pictures that `milbench data make house-numbers` draws: fonts, plates, walls, blur and noise
    are made up, so a figure from here says nothing about SVHN. Parameters are those of `svhn`.
    """

    name = "house-numbers"
    folder = "house-numbers"
    instead = (
        "make it with `milbench data make house-numbers`, or point --data-dir or MILBENCH_DATA at a folder where that "
        "was done"
    )

    def __init__(
        self,
        network: Size = "small",
        crop: Variant = "paper",
        contrast: Contrast = "standard",
        validation: Annotated[int, Field(ge=0)] = 500,
        augmentation: bool = True,
        batch_bags: Annotated[int, Field(ge=1)] = 32,
    ) -> None:
        super().__init__(network, crop, "train", contrast, validation, augmentation, batch_bags)

    def caption(self, root: Path, counts: Mapping[str, int], digest: str) -> str:
        """Return the seed too: other seeds are other pictures."""
        parts = " / ".join(f"{count:,} {part}" for part, count in counts.items())
        return f"{self.name} of seed {manifest(root)['seed']}, {parts}, sha256 {digest[:16]}"
