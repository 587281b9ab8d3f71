"""The numbers of docs/five-steps.md, and of the worked examples on the pages of losses."""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby, product
from math import log, prod
from typing import Any

import pytest

from milbench.contracts.load import load_loss
from milbench.contracts.registry import losses
from tests.test_documents import DOCS, blocks, run_python
from website import worked_example

PAGE = DOCS / "five-steps.md"
TEXT = PAGE.read_text("utf-8")


def rows(after: str) -> Iterator[list[str]]:
    """Return the rows of the first table after some text, without its head."""
    (table,) = re.findall(r"(?:^\|.*\n)+", TEXT.partition(after)[2], re.MULTILINE)[:1]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


NAMES = ("cat", "dog", "background")
PROBABILITIES = [dict(zip(NAMES, map(Fraction, row), strict=True)) for _, *row in rows("## Step 1")]
COUNTED = [
    placement
    for placement in product(NAMES, repeat=len(PROBABILITIES))
    if set(placement) - {"background"} == {"cat", "dog"}
]
LIKELIHOOD = sum(
    prod(row[name] for row, name in zip(PROBABILITIES, placement, strict=True))
    for placement in COUNTED
)


def test_every_row_of_the_table_adds_up_to_one() -> None:
    assert [sum(row.values()) for row in PROBABILITIES] == [1, 1, 1]


def test_the_page_lists_the_placements_that_count() -> None:
    listed = list(rows("## Step 3"))
    assert [tuple(placement.split(", ")) for placement, _, _ in listed] == COUNTED
    for placement, factors, probability in listed:
        expected = [
            row[name] for row, name in zip(PROBABILITIES, placement.split(", "), strict=True)
        ]
        assert [Fraction(factor) for factor in factors.split(" × ")] == expected
        assert Fraction(probability) == prod(expected)
    every = len(NAMES) ** len(PROBABILITIES)
    assert f"= {every} placements" in TEXT
    assert f"These {len(COUNTED)} count" in TEXT
    assert f"The other {every - len(COUNTED)} lack" in TEXT


def test_the_sum_of_the_page_is_the_likelihood() -> None:
    said = re.search(r"have the sum ([\d.]+\d)\.", TEXT)
    assert said is not None
    assert Fraction(said[1]) == LIKELIHOOD
    assert f"-log {said[1]} = {-log(LIKELIHOOD):.4f}" in TEXT


def test_inclusion_and_exclusion_has_the_same_sum() -> None:
    (line,) = re.findall(r"^\*\*(.*) = ([\d.]+)\*\*$", TEXT, re.MULTILINE)
    terms, result = line
    without_cat = prod(row["dog"] + row["background"] for row in PROBABILITIES)
    without_dog = prod(row["cat"] + row["background"] for row in PROBABILITIES)
    with_neither = prod(row["background"] for row in PROBABILITIES)
    shown = [
        prod(Fraction(factor) for factor in term.split(" × "))
        for term in re.split(r" [-+] ", terms)
    ]
    assert shown == [1, without_cat, without_dog, with_neither]
    assert Fraction(result) == 1 - without_cat - without_dog + with_neither == LIKELIHOOD
    assert " - ".join(str(float(term)) for term in shown[1:3]) in TEXT


def test_the_page_computes_the_other_losses_by_hand() -> None:
    occurs = {name: 1 - prod(1 - row[name] for row in PROBABILITIES) for name in NAMES}
    highest = {name: max(row[name] for row in PROBABILITIES) for name in NAMES}
    both = highest["cat"] * highest["dog"]
    expected = {
        "exact": -log(LIKELIHOOD),
        "noisy-or (softmax)": -log(occurs["cat"] * occurs["dog"]),
        "one-vs-rest": -log(both),
        "max-pooling": -log(both * highest["background"]) / 3,
    }
    shown = {
        loss.replace("`", "").removesuffix(" by position"): value
        for loss, _, value in rows("## The same bag")
    }
    assert shown == {loss: f"{value:.4f}" for loss, value in expected.items()}
    for name in ("cat", "dog"):
        assert f"= {float(occurs[name])}" in TEXT or f"{float(occurs[name])}." in TEXT


