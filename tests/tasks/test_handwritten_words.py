"""Handwritten words: bags against the file that they were made of, whose letters say what they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Bags, UsageError, generator, load_loss, load_task
from tests._helpers.networks import new_network
from tests._helpers.small_data import letter_rows, write_letters

CPU = torch.device("cpu")
WORDS = ["abc", "fog", "hoop", "quartz", "jinxed", "xylophones", "klmnopqrstuv"]
LETTERS = [letter for word in WORDS for letter in word]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with each word once in each fold; pixels 0 to 4 of a letter say which it is, 5 to 8 its fold."""
    folder = tmp_path_factory.mktemp("letters")
    rows = letter_rows(WORDS * 10, [fold for fold in range(10) for _ in WORDS])
    for row in rows:
        row[11:15] = [str(int(row[5]) >> bit & 1) for bit in range(4)]
    write_letters(folder, rows)
    return folder


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    task = load_task("handwritten-words", any_data=True, **params)
    task.seed = seed
    task.prepare(root, CPU)
    return task


def read(batches: Any) -> list[tuple[str, set[int]]]:
    """Return what the pixels of each bag spell, and the folds that they come from; labels and truth must agree."""
    found = []
    for bags in batches:
        mask = torch.ones(bags.instances.shape[:2], dtype=torch.bool) if bags.mask is None else bags.mask
        number = (bags.instances[..., :5] * 2 ** torch.arange(5)).sum(dim=2).long()
        fold = (bags.instances[..., 5:9] * 2 ** torch.arange(4)).sum(dim=2).long()
        assert torch.equal(bags.truth.position_classes, number.masked_fill(~mask, 26))
        assert torch.equal(bags.truth.classes, number.masked_fill(~mask, -1))
        for b, there in enumerate(mask):
            shown = number[b, there].tolist()
            assert bags.labels[b].nonzero().flatten().tolist() == sorted(set(shown))
            found.append(("".join(chr(ord("a") + n) for n in shown), set(fold[b, there].tolist())))
    return found


def parts(task: Any) -> dict[str, list[tuple[str, set[int]]]]:
    evaluated = {part: read(split.bags) for part, split in task.eval_splits.items()}
    return {"train": read(task.train_batches(0, generator("t"))), **evaluated}


def test_bags_are_the_words_and_folds_are_the_official_ones(root: Path) -> None:
    for seed, (validated, tested) in {0: (1, 0), 3: (4, 3), 9: (0, 9)}.items():
        for part, bags in parts(make(root, seed)).items():
            folds = {"validation": {validated}, "test": {tested}}.get(part, {*range(10)} - {validated, tested})
            assert set().union(*(fold for _, fold in bags)) == folds
            assert Counter(word for word, _ in bags) == Counter(WORDS * len(folds))


def test_drawn_bags_hold_letters_of_one_fold_each_once_before_any_again(root: Path) -> None:
    for part, bags in parts(make(root, 3, bags="drawn")).items():
        assert {len(word) for word, _ in bags} <= {*range(4, 10)}
        folds = [fold for _, (fold,) in bags]
        assert Counter(folds) == Counter({fold: len(WORDS) for fold in folds}), "as many bags as words"
        for one in set(folds):
            drawn = Counter("".join(word for word, fold in bags if fold == {one}))
            at_hand = Counter(LETTERS)
            rounds = [drawn[letter] / at_hand[letter] for letter in at_hand]
            assert max(rounds) - min(rounds) <= 1, part
        assert not {word for word, _ in bags} & {*WORDS}


def test_drawn_bags_are_the_same_for_all_seeds_that_use_their_fold(root: Path) -> None:
    one, other = (parts(make(root, seed, bags="drawn")) for seed in (4, 5))
    assert one["validation"] == other["test"]


def test_single_letters_are_those_of_the_bags(root: Path) -> None:
    split = make(root).eval_splits["test"]
    assert Counter(letter for letter, _ in read(split.single_instance)) == Counter(LETTERS)


def test_a_missing_file_is_one_line_that_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"letter.data.gz not found; .* `milbench data fetch ocr-letters`"):
        make(tmp_path)


@pytest.mark.parametrize("loss", ["count", "position"])
def test_losses_that_know_more_can_be_trained(loss: str, root: Path) -> None:
    from milbench.api.targets import make_target

    task = make(root)
    bags: Bags = next(task.train_batches(0, generator("t")))
    network, known = new_network(task), load_loss(loss)
    logits = network.logits_of(bags)
    assert known(logits, bags.labels, bags.mask, make_target(known, bags, logits, network)).isfinite().all()


def test_along_a_word_ctc_tells_a_doubled_letter_and_no_other_word_of_the_batch_matters(root: Path) -> None:
    task = make(root)
    bags: Bags = next(task.train_batches(0, generator("t")))
    assert bags.mask is not None
    network = new_network(task, "sequence").eval()
    logits, mask = network.logits_of(bags), network.mask_of(bags)
    assert logits.shape == (len(bags), 27, 2 * bags.mask.shape[1])
    assert mask is not None
    shortest = int(bags.mask.sum(dim=1).argmin())
    letters = int(bags.mask[shortest].sum())
    alone = network(bags.instances[shortest : shortest + 1, :letters])
    torch.testing.assert_close(alone[0], logits[shortest, :, : 2 * letters], rtol=1e-4, atol=1e-5)
    doubled = torch.zeros(1, letters, dtype=torch.long)  # one letter at every place
    assert load_loss("ctc")(alone, [[0]], target=doubled).isfinite()
