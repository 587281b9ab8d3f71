"""Pictures of where classes are in bags, against the probabilities that they show."""

from collections.abc import Mapping, Sequence
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
    cat: Any,
    dog: Any,
    named: str = "",
    *,
    places: Mapping[str, Any],
    instances: Any = None,
    files: Sequence[Path] = (),
) -> BagPredictions:
    """Return the predictions for one bag.

    `cat` and `dog` are their probabilities at each position. `named` are the classes of the label
    set, such as "cat dog". `places` say where the positions are.
    """
    cat = torch.tensor(cat)
    dog = torch.tensor(dog)
    background = 1 - cat - dog
    probs = torch.stack([cat, dog, background]).unsqueeze(0)
    if instances is None:
        instances = np.zeros((cat.numel(), 1))
    bags = Bags(torch.tensor(instances).unsqueeze(0), torch.zeros(1, 2))
    placed = {}
    for name, values in places.items():
        placed[name] = torch.tensor(values).double().unsqueeze(0)
    return BagPredictions(
        batch=NamedBags("bag", [NAME], bags, placed, files),
        class_names=["cat", "dog"],
        labels=torch.tensor([["cat" in named, "dog" in named]]),
        # Pictures show neither the probability of the label set nor the presence.
        log_prob=torch.zeros(1),
        presence=torch.zeros(1, 2),
        probs=probs,
        evidence=probs[:, :-1],
        mask=torch.ones_like(probs[:, 0], dtype=torch.bool),
    )


def picture_of(found: BagPredictions) -> Any:
    """Return the figure of a bag, laid out as it would be saved."""
    figure = draw(found, 0)
    assert figure is not None
    figure.draw_without_rendering()
    return figure


def title_of(figure: Any) -> str:
    """Return the title of a figure as one line."""
    return str(figure.get_suptitle()).replace("\n", " ")


CAT = [0.31, 0.30, 0.32]
DOG = [1e-4, 2e-4, 3e-4]
IN_THE_PLANE = {"instance": [0, 1, 2], "x": [10.0, 0, 5], "y": [3.0, 8, 4]}


@pytest.fixture(scope="module")
def plane() -> Any:
    """Return the picture of three instances in the plane."""
    return picture_of(found_in(CAT, DOG, "cat dog", places=IN_THE_PLANE))


def test_a_long_title_is_whole_and_inside_the_picture(plane: Any) -> None:
    assert NAME in title_of(plane)
    (title,) = (text for text in plane.texts if text.get_text() == plane.get_suptitle())
    box = title.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= plane.bbox.x1


def test_every_class_found_has_a_plane_of_its_own(plane: Any) -> None:
    assert [axes.get_title() for axes in plane.axes[:2]] == ["P(cat)", "P(dog)"]


@pytest.mark.parametrize(("number", "probs"), [(0, CAT), (1, DOG)], ids=["cat", "dog"])
def test_instances_in_the_plane_have_their_probabilities(
    plane: Any, number: int, probs: list[float]
) -> None:
    (dots,) = plane.axes[number].collections
    places = [tuple(place) for place in dots.get_offsets()]
    shown = dict(zip(places, dots.get_array(), strict=True))
    # The coordinates are those of IN_THE_PLANE.
    first, second, third = probs
    assert shown == pytest.approx({(10, 3): first, (0, 8): second, (5, 4): third})


@pytest.mark.parametrize(("number", "probs"), [(0, CAT), (1, DOG)], ids=["cat", "dog"])
def test_the_scale_reaches_from_the_smallest_to_the_largest(
    plane: Any, number: int, probs: list[float]
) -> None:
    (dots,) = plane.axes[number].collections
    assert dots.get_clim() == pytest.approx((min(probs), max(probs)))


def test_y_grows_downwards_as_in_pictures(plane: Any) -> None:
    for axes in plane.axes[:2]:
        bottom, top = axes.get_ylim()
        assert bottom > top


OVER_AN_IMAGE = np.array([[0.9] * 4, [0.0, 0.2, 0.4, 0.1], [0.0] * 4, [0.9] * 4])
"""Probabilities of the cat. The first and the last row are in the margin around a wide image."""


