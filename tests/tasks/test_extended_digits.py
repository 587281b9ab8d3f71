from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

from milbench import UsageError, generator, load_task
from tests._helpers.networks import new_network
from tests._helpers.tasks import prepared

FEW = 200
"""Canvases of an evaluation, where there is no need for all of them."""


@pytest.fixture(scope="module")
def task() -> Any:
    return prepared("extended-digits")


def keys(images: torch.Tensor) -> list[bytes]:
    return [image.numpy().tobytes() for image in images]


def test_splits_hold_every_image_once_and_every_class_alike(task: Any) -> None:
    splits = task.load(None)
    parts = [splits.train, splits.validation, splits.test]
    assert [len(part) for part in parts] == [1258, 179, 360]
    drawn = [key for part in parts for key in keys(part.pixels)]
    bundle = load_digits()
    # No two of the 1,797 images are equal: a key stands for one image.
    assert sorted(drawn) == sorted(keys(torch.from_numpy(bundle.images).byte()))
    assert len(set(drawn)) == 1797
    classes = dict(zip(keys(torch.from_numpy(bundle.images).byte()), bundle.target.tolist(), strict=True))
    whole = torch.bincount(torch.tensor(bundle.target), minlength=10) / 1797
    for part in parts:
        assert part.classes.tolist() == [classes[key] for key in keys(part.pixels)]
        assert ((torch.bincount(part.classes, minlength=10) - len(part) * whole).abs() < 1).all()  # stratified


def test_the_fixed_split_is_what_published_figures_were_measured_on() -> None:
    # A change here changes what every published figure on this task means: raise the task's revision with it.
    test = load_task("extended-digits", split="fixed").load(None).test  # type: ignore[attr-defined]
    assert test.classes[:12].tolist() == [0, 1, 9, 3, 8, 9, 6, 1, 9, 7, 2, 4]


@pytest.mark.parametrize("digits", [1, 8])
def test_the_number_of_steps_can_be_the_same_for_any_number_of_digits(digits: int) -> None:
    task = prepared("extended-digits", limit=FEW, digits_per_bag=digits, bags_per_epoch=629)
    batches = list(task.train_batches(0, generator("t", digits)))
    assert task.steps_per_epoch == len(batches) == 20
    used = torch.cat([bags.truth.classes.flatten() for bags in batches])
    assert len(used) == 629 * digits
    share = used.bincount() / len(used)
    assert (share - task.load(None).train.classes.bincount() / 1258).abs().max() < 0.03  # every digit as often


@pytest.mark.parametrize("digits", [1, 8])
def test_proportional_canvases_have_as_much_room_for_every_digit(digits: int) -> None:
    params: dict[str, Any] = {
        "digits_per_bag": digits,
        "canvas": "proportional",
        "bags_per_epoch": 400,
        "batch_bags": 4,
    }
    task = prepared("extended-digits", limit=FEW, **params)
    canvases = [bags.instances for bags in task.train_batches(0, generator("canvases"))]
    assert {len(part) for part in canvases} == {4}
    areas = torch.tensor([part.shape[2] * part.shape[3] for part in canvases]).double()
    # Two digits have canvases of 16 to 24 pixels a side, 400 on average: 200 for each digit, but for rounded sides.
    assert areas.mean() / digits == pytest.approx(200, rel=0.06)
    for bags in task.eval_splits["test"].bags[:3]:
        assert new_network(task)(bags.instances).shape[:2] == (len(bags), 11)


@pytest.mark.parametrize(("params", "complaint"), [
    ({"digits_per_bag": 50}, "digits_per_bag = 50 is too large: at most 9 digits of 8 pixels fit side by side"),
    ({"bags_per_epoch": 99_999_999_999_999}, "bags_per_epoch = 99999999999999 is wrong.* 10000000"),
])  # fmt: skip
def test_bad_parameters(params: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load_task("extended-digits", **params)
    assert "\n" not in str(caught.value)


def test_intervals_are_to_hold_for_other_digits_where_seeds_split_the_same_ones() -> None:
    task: Any = load_task("extended-digits")
    splits = task.load(None)
    assert task.overlap(None) == len(splits.test) / len(splits.train)
    assert load_task("extended-digits", split="fixed").overlap(None) == 0
