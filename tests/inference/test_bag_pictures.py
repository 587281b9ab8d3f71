"""Pictures of where classes are in bags, against the probabilities and places that they are drawn from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from milbench.contracts.bags import Bags, NamedBags
from milbench.inference.bag_pictures import draw
from milbench.inference.predict_bags import BagPredictions

NAME = "a recording with a name of many words, as they are made by devices in the field, number 1"


def found_in(
    probs: Any, labels: list[int], instances: Any = None, files: Any = (), **places: Any
) -> BagPredictions:
    """Return what was found in one bag, of classes cat and dog, whose background has the rest of the probability."""
    values = torch.tensor(np.array(probs))
    probs = torch.cat([values, 1 - values.sum(dim=0, keepdim=True)]).unsqueeze(0)
    given = (
        torch.zeros(1, values[0].numel(), 1)
        if instances is None
        else torch.tensor(instances).unsqueeze(0)
    )
    at = {name: torch.tensor(place).double().unsqueeze(0) for name, place in places.items()}
    batch = NamedBags("bag", [NAME], Bags(given, torch.zeros(1, 2)), at, files)
    label_set = torch.tensor([[c in labels for c in range(2)]])
    mask = torch.ones_like(probs[:, 0], dtype=torch.bool)
    return BagPredictions(
        batch,
        ["cat", "dog"],
        label_set,
        torch.zeros(1),
        torch.zeros(1, 2),
        probs,
        probs[:, :-1],
        mask,
    )


def drawn(found: BagPredictions) -> Any:
    """Return the picture of a bag, whose title is whole."""
    figure = draw(found, 0)
    assert figure is not None
    figure.draw_without_rendering()
    assert NAME in (title := figure.get_suptitle().replace("\n", " ")), title
    box = next(t for t in figure.texts if t.get_text() == figure.get_suptitle()).get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    return figure


def test_instances_in_the_plane_have_a_scale_from_the_smallest_to_the_largest() -> None:
    places = {"instance": [0, 1, 2], "x": [10.0, 0, 5], "y": [3.0, 8, 4]}
    figure = drawn(found_in([[0.31, 0.30, 0.32], [1e-4, 2e-4, 3e-4]], [0, 1], **places))
    for axes, values in zip(figure.axes, ([0.31, 0.30, 0.32], [1e-4, 2e-4, 3e-4]), strict=False):
        (dots,) = axes.collections
        shown = {
            tuple(at): value for at, value in zip(dots.get_offsets(), dots.get_array(), strict=True)
        }
        assert shown == pytest.approx(dict(zip([(10, 3), (0, 8), (5, 4)], values, strict=True)))
        assert dots.get_clim() == pytest.approx((min(values), max(values)))
        assert axes.get_ylim()[0] > axes.get_ylim()[1], "y grows downwards, as in pictures"
    assert [axes.get_title() for axes in figure.axes[:2]] == ["P(cat)", "P(dog)"]


def test_classes_lie_over_the_image_where_its_positions_are(tmp_path: Path) -> None:
    """The outer rows are in the margin of a square, and clipped to the image."""
    Image.new("RGB", (200, 100), (200, 0, 0)).save(tmp_path / "wide.png")
    cat = np.array([[0.9] * 4, [0.0, 0.2, 0.4, 0.1], [0.0] * 4, [0.9] * 4])
    x, y = np.meshgrid([25.0, 75, 125, 175], [0.0, 25, 75, 100])
    files = [tmp_path / "wide.png"]
    figure = drawn(found_in([cat, np.zeros((4, 4))], [0], np.zeros((3, 8, 8)), files, x=x, y=y))
    picture, shades = figure.axes[0].get_images()
    assert tuple(picture.get_extent()) == tuple(shades.get_extent()) == (0, 200, 100, 0)
    assert np.array_equal(shades.get_array(), cat[1:3])
    opacity = np.array(shades.to_rgba(cat[1:3]))[..., 3]
    assert opacity.argmax() == 2
    assert opacity[cat[1:3] == 0].max() == 0, "the image is seen where nothing was found"


def test_classes_have_their_time_below_the_frames_of_a_sequence() -> None:
    frames = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    frames[:, 6:] = np.nan  # padding
    times = {"start": [0, 0.5, 1.0], "end": [0.5, 1.0, 1.5]}
    figure = drawn(found_in([[0.1, 0.2, 0.7], [0.3, 0.1, 0.1]], [0, 1], frames, **times))
    above, below = figure.axes
    assert np.array_equal(above.get_images()[0].get_array(), frames[:, :6])
    assert tuple(above.get_images()[0].get_extent()) == (0, 1.5, 0, 3)
    assert {text.get_text(): text.get_position()[0] for text in above.texts} == {
        "cat": 1.25,
        "dog": 0.25,
    }
    for curve, values in zip(below.patches, ([0.1, 0.2, 0.7], [0.3, 0.1, 0.1]), strict=True):
        assert curve.get_data().values == pytest.approx(values)
        assert curve.get_data().edges == pytest.approx([0, 0.5, 1, 1.5])


def test_where_nothing_is_found_the_likeliest_class_is_drawn() -> None:
    places = {"instance": [0, 1], "x": [0.0, 1], "y": [0.0, 1]}
    figure = drawn(found_in([[0.0, 0.0], [0.0, 1e-30]], [], **places))
    assert figure.axes[0].get_title() == "P(dog)"
    assert "{}, the likeliest is dog" in figure.get_suptitle().replace("\n", " ")
    assert figure.axes[0].collections[0].get_clim() == (0, 1e-6), "both round to nothing"
    assert draw(found_in([[0.5], [0.1]], [0], instance=[0]), 0) is None
