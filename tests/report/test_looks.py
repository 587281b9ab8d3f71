"""The colour and the marker of a loss: alike everywhere, easy to see, and unlike other losses."""

from dataclasses import replace
from itertools import combinations

import pytest

from milbench._utils.palette import (
    BAD_SOFT,
    CARD,
    DARK_CARD,
    GOOD_EDGE,
    GOOD_SOFT,
    INK,
    PAPER,
    TONES,
    WARN_SOFT,
    contrast,
)
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import losses
from milbench.experiment.cell import Cell
from milbench.report.looks import MOST_SHOWN, looks
from milbench.report.study import Study
from tests._helpers.cells import make_cell
from tests._helpers.report_data import ONE, make_results

LEAST_OF_LETTERS = 4.5
"""The least contrast of letters: success criterion 1.4.3 of WCAG 2.2."""
LEAST_OF_LINES = 3.0
"""The least contrast of lines and symbols: success criterion 1.4.11 of WCAG 2.2."""


def cell(loss: str, network: str = "small", **params: str) -> Cell:
    """Return a cell of a loss with parameters."""
    return make_cell(loss, "t", network, loss_params=params)


MOST_SHOWN_CELLS = {
    "exact": cell("exact"),
    "noisy-or head=softmax": cell("noisy-or", head="softmax"),
    "noisy-or head=sigmoid": cell("noisy-or", head="sigmoid"),
    "one-vs-rest": cell("one-vs-rest"),
    "top-k": cell("top-k"),
    "max-pooling": cell("max-pooling"),
    "log-sum-exp": cell("log-sum-exp"),
    "hard-em": cell("hard-em"),
    "one-vs-rest with gated-attention": cell("one-vs-rest", "gated-attention"),
    "one-vs-rest with set-transformer": cell("one-vs-rest", "set-transformer"),
    "one-vs-rest with dsmil": cell("one-vs-rest", "dsmil"),
    "one-vs-rest with context": cell("one-vs-rest", "context"),
}
"""A cell of each loss in MOST_SHOWN, which has a look of its own."""


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("#000000", "#ffffff", 21.0),
        ("#ffffff", "#ffffff", 1.0),
        # The grey that is just too light for letters.
        ("#777777", "#ffffff", 4.48),
        ("#ff0000", "#ffffff", 4.00),
        ("#0000ff", "#ffffff", 8.59),
    ],
    ids=["black", "white", "grey", "red", "blue"],
)
def test_pairs_of_colours_have_their_contrast(first: str, second: str, expected: float) -> None:
    assert contrast(first, second) == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("name", TONES)
def test_letters_in_the_colour_of_a_loss_can_be_read(name: str) -> None:
    tone = TONES[name]
    assert contrast(tone.light, CARD) >= LEAST_OF_LETTERS
    assert contrast(tone.light, PAPER) >= LEAST_OF_LETTERS
    assert contrast(tone.dark, DARK_CARD) >= LEAST_OF_LETTERS


def test_a_good_cell_has_an_edge_that_can_be_seen() -> None:
    assert contrast(GOOD_EDGE, CARD) >= LEAST_OF_LINES


@pytest.mark.parametrize("tint", [GOOD_SOFT, BAD_SOFT, WARN_SOFT])
def test_letters_on_a_tint_can_be_read(tint: str) -> None:
    assert contrast(INK, tint) >= LEAST_OF_LETTERS


def test_the_cells_are_those_of_all_the_most_shown_losses() -> None:
    assert len(MOST_SHOWN_CELLS) == len(MOST_SHOWN)


def test_no_two_of_the_most_shown_losses_share_a_colour() -> None:
    colours = [look.colour for look in looks(MOST_SHOWN_CELLS).values()]
    assert len(set(colours)) == len(MOST_SHOWN)


def test_no_two_of_the_most_shown_losses_share_a_marker() -> None:
    markers = [look.marker for look in looks(MOST_SHOWN_CELLS).values()]
    assert len(set(markers)) == len(MOST_SHOWN)


def test_no_two_built_in_losses_look_alike() -> None:
    names = losses().names()
    cells = {name: cell(name) for name in names} | MOST_SHOWN_CELLS
    found = looks(cells)
    # By default noisy-or has the head sigmoid: this cell is also in MOST_SHOWN_CELLS.
    del found["noisy-or"]
    for first, second in combinations(found.values(), 2):
        assert first != second


def test_no_built_in_loss_is_black_as_losses_of_users_are() -> None:
    black = TONES["black"].light
    found = looks({name: cell(name) for name in losses().names()})
    assert all(look.colour != black for look in found.values())


def test_a_loss_looks_the_same_in_any_comparison() -> None:
    alone = Study(make_results(losses={"exact": 0.1, "noisy-or": 0.2}, tasks=ONE))
    others = {"attention": 0.01, "exact": 0.3, "mean": 0.2, "mine": 0.05, "noisy-or": 0.4}
    among_others = Study(make_results(losses=others))
    for name in ("exact", "noisy-or"):
        assert alone.looks[name] == among_others.looks[name]


def test_recipes_of_one_loss_share_its_colour() -> None:
    slow = replace(cell("exact"), recipe=Recipe(lr=0.001))
    found = looks({"exact (lr=0.01)": cell("exact"), "exact (lr=0.001)": slow})
    first, second = found.values()
    assert first.colour == second.colour == looks({"exact": cell("exact")})["exact"].colour
    assert first.marker != second.marker


def test_losses_of_a_user_are_told_apart_by_markers() -> None:
    found = looks({"mine": cell("mine"), "yours": cell("yours"), "exact": cell("exact")})
    assert found["mine"].colour == found["yours"].colour == TONES["black"].light
    assert found["mine"].marker != found["yours"].marker
