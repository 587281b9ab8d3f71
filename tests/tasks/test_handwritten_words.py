"""The task `handwritten-words`: its bags against the file that they were made of.

In these tests the first pixels of a letter tell which letter it is, and its fold.
"""

import itertools
from collections import Counter
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from milbench import UsageError, generator, load_loss
from tests._helpers.small_data import letter_rows, write_letters
from tests._helpers.tasks import loaded, mask_of, new_network

WORDS = ["abc", "fog", "hoop", "quartz", "jinxed", "xylophones", "klmnopqrstuv"]
LETTERS = [letter for word in WORDS for letter in word]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with each word once in each of ten folds.

    Pixels 0 to 4 of a letter are the bits of its number in the alphabet, 5 to 8 those of its fold.
    """
    folder = tmp_path_factory.mktemp("letters")
    folds = [fold for fold in range(10) for _ in WORDS]
    rows = letter_rows(WORDS * 10, folds)
    for row in rows:
        # The pixels begin in column 6, so that pixel 5 is in column 11. Column 5 is the fold.
        row[11:15] = bits_of(int(row[5]), count=4)
    write_letters(folder, rows)
    return folder


def bits_of(number: int, count: int) -> list[str]:
    """Return the bits of a number, the lowest first."""
    return [str(number >> bit & 1) for bit in range(count)]


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("handwritten-words", root, seed, any_data=True, **params)


class Spelt(NamedTuple):
    """What the pixels of a bag tell: its word, and the folds of its letters."""

    word: str
    folds: set[int]


def read(batches: Any) -> list[Spelt]:
    """Return what the pixels of each bag tell, and assert that the truth agrees."""
    found = []
    for bags in batches:
        mask = mask_of(bags)
        numbers = number_of_bits(bags.instances[..., :5])
        folds = number_of_bits(bags.instances[..., 5:9])
        assert torch.equal(bags.truth.position_classes, numbers.masked_fill(~mask, 26))
        assert torch.equal(bags.truth.classes, numbers.masked_fill(~mask, -1))
        for number, fold, is_letter in zip(numbers, folds, mask, strict=True):
            word = "".join(ascii_lowercase[n] for n in number[is_letter].tolist())
            found.append(Spelt(word, set(fold[is_letter].tolist())))
    return found


def number_of_bits(bits: Tensor) -> Tensor:
    """Return the numbers (...) that bits (..., n) stand for; the lowest bit is first."""
    values = 2 ** torch.arange(bits.shape[-1])
    return (bits * values).sum(dim=-1).long()


def parts(problem: Any) -> dict[str, list[Spelt]]:
    """Return the bags to train, validate and test on."""
    evaluated = {part: read(split.bags) for part, split in problem.splits.items()}
    return {"train": read(problem.train_batches(0, generator("t"))), **evaluated}


@pytest.mark.parametrize(("validated", "tested"), [(1, 0), (4, 3), (0, 9)])
def test_the_folds_of_a_seed_are_the_official_ones(root: Path, validated: int, tested: int) -> None:
    found = {}
    for part, bags in parts(make(root, seed=tested)).items():
        found[part] = set[int]().union(*(bag.folds for bag in bags))
    trained = set(range(10)) - {validated, tested}
    assert found == {"train": trained, "validation": {validated}, "test": {tested}}


def test_bags_are_the_words_of_the_file(root: Path) -> None:
    for part, bags in parts(make(root)).items():
        number_of_folds = 8 if part == "train" else 1
        assert Counter(bag.word for bag in bags) == Counter(WORDS * number_of_folds)


def drawn_words(root: Path) -> dict[int, list[str]]:
    """Return what the bags of each fold spell, where bags are made of letters at random."""
    words: dict[int, list[str]] = {}
    for bags in parts(make(root, 3, bags="drawn")).values():
        for bag in bags:
            # Unpacking fails if a bag has letters of two folds.
            (fold,) = bag.folds
            words.setdefault(fold, []).append(bag.word)
    return words


def test_drawn_bags_have_four_to_nine_letters(root: Path) -> None:
    sizes = {len(word) for words in drawn_words(root).values() for word in words}
    assert sizes <= {4, 5, 6, 7, 8, 9}


def test_a_fold_has_as_many_drawn_bags_as_words(root: Path) -> None:
    counts = {fold: len(words) for fold, words in drawn_words(root).items()}
    assert counts == dict.fromkeys(range(10), len(WORDS))


def test_every_letter_is_drawn_once_before_any_is_drawn_again(root: Path) -> None:
    in_fold = Counter(LETTERS)
    for words in drawn_words(root).values():
        drawn = Counter("".join(words))
        rounds = [drawn[letter] / count for letter, count in in_fold.items()]
        assert max(rounds) - min(rounds) <= 1


def test_drawn_bags_are_none_of_the_words(root: Path) -> None:
    for words in drawn_words(root).values():
        assert not set(words) & set(WORDS)


def test_drawn_bags_of_a_fold_are_the_same_for_all_seeds(root: Path) -> None:
    # Seed 5 tests on the fold that seed 4 validates on.
    one = parts(make(root, 4, bags="drawn"))
    other = parts(make(root, 5, bags="drawn"))
    assert one["validation"] == other["test"]


def test_single_letters_are_the_letters_of_the_bags(root: Path) -> None:
    split = make(root).splits["test"]
    assert Counter(bag.word for bag in read(split.single_instance)) == Counter(LETTERS)


def test_along_a_word_ctc_tells_a_doubled_letter(root: Path) -> None:
    problem = make(root)
    first_batch = next(problem.train_batches(0, generator("t")))
    three_letters = first_batch.instances[:1, :3]
    logits = new_network(problem, "sequence")(three_letters)
    assert logits.shape == (1, 27, 2 * 3)
    # One letter three times needs two blanks in between, which fit into six positions.
    three_times_a = torch.zeros(1, 3, dtype=torch.long)
    assert load_loss("ctc")(logits, [[0]], target=three_times_a).isfinite()


class Numbered(NamedTuple):
    """An evaluated word, with its number and its group."""

    word: str
    number: int
    group: int


def numbered_words(problem: Any) -> list[Numbered]:
    found = []
    for split in problem.splits.values():
        words = [bag.word for bag in read(split.bags)]
        numbers = torch.cat([bags.origin.bag for bags in split.bags]).tolist()
        groups = torch.cat([bags.origin.group for bags in split.bags]).tolist()
        found += [Numbered(*one) for one in zip(words, numbers, groups, strict=True)]
    return found


def test_words_are_numbered_in_the_order_of_the_file(root: Path) -> None:
    in_file = WORDS * 10
    words = numbered_words(make(root, 2))
    assert [in_file[one.number] for one in words] == [one.word for one in words]


def test_equal_words_are_a_group_and_different_words_are_not(root: Path) -> None:
    groups_of: dict[str, set[int]] = {}
    for seed in range(10):
        for one in numbered_words(make(root, seed)):
            groups_of.setdefault(one.word, set()).add(one.group)
    assert set(groups_of) == set(WORDS)
    assert all(len(groups) == 1 for groups in groups_of.values())
    assert len(set.union(*groups_of.values())) == len(WORDS)


def test_items_of_drawn_bags_are_letters_of_the_file(root: Path) -> None:
    in_file = LETTERS * 10
    for split in make(root, 1, bags="drawn").splits.values():
        for batches in (split.bags, split.single_instance):
            rows = torch.cat([pad(bags.origin.items) for bags in batches]).tolist()
            for bag, row in zip(read(batches), rows, strict=True):
                items = [item for item in row if item >= 0]
                assert "".join(in_file[item] for item in items) == bag.word
                assert {item // len(LETTERS) for item in items} == bag.folds
                assert len(bag.folds) == 1


def pad(items: torch.Tensor) -> torch.Tensor:
    """Return items (B, M) of a batch with as many columns as any drawn bag needs."""
    return torch.nn.functional.pad(items, (0, 9 - items.shape[1]), value=-1)


RARE = ["jab", "jet", "quip", "quilt", "taxi", "apex"]
"""Each of j, q and x is in two words only: these must be neither in one fold nor in neighbours."""
MANY = [*RARE, *("".join(pair) for pair in itertools.combinations("abeilptu", 2))]


@pytest.fixture(scope="module")
def root_of_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with 34 different words, each written three times, in official folds."""
    folder = tmp_path_factory.mktemp("many")
    words = MANY * 3
    rows = letter_rows(words, [number % 10 for number in range(len(words))])
    for row in rows:
        row[11:15] = bits_of(0, count=4)
    write_letters(folder, rows)
    return folder


