"""Which letters a handwritten word has: a bag is a word cut into letters, or a mix of letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

DATA_SET = "ocr-letters"
SMALLEST_DRAWN_BAG = 4
LARGEST_DRAWN_BAG = 9
"""With `bags=drawn` the number of letters in a bag is uniform between these two."""
POSITIONS_PER_LETTER = 2
"""How many positions `WordNetwork` has for a letter. Each covers half of the letter's columns."""
TRIES = 1000
"""How many random orders of the different words are tried, to deal the words to folds."""


class LetterNetwork(EveryImage):
    """Two convolutions and a hidden layer for every letter by itself.

    The input is (B, K, 128), and the output logits (B, C+1, K).
    """

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:  # noqa: ARG002
        # Pooling halves rows and columns twice.
        features_after_pooling = 32 * (ROWS // 4) * (COLUMNS // 4)
        hidden = 64
        body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(features_after_pooling, hidden),
            nn.ReLU(),
        )
        super().__init__(body, (ROWS, COLUMNS), hidden, num_classes, seed)


class WordNetwork(Network):
    """Convolutions along a whole word, with its letters side by side.

    The output is logits (B, C+1, 2 K), at two positions a letter. The loss `ctc` needs the second
    one: it tells a double letter from a single one only by a blank between the two.
    """

    sees_mask: ClassVar[bool] = True

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:  # noqa: ARG002
        super().__init__()
        stride = COLUMNS // POSITIONS_PER_LETTER
        self.columns = SequenceConvolutional(ROWS, num_classes, seed, stride=stride)

    @property
    def head(self) -> nn.Conv1d:  # type: ignore[override]
        """The last layer, which gives the logits."""
        return self.columns.head

    def forward(self, instances: Tensor, mask: Tensor | None = None) -> Tensor:
        letters = instances.unflatten(2, (ROWS, COLUMNS))
        # A row of a word joins this row of all its letters.
        word = letters.transpose(1, 2).flatten(2)
        if mask is not None:
            # The mask comes from `mask_of`, with two positions a letter.
            column_mask = mask.repeat_interleave(COLUMNS // POSITIONS_PER_LETTER, dim=1)
            word = word.masked_fill(~column_mask.unsqueeze(1), PADDING)
        logits: Tensor = self.columns(word)
        return logits

    def mask_of(self, bags: Bags) -> Tensor | None:
        if bags.mask is None:
            return None
        return bags.mask.repeat_interleave(POSITIONS_PER_LETTER, dim=1)


class HandwrittenWords(Task):
    """Find which of 26 letters a handwritten word has, trained from label sets alone.

    The letters are from words of many writers, collected by R. Kassel (MIT, 1995), as B. Taskar, C.
    Guestrin and D. Koller published them ("Max-Margin Markov Networks", NIPS 2003): 6,877 words of
    3 to 14 letters, without their first letter. Each letter is an image of 16x8 pixels, black or
    white. The letters of a bag are in the order of the word; there is no background. The ten folds
    are the official ones: seed s tests on fold s % 10, validates on the next fold (after the last
    fold comes the first), and trains on the others. Single letters are evaluated as well.

    There are only 55 different words, all of them in every official fold. So a few letters of a
    word give away the others, and a network that sees the whole bag can learn the 55 label sets by
    heart. With `bags=unseen` this does not help it.

    Args:
        bags: what a bag is. `words`: a word as it was written.
            `drawn`: the letters of each fold are mixed into as many bags as the fold has words,
            each of 4 to 9 letters. Every letter is used once before any is used again, and the bags
            are the same for all seeds. Letters then occur as often as in words, and say next to
            nothing about each other.
            `unseen`: a word as it was written, but each of the 55 different words is in one of ten
            folds only, whoever wrote it. A fold has 5 or 6 different words and is the same for all
            seeds. So no test word occurs in training or validation, and no validation word in
            training. Every letter of a test word occurs in training words: `j` is in only two
            words, `q` and `x` are in three, and the folds are dealt so that this holds for all ten.
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
        if self.any_data:
            return ()
        return (DATA_SET,)

    def check_data(self, data_dir: Path | None) -> str:
        def read_file(root: Path) -> Letters:
            return read(root / FILE)

        return catalog.check_dataset(
            DATA_SET,
            "handwritten letters",
            data_dir,
            read_file,
            catalog.how_to_get(DATA_SET, FILE, "extended-digits needs no download"),
            any_data=self.any_data,
        )

    def folds(self, data_dir: Path | None) -> Folds:  # noqa: ARG002
        return Folds(FOLDS, repeats=None)

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        # One fold is for tests, and another for validation.
        trained_folds = FOLDS - 2
        return 1 / trained_folds

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> FixedBags:
        letters = read_all(catalog.data_dir(data_dir), self.check_data(data_dir))
        images = _images_of(letters)
        on_device = images.to(device)
        bags = self._bags_of(letters)
        split = official_split(bags.folds, FOLDS, seed)
        trained = [bags.letters[number] for number in split.train]
        batches = ImageBatches(self.format.num_classes, single_at_once=1000, bags_at_once=250)
        evaluated = on_device
        if self.bags == "drawn":
            # A letter may be in several of these bags. Its number shows which bags share it.
            evaluated = on_device.numbered()
        splits = {}
        for part, numbers in split.evaluated.items():
            chosen = bags.chosen(torch.from_numpy(numbers[:limit]))
            splits[part] = batches.split(evaluated, single_letters(chosen, limit), chosen)

        def make_batch(numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG001
            return batches.filled(on_device, [trained[number] for number in numbers.tolist()])

        mean_size = round(sum(len(bag) for bag in trained) / len(trained))
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

    def _bags_of(self, letters: Letters) -> "LetterBags":
        """Return all bags, which are the same for every seed."""
        if self.bags == "drawn":
            return draw_bags(letters, self.revision)
        words = torch.arange(len(letters.classes)).split(letters.sizes.tolist())
        different, number_of_word = different_words(letters)
        folds = _folds_of_words(letters)
        if self.bags == "unseen":
            folds = deal_words(different)[number_of_word]
        return LetterBags(list(words), folds, torch.from_numpy(number_of_word))

    def recipe(self) -> Recipe:
        # The learning rate was the best of three on validation bags.
        return Recipe(lr=1e-2, epochs=20, evaluate_every=10, precision="float32")


@dataclass(frozen=True)
class LetterBags:
    """All bags of the data set, of all folds."""

    letters: list[Tensor]
    """The numbers of the letters of each bag."""
    folds: NDArray[np.int64]
    """The fold of each bag."""
    groups: Tensor | None
    """The group of each bag: words with the same spelling are one group. None: no groups."""

    def chosen(self, numbers: Tensor) -> ChosenBags:
        """Return the bags with these numbers (B,), to evaluate on."""
        letters = [self.letters[number] for number in numbers.tolist()]
        if self.groups is None:
            return ChosenBags(letters, Origin(numbers))
        return ChosenBags(letters, Origin(numbers, self.groups[numbers]))


def _images_of(letters: Letters) -> LabelledImages:
    """Return all letters as images, on the CPU."""
    pixels = torch.from_numpy(letters.pixels).view(-1, 1, ROWS, COLUMNS)
    return LabelledImages(pixels, torch.from_numpy(letters.classes), white=1)


def _folds_of_words(letters: Letters) -> NDArray[np.int64]:
    """Return the official fold of each word (W,)."""
    # All letters of a word are in one fold.
    last_letters = letters.sizes.cumsum() - 1
    folds: NDArray[np.int64] = letters.folds[last_letters]
    return folds


def draw_bags(letters: Letters, revision: int) -> LetterBags:
    """Return bags of mixed letters, for each fold as many bags as it has words."""
    folds_of_letters = torch.from_numpy(letters.folds)
    words_in_fold = np.bincount(_folds_of_words(letters), minlength=FOLDS)
    bags: list[Tensor] = []
    for fold, count in enumerate(words_in_fold.tolist()):
        rng = generator("handwritten-words", revision, fold)
        letters_of_fold = (folds_of_letters == fold).nonzero().flatten()
        sizes = torch.randint(SMALLEST_DRAWN_BAG, LARGEST_DRAWN_BAG + 1, (count,), generator=rng)
        drawn = draw_in_rounds(len(letters_of_fold), int(sizes.sum()), rng)
        bags += letters_of_fold[drawn].split(sizes.tolist())
    folds = np.repeat(np.arange(FOLDS), words_in_fold)
    return LetterBags(bags, folds, groups=None)


def single_letters(bags: ChosenBags, limit: int | None) -> ChosenBags:
    """Return the first `limit` letters of bags as bags of one letter.

    Each has the group of the bag that it comes from.
    """
    letters: list[Tensor] = []
    for bag in bags.images:
        letters += bag.split(1)
    letters = letters[:limit]
    group = bags.origin.group
    if group is not None:
        sizes = torch.tensor([len(bag) for bag in bags.images])
        group = group.repeat_interleave(sizes)[:limit]
    return ChosenBags(letters, Origin(torch.arange(len(letters)), group))


def different_words(letters: Letters) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different words, sorted, and (W,), which of them each word of the file is."""
    text = "".join(ascii_lowercase[letter] for letter in letters.classes)
    ends = letters.sizes.cumsum()
    starts = ends - letters.sizes
    words = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    different, numbers = np.unique(words, return_inverse=True)
    return different.tolist(), numbers.astype(np.int64)


def deal_words(words: list[str]) -> NDArray[np.int64]:
    """Return the fold of each different word, the same for all seeds.

    Random orders of the words are tried until, for each fold, the training words have every letter
    of the test words. If no order gives this, the order that lacks the fewest letters is taken.

    Raises UsageError if there are fewer words than folds.
    """
    if len(words) < FOLDS:
        raise UsageError(
            f"handwritten-words: bags = unseen needs {FOLDS} different words for its folds, "
            f"the file has {len(words)}; bags = words takes any"
        )
    rng = generator("handwritten-words", "unseen")
    # Dealt like cards: the first word of an order to fold 0, the next one to fold 1, and so on.
    fold_of_rank = np.arange(len(words)) % FOLDS
    best = fold_of_rank
    fewest_unknown: int | None = None
    for _ in range(TRIES):
        order = torch.randperm(len(words), generator=rng).numpy()
        folds = np.empty(len(words), np.int64)
        folds[order] = fold_of_rank
        unknown = count_unknown_letters(words, folds)
        if fewest_unknown is None or unknown < fewest_unknown:
            fewest_unknown = unknown
            best = folds
        if fewest_unknown == 0:
            break
    return best


def count_unknown_letters(words: list[str], folds: NDArray[np.int64]) -> int:
    """Return how many letters of test words no training word has, summed over all folds.

    Args:
        words: the different words.
        folds: the fold of each word.
    """
    letters_of_fold = [set[str]() for _ in range(FOLDS)]
    for word, fold in zip(words, folds.tolist(), strict=True):
        letters_of_fold[fold].update(word)
    unknown = 0
    for tested in range(FOLDS):
        validated = (tested + 1) % FOLDS
        known = set[str]()
        for fold, letters in enumerate(letters_of_fold):
            if fold not in (tested, validated):
                known |= letters
        unknown += len(letters_of_fold[tested] - known)
    return unknown
