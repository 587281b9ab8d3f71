"""Which letters a handwritten word has: a bag is a word, cut into letters, or letters drawn anew."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from milbench import Bags, LabelledImages, Network, NetworkMaker, Recipe, generator
from milbench.api.task import Folds
from milbench.data import catalog
from milbench.data.ocr_letters import COLUMNS, FILE, FOLDS, ROWS, Letters, read, read_all
from milbench.data.splits import official_split
from milbench.families.fixed_bags import draw_in_rounds
from milbench.networks.sequence import PADDING, SequenceConvolutional

from ._image_sets import EveryImage, ImageSets

SIZES = (
    4,
    9,
)  # the smallest and the largest number of letters in a drawn bag, all between them equally frequent


class LetterNetwork(EveryImage):
    """Two convolutions and a hidden layer for every letter of a set (B, K, 128), then its class: logits (B, C+1, K)."""

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:  # noqa: ARG002
        body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * (ROWS // 4) * (COLUMNS // 4), 64), nn.ReLU(),
        )  # fmt: skip
        super().__init__(body, (ROWS, COLUMNS), 64, num_classes, seed)


class WordNetwork(Network):
    """Convolutions along a whole word, its letters side by side: two positions a letter, (B, C+1, 2 K).

    A letter that stands twice can then have a blank between, without which `ctc` does not tell it from one.
    """

    sees_mask: ClassVar[bool] = True

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:  # noqa: ARG002
        super().__init__()
        self.columns = SequenceConvolutional(ROWS, num_classes, seed, stride=COLUMNS // 2)

    @property
    def head(self) -> nn.Conv1d:  # type: ignore[override]
        """The last layer."""
        return self.columns.head

    def forward(self, instances: Tensor, mask: Tensor | None = None) -> Tensor:
        frames = instances.unflatten(2, (ROWS, COLUMNS)).transpose(1, 2).flatten(2)
        if mask is not None:
            frames = frames.masked_fill(
                ~mask.repeat_interleave(COLUMNS // 2, dim=1).unsqueeze(1), PADDING
            )
        logits: Tensor = self.columns(frames)
        return logits

    def mask_of(self, bags: Bags) -> Tensor | None:
        return None if bags.mask is None else bags.mask.repeat_interleave(2, dim=1)


class HandwrittenWords(ImageSets):
    """Find which of 26 letters a handwritten word has, given the set of them; real words of many writers.

    The letters of R. Kassel's words (MIT, 1995) as B. Taskar, C. Guestrin and D. Koller published them ("Max-Margin
    Markov Networks", NIPS 2003): 6,877 words of 3 to 14 letters without their first one, each letter an image of 16x8
    pixels, black or white, in their order; there is no background. The ten folds are the official ones: seed s tests on
    fold s % 10, validates on the next one, the first after the last, and trains on the others. There are only 55
    different words, all of them in every fold, so that a few letters of a bag tell the others. Single letters are
    evaluated as well.

    Args:
        bags: `words`: as they were written. `drawn`: the letters of each fold are drawn anew into as many bags as it
            has words, of 4 to 9 letters, every letter once before any again, the same bags for all seeds: letters then
            occur as often as in words, and next to none is told by the others.
        any_data: accept other letters in such a file; the results are then named non-canonical.
    """

    name = "handwritten-words"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {
        "conv": LetterNetwork,
        "sequence": WordNetwork,
    }
    num_classes = len(ascii_lowercase)
    class_names: ClassVar[list[str]] = [*ascii_lowercase]
    inputs = ROWS * COLUMNS
    instances_are_ordered = True
    folds = Folds(FOLDS, repeats=None)
    eval_batches = 1000, 250

    def __init__(self, bags: Literal["words", "drawn"] = "words", any_data: bool = False) -> None:
        self.drawn, self.any_data = bags == "drawn", any_data

    def datasets(self) -> Sequence[str]:
        return () if self.any_data else ("ocr-letters",)

    def check_data(self, data_dir: Path | None) -> str:
        name, title = "ocr-letters", "handwritten letters"
        instead = catalog.how_to_get(name, FILE, "extended-digits needs no download")
        return catalog.check_dataset(
            name, title, data_dir, lambda root: read(root / FILE), instead, any_data=self.any_data
        )

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        return 1 / (FOLDS - 2)

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        letters = read_all(catalog.data_dir(data_dir), self.check_data(data_dir))
        pixels = torch.from_numpy(letters.pixels).view(-1, 1, ROWS, COLUMNS)
        images = LabelledImages(pixels, torch.from_numpy(letters.classes), white=1)
        bags = [*torch.arange(len(letters.classes)).split(letters.sizes.tolist())]
        if self.drawn:
            bags = draw_bags(letters, self.revision)
        split = official_split(letters.folds[[int(bag[0]) for bag in bags]], FOLDS, self.seed)
        self.train_on(images, [bags[n] for n in split.train], device)
        self.typical_size = (round(sum(map(len, self._bags)) / len(self._bags)),)
        self.eval_splits = {}
        for part, numbers in split.evaluated.items():
            chosen = [bags[n] for n in numbers[: self.evaluation_limit]]
            single = [letter for bag in chosen for letter in bag.split(1)][: self.evaluation_limit]
            self.eval_splits[part] = self.split(self._images, single, chosen)

    def recipe(self) -> Recipe:
        return Recipe(
            lr=1e-2, epochs=20, evaluate_every=10, precision="float32"
        )  # lr: best of three on validation


def draw_bags(letters: Letters, revision: int) -> list[Tensor]:
    """Return the numbers of letters drawn anew into bags, as many of each fold as it has words."""
    folds, bags = torch.from_numpy(letters.folds), []
    in_fold = torch.bincount(folds[letters.sizes.cumsum() - 1], minlength=FOLDS)
    for fold, count in enumerate(in_fold.tolist()):
        rng = generator("handwritten-words", revision, fold)
        letters_of_fold = (folds == fold).nonzero().flatten()
        sizes = torch.randint(SIZES[0], SIZES[1] + 1, (count,), generator=rng)
        bags += letters_of_fold[draw_in_rounds(len(letters_of_fold), int(sizes.sum()), rng)].split(
            sizes.tolist()
        )
    return bags
