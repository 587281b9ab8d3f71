"""The task `extended-digits`: splits, items and canvases against scikit-learn's images.

A bag is a canvas on which several of these images of digits lie. An item is one of the images, by
its number in scikit-learn's data set.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

from milbench import LabelledImages, generator, load_task
from tests._helpers.tasks import loaded


@pytest.fixture(scope="module")
def problem() -> Any:
    return loaded("extended-digits")


def contents(images: torch.Tensor) -> list[bytes]:
    """Return the pixels of each image as bytes, by which images can be looked up."""
    return [image.numpy().tobytes() for image in images]


@pytest.fixture(scope="module")
def parts(problem: Any) -> list[LabelledImages]:
    """The images to train, validate and test on."""
    task: Any = load_task("extended-digits")
    # The images come with scikit-learn, so that no folder of data is needed.
    splits = task.digits(data_dir=None, seed=problem.seed)
    return [splits.train, splits.validation, splits.test]


@pytest.fixture(scope="module")
def class_of_image() -> dict[bytes, int]:
    """The class of each of scikit-learn's images, by its pixels."""
    bundle = load_digits()
    images = contents(torch.from_numpy(bundle.images).byte())
    classes = dict(zip(images, bundle.target.tolist(), strict=True))
    assert len(classes) == 1797, "no two images are equal"
    return classes


def test_splits_have_the_sizes_of_published_results(parts: list[LabelledImages]) -> None:
    # About 70, 10 and 20 % of the 1797 images.
    assert [len(part) for part in parts] == [1258, 179, 360]


def test_splits_hold_every_image_once(
    parts: list[LabelledImages], class_of_image: dict[bytes, int]
) -> None:
    found = []
    for part in parts:
        found += contents(part.pixels)
    assert sorted(found) == sorted(class_of_image)


def test_images_have_their_classes(
    parts: list[LabelledImages], class_of_image: dict[bytes, int]
) -> None:
    for part in parts:
        expected = [class_of_image[image] for image in contents(part.pixels)]
        assert part.classes.tolist() == expected


def test_every_split_has_the_same_shares_of_classes(parts: list[LabelledImages]) -> None:
    shares = torch.bincount(torch.tensor(load_digits().target), minlength=10) / 1797
    for part in parts:
        counts = torch.bincount(part.classes, minlength=10)
        # Counts are whole numbers, so they may differ from exact shares, but by less than 1.
        assert ((counts - len(part) * shares).abs() < 1).all()


def bright_images() -> torch.Tensor:
    """Return scikit-learn's images with a brightness from 0 to 1; its own values go up to 16."""
    return torch.from_numpy(load_digits().images).float() / 16


def test_items_are_the_digits_on_a_canvas(problem: Any) -> None:
    """Where a digit is, the canvas is at least as bright as scikit-learn's image of this digit.

    It may be brighter where another digit overlaps this one.
    """
    images = bright_images()
    for item, shown in digits_on_canvases(problem):
        # 1e-6 allows for rounding.
        assert (shown >= images[item] - 1e-6).all()


def digits_on_canvases(problem: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the item of each evaluated digit, and the part of the canvas (8, 8) where it is."""
    for split in problem.splits.values():
        for bags in split.bags:
            corners = bags.truth.boxes[..., :2].int()
            count, per_bag = bags.origin.items.shape
            for bag, digit in itertools.product(range(count), range(per_bag)):
                left, top = corners[bag, digit].tolist()
                canvas = bags.instances[bag, 0]
                yield int(bags.origin.items[bag, digit]), canvas[top : top + 8, left : left + 8]


def test_single_digits_are_the_images_of_their_numbers(problem: Any) -> None:
    images = bright_images()
    for split in problem.splits.values():
        # Bags of one instance: each is one image, without a canvas around it.
        for bags in split.single_instance:
            assert torch.equal(bags.instances[:, 0], images[bags.origin.bag])
            assert torch.equal(bags.origin.items[:, 0], bags.origin.bag)


def test_items_are_the_digits_shown_and_all_are_shown_equally_often(problem: Any) -> None:
    target = torch.from_numpy(load_digits().target)
    batches = problem.splits["test"].bags
    items = torch.cat([bags.origin.items for bags in batches]).flatten()
    classes = torch.cat([bags.truth.classes for bags in batches]).flatten()
    assert torch.equal(target[items], classes)
    uses = torch.bincount(items, minlength=1797)
    # 4,000 canvases have two digits each.
    assert uses.sum() == 4000 * 2
    # The 360 test digits take turns, so each is used 8000 / 360 = 22.2 times on average.
    assert set(uses[uses > 0].tolist()) <= {22, 23}


def test_the_fixed_split_is_what_published_figures_were_measured_on() -> None:
    # Published figures of this task were measured on this split. If it has to change, raise the
    # task's revision.
    task: Any = load_task("extended-digits", split="fixed")
    # The seed does not matter for the fixed split.
    test = task.digits(data_dir=None, seed=3).test
    assert test.classes[:12].tolist() == [0, 1, 9, 3, 8, 9, 6, 1, 9, 7, 2, 4]


@pytest.fixture(scope="module", params=[1, 8], ids=["1 digit", "8 digits"])
def proportional(request: pytest.FixtureRequest) -> Any:
    """A problem whose canvases have an area that is proportional to their number of digits."""
    params: dict[str, Any] = {
        "digits_per_bag": request.param,
        # No multiple of the 4 bags of a batch, so that the last batch is smaller.
        "bags_per_epoch": 629,
        "batch_bags": 4,
    }
    return loaded("extended-digits", limit=8, canvas="proportional", **params)


def test_an_epoch_has_as_many_canvases_as_asked_for(proportional: Any) -> None:
    batches = list(proportional.train_batches(0, generator("canvases")))
    # 629 / 4 = 157.25, rounded up.
    assert proportional.steps_per_epoch == len(batches) == 158
    digits = sum(bags.truth.classes.numel() for bags in batches)
    assert digits == 629 * proportional.digits_per_bag


def test_with_a_proportional_canvas_each_digit_has_the_same_area(proportional: Any) -> None:
    areas = []
    for bags in proportional.train_batches(0, generator("canvases")):
        height, width = bags.instances.shape[2:]
        areas.append(height * width)
    mean_area = sum(areas) / len(areas)
    # By default two digits have canvases with sides of 16 to 24 pixels, 20 on average, and so a
    # mean area of 20 * 20 = 400: 200 for each digit. Sides are random and rounded to whole pixels,
    # so the mean area is a little different.
    assert mean_area / proportional.digits_per_bag == pytest.approx(200, rel=0.06)
