"""Which letters a handwritten word has: a bag is a word, cut into letters, or letters drawn anew."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from milbench import (
    BagFormat,
    Bags,
    FixedBags,
    Folds,
    LabelledImages,
    Network,
    NetworkMaker,
    Origin,
    Recipe,
    Task,
    UsageError,
    generator,
)
from milbench.contracts.task import CPU
from milbench.data import catalog
from milbench.data.ocr_letters import COLUMNS, FILE, FOLDS, ROWS, Letters, read, read_all
from milbench.data.splits import official_split
from milbench.families.fixed_bags import draw_in_rounds
from milbench.networks.sequence import PADDING, SequenceConvolutional

from ._image_sets import ChosenBags, EveryImage, ImageBatches

SIZES = 4, 9
"""The smallest and the largest number of letters in a drawn bag; all between are as frequent."""
TRIES = 1000
"""Orders of the different words that are tried, to deal them to folds."""


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


class HandwrittenWords(Task):
    """Find which of 26 letters a handwritten word has, given the set of them; real words of many writers.

    The letters of R. Kassel's words (MIT, 1995) as B. Taskar, C. Guestrin and D. Koller published
    them ("Max-Margin Markov Networks", NIPS 2003): 6,877 words of 3 to 14 letters without their
    first one, each letter an image of 16x8 pixels, black or white, in their order; there is no
    background. The ten folds are the official ones: seed s tests on fold s % 10, validates on the
    next one, the first after the last, and trains on the others. Single letters are evaluated as
    well.

    There are only 55 different words, all of them in every official fold. A few letters of a bag
    tell the others, and a network that sees the whole bag can learn the 55 label sets by heart.
    With `bags=unseen` this does not help it.

    Args:
        bags: `words`: as they were written.
            `drawn`: the letters of each fold are drawn anew into as many bags as it has words, of 4
            to 9 letters, every letter once before any again, the same bags for all seeds. Letters
            then occur as often as in words, and next to none is told by the others.
            `unseen`: words as they were written, but each of the 55 is in one of ten folds only,
            whoever wrote it. A fold has 5 or 6 words and is the same for all seeds. So no test word
            occurs in training or validation, and no validation word in training. Every letter of a
            test word occurs in training words: `j` is in only two words, `q` and `x` are in three,
            and the folds are dealt so that this holds for all ten.
        any_data: accept other letters in such a file; the results are then named non-canonical.
    """

    name = "handwritten-words"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {
        "conv": LetterNetwork,
        "sequence": WordNetwork,
    }
    format = BagFormat(ROWS * COLUMNS, (*ascii_lowercase,))
    instances_are_ordered = True

    def __init__(
        self, bags: Literal["words", "drawn", "unseen"] = "words", any_data: bool = False
    ) -> None:
        self.bags = bags
        self.any_data = any_data

    def datasets(self) -> Sequence[str]:
        return () if self.any_data else ("ocr-letters",)

    def check_data(self, data_dir: Path | None) -> str:
        name, title = "ocr-letters", "handwritten letters"
        instead = catalog.how_to_get(name, FILE, "extended-digits needs no download")
        return catalog.check_dataset(
            name, title, data_dir, lambda root: read(root / FILE), instead, any_data=self.any_data
        )

    def folds(self, data_dir: Path | None) -> Folds:  # noqa: ARG002
        return Folds(FOLDS, repeats=None)

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        return 1 / (FOLDS - 2)

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> FixedBags:
        letters = read_all(catalog.data_dir(data_dir), self.check_data(data_dir))
        pixels = torch.from_numpy(letters.pixels).view(-1, 1, ROWS, COLUMNS)
        images = LabelledImages(pixels, torch.from_numpy(letters.classes), white=1)
        on_device = images.to(device)
        bags, folds, group = self._bags_of(letters)
        split = official_split(folds, FOLDS, seed)
        trained = [bags[n] for n in split.train]
        batches = ImageBatches(self.format.num_classes, single_at_once=1000, bags_at_once=250)
        # A drawn letter may be in several bags, that of a word is in this word alone.
        evaluated = on_device.numbered() if self.bags == "drawn" else on_device
        splits = {}
        for part, every in split.evaluated.items():
            numbers = torch.from_numpy(every[:limit])
            whole = ChosenBags(
                [bags[n] for n in numbers.tolist()],
                Origin(numbers, None if group is None else group[numbers]),
            )
            splits[part] = batches.split(evaluated, single_letters(whole, limit), whole)

        def make_batch(numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG001
            return batches.filled(on_device, [trained[n] for n in numbers.tolist()])

        mean_size = round(sum(map(len, trained)) / len(trained))
        return FixedBags(
            task_name=self.name,
            seed=seed,
            format=self.format,
            typical_shape=(mean_size, self.format.inputs),
            batch_bags=32,
            splits=splits,
            max_labels=batches.most_labels(images, trained),
            training_count=len(trained),
            make_batch=make_batch,
            limit=limit,
        )

    def _bags_of(self, letters: Letters) -> tuple[list[Tensor], NDArray[np.int64], Tensor | None]:
        """Return the numbers of the letters of each bag, and its fold and its group."""
        if self.bags == "drawn":
            bags, folds = draw_bags(letters, self.revision)
            return bags, folds, None
        bags = [*torch.arange(len(letters.classes)).split(letters.sizes.tolist())]
        folds = letters.folds[letters.sizes.cumsum() - 1]
        different, of_word = different_words(letters)
        if self.bags == "unseen":
            folds = deal_words(different)[of_word]
        return bags, folds, torch.from_numpy(of_word)

    def recipe(self) -> Recipe:
        return Recipe(
            lr=1e-2, epochs=20, evaluate_every=10, precision="float32"
        )  # lr: best of three on validation


def draw_bags(letters: Letters, revision: int) -> tuple[list[Tensor], NDArray[np.int64]]:
    """Return the numbers of letters drawn anew into bags, as many of each fold as it has words.

    Return with them the fold of each bag.
    """
    folds, bags = torch.from_numpy(letters.folds), []
    in_fold = torch.bincount(folds[letters.sizes.cumsum() - 1], minlength=FOLDS)
    for fold, count in enumerate(in_fold.tolist()):
        rng = generator("handwritten-words", revision, fold)
        letters_of_fold = (folds == fold).nonzero().flatten()
        sizes = torch.randint(SIZES[0], SIZES[1] + 1, (count,), generator=rng)
        drawn = draw_in_rounds(len(letters_of_fold), int(sizes.sum()), rng)
        bags += letters_of_fold[drawn].split(sizes.tolist())
    return bags, np.repeat(np.arange(FOLDS), in_fold.numpy())


def single_letters(bags: ChosenBags, limit: int | None) -> ChosenBags:
    """Return the first `limit` letters of bags as bags of one, each in the group of its bag."""
    letters = [letter for bag in bags.images for letter in bag.split(1)][:limit]
    group = bags.origin.group
    if group is not None:
        sizes = torch.tensor([len(bag) for bag in bags.images])
        group = group.repeat_interleave(sizes)[:limit]
    return ChosenBags(letters, Origin(torch.arange(len(letters)), group))


def different_words(letters: Letters) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different words, sorted, and the number among them of each word (W,)."""
    text = "".join(ascii_lowercase[letter] for letter in letters.classes)
    ends = letters.sizes.cumsum()
    words = [text[end - size : end] for size, end in zip(letters.sizes, ends, strict=True)]
    different, numbers = np.unique(words, return_inverse=True)
    return different.tolist(), numbers.astype(np.int64)


