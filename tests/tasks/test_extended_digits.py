from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

from milbench import generator, load_task
from tests._helpers.tasks import loaded


@pytest.fixture(scope="module")
def problem() -> Any:
    return loaded("extended-digits")


def keys(images: torch.Tensor) -> list[bytes]:
    return [image.numpy().tobytes() for image in images]


def test_splits_hold_every_image_once_and_every_class_alike(problem: Any) -> None:
    splits = load_task("extended-digits").digits(None, problem.seed)  # type: ignore[attr-defined]
    parts = [splits.train, splits.validation, splits.test]
    assert [len(part) for part in parts] == [1258, 179, 360]
    drawn, bundle = [key for part in parts for key in keys(part.pixels)], load_digits()
    classes = dict(
        zip(keys(torch.from_numpy(bundle.images).byte()), bundle.target.tolist(), strict=True)
    )
    assert len(classes) == 1797, "no two images are equal"
    assert sorted(drawn) == sorted(classes)
    whole = torch.bincount(torch.tensor(bundle.target), minlength=10) / 1797
    for part in parts:
        assert part.classes.tolist() == [classes[key] for key in keys(part.pixels)]
        assert (
            (torch.bincount(part.classes, minlength=10) - len(part) * whole).abs() < 1
        ).all()  # stratified


def test_items_are_the_digits_on_a_canvas(problem: Any) -> None:
    """By scikit-learn's images: where a digit is, the canvas is at least as bright as the digit."""
    images = torch.from_numpy(load_digits().images).float() / 16
    for split in problem.splits.values():
        for bags in split.bags:
            corners = bags.truth.boxes[..., :2].int().tolist()
            for canvas, items, places in zip(
                bags.instances[:, 0], bags.origin.items.tolist(), corners, strict=True
            ):
                for item, (left, top) in zip(items, places, strict=True):
                    shown = canvas[top : top + 8, left : left + 8]
                    assert (shown >= images[item] - 1e-6).all()


def test_single_digits_are_the_images_of_their_numbers(problem: Any) -> None:
    images = torch.from_numpy(load_digits().images).float() / 16
    for split in problem.splits.values():
        for number in range(len(split.single_instance)):
            bags = split.single_instance[number]
            assert torch.equal(bags.instances[:, 0], images[bags.origin.bag])
            assert torch.equal(bags.origin.items[:, 0], bags.origin.bag)


def test_each_digit_is_an_item_as_often_as_shown(problem: Any) -> None:
    target = torch.from_numpy(load_digits().target)
    batches = problem.splits["test"].bags
    items = torch.cat([bags.origin.items for bags in batches]).flatten()
    classes = torch.cat([bags.truth.classes for bags in batches]).flatten()
    assert torch.equal(target[items], classes)
    uses = torch.bincount(items, minlength=1797)
    assert uses.sum() == 4000 * 2
    assert {*uses[uses > 0].tolist()} <= {22, 23}, "8,000 places for 360 digits, each in turn"


def test_the_fixed_split_is_what_published_figures_were_measured_on() -> None:
    # A change here changes what every published figure on this task means: raise the task's revision with it.
    task: Any = load_task("extended-digits", split="fixed")
    test = task.digits(None, seed=3).test
    assert test.classes[:12].tolist() == [0, 1, 9, 3, 8, 9, 6, 1, 9, 7, 2, 4]


@pytest.mark.parametrize("digits", [1, 8])
def test_any_number_of_digits_can_have_the_same_room_each(digits: int) -> None:
    params: dict[str, Any] = {"digits_per_bag": digits, "bags_per_epoch": 629, "batch_bags": 4}
    problem = loaded("extended-digits", limit=8, canvas="proportional", **params)
    batches = list(problem.train_batches(0, generator("canvases")))
    assert problem.steps_per_epoch == len(batches) == 158
    assert sum(bags.truth.classes.numel() for bags in batches) == 629 * digits
    areas = torch.tensor(
        [bags.instances.shape[2] * bags.instances.shape[3] for bags in batches]
    ).double()
    # Two digits have canvases of 16 to 24 pixels a side, 400 on average: 200 for each digit, but for rounded sides.
    assert areas.mean() / digits == pytest.approx(200, rel=0.06)
