from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

from milbench import UsageError, generator, load_task

CPU = torch.device("cpu")
FEW = 200
"""Canvases of an evaluation, where there is no need for all of them."""


@pytest.fixture(scope="module")
def task() -> Any:
    task = load_task("extended-digits")
    task.prepare(None, CPU)
    return task


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


def prepared(seed: int, split: str = "seed") -> Any:
    task = load_task("extended-digits", split=split)
    task.seed, task.evaluation_limit = seed, FEW
    torch.manual_seed(99)  # torch's own generator must not matter
    task.prepare(None, CPU)
    return task


@pytest.mark.parametrize(("split", "seeds"), [("fixed", (0, 7)), ("seed", (7, 7))])
def test_splits_and_canvases_are_the_same_in_every_run(split: str, seeds: tuple[int, int]) -> None:
    one, other = (prepared(seed, split) for seed in seeds)
    for name in ("train", "validation", "test"):
        assert torch.equal(getattr(one.load(None), name).pixels, getattr(other.load(None), name).pixels)
    for a, b in zip(one._eval_splits["test"].bags, other._eval_splits["test"].bags, strict=True):
        assert torch.equal(a.instances, b.instances)


def test_the_fixed_split_is_what_published_figures_were_measured_on() -> None:
    # A change here changes what every published figure on this task means: raise the task's revision with it.
    test = load_task("extended-digits", split="fixed").load(None).test  # type: ignore[attr-defined]
    assert test.classes[:12].tolist() == [0, 1, 9, 3, 8, 9, 6, 1, 9, 7, 2, 4]


def test_every_seed_has_a_split_of_its_own() -> None:
    tests = []
    for seed in range(4):
        task: Any = load_task("extended-digits")
        task.seed = seed
        tests.append({*keys(task.load(None).test.pixels)})
    # Two independent samples of 360 of 1,797 digits share 72 on average, with a standard deviation below 7.
    assert all(40 < len(a & b) < 105 for a, b in itertools.combinations(tests, 2))


@pytest.mark.parametrize("digits", [1, 2, 8])
def test_the_number_of_steps_can_be_the_same_for_any_number_of_digits(digits: int) -> None:
    task: Any = load_task("extended-digits", digits_per_bag=digits, bags_per_epoch=629)
    task.evaluation_limit = FEW
    task.prepare(None, CPU)
    batches = list(task.train_batches(0, generator("t", digits)))
    assert task.steps_per_epoch == len(batches) == 20
    used = torch.cat([bags.truth.classes.flatten() for bags in batches])
    assert len(used) == 629 * digits
    share = used.bincount() / len(used)
    assert (share - task.load(None).train.classes.bincount() / 1258).abs().max() < 0.03  # every digit as often


@pytest.mark.parametrize("digits", [1, 2, 4, 8])
def test_proportional_canvases_have_as_much_room_for_every_digit(digits: int) -> None:
    task: Any = load_task(
        "extended-digits", digits_per_bag=digits, canvas="proportional", bags_per_epoch=400, batch_bags=4
    )
    task.evaluation_limit = FEW
    task.prepare(None, CPU)
    canvases = [bags.instances for bags in task.train_batches(0, generator("canvases"))]
    assert {len(part) for part in canvases} == {4}
    areas = torch.tensor([part.shape[2] * part.shape[3] for part in canvases]).double()
    # Two digits have canvases of 16 to 24 pixels a side, 400 on average: 200 for each digit, but for rounded sides.
    assert areas.mean() / digits == pytest.approx(200, rel=0.06)
    for bags in task._eval_splits["test"].bags[:3]:
        assert task.network(0)(bags.instances).shape[:2] == (len(bags), 11)


def test_canvases_for_two_digits_are_the_same_by_either_rule() -> None:
    fixed, proportional = (load_task("extended-digits", canvas=canvas) for canvas in ("fixed", "proportional"))
    for task in (fixed, proportional):
        task.evaluation_limit = FEW
        task.prepare(None, CPU)
    one, other = (task._eval_splits["test"].bags[0].instances for task in (fixed, proportional))  # type: ignore[attr-defined]
    assert torch.equal(one, other)


@pytest.mark.parametrize("split", ["seed", "fixed"])
def test_check_data_names_the_digits_and_needs_no_folder(split: str) -> None:
    task = load_task("extended-digits", split=split)
    assert task.check_data(Path("/nowhere")) == task.check_data(None)
    assert task.check_data(None).startswith("digits of scikit-learn, ")
    assert "sha256" in task.check_data(None)


def test_batches_of_the_real_digits(task: Any) -> None:
    batches = list(task.train_batches(0, generator("extended-digits", 0, 0)))
    assert [len(bags) for bags in batches] == [32] * 19 + [21]
    assert task.steps_per_epoch == 20
    counts = torch.cat([bags.truth.classes.flatten() for bags in batches]).bincount()
    assert torch.equal(counts, task.load(None).train.classes.bincount())  # every training digit once
    for bags in batches:
        assert all(16 <= side <= 24 for side in bags.instances.shape[2:])
        assert bags.instances.min() == 0
        assert bags.instances.max() == 1
    assert len({tuple(bags.instances.shape[2:]) for bags in batches}) > 5


def test_canvases_have_as_many_positions_as_documented_and_each_depends_on_17_pixels(task: Any) -> None:
    network = task.network(0)
    for side, positions in {8: 2, 16: 6, 20: 8, 24: 10}.items():
        assert network(torch.zeros(1, 1, side, side)).shape == (1, 11, positions, positions)
    canvas = torch.rand(1, 1, 41, 41, requires_grad=True)
    (grad,) = torch.autograd.grad(network(canvas)[0, 0, 9, 9], canvas)
    assert [len(set(axis.tolist())) for axis in grad[0, 0].nonzero().unbind(dim=1)] == [17, 17]


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"digits_per_bag": 0}, "digits_per_bag = 0 is wrong"),
        ({"digits_per_bag": 50}, "digits_per_bag = 50 is too large: at most 9 digits of 8 pixels fit side by side"),
        ({"bags_per_epoch": 99_999_999_999_999}, "bags_per_epoch = 99999999999999 is wrong.* 10000000"),
        ({"digits_per_bag": "two"}, "digits_per_bag = 'two' is wrong"),
        ({"digits_in_bag": 3}, "did you mean 'digits_per_bag'"),
        ({"canvas": "proportionate"}, "did you mean 'proportional'|canvas = 'proportionate' is wrong"),
        ({"batch_bags": 0}, "batch_bags = 0 is wrong"),
    ],
)
def test_bad_parameters(params: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load_task("extended-digits", **params)
    assert "\n" not in str(caught.value)


def test_intervals_are_to_hold_for_other_digits_where_seeds_split_the_same_ones() -> None:
    task: Any = load_task("extended-digits")
    splits = task.load(None)
    assert task.overlap(None) == len(splits.test) / len(splits.train)
    assert load_task("extended-digits", split="fixed").overlap(None) == 0
