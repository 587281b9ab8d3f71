"""Lines: what is drawn where, under which name, against the frame."""

import numpy as np

from milbench.report.figures.lines import (
    amounts_figure,
    curves_figure,
    lengths_figure,
    pareto_figure,
)
from milbench.report.figures.style import styled
from milbench.report.lengths import lengths_of
from milbench.report.study import Study
from tests._helpers.report_data import LOSSES, make_results
from tests.report.test_lengths import at_lengths

ERROR = "one-instance error (%), log scale"


def test_nothing_is_drawn_where_no_cell_has_a_result() -> None:
    failed = {("exact", "t", seed): ("failed", "RuntimeError: late") for seed in range(3)}
    study = Study(make_results(losses={"exact": 0.1}, tasks={"t": "set_error"}, statuses=failed))
    assert amounts_figure(study, {50: "t", 100: "t", 200: "t"}) is None


def test_the_axes_of_a_figure_say_what_is_drawn_along_them() -> None:
    results = make_results()
    study, task = Study(results), "extended-digits"
    rows = results.frame[
        (results.frame["task"] == task) & (results.frame["metric"] == "test/instance_error")
    ]
    with styled():
        drawn = (
            pareto_figure(study, task),
            curves_figure(study, task),
            amounts_figure(study, {50: task}),
        )
    figures = [figure for figure in drawn if figure]
    found = [(axes.get_xlabel(), axes.get_ylabel()) for figure in figures for axes in figure.axes]
    assert found == [("training step (ms)", ERROR), ("epoch", ERROR), ("training bags", ERROR)]
    (axes,), (curves,), _ = (figure.axes for figure in figures)
    last = rows[rows["epoch"] == rows["epoch"].max()].groupby("loss")["value"].mean()
    expected = sorted(
        [40.0 * (k + 1), last[loss]] for k, loss in enumerate(LOSSES)
    )  # of which the costs are made
    points = [
        [np.asarray(line.get_xdata()).item(), np.asarray(line.get_ydata()).item()]
        for line in axes.lines
        if line.get_marker() != "None"
    ]
    np.testing.assert_allclose(sorted(points), expected)
    assert axes.yaxis.get_major_formatter()(0.05) == "5"
    lines = [np.asarray(line.get_ydata()).tolist() for line in curves.lines]
    by_epoch = rows.groupby(["loss", "epoch"])["value"].mean().unstack().to_numpy()
    np.testing.assert_allclose(sorted(lines), sorted(by_epoch.tolist()))


def test_errors_by_length_have_a_tick_at_each_contender_of_the_longest() -> None:
    (lengths,) = lengths_of(Study(at_lengths({2: {"a": 0.3, "b": 0.1}, 8: {"a": 0.01, "b": 0.05}})))
    (of_one_seed,) = lengths_of(
        Study(at_lengths({2: {"a": 0.3, "b": 0.1}, 8: {"a": 0.01, "b": 0.05}}, seeds=1))
    )
    with styled():
        shown = [lengths], [lengths] * 3, [of_one_seed] * 2
        figures = [figure for these in shown if (figure := lengths_figure(these))]
    (alone,), several, unknown = (figure.axes for figure in figures)
    assert sorted(text.get_text() for text in alone.texts) == ["b", "✓ a"]
    panels = several[:3]
    assert [[text.get_text() for text in axes.texts] for axes in panels] == [["✓"]] * 3
    assert not any(axes.texts for axes in unknown), "one seed excludes nothing, and gives no tick"
    assert [text.get_text() for text in figures[1].legends[0].get_texts()] == ["a", "b"], (
        "the best at last first"
    )


def test_an_excluded_loss_is_dashed_and_hollow_in_every_panel() -> None:
    (lengths,) = lengths_of(Study(at_lengths({2: {"a": 0.3, "b": 0.1}, 8: {"a": 0.01, "b": 0.05}})))
    with styled():
        figure = lengths_figure([lengths])
    assert figure is not None
    best = lengths.longest.looks["a"].marker
    lines = {line.get_marker(): line for line in figure.axes[0].lines}
    excluded = lines[lengths.longest.looks["b"].marker]
    assert lines[best].get_linestyle() == "-"
    assert lines[best].get_markerfacecolor() == lines[best].get_color()
    assert excluded.get_linestyle() == "--"
    assert excluded.get_markerfacecolor() != excluded.get_color()
