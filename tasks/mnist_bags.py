"""MNIST-bags, sets of digits of which some hold a nine: M. Ilse, J. Tomczak and M. Welling, ICML 2018, Section 4.2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.network import Network, NetworkMaker
from milbench.api.recipe import Recipe
from milbench.api.task import Published, Split
from milbench.data import image_sets
from milbench.data.labelled_images import LabelledImages
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.fixed_bags import FixedBags, Lazy
from milbench.families.image_sets import filled
from milbench.networks.initialisation import initialise

VALIDATION_IMAGES = 5000
"""The last training images, of which validation bags are made."""
NINE = 9
SIDE = image_sets.MNIST_SIDE
ILSE_2018 = "M. Ilse, J. Tomczak and M. Welling, ICML 2018, arXiv:1802.04712, MNIST-bags"
_SINGLE_AT_ONCE, _BAGS_AT_ONCE = 500, 50
_SMALLEST = {"task.bag_size": 10, "task.train_bags": 50, "task.labels": "nine", "task.data": "mnist"}


def _published(value: float, method: str) -> Published:
    return Published(
        "", "auroc", value, ILSE_2018, rule="validation", protocol=_SMALLEST, method=method,
        note="Mean AUC of 10 instances a bag and 50 training bags; another network and recipe, see the task",
    )  # fmt: skip


class LeNet(Network):
    """The embedding of LeNet-5 for every image of a set (B, K, 784), then its class: logits (B, C+1, K).

    Y. LeCun et al., "Gradient-based learning applied to document recognition", Proceedings of the IEEE, 1998, with the
    widths of Ilse et al.: 20 and 50 channels, 500 features.
    """

    head: nn.Linear

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:  # noqa: ARG002
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 500), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(500, num_classes + 1)
        initialise(self, seed)

    def forward(self, instances: Tensor) -> Tensor:
        images = instances.reshape(-1, 1, SIDE, SIDE).contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.head(self.body(images))
        return logits.view(*instances.shape[:2], -1).transpose(1, 2)


class MNISTBags(FixedBags):
    """Find whether a set of digits holds a nine, or which digits it holds.

    As in Ilse, Tomczak and Welling (ICML 2018): the size of a bag is normally distributed with a standard deviation of
    a fifth of its mean (2, 10 and 20 for means of 10, 50 and 100), rounded, and 1 at least; images are drawn with
    replacement, from the training images for training bags and from the test images for 1,000 test bags, the same for
    all seeds. Half of the bags of each kind are positive, as in the authors' loader of balanced bags: a positive one is
    drawn until it holds a nine, and a negative one is drawn from the other digits.

    It differs in this: 200 validation bags are made of the last 5,000 training images, which no training bag has, to
    choose thresholds on; a batch has several bags; images are in [0, 1]; and losses learn from the class of each image,
    not from an embedding of the bag.

    Args:
        bag_size: the mean number of images in a bag.
        train_bags: the number of training bags, drawn once a seed; published are 50 to 500.
        labels: `nine`: the one class is the nine, all else is background. `all`: which of the ten classes occur; there
            is no background, and bags are not balanced. Single images are then evaluated as well.
        data: whose images: `mnist`, `fashion-mnist` or `kmnist`, see `extended-mnist`; "nine" is the last class.
        batch_bags: the number of bags in a training batch.
        fresh: whether every epoch has new training bags, `train_bags` of them.
        any_data: accept other images in such files; the results are then named non-canonical.
    """

    name = "mnist-bags"
    networks: ClassVar[Mapping[str, NetworkMaker]] = {"lenet": LeNet}
    inputs = SIDE * SIDE
    amount = "train_bags"
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 200, "test": 1000}
    published = (
        _published(0.768, "attention, Ilse et al."),
        _published(0.553, "instance + max, Ilse et al."),
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
        self.fresh = fresh
        self.typical_size = (bag_size,)
        self.training_count = train_bags
        self.nine = labels == "nine"
        self.num_classes = 1 if self.nine else 10
        self.chance = 0.5 if self.nine else None
        self.data: image_sets.MnistName = data
        self.batch_bags = batch_bags
        self.any_data = any_data

    @property
    def class_names(self) -> list[str]:
        return image_sets.class_names(self.data)[-self.num_classes :]

    def check_data(self, data_dir: Path | None) -> str:
        return image_sets.check(self.data, data_dir, self.any_data)

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        train, test = image_sets.load(self.data, data_dir)
        held_out = min(VALIDATION_IMAGES, len(train) // 2)
        self._images = train[: len(train) - held_out].to(device)
        self._bags = self.draw(self._images, self.training_count, "train", self.seed)
        sets = [self._filled(self._images, [bag]).labels for bag in self._bags]
        self.max_labels = self.num_classes if self.fresh else int(max(labels.sum() for labels in sets))
        parts: dict[Split, LabelledImages] = {"validation": train[len(train) - held_out :], "test": test}
        self.eval_splits = {}
        for split, images in parts.items():
            count = len(range(self.eval_bags[split])[: self.evaluation_limit])
            placed = images.to(device)
            self.eval_splits[split] = self._evaluated(placed, self.draw(placed, count, split))

    def draw(self, images: LabelledImages, count: int, *axes: object) -> list[Tensor]:
        """Return the numbers of the images of `count` bags; every other bag is positive where the nine is the class."""
        rng = generator(self.name, self.revision, self.bag_size, self.nine, *axes)
        is_nine = images.classes.cpu() == NINE
        everything, others = torch.arange(len(images)), (~is_nine).nonzero().flatten()
        bags: list[Tensor] = []
        for number in range(count):
            size = max(1, round(float(self.bag_size * (1 + torch.randn((), generator=rng) / 5))))
            positive = self.nine and number % 2 == 0
            source = everything if positive or not self.nine else others
            while True:
                bag = source[torch.randint(len(source), (size,), generator=rng)]
                if not positive or is_nine[bag].any():
                    break
            bags.append(bag)
        return bags

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        if self.fresh:
            axis = int(torch.randint(1 << 62, (), generator=rng))
            self._bags = self.draw(self._images, self.training_count, "fresh", axis)
        yield from super().train_batches(epoch, rng)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG002
        return self._filled(self._images, [self._bags[n] for n in numbers.tolist()])

    def recipe(self) -> Recipe:
        """Return one-cycle AdamW, with the epochs of the authors' program; nothing was searched."""
        return Recipe(lr=1e-3, weight_decay=1e-2, epochs=20, evaluate_every=20, precision="float32")

    def _evaluated(self, images: LabelledImages, bags: Sequence[Tensor]) -> EvalSplit:
        fill = partial(self._filled, images)
        single = [] if self.nine else [torch.tensor([n]) for n in range(len(images))[: self.evaluation_limit]]
        return EvalSplit(Lazy.of(single, _SINGLE_AT_ONCE, fill), Lazy.of(bags, _BAGS_AT_ONCE, fill))

    def _filled(self, images: LabelledImages, bags: Sequence[Tensor]) -> Bags:
        if self.nine:
            images = replace(images, classes=torch.where(images.classes == NINE, 0, 1))
        return filled(images, bags, self.num_classes)
