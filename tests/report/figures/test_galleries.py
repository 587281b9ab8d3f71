"""Figures of galleries: test bags, with the classes that each loss finds where.

A gallery is a file of a cell, with a few test bags and the outputs of its network for them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

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
from milbench.store.results import Results
from tests._helpers.report_data import ONE, galleries_of, make_results


def test_bags_with_most_new_classes_are_shown_and_of_these_where_most_err() -> None:
    labels = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]], dtype=bool)
    presence = labels.astype(float)
    missed = 4
    presence[missed] = 0
    made = gallery.make(
        kind="set",
        instances=np.zeros((5, 2, 2)),
        labels=labels,
        presence=presence,
        threshold=0.5,
        probs=np.full((5, 4, 2), 0.25),
        class_names="abc",
    )
    # Bag 2 is the only one with two classes. Bags 3 and 4 add the third class, and 4 is missed.
    assert differing([made, made], 2) == [2, missed]


@pytest.fixture
def two_losses(tmp_path: Path) -> Results:
    return make_results(tmp_path, {"exact": 0.001, "noisy-or": 0.002}, ONE, seeds=1, epochs=2)


def axes_of_gallery(results: Results) -> list[Axes]:
    """Return the axes of the gallery, row by row: the truth, then each of two losses."""
    figure = gallery_figure(galleries(Study(results), "extended-digits"))
    return list(figure.axes)


def test_a_gallery_has_a_row_a_bag_and_a_column_a_loss(two_losses: Results) -> None:
    truth_and_losses = 1 + 2
    assert len(axes_of_gallery(two_losses)) == MOST_BAGS * truth_and_losses


def test_label_sets_stand_above_each_bag(two_losses: Results) -> None:
    first = gallery.load(galleries_of(two_losses)[0])
    true = ", ".join(sorted(str(cls) for cls in first.true(0)))
    truth, of_exact, *_ = axes_of_gallery(two_losses)
    assert truth.get_title() == f"{{{true}}}"
    assert of_exact.get_title() == f"✓ {{{true}}}"


def test_the_classes_of_a_bag_are_named_where_they_are_found(two_losses: Results) -> None:
    first = gallery.load(galleries_of(two_losses)[0])
    _, of_exact, *_ = axes_of_gallery(two_losses)
    head_of_column = "exact"
    texts = {text.get_text() for text in of_exact.texts} - {head_of_column}
    assert texts == {str(cls) for cls in first.true(0)}


def test_a_damaged_gallery_leaves_its_column_out(two_losses: Results) -> None:
    galleries_of(two_losses)[0].write_bytes(b"lost")
    assert list(galleries(Study(two_losses), "extended-digits")) == ["noisy-or"]


def test_an_absent_gallery_leaves_its_column_out(two_losses: Results) -> None:
    galleries_of(two_losses)[1].unlink()
    assert list(galleries(Study(two_losses), "extended-digits")) == ["exact"]


def test_without_galleries_there_is_no_column(two_losses: Results) -> None:
    for path in galleries_of(two_losses):
        path.unlink()
    assert not galleries(Study(two_losses), "extended-digits")


def sequence_arrays(**changes: Any) -> dict[str, Any]:
    """Return the arrays of a gallery with two sequences, of 8 and 6 frames.

    A position stands for two frames. In the first sequence class 1 is found at the second position;
    in the second sequence no class is found.
    """
    instances = np.random.default_rng(0).normal(size=(2, 3, 8))
    instances[1, :, 6:] = np.nan
    class_0, class_1, background = 0, 1, 2
    probs = np.zeros((2, 3, 4))
    probs[:, background] = 1
    probs[0, class_1, 1] = 0.75
    probs[0, background, 1] = 0.25
    # At the fourth position the second sequence has no frame: what is found there may not be shown.
    probs[1, class_0, 3] = 1
    probs[1, background, 3] = 0
    no_box = [0, 0, 0, 0]
    arrays = {
        "kind": "sequence",
        "instances": instances,
        "labels": [[False, True], [True, False]],
        "presence": [[0.1, 0.75], [0.2, 0.1]],
        "probs": probs,
        "class_names": ["a", "b"],
        "threshold": 0.5,
        "mask": [[True, True, True, True], [True, True, True, False]],
        "ys": [1.5],
        "xs": [1, 3, 5, 7],
        "classes": [[class_1, -1], [class_0, -1]],
        "boxes": [[[2, 0, 5, 3], no_box], [[0, 0, 1, 3], no_box]],
    }
    return arrays | changes


def rectangles(axes: Axes) -> list[tuple[float, float]]:
    """Return the left and right ends of each rectangle that is drawn: of each event."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in found]


def drawn_sequences(losses: Sequence[str], **changes: Any) -> Figure:
    """Return the figure of both sequences, for losses whose galleries are equal."""
    made = gallery.make(**sequence_arrays(**changes))
    figure = sequence_figure(dict.fromkeys(losses, made))
    figure.draw_without_rendering()
    return figure


