"""Reliability diagrams: bins pooled over seeds, their intervals, and captions that do not overlap."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg

from milbench.api.reliability import Bin, save_reliability
from milbench.api.results import Results
from milbench.report.figures import charts
from milbench.report.figures.reliability import presence_figure, sets_figure
from milbench.report.figures.style import STYLE
from milbench.report.reliability import pooled_bins
from milbench.report.study import Study
from tests._helpers.report_data import ONE, make_results

TASK = "extended-digits"
SEEDS = {0: [Bin(0, 10, 0.1, 0.2), Bin(14, 10, 0.9, 1.0)], 1: [Bin(0, 30, 0.2, 0.0)], 2: [Bin(14, 40, 0.95, 0.9)]}
ERRORS = (0.02, 0.03, 0.04)


def with_bins(folder: Path, losses: list[str], without: tuple[str, ...] = (), seeds: int = 3) -> Results:
    """Return results of losses with bins of presence, and calibration errors of 2, 3 and 4 %."""
    results = make_results(None, dict.fromkeys([*losses, *without], 0.1), ONE, seeds, 2)
    rows, paths = [], {}
    for cell, row in results.cells.iterrows():
        if row.loss_label in losses:
            paths[str(cell)] = folder / f"{cell}.json"
            save_reliability(paths[str(cell)], {"presence_ece": SEEDS[row.seed]})
            rows.append((cell, 2, "test/presence_ece", ERRORS[row.seed]))
    history = pd.concat([results.history, pd.DataFrame(rows, columns=results.history.columns)])
    return replace(results, history=history, reliability=paths)


def wilson(hits: int, count: int) -> list[float]:
    """Return the two roots p of (share - p)^2 = z^2 p (1 - p) / count."""
    share, z2 = hits / count, 1.959963984540054**2
    roots = np.roots([1 + z2 / count, -(2 * share + z2 / count), share**2])
    return sorted(float(root) for root in roots.real)


def test_bins_are_pooled_over_seeds_with_wilsons_intervals(tmp_path: Path) -> None:
    study = Study(with_bins(tmp_path, ["exact"], without=("max-pooling",)))
    with rc_context(STYLE):
        figure = presence_figure(study, TASK)
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "exact"
    points = next(line for line in axes.lines if line.get_marker() == "o")
    np.testing.assert_allclose(np.asarray(points.get_xydata()), [(7 / 40, 2 / 40), (47 / 50, 46 / 50)])
    bars = [np.asarray(line.get_xydata()) for line in axes.lines if line.get_marker() == "None"][1:]
    for bar, (hits, count) in zip(bars, [(2, 40), (46, 50)], strict=True):
        assert bar[:, 1] == pytest.approx(wilson(hits, count), abs=1e-9)
    half = 4.302652729911275 / math.sqrt(3)  # of Student's t with two degrees of freedom
    assert axes.get_xlabel().replace("\u00a0", " ") == f"ECE 3.0 % [{3 - half:.1f}, {3 + half:.1f}]"
    assert sets_figure(study, TASK) is None


def test_results_of_an_earlier_version_have_no_diagram(tmp_path: Path) -> None:
    study = Study(make_results(None, {"exact": 0.1}, ONE, 3, 2))
    assert presence_figure(study, TASK) is None
    kinds = {picture.kind for picture in charts.draw(study, TASK, "x", gallery=False)}
    assert not any(kind.startswith("reliability") for kind in kinds)


def test_a_damaged_file_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    results = with_bins(tmp_path, ["exact"])
    first = next(iter(results.reliability.values()))
    first.write_text("{")
    study = Study(results)
    (variant,) = study.variants
    found = pooled_bins(study, TASK, variant)
    assert found["presence_ece"] == [Bin(0, 30, 0.2, 0.0), Bin(14, 40, 0.95, 0.9)]
    pooled_bins(study, TASK, variant)
    assert [first.name in problem for problem in study.problems] == [True]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_names_and_captions_of_panels_do_not_overlap(tmp_path: Path, count: int) -> None:
    names = ["attention, attention=shared, gated=true", "generalised-mean exponent=30", "exact", *"abcd"]
    with rc_context(STYLE):
        figure = presence_figure(Study(with_bins(tmp_path, names[:count])), TASK)
        assert figure is not None
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
        renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
        texts = [text for axes in figure.axes if axes.axison for text in (axes._left_title, axes.xaxis.label)]  # type: ignore[attr-defined]
        boxes = [text.get_window_extent(renderer) for text in [*texts, *figure.texts] if text.get_text()]
        assert len(boxes) == 2 * count + 2
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other)
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0 for box in boxes)
