"""Galleries: their files, the checks of their arrays, and what they say of a bag.

A gallery is a file of a cell, with a few test bags and the outputs of its network for them.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milbench.errors import UsageError
from milbench.store import gallery
from milbench.store.gallery import Gallery


def image_fields() -> dict[str, Any]:
    """Return the fields of a gallery of two images.

    The images have 8 x 10 pixels, three classes, and positions in four rows and five columns.
    """
    rng = np.random.default_rng(0)
    return {
        "kind": "image",
        "instances": rng.random((2, 1, 8, 10)),
        "labels": np.eye(2, 3) > 0,
        "presence": rng.random((2, 3)),
        "probs": np.full((2, 4, 4, 5), 0.25),
        "class_names": ["0", "1", "β"],
        "ys": np.arange(4) * 2 + 1.0,
        "xs": np.arange(5) * 2 + 1.0,
        "threshold": 0.5,
        "classes": np.array([[0, -1], [1, 1]]),
        "boxes": np.zeros((2, 2, 4)),
    }


def set_fields() -> dict[str, Any]:
    """Return the fields of a gallery of one set, of four instances.

    By their probabilities they show a, b, background and a. By the mask the second is padding.
    """
    classes_of_positions = [0, 1, 2, 0]
    probs = np.zeros((1, 3, 4))
    probs[0, classes_of_positions, np.arange(4)] = 1
    return {
        "kind": "set",
        "instances": np.arange(8.0).reshape(1, 4, 2),
        "labels": [[True, True]],
        "presence": [[0.2, 0.9]],
        "probs": probs,
        "class_names": ["a", "b"],
        "mask": [[True, False, True, True]],
    }


def sequence_fields() -> dict[str, Any]:
    """Return the fields of a gallery of one sequence.

    It has three channels and six frames, of which the last two are padding.
    """
    instances = np.ones((1, 3, 6))
    instances[:, :, 4:] = np.nan
    return {
        "kind": "sequence",
        "instances": instances,
        "labels": [[True, False]],
        "presence": [[0.9, 0.2]],
        "probs": np.full((1, 3, 2), 1 / 3),
        "class_names": ["a", "b"],
        "ys": [0.5],
        "xs": [1.0, 4.0],
    }


def assert_equal(first: Gallery, second: Gallery) -> None:
    """Assert that all fields of two galleries are equal; NaN, as in padding, equals NaN."""
    for field in fields(first):
        np.testing.assert_equal(getattr(first, field.name), getattr(second, field.name))


ALL_KINDS = pytest.mark.parametrize(
    "values", [image_fields(), set_fields(), sequence_fields()], ids=["image", "set", "sequence"]
)


@ALL_KINDS
def test_a_gallery_is_read_as_it_was_written(tmp_path: Path, values: dict[str, Any]) -> None:
    made = gallery.make(**values)
    gallery.write(tmp_path / "g.npz", made)
    assert_equal(gallery.load(tmp_path / "g.npz"), made)


def test_the_path_of_a_gallery_is_kept_as_it_is(tmp_path: Path) -> None:
    gallery.write(tmp_path / "draft", gallery.make(**image_fields()))
    assert [path.name for path in tmp_path.iterdir()] == ["draft"]


def test_a_field_that_is_none_counts_as_absent() -> None:
    made = gallery.make(**image_fields(), coords=None)
    assert_equal(made, gallery.make(**image_fields()))


@pytest.mark.parametrize(
    ("values", "name", "value"),
    [
        pytest.param(image_fields(), "class_names", ["0"], id="too few names"),
        pytest.param(image_fields(), "instances", np.zeros((2, 8, 10)), id="no channel"),
        pytest.param(image_fields(), "instances", np.zeros((3, 1, 8, 10)), id="too many bags"),
        pytest.param(image_fields(), "ys", np.zeros(3), id="too few rows"),
        pytest.param(image_fields(), "xs", np.zeros(4), id="too few columns"),
        pytest.param(image_fields(), "boxes", np.zeros((2, 3, 4)), id="too many boxes"),
        pytest.param(sequence_fields(), "boxes", np.zeros((1, 1, 4)), id="boxes without classes"),
        pytest.param(sequence_fields(), "ys", np.zeros(2), id="two rows of a sequence"),
        pytest.param(sequence_fields(), "frames_per_second", 0, id="no frame a second"),
        pytest.param(set_fields(), "position_classes", np.zeros((1, 3)), id="too few classes"),
        pytest.param(set_fields(), "coords", np.zeros((1, 4, 3)), id="three coordinates"),
    ],
)
def test_fields_that_do_not_fit_together_are_named(
    values: dict[str, Any], name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=f"does not fit together: {name}$"):
        gallery.make(**values | {name: value})


def test_all_fields_that_do_not_fit_are_named() -> None:
    values = image_fields() | {"ys": np.zeros(3), "xs": np.zeros(4)}
    message = "a gallery of 2 bags and 3 classes does not fit together: ys, xs"
    with pytest.raises(ValueError, match=message):
        gallery.make(**values)


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """The bytes of a gallery."""
    path = tmp_path / "whole.npz"
    gallery.write(path, gallery.make(**image_fields()))
    return path.read_bytes()


def assert_refused(path: Path) -> None:
    """Assert that a gallery is refused in one line that names its file."""
    with pytest.raises(UsageError, match=path.name) as caught:
        gallery.load(path)
    assert "\n" not in str(caught.value)


def test_a_gallery_that_was_cut_is_refused(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "cut"
    path.write_bytes(whole[: len(whole) // 2])
    assert_refused(path)


def test_a_gallery_with_damaged_bytes_is_refused(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "flipped"
    flipped = bytes(byte ^ 255 for byte in whole[300:400])
    path.write_bytes(whole[:300] + flipped + whole[400:])
    assert_refused(path)


def test_a_pickled_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pickled.npz"
    np.savez(path, format=np.array([{"a": 1}], dtype=object))
    assert_refused(path)


def test_a_gallery_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "newer.npz"
    np.savez(path, format=99)
    assert_refused(path)


def test_a_gallery_that_is_absent_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "absent")


def test_a_masked_position_shows_background() -> None:
    # Without the mask, the instances would show 0, 1, 2 and 0.
    background = 2
    assert gallery.make(**set_fields()).class_map(0).tolist() == [0, background, background, 0]


def test_without_a_threshold_the_most_probable_classes_are_detected() -> None:
    assert gallery.make(**set_fields()).detected(0) == {0}


def test_with_a_threshold_classes_above_it_are_detected() -> None:
    made = gallery.make(**set_fields(), threshold=0.5)
    assert made.presence[0].tolist() == pytest.approx([0.2, 0.9])
    assert made.detected(0) == {1}


def test_with_a_high_threshold_no_class_is_detected() -> None:
    made = gallery.make(**set_fields(), threshold=0.95)
    assert made.detected(0) == set()


def test_each_bag_has_its_true_label_set() -> None:
    made = gallery.make(**image_fields())
    assert made.true(0) == {0}
    assert made.true(1) == {1}


def test_a_label_set_may_have_several_classes() -> None:
    assert gallery.make(**set_fields()).true(0) == {0, 1}


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        pytest.param(image_fields(), (-1, 1, -1, -1), id="image"),
        pytest.param(set_fields(), (-1, -1, 2), id="set"),
        pytest.param(sequence_fields(), (-1, 3, -1), id="sequence"),
    ],
)
def test_the_batch_shape_has_minus_one_for_sizes_that_may_differ(
    values: dict[str, Any], shape: tuple[int, ...]
) -> None:
    assert gallery.make(**values).batch_shape == shape


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        pytest.param(image_fields(), (1, 1, 8, 10), id="image"),
        pytest.param(set_fields(), (1, 3, 2), id="set"),
        pytest.param(sequence_fields(), (1, 3, 4), id="sequence"),
    ],
)
def test_one_bag_has_no_padding(values: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert gallery.make(**values).one_bag().shape == shape