def unseen_parts(root: Path, seed: int) -> dict[str, list[str]]:
    """Return the words to train, validate and test on where test words are unseen in training."""
    bags_of = parts(make(root, seed, bags="unseen"))
    return {part: [bag.word for bag in bags] for part, bags in bags_of.items()}


@pytest.mark.parametrize("seed", range(10))
def test_no_unseen_word_is_in_two_parts(root_of_many: Path, seed: int) -> None:
    words = unseen_parts(root_of_many, seed)
    assert not set(words["test"]) & set(words["train"])
    assert not set(words["test"]) & set(words["validation"])
    assert not set(words["validation"]) & set(words["train"])


@pytest.mark.parametrize("seed", range(10))
def test_all_words_are_used_where_some_are_unseen(root_of_many: Path, seed: int) -> None:
    words = unseen_parts(root_of_many, seed)
    assert Counter(words["train"] + words["validation"] + words["test"]) == Counter(MANY * 3)


def test_each_unseen_word_is_tested_in_one_of_ten_seeds(root_of_many: Path) -> None:
    tested = [unseen_parts(root_of_many, seed)["test"] for seed in range(10)]
    assert Counter(word for words in tested for word in words) == Counter(MANY * 3)
    # 34 different words in ten folds are three or four in each.
    assert {len(set(words)) for words in tested} == {3, 4}


@pytest.mark.parametrize("seed", [0, 8, 9])
def test_an_unseen_fold_is_validated_one_seed_before_its_test(
    root_of_many: Path, seed: int
) -> None:
    validated = unseen_parts(root_of_many, seed)["validation"]
    assert validated == unseen_parts(root_of_many, seed + 1)["test"]


@pytest.mark.parametrize("seed", range(10))
def test_letters_of_unseen_words_occur_in_training(root_of_many: Path, seed: int) -> None:
    words = unseen_parts(root_of_many, seed)
    assert set("".join(words["test"])) <= set("".join(words["train"]))


def test_too_few_words_for_unseen_folds_are_reported_in_one_line(root: Path) -> None:
    with pytest.raises(UsageError, match="needs 10 different words for its folds, the file has 7"):
        make(root, bags="unseen")
