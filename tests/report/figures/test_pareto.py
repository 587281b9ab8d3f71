"""What a better result costs: marks, intervals and front at their places."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from scipy import stats

from milbench.report.figures.pareto import pareto_figure
from milbench.report.figures.style import STYLE
from milbench.report.study import Study
from tests._helpers.report_data import make_results

TIMES = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
ERRORS = {"a": 0.30, "b": 0.20, "c": 0.25, "d": 0.10}  # c is slower and worse than b


def study(seeds: int = 3, metric: str = "instance_error") -> Study:
    results = make_results(None, ERRORS, {"extended-digits": metric}, seeds, 1)
    rows = [
        (cell, 1, f"test/{metric}", ERRORS[row.loss_label] + 0.01 * (row.seed - 1))
        for cell, row in results.cells.iterrows()
    ]
    times = [TIMES[row.loss_label] * (1 + 0.1 * (row.seed - 1)) for _, row in results.cells.iterrows()]
    costs = results.costs.assign(step_seconds=times).drop(columns="peak_bytes")
    return Study(replace(results, history=pd.DataFrame(rows, columns=results.history.columns), costs=costs))


def marks(axes: Axes) -> dict[tuple[float, float], float]:
    """Return the width of the rim of every mark, by its place."""
    return {
        (round(float(x), 6), round(float(y), 6)): line.get_markeredgewidth()
        for line in axes.lines
        if line.get_marker() == "o"
        for x, y in np.asarray(line.get_xydata(), float)
    }


def test_marks_intervals_and_front_are_where_they_belong() -> None:
    figure = pareto_figure(study(), "extended-digits")
    assert figure is not None
    (axes,) = figure.axes
    found = marks(axes)
    assert set(found) == {(TIMES[name], 100 * ERRORS[name]) for name in TIMES}
    rims = {name for name in TIMES if found[TIMES[name], 100 * ERRORS[name]] > 0}
    assert rims == {"a", "b", "d"}
    (front,) = (line for line in axes.lines if line.get_drawstyle() == "steps-post")
    np.testing.assert_allclose(np.asarray(front.get_xydata()), [(0.1, 30), (0.2, 20), (0.4, 10)])
    lines = [np.asarray(line.get_xydata(), float) for line in axes.lines]
    half = float(stats.t.ppf(0.975, 2)) / 3**0.5  # of three values one standard deviation apart
    across = [(0.1 - half * 0.01, 30), (0.1 + half * 0.01, 30)]
    up = [(0.1, 30 - half), (0.1, 30 + half)]
    for bar in (across, up):
        assert sum(line.shape == (2, 2) and np.allclose(line, bar) for line in lines) == 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(TIMES)


def test_times_are_least_times_where_every_loss_has_one() -> None:
    """d, by its median the slowest, was disturbed; by least times it is as quick as a, and beats all others."""
    found = study()
    labels = found.results.cells["loss_label"].reindex(found.results.costs.index)
    least = labels.map({**TIMES, "d": 0.1}).astype(float)
    for known, title, front_of in (
        (least, "least time of a training step", [(0.1, 10)]),
        (least.where(labels != "a"), "time of a training step", [(0.1, 30), (0.2, 20), (0.4, 10)]),
    ):
        costs = found.results.costs.assign(step_seconds_min=known)
        figure = pareto_figure(Study(replace(found.results, costs=costs)), "extended-digits")
        assert figure is not None
        (axes,) = figure.axes
        assert axes.get_xlabel().removesuffix(", log scale") == title
        (front,) = (line for line in axes.lines if line.get_drawstyle() == "steps-post")
        np.testing.assert_allclose(np.asarray(front.get_xydata()), front_of)


def test_where_more_is_better_the_front_rises() -> None:
    figure = pareto_figure(study(metric="auroc"), "extended-digits")
    assert figure is not None
    (front,) = (line for line in figure.axes[0].lines if line.get_drawstyle() == "steps-post")
    np.testing.assert_allclose(np.asarray(front.get_xydata()), [(0.1, 0.3)])  # the fastest is the best here


def test_no_figure_without_two_losses_that_have_costs() -> None:
    results = study().results
    few = results.costs.mask(results.cells["loss_label"].reindex(results.costs.index) != "a")
    for costs in (few, results.costs.drop(columns="step_seconds")):
        assert pareto_figure(Study(replace(results, costs=costs)), "extended-digits") is None


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_seeds_have_no_interval(seeds: int) -> None:
    figure = pareto_figure(study(seeds), "extended-digits")
    assert figure is not None
    bars = [np.asarray(line.get_xydata(), float) for line in figure.axes[0].lines if line.get_marker() == "None"]
    assert not [bar for bar in bars if bar.shape == (2, 2) and np.isfinite(bar).all()]


@pytest.mark.parametrize("slowest", [4, 6, 9, 20, 300])
def test_names_of_times_do_not_overlap(slowest: float) -> None:
    found = study()
    slow = found.results.cells["loss_label"].reindex(found.results.costs.index) == "d"
    times = found.results.costs["step_seconds"].where(~slow, slowest / 10) * 0.022  # from about 1.7 ms on
    costs = found.results.costs.assign(step_seconds=times, peak_bytes=4e8)
    with rc_context(STYLE):
        figure = pareto_figure(Study(replace(found.results, costs=costs)), "extended-digits")
        assert figure is not None
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
        renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
        low, high = figure.axes[0].get_xlim()
        ticks = zip(figure.axes[0].get_xticks(), figure.axes[0].get_xticklabels(), strict=True)
        boxes = [label.get_window_extent(renderer) for place, label in ticks if low <= place <= high]
        assert len(boxes) >= 2
        assert all(not one.overlaps(other) for one, other in itertools.pairwise(boxes))
