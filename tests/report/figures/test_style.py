"""The layout of figures: labels do not cover one another, and nothing stands outside a figure.

In most tests four lines end at the right side of axes, and each has its name beside its end.
"""

import gc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from milbench.report.figures.galleries import galleries, gallery_figure
from milbench.report.figures.picture import pictures_of
from milbench.report.figures.style import LossStyle, label_ends, new_figure, styled
from milbench.report.looks import Look
from milbench.report.study import Study
from tests._helpers.report_data import make_results

NAMES = ["first", "second", "third", "fourth"]


def labelled(heights: list[float]) -> Any:
    """Return axes from 0 to 1, laid out for a page, with a label for a line end at each height.

    The lines themselves are not drawn: only where they end matters.
    """
    with styled():
        figure = new_figure(4, 3)
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        ends = {name: (1.0, height) for name, height in zip(NAMES, heights, strict=True)}
        same_style = LossStyle(Look("black", "o"))
        label_ends(axes, ends, styles=dict.fromkeys(NAMES, same_style))
        # This lays the figure out and moves labels apart. The pictures themselves are not needed.
        pictures_of("labels", "", "", figure)
    return axes


def test_labels_of_equal_ends_do_not_cover_one_another() -> None:
    axes = labelled([0.5, 0.5, 0.5, 0.5])
    boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))


def test_labels_that_have_room_stand_beside_their_ends() -> None:
    heights = [0.1, 0.4, 0.6, 0.9]
    label_heights = {text.get_text(): text.get_position()[1] for text in labelled(heights).texts}
    np.testing.assert_allclose([label_heights[name] for name in NAMES], heights)


def test_a_line_leads_from_each_end_to_its_label() -> None:
    axes = labelled([0.5, 0.5, 0.5, 0.5])
    # A leader is a thin line from the end of a line to the label. All are in one collection.
    (leaders,) = axes.collections
    start_points = [segment[0] for segment in leaders.get_segments()]
    stop_heights = [segment[-1][1] for segment in leaders.get_segments()]
    label_heights = [text.get_position()[1] for text in axes.texts]
    np.testing.assert_allclose(start_points, [(1.0, 0.5)] * 4)
    np.testing.assert_allclose(stop_heights, label_heights)


def test_labels_are_inside_the_figure() -> None:
    axes = labelled([0.0, 0.0, 1.0, 1.0])
    figure = axes.figure.bbox
    for text in axes.texts:
        label = text.get_window_extent()
        assert label.x1 <= figure.x1
        assert figure.y0 <= label.y0
        assert label.y1 <= figure.y1


def test_heads_of_columns_stand_inside_a_gallery_above_its_titles(tmp_path: Path) -> None:
    """A gallery shows what each loss finds in some bags: a row for each bag.

    The head of a column names the loss. Each picture has the label set of its bag as its title.
    """
    one_instance_errors = {"exact": 0.001, "noisy-or": 0.002}
    results = make_results(
        folder=tmp_path,
        losses=one_instance_errors,
        tasks={"extended-digits": "instance_error"},
        seeds=1,
        epochs=2,
    )
    with styled():
        figure = gallery_figure(galleries(Study(results), "extended-digits"))
        pictures_of("gallery", "", "", figure, photographs=True)
        figure.draw_without_rendering()
    # The first column shows the truth, and each of the two losses has a column.
    first_row = figure.axes[:3]
    for axes in first_row:
        # The head is written after everything else in the axes.
        head = axes.texts[-1].get_window_extent()
        assert head.y1 <= figure.bbox.y1
        assert head.y0 >= axes.title.get_window_extent().y1


def test_garbage_is_collected_as_often_after_drawing_as_before() -> None:
    """`styled` lets Python look for garbage seldom.

    A figure has tens of thousands of objects, nearly all in use, and looking at them again and
    again takes long. Other code must not be left with that setting.
    """
    before = gc.get_threshold()
    with styled():
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
