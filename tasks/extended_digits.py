"""Extended MNIST with the digits of 8x8 pixels that come with scikit-learn: no download needed."""

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from milbench import (
    AllConvolutional,
    ImageSplits,
    LabelledImages,
    Layer,
    NestedDigits,
    Network,
    NetworkMaker,
    Recipe,
    Split,
)
from milbench._utils.digests import remembered
from milbench._utils.seeding import generator

SPLIT_SEED = 181112346
"""The seed of the fixed split."""
TRAINING_IMAGES = 1258
VALIDATION_IMAGES = 179
TEST_IMAGES = 360
"""Results are comparable only with these numbers of images and the seed above."""


def _network(inputs: int, num_classes: int, seed: int) -> Network:
    """Make five 3x3 convolutions: 8 pixels give 2 positions, 20 give 8.

    Each position depends on 17x17 pixels.
    """
    layers = (
        Layer(32, 3, padding=1),
        Layer(32, 3, stride=2, padding=1),
        Layer(32, 3, padding=1),
        Layer(32, 3, padding=1),
        Layer(num_classes + 1, 3),
    )
    return AllConvolutional(layers, inputs, seed)


class ExtendedDigits(NestedDigits):
    """Find which digits are on a canvas, trained from label sets alone.

    The 1,797 digits are the test part of the UCI data set "Optical Recognition of Handwritten
    Digits" (Alpaydin and Kaynak, 1998), as scikit-learn has it, split by image and stratified by
    class. Height and width of a canvas are uniform on 16..24 pixels: two to three sides of a digit,
    as in X.-L. Li, arXiv:1811.12346, 2018, Section 5.2. Digits may overlap.

    Args:
        digits_per_bag: the number of digits on a canvas.
        split: `seed`: every seed splits the digits anew, into 1,258 to train on, 179 to validate
            and 360 to test, the same for every loss. So the choice of the few test digits is part
            of the spread between seeds. Intervals are corrected for the digits that these splits
            share, and hold for other digits of the source. `fixed`: one split for all seeds;
            differences then hold for these test digits alone.
        bags_per_epoch: the number of training canvases of an epoch. None means as many as use every
            training digit once. An epoch then has fewer steps, the more digits a canvas has; set
            this parameter to compare numbers of digits.
        canvas: `fixed`: the sides are as above for any number of digits, so that more digits
            overlap more. `proportional`: the area is proportional to the number of digits, and the
            same as `fixed` for two digits.
        batch_bags: the number of canvases in a training batch.
    """

    name = "extended-digits"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"conv": _network}
    side_range = (16, 24)
    digit_side = 8
    revision = 2
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 1000, "test": 4000}
    single_at_once = 400
    bags_at_once = 100

    def __init__(
        self,
        digits_per_bag: Annotated[int, Field(ge=1)] = 2,
        split: Literal["seed", "fixed"] = "seed",
        bags_per_epoch: Annotated[int, Field(ge=1, le=10_000_000)] | None = None,
        canvas: Literal["fixed", "proportional"] = "fixed",
        batch_bags: Annotated[int, Field(ge=1)] = 32,
    ) -> None:
        if canvas == "proportional":
            # The sides of the class are those for two digits.
            factor = math.sqrt(digits_per_bag / 2)
            smallest, largest = self.side_range
            self.side_range = (round(smallest * factor), round(largest * factor))
        super().__init__(digits_per_bag, batch_bags, bags_per_epoch)
        self.split = split

    def recipe(self) -> Recipe:
        # The best learning rate on validation bags, for all losses together.
        return Recipe(lr=6e-3, epochs=60, evaluate_every=10, precision="float32")

    def check_data(self, data_dir: Path | None) -> str:  # noqa: ARG002
        # A plan needs only the version and the file of scikit-learn, whose import takes a second.
        sklearn = metadata.distribution("scikit-learn")
        file = Path(str(sklearn.locate_file("sklearn/datasets/data/digits.csv.gz")))
        key = f"{self.name} {self.split} scikit-learn {sklearn.version}"
        digest = remembered(key, [file], self._digest)
        suffix = ", another split for every seed" if self.split == "seed" else ""
        return f"digits of scikit-learn{suffix}, sha256 {digest}"

    def _digest(self) -> str:
        """Return a digest of all digits, and of the split where it is fixed."""
        parts = [_all_digits()]
        if self.split == "fixed":
            splits = self.digits(None, seed=0)
            parts = [splits.train, *splits.evaluated.values()]
        content = hashlib.sha256()
        for part in parts:
            content.update(part.pixels.numpy().tobytes())
            content.update(part.classes.numpy().tobytes())
        return content.hexdigest()[:16]

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        if self.split == "fixed":
            return 0.0
        return TEST_IMAGES / TRAINING_IMAGES

    def canvas_key(self, seed: int) -> tuple[object, ...]:
        if self.split == "fixed":
            return ()
        return (seed,)

    def digits(self, data_dir: Path | None, seed: int) -> ImageSplits:  # noqa: ARG002
        from sklearn.model_selection import train_test_split

        state = SPLIT_SEED
        if self.split == "seed":
            # scikit-learn takes seeds of 32 bits.
            state = generator(self.name, "split", seed).initial_seed() % 2**32
        digits = _all_digits()
        rest, test = train_test_split(
            range(len(digits)),
            test_size=TEST_IMAGES,
            stratify=digits.classes,
            random_state=state,
        )
        train, validation = train_test_split(
            rest,
            test_size=VALIDATION_IMAGES,
            stratify=digits.classes[rest],
            random_state=state,
        )
        numbered = digits.numbered()
        return ImageSplits(
            digits[torch.tensor(train)],
            numbered[torch.tensor(validation)],
            numbered[torch.tensor(test)],
        )


# Cached, since every cell of a process needs the digits.
@cache
def _all_digits() -> LabelledImages:
    """Return all digits, in scikit-learn's order, with pixels from 0 to 16."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    pixels = torch.from_numpy(bundle.images).byte()
    classes = torch.from_numpy(bundle.target).long()
    return LabelledImages(pixels.unsqueeze(1), classes, white=16)
