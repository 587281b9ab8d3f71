"""The task `mnist-bags`: what its bags are made of, read from marked images.

In these tests the first pixels of an image tell its class, its split and its number.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from milbench import Bags, generator
from tests._helpers.small_data import small_mnist, write_idx
from tests._helpers.tasks import loaded, mask_of

TRAIN_IMAGES = 400
TEST_IMAGES = 200
NINE = {0}
"""The label set of a bag with a nine, where the nine is the only class."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose images tell what they are.

    Pixel 0 is the class, pixel 1 the split, and pixels 2 and 3 are the number.
    """
    folder = small_mnist(tmp_path_factory.mktemp("data"), TRAIN_IMAGES, TEST_IMAGES)
    write_images(folder, "train", TRAIN_IMAGES, split=0)
    write_images(folder, "t10k", TEST_IMAGES, split=1)
    return folder


def write_images(folder: Path, name: str, count: int, split: int) -> None:
    images = torch.zeros(count, 784)
    number = torch.arange(count)
    images[:, 0] = number % 10
    images[:, 1] = split
    # A pixel holds one byte, which is too little for the number.
    images[:, 2] = number // 200
    images[:, 3] = number % 200
    write_idx(folder / f"MNIST/raw/{name}-images-idx3-ubyte", images.view(count, 28, 28))


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("mnist-bags", root, seed, any_data=True, **params)


@dataclass
class Content:
    """The label set of a bag, and what the pixels of its images tell."""

    label_set: set[int]
    classes: list[int]
    splits: set[int]
    numbers: list[int]


def first_bytes(bags: Bags) -> Tensor:
    """Return the first four pixels of each image (B, K, 4), from 0 to 255."""
    return (bags.instances[..., :4] * 255).round().long()


def contents(batches: Any) -> list[Content]:
    found = []
    for bags in batches:
        images_of_bags = first_bytes(bags)
        for labels, images, mask in zip(bags.labels, images_of_bags, mask_of(bags), strict=True):
            classes, splits, hundreds, rest = images[mask].unbind(dim=1)
            content = Content(
                label_set=set(labels.nonzero().flatten().tolist()),
                classes=classes.tolist(),
                splits=set(splits.tolist()),
                numbers=(200 * hundreds + rest).tolist(),
            )
            found.append(content)
    return found


@pytest.fixture(scope="module")
def parts(root: Path) -> dict[str, list[Content]]:
    problem = make(root, train_bags=400)
    return {
        "train": contents(problem.train_batches(0, generator("t"))),
        "validation": contents(problem.splits["validation"].bags),
        "test": contents(problem.splits["test"].bags),
    }


@pytest.mark.parametrize(("part", "count"), [("train", 400), ("validation", 200), ("test", 1000)])
def test_half_of_the_bags_hold_a_nine(
    parts: dict[str, list[Content]], part: str, count: int
) -> None:
    assert len(parts[part]) == count
    assert sum(9 in bag.classes for bag in parts[part]) == count // 2


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_a_label_set_says_whether_there_is_a_nine(
    parts: dict[str, list[Content]], part: str
) -> None:
    for bag in parts[part]:
        expected = NINE if 9 in bag.classes else set()
        assert bag.label_set == expected


def test_only_test_bags_are_made_of_test_images(parts: dict[str, list[Content]]) -> None:
    sources = {part: set.union(*(bag.splits for bag in bags)) for part, bags in parts.items()}
    assert sources == {"train": {0}, "validation": {0}, "test": {1}}


def test_training_and_validation_bags_share_no_image(parts: dict[str, list[Content]]) -> None:
    trained = {number for bag in parts["train"] for number in bag.numbers}
    validated = {number for bag in parts["validation"] for number in bag.numbers}
    assert not trained & validated


def test_sizes_are_normal_with_a_fifth_of_the_mean(parts: dict[str, list[Content]]) -> None:
    sizes = torch.tensor([float(len(bag.numbers)) for bag in parts["test"]])
    # The mean size is 10. Bags with a nine are a little larger on average, since a larger bag is
    # likelier to have one; half of the bags must have one.
    assert float(sizes.mean()) == pytest.approx(10, abs=0.5)
    assert float(sizes.std()) == pytest.approx(2, abs=0.3)


@pytest.mark.parametrize("labels", ["nine", "all"])
def test_items_are_the_images_of_each_bag(root: Path, labels: str) -> None:
    """Items 0 to 399 are the training images, and the items after them are the test images."""
    for split in make(root, labels=labels).splits.values():
        for batches in (split.bags, split.single_instance):
            for n in range(len(batches)):
                bags = batches[n]
                _, is_test, hundreds, rest = first_bytes(bags).unbind(dim=2)
                numbers = TRAIN_IMAGES * is_test + 200 * hundreds + rest
                expected = numbers.masked_fill(~mask_of(bags), -1)
                assert torch.equal(bags.origin.items, expected)


def test_with_all_classes_a_label_set_holds_every_digit(root: Path) -> None:
    problem = make(root, labels="all", bag_size=3, train_bags=50)
    assert problem.max_labels <= 10
    for bag in contents(problem.splits["test"].bags):
        assert bag.label_set == set(bag.classes)


def test_with_all_classes_every_test_image_is_scored_alone(root: Path) -> None:
    problem = make(root, labels="all", bag_size=3, train_bags=50)
    single = contents(problem.splits["test"].single_instance)
    assert [bag.label_set for bag in single] == [{n % 10} for n in range(TEST_IMAGES)]
