"""The protocol of `svhn` on rendered house numbers, without a download."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from milbench.data.crops import CropVariant, Protocol
from milbench.families.street_numbers import PixelContrast, StreetNumbers


class HouseNumbers(StreetNumbers):
    """Find the digits of a rendered house number in a crop of 64x64 pixels, given the set of its digits.

    The protocol of `svhn`, with its parameters, on pictures that `milbench data fetch house-numbers` renders. Fonts,
    plates, walls, blur and noise are synthetic: a result on this task does not carry over to SVHN.
    """

    name = "house-numbers"
    folder = "house-numbers"
    how_to_get = (
        "make it with `milbench data fetch house-numbers`, or point --data-dir or MILBENCH_DATA at a "
        "folder that has it"
    )

    def __init__(
        self,
        crop: CropVariant = "paper",
        contrast: PixelContrast = "standard",
        validation: Annotated[int, Field(ge=0)] = 500,
        augmentation: bool = True,
        batch_bags: Annotated[int, Field(ge=1)] = 32,
        protocol: Protocol = "ours",
    ) -> None:
        super().__init__(crop, "train", contrast, validation, augmentation, batch_bags, protocol)

    def datasets(self) -> Sequence[str]:
        return [self.name]