@pytest.fixture
def over_image(tmp_path: Path) -> tuple[Any, Any]:
    """Return the drawn image, and the drawn probabilities over it."""
    file = tmp_path / "wide.png"
    Image.new("RGB", (200, 100), (200, 0, 0)).save(file)
    x, y = np.meshgrid([25.0, 75, 125, 175], [0.0, 25, 75, 100])
    found = found_in(
        OVER_AN_IMAGE,
        np.zeros((4, 4)),
        "cat",
        places={"x": x, "y": y},
        instances=np.zeros((3, 8, 8)),
        files=[file],
    )
    picture, shades = picture_of(found).axes[0].get_images()
    return picture, shades


def test_classes_lie_over_the_image_where_its_positions_are(over_image: tuple[Any, Any]) -> None:
    picture, shades = over_image
    assert tuple(picture.get_extent()) == (0, 200, 100, 0)
    assert tuple(shades.get_extent()) == (0, 200, 100, 0)


def test_positions_outside_the_image_are_not_drawn(over_image: tuple[Any, Any]) -> None:
    _, shades = over_image
    assert np.array_equal(shades.get_array(), OVER_AN_IMAGE[1:3])


def test_shades_are_densest_where_a_class_is_likeliest(over_image: tuple[Any, Any]) -> None:
    _, shades = over_image
    inside = OVER_AN_IMAGE[1:3]
    opacity = np.array(shades.to_rgba(inside))[..., 3]
    assert opacity.argmax() == inside.argmax()
    # The image is seen where nothing was found.
    assert opacity[inside == 0].max() == 0


FRAMES = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
# Two frames of padding.
FRAMES[:, 6:] = np.nan
CAT_IN_TIME = [0.1, 0.2, 0.7]
DOG_IN_TIME = [0.3, 0.1, 0.1]


@pytest.fixture(scope="module")
def sequence() -> Any:
    """Return the picture of six frames in one and a half seconds, with three positions."""
    times = {"start": [0, 0.5, 1.0], "end": [0.5, 1.0, 1.5]}
    found = found_in(CAT_IN_TIME, DOG_IN_TIME, "cat dog", places=times, instances=FRAMES)
    return picture_of(found)


def test_a_sequence_shows_its_frames_without_padding(sequence: Any) -> None:
    above, _ = sequence.axes
    (image,) = above.get_images()
    assert np.array_equal(image.get_array(), FRAMES[:, :6])
    assert tuple(image.get_extent()) == (0, 1.5, 0, 3)


def test_classes_of_a_sequence_are_named_where_they_are_likeliest(sequence: Any) -> None:
    above, _ = sequence.axes
    middles = {text.get_text(): text.get_position()[0] for text in above.texts}
    # The cat is likeliest from 1.0 to 1.5 seconds, the dog from 0 to 0.5.
    assert middles == {"cat": 1.25, "dog": 0.25}


def test_classes_have_curves_over_time_below_the_frames(sequence: Any) -> None:
    _, below = sequence.axes
    for curve, probs in zip(below.patches, (CAT_IN_TIME, DOG_IN_TIME), strict=True):
        assert curve.get_data().values == pytest.approx(probs)
        assert curve.get_data().edges == pytest.approx([0, 0.5, 1, 1.5])


def test_where_nothing_is_found_the_likeliest_class_is_drawn() -> None:
    places = {"instance": [0, 1], "x": [0.0, 1], "y": [0.0, 1]}
    figure = picture_of(found_in([0.0, 0.0], [0.0, 1e-30], places=places))
    assert figure.axes[0].get_title() == "P(dog)"
    assert "{}, the likeliest is dog" in title_of(figure)
    # Both probabilities are almost 0, and the scale of colours must not be empty.
    assert figure.axes[0].collections[0].get_clim() == (0, 1e-6)


def test_a_bag_without_coordinates_has_no_picture() -> None:
    assert draw(found_in([0.5], [0.1], "cat", places={"instance": [0]}), 0) is None
