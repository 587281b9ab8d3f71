"""Fixed bags: bags of labelled images against values by hand, and problems of bags in memory."""

from collections import Counter

import numpy as np
import pytest
import torch

from milbench import Bags, FixedBags, Scores, Task, UsageError, generator, load_task
from milbench.data.labelled_images import LabelledImages
from milbench.families.fixed_bags import draw_in_rounds
from milbench.families.image_task import single_instance_bags
from tests._helpers.command_line import TINY


@pytest.fixture
def four_images() -> LabelledImages:
    """Images of 2 rows and 3 columns, whose pixels count from 0 to 23, of classes 0, 1, 2 and 0."""
    pixels = torch.arange(24).byte().view(4, 1, 2, 3)
    return LabelledImages(pixels, torch.tensor([0, 1, 2, 0]), white=255)


def test_an_image_is_a_bag_of_its_pixels(four_images: LabelledImages) -> None:
    bags = single_instance_bags(four_images, num_classes=3)
    assert bags.mask is None
    assert bags.instances.shape == (4, 1, 2, 3)
    # NumPy's quotients in float32.
    expected = np.arange(24, dtype=np.float32) / np.float32(255)
    assert bags.instances.flatten().tolist() == expected.tolist()


def test_the_label_set_of_an_image_is_its_class(four_images: LabelledImages) -> None:
    bags = single_instance_bags(four_images, num_classes=3)
    assert bags.labels.int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_one_instance_fills_an_image(four_images: LabelledImages) -> None:
    truth = single_instance_bags(four_images, num_classes=3).truth
    assert truth is not None
    assert truth.boxes is not None
    assert truth.classes.tolist() == [[0], [1], [2], [0]]
    # Left, top, right and bottom.
    assert truth.boxes.tolist() == [[[0, 0, 3, 2]]] * 4


@pytest.mark.parametrize(
    ("count", "least", "most"),
    [
        pytest.param(3, 0, 1, id="less than a round"),
        pytest.param(5, 1, 1, id="one round"),
        pytest.param(12, 2, 3, id="two rounds and a part"),
        pytest.param(50, 10, 10, id="ten rounds"),
    ],
)
def test_every_bag_is_used_before_any_is_used_again(count: int, least: int, most: int) -> None:
    order = draw_in_rounds(5, count, generator(0)).tolist()
    used = Counter(order)
    assert all(least <= used[number] <= most for number in range(5))
    assert sum(used.values()) == count


def test_rounds_have_orders_of_their_own() -> None:
    order = draw_in_rounds(5, 50, generator(0)).tolist()
    rounds = {tuple(order[start : start + 5]) for start in range(0, 50, 5)}
    assert len(rounds) > 5


def numbered_bags(first: int, count: int) -> Bags:
    """Bags of two instances, each of which is the number of its bag."""
    numbers = torch.arange(first, first + count).float()
    labels = torch.tensor([True, False, False]).expand(count, 3)
    return Bags(numbers.view(-1, 1, 1).expand(-1, 2, 2), labels)


@pytest.fixture
def tiny() -> Task:
    return load_task(TINY)


def in_memory(tiny: Task, *, limit: int | None = None) -> FixedBags:
    parts = {
        "train": numbered_bags(0, 10),
        "validation": numbered_bags(10, 4),
        "test": numbered_bags(20, 5),
    }
    return FixedBags.in_memory(tiny, parts, seed=3, batch_bags=4, limit=limit)


def test_an_epoch_has_every_bag_in_memory_once(tiny: Task) -> None:
    batches = list(in_memory(tiny).train_batches(0, generator("epoch")))
    assert [len(bags) for bags in batches] == [4, 4, 2]
    numbers = [int(number) for bags in batches for number in bags.instances[:, 0, 0]]
    assert sorted(numbers) == list(range(10))
    assert numbers != sorted(numbers)


def test_as_many_bags_are_evaluated_as_the_limit_says(tiny: Task) -> None:
    scored = list[float]()

    def score(bags: Bags) -> Scores:
        scored.extend(bags.instances[:, 0, 0].tolist())
        values = torch.zeros(len(bags), 3)
        return Scores(values, values, torch.full((len(bags), 4, 2), 0.25))

    problem = in_memory(tiny, limit=3)
    problem.evaluate(score)
    assert scored == [10, 11, 12, 20, 21, 22]
    assert problem.evaluation_size == 6
    assert in_memory(tiny).evaluation_size == 9


def test_sets_have_the_mean_number_of_instances_as_typical_shape(tiny: Task) -> None:
    one_instance = [True, False, False, False]
    four_instances = [True, True, True, True]
    mask = torch.tensor([one_instance] * 2 + [four_instances] * 4)
    bags = Bags(torch.zeros(6, 4, 2), torch.ones(6, 3, dtype=torch.bool), mask)
    problem = FixedBags.in_memory(tiny, {"train": bags, "test": bags}, seed=0)
    # (2 * 1 + 4 * 4) / 6 = 3 instances of 2 features.
    assert problem.typical_shape == (3, 2)


def test_bags_in_memory_need_a_format_of_the_task() -> None:
    task = load_task("feature-bags", table="mine.csv")
    with pytest.raises(UsageError, match="task feature-bags has no `format`"):
        FixedBags.in_memory(task, {}, seed=0)


def test_bags_in_memory_need_no_validation_bags(tiny: Task) -> None:
    parts = {"train": numbered_bags(0, 10), "test": numbered_bags(20, 5)}
    problem = FixedBags.in_memory(tiny, parts, seed=0)
    assert set(problem.splits) == {"test"}
    assert problem.calibration is not None, "thresholds are chosen on training bags"
    assert [len(bags) for bags in problem.calibration] == [10]


@pytest.mark.parametrize(
    ("evaluated", "shown"),
    [
        pytest.param({"validation": 10, "test": 20}, 20, id="test bags"),
        pytest.param({"validation": 10}, 10, id="validation bags without test bags"),
        pytest.param({}, 0, id="training bags alone"),
    ],
)
def test_the_gallery_shows_test_bags_or_others(
    tiny: Task, evaluated: dict[str, int], shown: int
) -> None:
    """`evaluated` has the number of the first bag of each part; training bags begin at 0."""
    parts = {name: numbered_bags(first, 5) for name, first in {"train": 0, **evaluated}.items()}
    gallery = FixedBags.in_memory(tiny, parts, seed=0).gallery()
    assert gallery.instances[:, 0, 0].tolist() == [shown + number for number in range(5)]


def test_an_unknown_part_of_bags_in_memory_is_named(tiny: Task) -> None:
    parts = {"train": numbered_bags(0, 10), "tset": numbered_bags(20, 5)}
    with pytest.raises(UsageError, match="unknown part of the bags of tiny 'tset'; did you mean"):
        FixedBags.in_memory(tiny, parts, seed=0)


def test_bags_in_memory_need_bags_to_train_on(tiny: Task) -> None:
    with pytest.raises(UsageError, match="the bags of tiny have no part 'train'"):
        FixedBags.in_memory(tiny, {"test": numbered_bags(20, 5)}, seed=0)