def test_milbench_prints_the_numbers_of_the_page() -> None:
    names: dict[str, Any] = {}
    printed = ""
    for block in blocks(PAGE):
        if block.language == "python":
            printed = run_python(block, names)
        else:
            assert block.text == printed


def test_the_worked_examples_have_the_table_of_the_page() -> None:
    assert [[Fraction(str(number)) for number in row] for row in worked_example.TABLE] == [
        list(row.values()) for row in PROBABILITIES
    ]


@pytest.mark.parametrize("name", losses().names())
def test_the_code_of_a_worked_example_gives_the_value_beside_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    section = worked_example.section(name, load_loss(name))
    (label,) = re.findall(r"with the label \*(.*)\*, in Python", section)
    (row,) = re.findall(rf"^\| {re.escape(label)} \| ([\d.]+) ", section, re.MULTILINE)
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(code, {})
    (printed,) = re.findall(r"tensor\(([\d.]+)", capsys.readouterr().out)
    assert float(printed) == pytest.approx(float(row), abs=1e-4)


@pytest.mark.parametrize("name", losses().names())
def test_the_lines_of_use_on_the_page_of_a_loss_train(name: str) -> None:
    names: dict[str, Any] = {}
    exec(worked_example.use(name, load_loss(name)), names)
    assert names["logits"].grad.abs().sum() > 0


def listed(name: str) -> dict[str, float]:
    """Return the loss of the bag by its label, as the worked example of a loss lists it."""
    labels = worked_example.section(name, load_loss(name))
    found = re.findall(r"^\| ([^|]*[a-z}]) \| ([\d.]+) \|", labels, re.MULTILINE)
    return {label: float(value) for label, value in found}


def minus_log_sum(counted: list[tuple[str, ...]]) -> float:
    """Return minus the logarithm of the probability of several placements."""
    probabilities = (
        prod(row[name] for row, name in zip(PROBABILITIES, placement, strict=True))
        for placement in counted
    )
    return -log(sum(probabilities))


EVERY_PLACEMENT = list(product(NAMES, repeat=len(PROBABILITIES)))


def test_the_worked_example_of_counts_sums_over_placements() -> None:
    numbers = {
        "one cat and one dog": (1, 1),
        "two cats": (2, 0),
        "one cat": (1, 0),
        "nothing": (0, 0),
    }
    for words, (cats, dogs) in numbers.items():
        counted = [
            placement
            for placement in EVERY_PLACEMENT
            if (placement.count("cat"), placement.count("dog")) == (cats, dogs)
        ]
        assert listed("count")[words] == pytest.approx(minus_log_sum(counted), abs=1e-4)


def test_the_worked_example_of_orders_sums_over_placements() -> None:
    def order(placement: tuple[str, ...]) -> list[str]:
        # A class that goes on at the next position is read once.
        changes = [name for name, _ in groupby(placement)]
        return [name for name in changes if name != "background"]

    orders = {
        "a cat, then a dog": ["cat", "dog"],
        "a dog, then a cat": ["dog", "cat"],
        "a cat": ["cat"],
        "nothing": [],
    }
    for words, classes in orders.items():
        counted = [placement for placement in EVERY_PLACEMENT if order(placement) == classes]
        assert listed("ctc")[words] == pytest.approx(minus_log_sum(counted), abs=1e-4)


def test_the_worked_example_of_positions_is_their_mean() -> None:
    for words, value in listed("position").items():
        probabilities = [
            row[name] for row, name in zip(PROBABILITIES, words.split(", "), strict=True)
        ]
        assert value == pytest.approx(-log(prod(probabilities)) / 3, abs=1e-4)


def test_the_worked_example_of_noisy_or_gives_both_heads_the_same_logits() -> None:
    expected = 0.0
    for name in ("cat", "dog"):
        absent = 1.0
        for row in PROBABILITIES:
            # A sigmoid of log p is p / (1 + p).
            absent *= 1 - row[name] / (1 + row[name])
        expected -= log(1 - absent)
    assert listed("noisy-or")["{cat, dog}"] == pytest.approx(expected, abs=1e-4)