def deal_words(words: list[str]) -> NDArray[np.int64]:
    """Return the fold of each of some different words, the same for all seeds.

    Random orders are tried until every letter of a fold occurs in the words that are trained on
    when the fold is tested on. If none does this, the order that lacks the fewest letters is taken.
    Raises UsageError where there are fewer words than folds.
    """
    if len(words) < FOLDS:
        raise UsageError(
            f"handwritten-words: bags = unseen needs {FOLDS} different words for its folds, "
            f"the file has {len(words)}; bags = words takes any"
        )
    rng = generator("handwritten-words", "unseen")
    fewest, best = len(words) * len(ascii_lowercase), np.zeros(len(words), np.int64)
    for _ in range(TRIES):
        folds = np.empty(len(words), np.int64)
        folds[torch.randperm(len(words), generator=rng).numpy()] = np.arange(len(words)) % FOLDS
        unknown = count_unknown_letters(words, folds)
        if unknown < fewest:
            fewest, best = unknown, folds
        if fewest == 0:
            break
    return best


def count_unknown_letters(words: list[str], folds: NDArray[np.int64]) -> int:
    """Return how many letters of test words no training word has, over all folds.

    `folds` has the fold of each word.
    """
    letters_of = [set[str]() for _ in range(FOLDS)]
    for word, fold in zip(words, folds.tolist(), strict=True):
        letters_of[fold].update(word)
    unknown = 0
    for tested in range(FOLDS):
        validated = (tested + 1) % FOLDS
        trained = set[str]().union(
            *(letters_of[fold] for fold in range(FOLDS) if fold not in (tested, validated))
        )
        unknown += len(letters_of[tested] - trained)
    return unknown
