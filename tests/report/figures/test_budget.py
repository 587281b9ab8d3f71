"""The figure of the error to expect after so many draws of a search: axes, lines and names."""

from typing import Any

import numpy as np
import pandas as pd

from milbench.contracts.metric_info import describe
from milbench.report.figures.budget import budget_figure
from milbench.report.figures.style import styled
from milbench.report.looks import Look

NUMBERS = [1, 2, 4, 8, 16]
EXPECTED = {"exact": [0.5, 0.4, 0.3, 0.2, 0.1], "top-k": [0.5, 0.45, 0.42, 0.41, 0.4]}
LOOKS = {"exact": Look("#3240da", "o"), "top-k": Look("#631ea8", "v")}


def curves() -> pd.DataFrame:
    """Return the curves of two losses at five numbers of draws; bands reach 0.02 to each side."""
    rows = []
    for loss, errors in EXPECTED.items():
        for draws, error in zip(NUMBERS, errors, strict=True):
            rows.append((loss, draws, error, error - 0.02, error + 0.02))
    return pd.DataFrame(rows, columns=["loss", "draws", "expected", "low", "high"])


def axes_of(frame: pd.DataFrame) -> Any:
    """Return the axes of the figure of these curves."""
    with styled():
        figure = budget_figure(frame, describe("set_error"), LOOKS)
    assert figure is not None
    figure.draw_without_rendering()
    return figure.axes[0]


def test_a_line_passes_through_the_expected_errors_of_a_loss() -> None:
    lines = {line.get_marker(): line.get_xydata() for line in axes_of(curves()).lines}
    for loss, errors in EXPECTED.items():
        np.testing.assert_allclose(lines[LOOKS[loss].marker], np.column_stack([NUMBERS, errors]))


def test_ticks_are_the_numbers_of_draws_on_a_log_axis() -> None:
    axes = axes_of(curves())
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "4", "8", "16"]
    assert len(axes.get_xticks(minor=True)) == 0


def test_a_band_reaches_from_low_to_high() -> None:
    bands = axes_of(curves()).collections[:2]
    heights = []
    for band in bands:
        (path,) = band.get_paths()
        at_the_end = path.vertices[path.vertices[:, 0] == 16]
        heights.append((at_the_end[:, 1].min(), at_the_end[:, 1].max()))
    # After 16 draws 0.1 and 0.4 are expected; the bands reach 0.02 to each side.
    np.testing.assert_allclose(heights, [(0.08, 0.12), (0.38, 0.42)])


def test_lines_are_named_at_their_ends() -> None:
    axes = axes_of(curves())
    names = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert set(names) == {"exact", "top-k"}
    assert names["exact"] < names["top-k"], "the smaller error is lower"


def test_a_loss_with_fewer_draws_ends_where_it_was_last_known() -> None:
    frame = curves()
    is_late = (frame["loss"] == "exact") & (frame["draws"] > 4)
    lines = {line.get_marker(): line.get_xydata() for line in axes_of(frame[~is_late]).lines}
    assert lines["o"][-1].tolist() == [4, 0.3]


def test_the_axis_says_that_the_error_is_expected() -> None:
    assert axes_of(curves()).get_ylabel().startswith("expected set error (%)")


def test_one_number_of_draws_gives_no_figure() -> None:
    frame = curves()
    alone = frame[frame["draws"] == 1]
    assert budget_figure(alone, describe("set_error"), LOOKS) is None


def test_unknown_errors_give_no_figure() -> None:
    unknown = curves().assign(expected=np.nan)
    assert budget_figure(unknown, describe("set_error"), LOOKS) is None
