"""Pictures of what is found where: their file, and what is drawn of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from milbench._utils.palette import class_colours
from milbench.report.figures.galleries import (
    MOST_BAGS,
    differing,
    galleries,
    gallery_figure,
    sequence_figure,
)
from milbench.report.study import Study
from milbench.store import gallery
from tests._helpers.report_data import ONE, galleries_of, make_results


def test_bags_that_differ_are_shown_and_of_those_the_ones_where_most_err() -> None:
    labels = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]]) > 0
    presence = labels.astype(float)
    presence[4] = 0  # missed
    made = gallery.make(kind="set", instances=np.zeros((5, 2, 2)), labels=labels, presence=presence, threshold=0.5,
                        probs=np.full((5, 4, 2), 0.25), class_names="abc")  # fmt: skip
    assert differing([made, made], 2) == [2, 4], (
        "two classes, then the class that lacks where it was missed"
    )


def test_a_row_a_bag_and_a_column_a_loss_with_the_sets_above(tmp_path: Path) -> None:
    results = make_results(tmp_path, {"exact": 0.001, "noisy-or": 0.002}, ONE, 1, 2)
    figure = gallery_figure(galleries(Study(results), "extended-digits"))
    assert figure is not None
    assert len(figure.axes) == MOST_BAGS * 3
    first = gallery.load(galleries_of(results)[0])
    true = ", ".join(sorted(map(str, first.true(0))))
    assert [axes.get_title() for axes in figure.axes[:2]] == [f"{{{true}}}", f"✓ {{{true}}}"]
    assert {text.get_text() for text in figure.axes[1].texts} - {"exact"} == set(
        map(str, first.true(0))
    )


def test_galleries_that_are_lost_or_absent_leave_their_column_out(tmp_path: Path) -> None:
    results = make_results(tmp_path, {"exact": 0.001, "noisy-or": 0.002}, ONE, 1, 2)
    galleries_of(results)[0].write_bytes(b"lost")
    assert list(galleries(Study(results), "extended-digits")) == ["noisy-or"]
    galleries_of(results)[1].unlink()
    assert not galleries(Study(results), "extended-digits")


def sequence_arrays(**changes: Any) -> dict[str, Any]:
    """Two sequences of 8 and 6 frames in blocks of two; class 1 is heard in the second block of the first."""
    instances = np.random.default_rng(0).normal(size=(2, 3, 8))
    instances[1, :, 6:] = np.nan
    probs = np.zeros((2, 3, 4))
    probs[:, -1] = 1
    probs[0, :, 1] = 0, 0.75, 0.25
    probs[1, :, 3] = 1, 0, 0  # where there is no frame
    return {
        "kind": "sequence", "instances": instances, "labels": [[False, True], [True, False]],
        "presence": [[0.1, 0.75], [0.2, 0.1]], "probs": probs, "class_names": ["a", "b"], "threshold": 0.5,
        "mask": np.array([[True] * 4, [True] * 3 + [False]]), "ys": [1.5], "xs": [1, 3, 5, 7],
        "classes": [[1, -1], [0, -1]], "boxes": [[[2, 0, 5, 3], [0] * 4], [[0, 0, 1, 3], [0] * 4]],
    } | changes  # fmt: skip


def rectangles(axes: Any) -> list[tuple[float, float]]:
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(one.get_x(), one.get_x() + one.get_width()) for one in found]


def test_strips_show_each_class_when_it_is_heard_and_frames_the_truth() -> None:
    made = gallery.make(**sequence_arrays())
    figure = sequence_figure({"exact": made, "noisy-or": made})
    figure.draw_without_rendering()
    assert len(figure.axes) == 3 * 2
    truth, _, first, second = figure.axes[:4]
    assert truth.get_title() == "{b}"
    assert [first.get_title(), second.get_title()] == ["✓ {b}", "✗ ∅"]
    assert rectangles(truth) == rectangles(first) == [(2, 5)]
    strips = first.images[0]
    assert list(strips.get_extent()) == [0, 8, 1.5, -0.5], "two frames a position, a strip a class"
    rgba = np.asarray(strips.get_array())
    assert rgba[:, :, 3].tolist() == [[0] * 4, [0, 0.75, 0, 0]]
    assert rgba[1, 1, :3].tolist() == list(to_rgb(class_colours(2)[1]))
    assert second.get_xlim() == (0, 6), "the second sequence has six frames"
    assert not np.asarray(second.images[0].get_array())[..., 3].any(), (
        "nothing is heard where there is no frame"
    )
    assert np.asarray(figure.axes[1].images[0].get_array()).shape == (3, 6)


@pytest.mark.parametrize(("ys", "xs"), [([1.5], [1, 3, 5, 7]), (None, None)])
def test_time_is_in_seconds_where_their_frames_are_known(ys: Any, xs: Any) -> None:
    made = gallery.make(**sequence_arrays(frames_per_second=4, ys=ys, xs=xs))
    figure = sequence_figure({"exact": made})
    figure.draw_without_rendering()
    truth, _, strips, shorter = figure.axes
    assert figure.get_supxlabel() == "seconds"
    assert (
        list(truth.images[0].get_extent())[:2] == list(strips.images[0].get_extent())[:2] == [0, 2]
    )
    assert rectangles(truth) == rectangles(strips) == [(0.5, 1.25)], (
        "frames 2 to 5 of four a second"
    )
    assert shorter.get_xlim() == (0, 1.5)
    assert {"0.0", "1.0"} <= {text.get_text() for text in strips.get_xticklabels()}
    assert not truth.get_xticklabels()


def test_a_report_draws_sequences_by_this_figure(tmp_path: Path) -> None:
    results = make_results(
        tmp_path, {"exact": 0.01, "noisy-or": 0.02}, {"sounds": "set_error"}, 1, 2
    )
    for path in galleries_of(results):
        gallery.write(path, gallery.make(**sequence_arrays(frames_per_second=4)))
    seen = galleries(Study(results), "sounds")
    assert seen["exact"].class_map(1).tolist() == [2, 2, 2, 2], "padding is background"
    figure = gallery_figure(seen)
    assert figure is not None
    assert [axes.get_ylabel() for axes in figure.axes[::2]] == ["truth", "exact", "noisy-or"]
    assert figure.get_supxlabel() == "seconds"
