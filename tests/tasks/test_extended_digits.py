from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

from milbench import generator, load_task
from tests._helpers.tasks import prepared


@pytest.fixture(scope="module")
def task() -> Any:
    return prepared("extended-digits")


def keys(images: torch.Tensor) -> list[bytes]:
    return [image.numpy().tobytes() for image in images]


def test_splits_hold_every_image_once_and_every_class_alike(task: Any) -> None:
    splits = task.load(None)
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


def test_the_fixed_split_is_what_published_figures_were_measured_on() -> None:
    # A change here changes what every published figure on this task means: raise the task's revision with it.
    test = load_task("extended-digits", split="fixed").load(None).test  # type: ignore[attr-defined]
    assert test.classes[:12].tolist() == [0, 1, 9, 3, 8, 9, 6, 1, 9, 7, 2, 4]


@pytest.mark.parametrize("digits", [1, 8])
def test_any_number_of_digits_can_have_as_many_steps_and_as_much_room_for_each(digits: int) -> None:
    params: dict[str, Any] = {"digits_per_bag": digits, "bags_per_epoch": 629, "batch_bags": 4}
    task = prepared("extended-digits", limit=8, canvas="proportional", **params)
    batches = list(task.train_batches(0, generator("canvases")))
    assert task.steps_per_epoch == len(batches) == 158
    assert sum(bags.truth.classes.numel() for bags in batches) == 629 * digits
    areas = torch.tensor(
        [bags.instances.shape[2] * bags.instances.shape[3] for bags in batches]
    ).double()
    # Two digits have canvases of 16 to 24 pixels a side, 400 on average: 200 for each digit, but for rounded sides.
    assert areas.mean() / digits == pytest.approx(200, rel=0.06)
