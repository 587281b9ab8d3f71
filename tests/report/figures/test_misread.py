"""Misread bags in the figures of a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from milbench.api import gallery
from milbench.api.gallery import Misread
from milbench.api.results import Results
from milbench.report.figures.galleries import galleries
from milbench.report.figures.misread import misread_figure
from milbench.report.study import Study
from tests._helpers.report_data import galleries_of, make_results


def some_misread(count: int = 9) -> Misread:
    """Examples that fit `image_arrays` of test_gallery: one channel of 24x24 pixels, 9x9 positions."""
    rng = np.random.default_rng(0)
    return Misread(
        bags=500, counts={"no_detection": 37, "edge_or_one": 12, "other": 1},
        patterns=("no_detection",) * 8 + ("edge_or_one",) * (count - 8), truth=("11",) * count,
        read=("",) * 8 + ("1234567",) * (count - 8), images=rng.integers(0, 256, (count, 1, 24, 24), dtype=np.uint8),
        class_maps=np.full((count, 9, 9), 10, np.uint8), strengths=np.ones((count, 9, 9), np.float16),
    )  # fmt: skip


def with_misread(folder: Path) -> Results:
    """Results of two losses, only the second's gallery having examples of what it misreads, and sensitivities."""
    losses, tasks = {"exact": 0.1, "noisy-or": 0.2}, {"house-numbers": "instance_error"}
    results = make_results(folder, losses, tasks, 2, 7)
    path = galleries_of(results)[2]
    maps = np.full((1, 24, 24), 255, np.uint8)
    more: dict[str, Any] = {"sensitivity": maps, "sensitivity_of": np.array([[0, 3]]), "misread": some_misread()}
    gallery.write(path, replace(gallery.load(path), **more))
    return results


def test_it_is_stored_with_a_gallery_and_files_without_it_are_read(tmp_path: Path) -> None:
    results = with_misread(tmp_path)
    old, new = (gallery.load(path) for path in galleries_of(results)[1:3])
    assert old.misread is None
    assert old.sensitivities(0) == {}
    assert new.misread is not None
    before = some_misread()
    for name in ("bags", "counts", "patterns", "truth", "read"):
        assert getattr(new.misread, name) == getattr(before, name)
    for name in ("images", "class_maps", "strengths"):
        assert np.array_equal(getattr(new.misread, name), getattr(before, name))
        assert getattr(new.misread, name).dtype == getattr(before, name).dtype
    assert "misread_winners" in before.arrays(), "files of earlier versions have the class maps under this name"
    assert list(new.sensitivities(0)) == [3]
    assert np.all(new.sensitivities(0)[3] == 1)
    assert new.sensitivities(1) == {}


def test_the_best_loss_with_examples_is_drawn_a_row_a_pattern(tmp_path: Path) -> None:
    found = misread_figure(galleries(Study(with_misread(tmp_path)), "house-numbers"))
    assert found is not None
    label, caption, figure = found
    assert label == "noisy-or"
    assert "50 of 500 misread" in caption
    texts = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"37 of 500", "12 of 500", "no digit read", "edges or ones"} <= texts
    assert "1 of 500" not in texts, "a pattern of which no example is kept has no row"
    assert {"11 → ∅", "11 → 12345…"} <= {axes.get_title() for axes in figure.axes}
