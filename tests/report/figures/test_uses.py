"""The figure of uses: a row for each loss, a column for each use, and a mean in each cell.

A use is what somebody does with a trained network. A column with a remark gives no verdict.
"""

import math
from typing import Any

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from milbench._utils.palette import GOOD_SOFT, LINE
from milbench.contracts.metric_info import describe
from milbench.report.figures.picture import pictures_of
from milbench.report.figures.style import styled
from milbench.report.figures.uses import UseColumn, uses_figure

LOSSES = ["exact", "noisy-or head=softmax", "top-k"]


def column(title: str, metric: str, remark: str = "", *, means: tuple[float, ...]) -> UseColumn:
    """Return the column of a use, in which the first loss alone may be the best.

    Intervals reach 0.02 to each side of the means.
    """
    losses = LOSSES[: len(means)]
    rows = pd.DataFrame({"mean": means}, index=losses)
    rows["low"] = rows["mean"] - 0.02
    rows["high"] = rows["mean"] + 0.02
    rows["contender"] = [loss == LOSSES[0] for loss in losses]
    return UseColumn(title, describe(metric), remark, rows)


SETS = column("whole label sets", "set_error", means=(0.1, 0.2, 0.3))
PLACES = column(
    "where", "posterior_error", "differences below 9 points may not show", means=(0.4, 0.5, 0.6)
)


def axes_of(*uses: UseColumn, losses: list[str] = LOSSES) -> Any:
    """Return the axes of the figure of these uses."""
    with styled():
        figure = uses_figure(uses, losses)
    assert figure is not None
    return figure.axes[0]


def texts_of(axes: Any) -> dict[tuple[int, int], str]:
    """Return the text of each cell that has one, by row and column."""
    texts = {}
    for text in axes.texts:
        x, y = text.get_position()
        texts[int(y), int(x)] = text.get_text()
    return texts


def colour_of(axes: Any, row: int, column: int, columns: int) -> str:
    """Return the colour that a cell is filled with."""
    mesh = axes.collections[-1]
    mesh.update_scalarmappable()
    return to_hex(mesh.get_facecolor()[row * columns + column])


def test_a_cell_has_the_mean_and_half_the_width_of_its_interval() -> None:
    texts = texts_of(axes_of(SETS))
    assert texts == {(0, 0): "10 ✓\n± 2", (1, 0): "20\n± 2", (2, 0): "30\n± 2"}


def test_rows_are_losses_in_the_order_that_is_asked_for() -> None:
    axes = axes_of(SETS, losses=["top-k", "exact"])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["top-k", "exact"]
    assert texts_of(axes)[1, 0].startswith("10")


def test_rows_have_the_names_that_sentences_use() -> None:
    labels = axes_of(SETS).get_yticklabels()
    assert labels[1].get_text() == "noisy-or (softmax)"


def test_a_head_names_the_use_and_its_metric() -> None:
    (head,) = axes_of(SETS).get_xticklabels()
    assert head.get_text().split("\n") == ["whole label sets", "set error (%) ↓"]


def test_a_loss_that_may_be_the_best_has_a_green_cell() -> None:
    axes = axes_of(SETS)
    assert colour_of(axes, 0, 0, 1) == GOOD_SOFT
    assert colour_of(axes, 1, 0, 1) != GOOD_SOFT


def test_a_use_with_a_remark_is_grey_in_every_row() -> None:
    axes = axes_of(SETS, PLACES)
    assert {colour_of(axes, row, 1, 2) for row in range(3)} == {LINE}


def test_a_use_with_a_remark_has_no_tick() -> None:
    texts = texts_of(axes_of(SETS, PLACES))
    assert [texts[row, 1] for row in range(3)] == ["40\n± 2", "50\n± 2", "60\n± 2"]


def test_a_remark_stands_in_the_head_of_its_column() -> None:
    _, head = axes_of(SETS, PLACES).get_xticklabels()
    words = " ".join(head.get_text().split("\n"))
    assert words.endswith("differences below 9 points may not show")


def test_a_loss_without_a_value_has_an_empty_cell() -> None:
    known = column("single classes", "label_error", means=(0.1,))
    assert set(texts_of(axes_of(known))) == {(0, 0)}


def test_a_mean_without_an_interval_stands_alone() -> None:
    rows = SETS.rows.assign(low=math.nan, high=math.nan)
    alone = UseColumn("whole label sets", SETS.metric, "", rows)
    assert texts_of(axes_of(alone))[1, 0] == "20.0"


@pytest.mark.parametrize("means", [(), (math.nan,)], ids=["no rows", "no values"])
def test_without_any_value_nothing_is_drawn(means: tuple[float, ...]) -> None:
    assert uses_figure([column("where", "hit_rate", means=means)], LOSSES) is None


def test_without_losses_nothing_is_drawn() -> None:
    assert uses_figure([SETS], []) is None


def test_five_uses_fit_the_page() -> None:
    with styled():
        figure = uses_figure([SETS, PLACES, SETS, PLACES, SETS], LOSSES)
        (picture,) = pictures_of("uses", "", "", figure)
        box = figure.get_tightbbox() if figure else None
    assert figure is not None
    assert box is not None
    assert box.x0 >= 0
    # A page is 9.6 inches wide.
    assert box.x1 <= figure.get_figwidth() <= 9.6
    assert picture.html().startswith("<svg")
