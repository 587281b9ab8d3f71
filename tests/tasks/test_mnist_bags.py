"""MNIST-bags: what bags are made of, counted by the images themselves."""

from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import generator
from tests._helpers.small_data import small_mnist, write_idx
from tests._helpers.tasks import loaded


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose images tell what they are: pixel 0 is the class, pixel 1 the split, 2 and 3 the number."""
    folder = small_mnist(tmp_path_factory.mktemp("data"), 400, 200)
    for split, (name, count) in enumerate((("train", 400), ("t10k", 200))):
        images = torch.zeros(count, 784)
        images[:, 0], images[:, 1] = torch.arange(count) % 10, split
        images[:, 2], images[:, 3] = torch.arange(count) // 200, torch.arange(count) % 200
        write_idx(folder / f"MNIST/raw/{name}-images-idx3-ubyte", images.view(count, 28, 28))
    return folder


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("mnist-bags", root, seed, any_data=True, **params)


def contents(batches: Any) -> list[tuple[set[int], torch.Tensor]]:
    """Return the label set of each bag, and what its images say they are."""
    found = []
    for bags in batches:
        mask = (
            torch.ones(bags.instances.shape[:2], dtype=torch.bool)
            if bags.mask is None
            else bags.mask
        )
        for labels, images, there in zip(bags.labels, bags.instances, mask, strict=True):
            found.append(
                (set(labels.nonzero().flatten().tolist()), (images[there, :4] * 255).round().int())
            )
    return found


def test_half_of_the_bags_hold_a_nine_and_sizes_are_normal(root: Path) -> None:
    problem = make(root, train_bags=400)
    train = contents(problem.train_batches(0, generator("t")))
    test = contents(problem.splits["test"].bags)
    validation = contents(problem.splits["validation"].bags)
    for bags, count, split in ((train, 400, 0), (test, 1000, 1), (validation, 200, 0)):
        assert len(bags) == count
        assert sum(bool(labels) for labels, _ in bags) == count // 2
        assert all(
            ({0} if (images[:, 0] == 9).any() else set()) == labels for labels, images in bags
        )
        assert all((images[:, 1] == split).all() for _, images in bags)
    sizes = torch.tensor([float(len(images)) for _, images in test])
    assert float(sizes.mean()) == pytest.approx(
        10, abs=0.5
    )  # a positive bag is a little larger than any
    assert float(sizes.std()) == pytest.approx(2, abs=0.3)
    used = [
        {tuple(row[2:].tolist()) for _, images in bags for row in images}
        for bags in (train, validation)
    ]
    assert not used[0] & used[1]


@pytest.mark.parametrize("labels", ["nine", "all"])
def test_items_are_the_images_of_each_bag(root: Path, labels: str) -> None:
    """Training images have the numbers 0 to 399, then come the test images."""
    for split in make(root, labels=labels).splits.values():
        for batches in (split.bags, split.single_instance):
            for n in range(len(batches)):
                bags = batches[n]
                bytes_of = (bags.instances[..., :4] * 255).round().long()
                expected = 400 * bytes_of[..., 1] + 200 * bytes_of[..., 2] + bytes_of[..., 3]
                if bags.mask is not None:
                    expected[~bags.mask] = -1
                assert torch.equal(bags.origin.items, expected)


def test_all_classes(root: Path) -> None:
    problem = make(root, labels="all", bag_size=3, train_bags=50)
    for labels, images in contents(problem.splits["test"].bags):
        assert labels == set(images[:, 0].tolist())
    single = contents(problem.splits["test"].single_instance)
    assert [labels for labels, _ in single] == [{n % 10} for n in range(200)]
    assert problem.max_labels <= 10
