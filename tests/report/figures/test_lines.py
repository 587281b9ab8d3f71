"""Figures with lines and points: each is compared with the data frame of the results."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from milbench.report.figures.lines import (
    amounts_figure,
    curves_figure,
    lengths_figure,
    pareto_figure,
)
from milbench.report.figures.style import styled
from milbench.report.lengths import Lengths, lengths_of
from milbench.report.study import Study
from milbench.store.results import Results
from tests._helpers.report_data import LOSSES, make_results
from tests.report.test_lengths import at_lengths

ERROR = "one-instance error (%), log scale"


def test_nothing_is_drawn_where_no_cell_has_a_result() -> None:
    failed = {("exact", "t", seed): ("failed", "RuntimeError: late") for seed in range(3)}
    study = Study(make_results(losses={"exact": 0.1}, tasks={"t": "set_error"}, statuses=failed))
    assert amounts_figure(study, {50: "t", 100: "t", 200: "t"}) is None


TASK = "extended-digits"
"""A task that is ranked by the one-instance error."""


@pytest.fixture(scope="module")
def results() -> Results:
    return make_results()


@pytest.fixture(scope="module")
def study(results: Results) -> Study:
    return Study(results)


def errors_in(results: Results) -> pd.DataFrame:
    """Return the rows of the one-instance error on test bags."""
    frame = results.frame
    is_shown = (frame["task"] == TASK) & (frame["metric"] == "test/instance_error")
    return frame[is_shown]


def axes_of(figure: Figure | None) -> Axes:
    """Return the axes of a figure with one panel."""
    assert figure is not None
    (axes,) = figure.axes
    return axes


def test_error_is_drawn_against_the_time_of_a_step(study: Study) -> None:
    with styled():
        axes = axes_of(pareto_figure(study, TASK))
    assert axes.get_xlabel() == "training step (ms)"
    assert axes.get_ylabel() == ERROR


def test_error_is_drawn_against_epochs(study: Study) -> None:
    with styled():
        axes = axes_of(curves_figure(study, TASK))
    assert axes.get_xlabel() == "epoch"
    assert axes.get_ylabel() == ERROR


def test_error_is_drawn_against_the_number_of_training_bags(study: Study) -> None:
    with styled():
        axes = axes_of(amounts_figure(study, {50: TASK}))
    assert axes.get_xlabel() == "training bags"
    assert axes.get_ylabel() == ERROR


def test_ticks_of_an_error_are_in_percent(study: Study) -> None:
    with styled():
        axes = axes_of(pareto_figure(study, TASK))
    assert axes.yaxis.get_major_formatter()(0.05) == "5"


def test_a_loss_is_a_point_at_its_time_and_last_error(results: Results, study: Study) -> None:
    with styled():
        axes = axes_of(pareto_figure(study, TASK))
    symbols = [line for line in axes.lines if line.get_marker() != "None"]
    points = [np.asarray(line.get_xydata())[0].tolist() for line in symbols]
    errors = errors_in(results)
    is_last = errors["epoch"] == errors["epoch"].max()
    last = errors[is_last].groupby("loss")["value"].mean()
    # `make_results` gives the first loss steps of 40 ms, the second one of 80 ms, and so on.
    expected = [[40.0 * number, last[loss]] for number, loss in enumerate(LOSSES, start=1)]
    np.testing.assert_allclose(sorted(points), sorted(expected))


def test_a_curve_passes_through_the_means_over_seeds(results: Results, study: Study) -> None:
    with styled():
        axes = axes_of(curves_figure(study, TASK))
    lines = [np.asarray(line.get_ydata()).tolist() for line in axes.lines]
    means = errors_in(results).groupby(["loss", "epoch"])["value"].mean().unstack()
    np.testing.assert_allclose(sorted(lines), sorted(means.to_numpy().tolist()))


def two_lengths(seeds: int = 3) -> Lengths:
    """Return results after 2 and 8 epochs: loss a is worse than b after 2, and better after 8."""
    errors = {2: {"a": 0.3, "b": 0.1}, 8: {"a": 0.01, "b": 0.05}}
    (found,) = lengths_of(Study(at_lengths(errors, seeds=seeds)))
    return found


def drawn_lengths(lengths: list[Lengths]) -> Figure:
    """Return the figure of errors after shorter and longer training, a panel for each task."""
    with styled():
        figure = lengths_figure(lengths)
    assert figure is not None
    return figure


def texts_in(axes: Axes) -> list[str]:
    """Return the texts beside the lines of a panel."""
    return sorted(text.get_text() for text in axes.texts)


def test_lines_of_one_task_are_named_with_a_tick_at_the_best() -> None:
    axes = axes_of(drawn_lengths([two_lengths()]))
    assert texts_in(axes) == ["b", "✓ a"]


def test_lines_of_several_tasks_have_a_tick_at_the_best() -> None:
    panels = drawn_lengths([two_lengths()] * 3).axes[:3]
    assert [texts_in(axes) for axes in panels] == [["✓"]] * 3


def test_one_seed_excludes_nothing_and_gives_no_tick() -> None:
    figure = drawn_lengths([two_lengths(seeds=1)] * 2)
    assert not any(axes.texts for axes in figure.axes)


def test_a_legend_begins_with_the_loss_that_is_best_after_the_longest_training() -> None:
    (legend,) = drawn_lengths([two_lengths()] * 3).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_an_excluded_loss_is_dashed_and_hollow_in_every_panel() -> None:
    lengths = two_lengths()
    axes = axes_of(drawn_lengths([lengths]))
    lines = {line.get_marker(): line for line in axes.lines}
    best = lines[lengths.longest.looks["a"].marker]
    excluded = lines[lengths.longest.looks["b"].marker]
    assert best.get_linestyle() == "-"
    assert best.get_markerfacecolor() == best.get_color()
    assert excluded.get_linestyle() == "--"
    assert excluded.get_markerfacecolor() != excluded.get_color()
