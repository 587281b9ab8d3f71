"""Drawings made small look the same: compared pixel by pixel where a browser is there, and by what they say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from milbench.report.figures.report_figure import Facts, ReportFigure
from milbench.report.figures.slim import slim, with_classes
from tests._helpers.browser import needs_browser, opened


def picture() -> ReportFigure:
    import pandas as pd

    figure = Figure(figsize=(5, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1, 2], [0.12345678, 3.5, 1], "o-", alpha=0.4, label="12.34567 | 0.000123")
    left.plot(np.linspace(0, 2, 30), np.linspace(0, 3, 30), "s", color="tab:red", ms=3)
    left.legend()
    right.imshow(np.arange(12.0).reshape(3, 4))
    right.set_title("x = 1.23456")
    return ReportFigure("one", "seeds", "task", "title", "caption", figure, Facts("says", pd.DataFrame({"x": [1]})))


def test_texts_and_pictures_inside_stay_as_they_are() -> None:
    full = picture().svg
    small = slim(full[full.index("<svg") :], "a")
    assert re.findall(r"<text[^>]*>([^<]*)<", small) == re.findall(r"<text[^>]*>([^<]*)<", full)
    assert "12.34567 | 0.000123" in small
    assert re.findall(r"data:image/png[^\"]*", small) == re.findall(r"data:image/png[^\"]*", full)
    assert len(small) < 0.75 * len(full)
    used = set(re.findall(r'(?:url\(|href=")#([^)"]*)', small))
    assert used <= set(re.findall(r' id="([^"]*)"', small))


@needs_browser
@pytest.mark.timeout(60)
def test_a_browser_draws_the_same_pixels(tmp_path: Path) -> None:
    full = picture().svg
    full = full[full.index("<svg") :]
    page, rules = with_classes(slim(full, "a") * 1)
    shots = []
    for name, text in (("full", full), ("small", f"<style>{rules}</style>{page}")):
        file = tmp_path / f"{name}.html"
        file.write_text(
            f"<!doctype html><meta charset=utf-8><style>text{{font-family:monospace!important}}</style>{text}"
        )
        with opened(file) as tab:
            tab.locator("svg").screenshot(path=str(tmp_path / f"{name}.png"))
        shots.append(imread(tmp_path / f"{name}.png")[..., :3])
    assert shots[0].shape == shots[1].shape
    assert shots[0].std() > 0.1, "something is drawn"
    # Coordinates of a hundredth of a point move edges by less than a pixel.
    assert (np.abs(shots[0] - shots[1]).max(axis=-1) > 0.25).mean() < 0.002


def test_strokes_share_a_group_only_where_that_looks_the_same() -> None:
    def strokes(style: str) -> str:
        return "".join(f'<path d="M{i} 0L{i} 9" style="fill:none;{style}"/>' for i in range(3))

    grouped = slim(strokes("stroke-opacity:0.6"), "a")
    assert grouped.count("stroke-opacity") == 1
    assert grouped.count("<path") == 3
    # The opacity of a group holds for what it shows as a whole: strokes that cross would no longer show through.
    assert slim(strokes("opacity:0.6"), "a") == strokes("opacity:0.6")