@pytest.fixture(scope="module")
def of_two_losses() -> Figure:
    """Rows are the truth, exact and noisy-or, columns the two sequences."""
    return drawn_sequences(["exact", "noisy-or"])


def shown_strengths(axes: Axes) -> NDArray[Any]:
    """Return the opacity of each class at each position, (classes, positions)."""
    colours = np.asarray(axes.images[0].get_array())
    alpha = 3
    return colours[..., alpha]


def test_sequences_have_a_row_for_the_truth_and_each_loss(of_two_losses: Figure) -> None:
    rows = 3
    sequences = 2
    assert len(of_two_losses.axes) == rows * sequences


def test_label_sets_stand_above_each_sequence(of_two_losses: Figure) -> None:
    truth, _, first, second = of_two_losses.axes[:4]
    assert truth.get_title() == "{b}"
    assert first.get_title() == "✓ {b}"
    assert second.get_title() == "✗ ∅"


def test_rectangles_show_when_events_are(of_two_losses: Figure) -> None:
    truth, _, first, _ = of_two_losses.axes[:4]
    # The box of the first sequence: frames 2 to 5.
    assert rectangles(truth) == [(2, 5)]
    assert rectangles(first) == [(2, 5)]


def test_strips_cover_the_frames_of_each_position(of_two_losses: Figure) -> None:
    strips = of_two_losses.axes[2].images[0]
    left, right, bottom, top = strips.get_extent()
    # Four positions of two frames.
    assert [left, right] == [0, 8]
    # A strip of height 1 for each of two classes.
    assert [bottom, top] == [1.5, -0.5]


def test_strips_are_the_stronger_the_more_probable_a_class_is(of_two_losses: Figure) -> None:
    strips = of_two_losses.axes[2]
    assert shown_strengths(strips).tolist() == [[0, 0, 0, 0], [0, 0.75, 0, 0]]
    colours = np.asarray(strips.images[0].get_array())
    assert colours[1, 1, :3].tolist() == list(to_rgb(class_colours(2)[1]))


def test_nothing_is_heard_where_there_is_no_frame(of_two_losses: Figure) -> None:
    assert not shown_strengths(of_two_losses.axes[3]).any()


def test_a_sequence_ends_with_its_last_frame(of_two_losses: Figure) -> None:
    frames_of_second = of_two_losses.axes[1].images[0]
    assert np.asarray(frames_of_second.get_array()).shape == (3, 6)
    assert of_two_losses.axes[3].get_xlim() == (0, 6)


@pytest.fixture(
    scope="module",
    params=[{}, {"ys": None, "xs": None}],
    ids=["known centres", "centres by their number"],
)
def in_seconds(request: pytest.FixtureRequest) -> Figure:
    """The figure of one loss, with four frames a second."""
    return drawn_sequences(["exact"], frames_per_second=4, **request.param)


def test_time_is_in_seconds_where_their_frames_are_known(in_seconds: Figure) -> None:
    assert in_seconds.get_supxlabel() == "seconds"
    truth, _, strips, shorter = in_seconds.axes
    # Eight frames are 2 seconds, and six are 1.5.
    assert list(truth.images[0].get_extent())[:2] == [0, 2]
    assert list(strips.images[0].get_extent())[:2] == [0, 2]
    assert shorter.get_xlim() == (0, 1.5)


def test_events_are_in_seconds_where_their_frames_are_known(in_seconds: Figure) -> None:
    truth, _, strips, _ = in_seconds.axes
    # The event is from frame 2 to frame 5.
    assert rectangles(truth) == [(0.5, 1.25)]
    assert rectangles(strips) == [(0.5, 1.25)]


def test_seconds_stand_below_the_last_row_alone(in_seconds: Figure) -> None:
    truth, _, strips, _ = in_seconds.axes
    assert {"0.0", "1.0"} <= {text.get_text() for text in strips.get_xticklabels()}
    assert not truth.get_xticklabels()


def test_a_report_draws_sequences_by_this_figure(tmp_path: Path) -> None:
    errors = {"exact": 0.01, "noisy-or": 0.02}
    results = make_results(tmp_path, errors, {"sounds": "set_error"}, seeds=1, epochs=2)
    for path in galleries_of(results):
        gallery.write(path, gallery.make(**sequence_arrays(frames_per_second=4)))
    figure = gallery_figure(galleries(Study(results), "sounds"))
    assert [axes.get_ylabel() for axes in figure.axes[::2]] == ["truth", "exact", "noisy-or"]
    assert figure.get_supxlabel() == "seconds"


def test_padding_of_a_stored_sequence_is_background(tmp_path: Path) -> None:
    path = tmp_path / "gallery.npz"
    gallery.write(path, gallery.make(**sequence_arrays()))
    background = 2
    assert gallery.load(path).class_map(1).tolist() == [background] * 4
