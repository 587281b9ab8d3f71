"""The pages of losses: what they show tells losses apart, and what they say is true."""

import re
from itertools import combinations

import pytest
import torch
from torch import Tensor

from milbench import Loss, load_loss
from milbench.contracts.registry import losses
from tests._helpers.command_line import REPOSITORY
from website import loss_traits
from website.line_charts import Axes, Line, chart
from website.loss_panels import PANELS, Panel
from website.loss_pictures import LEARNT, SAME, Same, built, learnt, picture
from website.losses import definitions, linked

PANELS_BY_NAME = {panel.name: panel for panel in PANELS}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_no_two_losses_have_the_same_picture_but_those_of_which_pages_say_why(
    panel: Panel,
) -> None:
    pictures = {name: picture(built(name), panel) for name in losses().names()}
    same = {
        pair for pair in combinations(sorted(pictures), 2) if pictures[pair[0]] == pictures[pair[1]]
    }
    explained: set[tuple[str, str]] = set()
    for reason in SAME:
        if panel.name in reason.panels:
            explained |= set(combinations(sorted(reason.losses), 2))
    assert same <= explained


@pytest.mark.parametrize("same", SAME, ids=lambda same: ", ".join(same.losses))
def test_losses_whose_pictures_are_said_to_be_the_same_have_the_same_values(same: Same) -> None:
    first, *others = same.losses
    for name in same.panels:
        panel = PANELS_BY_NAME[name]
        expected = values(built(first), panel)
        for other in others:
            torch.testing.assert_close(values(built(other), panel), expected, rtol=1e-3, atol=1e-4)


def values(loss: Loss, panel: Panel) -> Tensor:
    return torch.stack([line.ys for line in panel.lines(loss)])


@pytest.mark.parametrize("name", LEARNT)
def test_learnt_weights_change_what_a_position_costs(name: str) -> None:
    panel = PANELS_BY_NAME["logit"]
    assert picture(learnt(name), panel) != picture(built(name), panel)


def test_only_the_strongest_position_of_one_vs_rest_learns() -> None:
    with_class, _ = PANELS_BY_NAME["gradient"].lines(built("one-vs-rest"))
    assert with_class.ys.tolist() == [1.0] + [0.0] * 11


def test_positions_of_isr_learn_in_proportion_to_their_odds() -> None:
    with_class, _ = PANELS_BY_NAME["gradient"].lines(built("isr"))
    torch.testing.assert_close(with_class.ys, with_class.xs.softmax(dim=0))


def test_a_chart_puts_the_ends_of_a_line_at_its_ticks() -> None:
    axes = Axes("x", "y", x_ticks=(0, 1), y_ticks=(0, 10))
    line = Line("line", torch.tensor([0.0, 1.0]), torch.tensor([0.0, 10.0]))
    svg = chart([line], axes, "a line")
    ticks = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">(\d+)<', svg)
    across = {number: float(x) for x, _, anchor, number in ticks if anchor == "middle"}
    # The foot of a number is 4 units below its tick.
    down = {number: float(y) - 4 for _, y, anchor, number in ticks if anchor == "end"}
    (points,) = re.findall(r'points="([^"]+)"', svg)
    ends = [tuple(map(float, point.split(","))) for point in points.split()]
    assert ends == [(across["0"], down["0"]), (across["1"], down["10"])]


def test_every_loss_has_a_question_and_a_formula() -> None:
    assert set(definitions()) == set(losses().names())
    for name, (asks, formula) in definitions().items():
        assert "?" in asks or "same" in asks, name
        assert "$" not in asks
        assert "$" in formula


def test_the_table_of_docs_says_what_the_losses_are() -> None:
    page = (REPOSITORY / "docs" / "losses.md").read_text("utf-8")
    assert loss_traits.table() in page


TABLE = {
    name.strip("`"): cells
    for name, *cells in (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in loss_traits.table().splitlines()[2:]
    )
}


@pytest.mark.parametrize("name", losses().names())
def test_the_table_gives_probabilities_where_a_loss_does(name: str) -> None:
    loss = load_loss(name).build(num_classes=2)
    logits = torch.tensor([[[1.0, -1.0], [0.5, 0.0], [0.0, 0.2]]])
    every_set = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    log_probs = loss.label_log_prob(logits.expand(4, -1, -1), every_set)
    *_, probability, _cost = TABLE[name]
    assert (probability == "nothing") == (log_probs is None)
    if probability == "each class":
        assert log_probs is not None
        nothing, dog, cat, both = log_probs.tolist()
        assert nothing + both == pytest.approx(dog + cat, abs=1e-4)
    if probability == "label sets":
        assert log_probs is not None
        nothing, dog, cat, both = log_probs.tolist()
        assert nothing + both != pytest.approx(dog + cat, abs=1e-4)


def test_the_tables_of_the_site_lead_to_the_pages_of_losses() -> None:
    page = linked("| `exact` | a |\n| `noisy-or (softmax)` | b |\n| your bags | `exact` |\n")
    assert page.splitlines() == [
        "| [`exact`](reference/losses/exact.md) | a |",
        "| `noisy-or (softmax)` | b |",
        "| your bags | `exact` |",
    ]
