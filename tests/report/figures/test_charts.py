"""The charts of a report: values at their places, and legends within their figure."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import LineCollection, PolyCollection

from milbench.report.figures import charts
from milbench.report.render import render
from milbench.report.study import Study
from tests._helpers.report_data import ONE, TWO, constant, make_results


def test_a_published_value_is_drawn_where_it_is() -> None:
    figure = charts.seeds_figure(Study(make_results(None, TWO, ONE, 3, 2)), "extended-digits")
    assert figure is not None
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert sorted(float(np.asarray(line.get_xdata())[0]) for line in dashed) == pytest.approx([0.4, 8.0])


def test_curves_are_drawn_seed_by_seed_with_a_cross_at_the_end_of_each_unfinished_one() -> None:
    lost = {("exact", "extended-digits", seed): ("interrupted", "") for seed in (1, 3)}
    results = make_results(None, {"exact": 0.01}, ONE, 4, 6, statuses=lost)
    figure = charts.curves_figure(Study(results), "extended-digits")
    assert figure is not None
    losses = results.history[results.history["metric"] == "train/loss"]
    curves = [losses.loc[losses["cell"] == cell, ["epoch", "value"]].to_numpy() for cell in results.cells.index]
    panel = figure.axes[1]
    (drawn,) = (found for found in panel.collections if isinstance(found, LineCollection))
    for found, curve in zip(drawn.get_segments(), curves, strict=True):
        np.testing.assert_allclose(found, curve)
    (crosses,) = (line for line in panel.lines if line.get_marker() == "x")
    assert [len(curve) for curve in curves] == [6, 3, 6, 3]
    np.testing.assert_allclose(np.asarray(crosses.get_xydata(), float), [curves[1][-1], curves[3][-1]])


def test_many_seeds_are_a_band_from_the_least_to_the_largest_value_and_unfinished_ones_stay_lines() -> None:
    lost = {("exact", "extended-digits", 1): ("interrupted", "")}
    results = make_results(None, {"exact": 0.01}, ONE, charts.MOST_LINES + 2, 6, statuses=lost)
    figure = charts.curves_figure(Study(results), "extended-digits")
    assert figure is not None
    losses = results.history[results.history["metric"] == "train/loss"]
    done = losses[losses["cell"] != results.cells.index[1]].groupby("epoch")["value"]
    (band,) = (found for found in figure.axes[1].collections if isinstance(found, PolyCollection))
    points = np.asarray(band.get_paths()[0].vertices, float)
    for epoch in range(1, 7):
        at = points[points[:, 0] == epoch, 1]
        assert (at.min(), at.max()) == pytest.approx((done.min()[epoch], done.max()[epoch]))
    (single,) = (found for found in figure.axes[1].collections if isinstance(found, LineCollection))
    assert len(single.get_segments()) == 1


def test_what_every_run_recorded_once_is_no_curve(tmp_path: Path) -> None:
    results = make_results(None, TWO, ONE, 3, 6)
    tested = results.history["metric"].str.startswith("test/")
    once = replace(results, history=results.history[~tested | (results.history["epoch"] == 6)])
    figure = charts.curves_figure(Study(once), "extended-digits")
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == ["training loss, each loss in its own units, log scale"]
    (curves,) = (p for p in charts.draw(Study(once), "extended-digits", "x") if p.kind == "curves")
    assert curves.title == "Learning curves: training loss"
    assert "No curve of one-instance error on test bags: every run recorded it once." in curves.caption
    single = replace(results, history=results.history[results.history["epoch"] == 6])
    assert charts.curves_figure(Study(single), "extended-digits") is None
    render(single, tmp_path, gallery="none")
    page = (tmp_path / "report.md").read_text("utf-8")
    assert "No curve of one-instance error on test bags and training loss: every run recorded it once." in page
    assert not charts.no_curves(Study(results), "extended-digits")


@pytest.mark.parametrize(
    ("errors", "label"),
    [
        ({"a": 0.1, "b": 0.2}, "one-instance error (%) ↓"),
        ({"a": 0.001, "b": 0.4}, "one-instance error (%) ↓, log scale"),
        ({"a": 0.0, "b": 0.4}, "one-instance error (%) ↓, log scale, linear below 0.25"),
    ],
)
def test_a_logarithmic_axis_says_so(errors: dict[str, float], label: str) -> None:
    values = {(loss, s): [(0.1, 0.5), (0.2, e + 0.0025 * s)] for loss, e in errors.items() for s in range(3)}
    figure = charts.seeds_figure(Study(constant(values, published=[])), "extended-digits")
    assert figure is not None
    assert figure.axes[0].get_xlabel() == label
    assert (figure.axes[0].get_xscale() == "linear") == ("log" not in label)


def test_a_written_picture_leaves_no_pixels_in_memory(tmp_path: Path) -> None:
    pictures = charts.draw(Study(make_results(None, TWO, ONE, 2, 2)), "extended-digits", "x")
    earlier = _drawings()
    for picture in pictures:
        picture.write(tmp_path)
    width = max(matplotlib.image.imread(path).shape[1] for path in tmp_path.glob("*.png"))
    assert len(pictures) == 4
    assert not [found for found in _drawings() if found.width >= width and found not in earlier]


def _drawings() -> list[RendererAgg]:
    """Return everything in memory that holds the pixels of a figure."""
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is RendererAgg]


@pytest.mark.parametrize("label", ["exact", "exact, clip_norm=0.001, at length"])
def test_a_legend_is_no_wider_than_its_figure(label: str) -> None:
    losses = {f"{label} {n}": 0.1 for n in range(5)}
    figure = charts.curves_figure(Study(make_results(losses=losses, tasks=ONE)), "extended-digits")
    assert figure is not None
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    box = figure.legends[0].get_window_extent(canvas.get_renderer())  # type: ignore[no-untyped-call]
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert {" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()} == set(losses)
