"""MNIST-bags, sets of digits of which some hold a nine.

M. Ilse, J. Tomczak and M. Welling, ICML 2018, Section 4.2.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from milbench import (
    BagFormat,
    Bags,
    EvalSplit,
    LabelledImages,
    NetworkMaker,
    Published,
    Recipe,
    Split,
    Task,
    generator,
)
from milbench.contracts.task import CPU
from milbench.data import image_sets
from milbench.families.fixed_bags import EvaluatedBags, draw_in_rounds, limited

from ._image_sets import ChosenBags, EveryImage, ImageBatches

VALIDATION_IMAGES = 5000
"""How many of the training images validation bags are made of: the last ones."""
NINE = 9
SIDE = image_sets.MNIST_SIDE
ILSE_2018 = "M. Ilse, J. Tomczak and M. Welling, ICML 2018, arXiv:1802.04712, MNIST-bags"
_SMALLEST = {
    "task.bag_size": 10,
    "task.train_bags": 50,
    "task.labels": "nine",
    "task.data": "mnist",
    "task.fresh": False,
}
"""The smallest bags, and the fewest training bags, for which the paper has results."""


def _published(method: str, auc: float) -> Published:
    """Return the published AUC of a method on the task with the smallest bags."""
    note = (
        "Mean AUC of 10 instances a bag and 50 training bags; "
        "another network and recipe, see the task"
    )
    return Published(
        "auroc",
        auc,
        ILSE_2018,
        method=method,
        rule="validation",
        protocol=_SMALLEST,
        note=note,
    )


class LeNet(EveryImage):
    """The layers of LeNet-5 for every image of a set by itself.

    The input is (B, K, 784), and the output logits (B, C+1, K).

    Y. LeCun et al., "Gradient-based learning applied to document recognition", Proceedings of the
    IEEE, 1998, with the widths of Ilse et al.: 20 and 50 channels, 500 features.
    """

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:  # noqa: ARG002
        # 28 pixels become 24, 12, 8 and then 4.
        features_after_pooling = 50 * 4 * 4
        hidden = 500
        body = nn.Sequential(
            nn.Conv2d(1, 20, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(features_after_pooling, hidden),
            nn.ReLU(),
        )
        super().__init__(body, (SIDE, SIDE), hidden, num_classes, seed)


class MNISTBags(Task):
    """Find whether a set of digits holds a nine, or which digits it holds.

    The task follows Ilse, Tomczak and Welling (ICML 2018). The size of a bag is normally
    distributed with a standard deviation of a fifth of its mean, rounded, and at least 1. Images
    are chosen at random with replacement: training images for training bags, and test images for
    the 1,000 test bags, which are the same for all seeds. Half of the bags are positive, as in the
    authors' loader of balanced bags: a positive bag is chosen again until it holds a nine, and a
    negative bag is chosen from the other digits.

    It differs from the paper in four points. Thresholds are chosen on 200 validation bags made of
    the last 5,000 training images, which are in no training bag. A batch has several bags. Pixels
    are in [0, 1]. Losses learn from logits of each image, not from an embedding of the bag.

    Args:
        bag_size: the mean number of images in a bag.
        train_bags: the number of training bags, made once for a seed. The paper has 50 to 500.
        labels: `nine`: the only class is the nine, and the other digits are background. `all`: the
            classes are the ten digits; there is no background, and bags are not balanced. Single
            images are then evaluated as well.
        data: which images: `mnist`, `fashion-mnist` or `kmnist`, as in `extended-mnist`. For the
            last two, "nine" is the last class.
        batch_bags: the number of bags in a training batch.
        fresh: whether every epoch has `train_bags` new training bags.
        any_data: accept other images in such files; the results are then named non-canonical.
    """

    name = "mnist-bags"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"lenet": LeNet}
    format: BagFormat
    amount_parameter = "train_bags"
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 200, "test": 1000}
    published = (
        _published("attention, Ilse et al.", auc=0.768),
        _published("instance + max, Ilse et al.", auc=0.553),
    )

    def __init__(
        self,
        bag_size: Annotated[int, Field(ge=1, le=10_000)] = 10,
        train_bags: Annotated[int, Field(ge=2)] = 200,
        labels: Literal["nine", "all"] = "nine",
        data: image_sets.MnistName = "mnist",
        batch_bags: Annotated[int, Field(ge=1)] = 4,
        fresh: bool = False,
        any_data: bool = False,
    ) -> None:
        self.bag_size = bag_size
        self.train_bags = train_bags
        self.batch_bags = batch_bags
        self.fresh = fresh
        self.any_data = any_data
        self.data: image_sets.MnistName = data
        self.nine = labels == "nine"
        self.chance = 0.5 if self.nine else None
        class_names = image_sets.CLASS_NAMES[data]
        if self.nine:
            class_names = class_names[NINE:]
        self.format = BagFormat(SIDE * SIDE, class_names)

    def datasets(self) -> Sequence[str]:
        if self.any_data:
            return ()
        return (self.data,)

    def check_data(self, data_dir: Path | None) -> str:
        return image_sets.check(self.data, data_dir, self.any_data)

    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> "MNISTBagsProblem":
        train, test = image_sets.load(self.data, data_dir)
        if self.nine:
            train = _nine_or_background(train)
            test = _nine_or_background(test)
        num_validated = min(VALIDATION_IMAGES, len(train) // 2)
        num_trained = len(train) - num_validated
        to_train = train[:num_trained]
        # Images get numbers that differ between splits: training images from 0 on, then the test
        # images.
        to_validate = train[num_trained:].numbered(num_trained)
        to_test = test.numbered(len(train))
        num_classes = self.format.num_classes
        batches = ImageBatches(num_classes, single_at_once=500, bags_at_once=50)
        splits: dict[Split, EvalSplit] = {
            "validation": self._eval_split(batches, to_validate, "validation", device, limit),
            "test": self._eval_split(batches, to_test, "test", device, limit),
        }
        bags = self.draw(to_train, self.train_bags, "train", seed)
        max_labels = batches.most_labels(to_train, bags)
        draw_fresh = None
        if self.fresh:
            # The bags of later epochs may have more classes than those of the first one.
            max_labels = num_classes
            draw_fresh = partial(self.draw, to_train, self.train_bags, "fresh")
        return MNISTBagsProblem(
            task_name=self.name,
            seed=seed,
            format=self.format,
            typical_shape=(self.bag_size, SIDE * SIDE),
            batch_bags=self.batch_bags,
            splits=splits,
            max_labels=max_labels,
            limit=limit,
            fill=partial(batches.filled, to_train.to(device)),
            bags=bags,
            draw_fresh=draw_fresh,
        )

    def _eval_split(
        self,
        batches: ImageBatches,
        images: LabelledImages,
        split: Split,
        device: torch.device,
        limit: int | None,
    ) -> EvalSplit:
        """Return the bags of a split, and its single images if these are evaluated."""
        bags = self.draw(images, limited(self.eval_bags[split], limit), split)
        single: Sequence[Tensor] = ()
        # With `nine` single images are left out, since nine in ten would be background.
        if not self.nine:
            single = torch.arange(limited(len(images), limit)).split(1)
        return batches.split(
            images.to(device), ChosenBags.in_order(single), ChosenBags.in_order(bags)
        )

    def draw(self, images: LabelledImages, count: int, *axes: object) -> list[Tensor]:
        """Return the numbers of the images of each of `count` bags, by a seed from the axes.

        If the nine is the only class, every other bag is positive, beginning with the first.
        """
        rng = generator(self.name, self.revision, self.bag_size, self.nine, *axes)
        all_images = torch.arange(len(images))
        # `_nine_or_background` has made the nine class 0. Only bags with this one class use it.
        is_nine = images.classes == 0
        other_images = (~is_nine).nonzero().flatten()
        bags: list[Tensor] = []
        for number in range(count):
            size = self._draw_size(rng)
            if not self.nine:
                bag = _draw_images(all_images, size, rng)
            elif number % 2:
                bag = _draw_images(other_images, size, rng)
            else:
                bag = _draw_images(all_images, size, rng)
                while not is_nine[bag].any():
                    bag = _draw_images(all_images, size, rng)
            bags.append(bag)
        return bags

    def _draw_size(self, rng: torch.Generator) -> int:
        """Return a random size of a bag.

        It is normal with a standard deviation of a fifth of the mean, rounded, and at least 1.
        """
        size = self.bag_size * (1 + torch.randn((), generator=rng) / 5)
        return max(1, round(float(size)))

    def recipe(self) -> Recipe:
        # The number of epochs is the authors'. No setting was searched for.
        return Recipe(lr=1e-3, weight_decay=1e-2, epochs=20, evaluate_every=20, precision="float32")


def _nine_or_background(images: LabelledImages) -> LabelledImages:
    """Return the images with two classes: 0 for the nine, and 1, the background, for the others."""
    return replace(images, classes=torch.where(images.classes == NINE, 0, 1))


def _draw_images(source: Tensor, size: int, rng: torch.Generator) -> Tensor:
    """Return a random sample of `size` numbers from `source`, with replacement."""
    return source[torch.randint(len(source), (size,), generator=rng)]


@dataclass(kw_only=True, eq=False, repr=False)
class MNISTBagsProblem(EvaluatedBags):
    """Sets of digits to train and to evaluate on. Every epoch may have new training bags."""

    fill: Callable[[Sequence[Tensor]], Bags]
    """Makes a batch of bags from the numbers of the images of each bag."""
    bags: list[Tensor]
    """The numbers of the images of each training bag."""
    draw_fresh: Callable[[int], list[Tensor]] | None
    """Makes the training bags of an epoch from a seed; None: every epoch has the same bags."""

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.bags) / self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        bags = self.bags
        if self.draw_fresh is not None:
            seed_of_epoch = int(torch.randint(1 << 62, (), generator=rng))
            bags = self.draw_fresh(seed_of_epoch)
        order = draw_in_rounds(len(bags), len(bags), rng)
        for numbers in order.split(self.batch_bags):
            yield self.fill([bags[number] for number in numbers.tolist()])
