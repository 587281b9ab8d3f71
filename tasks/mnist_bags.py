"""MNIST-bags, sets of digits of which some hold a nine: M. Ilse, J. Tomczak and M. Welling, ICML 2018, Section 4.2."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from milbench import Bags, LabelledImages, NetworkMaker, Published, Recipe, Split, generator
from milbench.data import image_sets

from ._image_sets import ChosenBags, EveryImage, ImageSets

VALIDATION_IMAGES = 5000  # the last ones to train on, of which validation bags are made
NINE = 9
SIDE = image_sets.MNIST_SIDE
ILSE_2018 = "M. Ilse, J. Tomczak and M. Welling, ICML 2018, arXiv:1802.04712, MNIST-bags"
_NOTE = (
    "Mean AUC of 10 instances a bag and 50 training bags; another network and recipe, see the task"
)
_SMALLEST = {
    "task.bag_size": 10, "task.train_bags": 50, "task.labels": "nine", "task.data": "mnist", "task.fresh": False
}  # fmt: skip


class LeNet(EveryImage):
    """The embedding of LeNet-5 for every image of a set (B, K, 784), then its class: logits (B, C+1, K).

    Y. LeCun et al., "Gradient-based learning applied to document recognition", Proceedings of the IEEE, 1998, with the
    widths of Ilse et al.: 20 and 50 channels, 500 features.
    """

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:  # noqa: ARG002
        body = nn.Sequential(
            nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 500), nn.ReLU(),
        )  # fmt: skip
        super().__init__(body, (SIDE, SIDE), 500, num_classes, seed)


class MNISTBags(ImageSets):
    """Find whether a set of digits holds a nine, or which digits it holds.

    As in Ilse, Tomczak and Welling (ICML 2018) the size of a bag is normally distributed with a standard deviation of
    a fifth of its mean, rounded, and 1 at least; images are drawn with replacement, from the training images, and from
    the test images for 1,000 test bags, the same for all seeds. Half of the bags are positive, as in the authors'
    loader of balanced bags: these are drawn until they hold a nine, and negative ones from the other digits.

    It differs in this: thresholds are chosen on 200 validation bags of the last 5,000 training images, which no
    training bag has; a batch has several bags; images are in [0, 1]; and losses learn from the class of each image, not
    from an embedding of the bag.

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
    eval_batches = 500, 50
    published = tuple(
        Published(
            "auroc",
            value,
            ILSE_2018,
            method=method,
            rule="validation",
            protocol=_SMALLEST,
            note=_NOTE,
        )
        for method, value in (
            ("attention, Ilse et al.", 0.768),
            ("instance + max, Ilse et al.", 0.553),
        )
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
        self.bag_size, self.typical_size = bag_size, (bag_size,)
        self.training_count, self.batch_bags, self.fresh, self.any_data = (
            train_bags,
            batch_bags,
            fresh,
            any_data,
        )
        self.nine = labels == "nine"
        self.num_classes, self.chance = (1, 0.5) if self.nine else (10, None)
        self.data: image_sets.MnistName = data

    @property
    def class_names(self) -> list[str]:
        return image_sets.class_names(self.data)[-self.num_classes :]

    def datasets(self) -> Sequence[str]:
        return () if self.any_data else (self.data,)

    def check_data(self, data_dir: Path | None) -> str:
        return image_sets.check(self.data, data_dir, self.any_data)

    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        train, test = image_sets.load(self.data, data_dir)
        if self.nine:
            train, test = (
                replace(part, classes=torch.where(part.classes == NINE, 0, 1))
                for part in (train, test)
            )
        trained = len(train) - min(VALIDATION_IMAGES, len(train) // 2)
        self.train_on(
            train[:trained],
            self.draw(train[:trained], self.training_count, "train", self.seed),
            device,
        )
        if self.fresh:
            self.max_labels = self.num_classes
        # Training images count from 0 on, then test images.
        parts: dict[Split, LabelledImages] = {
            "validation": train[trained:].numbered(trained),
            "test": test.numbered(len(train)),
        }
        self.eval_splits = {}
        for split, images in parts.items():
            single = [] if self.nine else [*torch.arange(self.limited(len(images))).split(1)]
            bags = self.draw(images, self.limited(self.eval_bags[split]), split)
            self.eval_splits[split] = self.split(
                images.to(device), ChosenBags.in_order(single), ChosenBags.in_order(bags)
            )

    def draw(self, images: LabelledImages, count: int, *axes: object) -> list[Tensor]:
        """Return the numbers of the images of `count` bags; every other bag is positive where the nine is the class."""
        rng = generator(self.name, self.revision, self.bag_size, self.nine, *axes)
        is_nine = images.classes == 0  # where `all` are classes, this does not matter
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

    def recipe(self) -> Recipe:  # the authors' epochs; nothing was searched
        return Recipe(lr=1e-3, weight_decay=1e-2, epochs=20, evaluate_every=20, precision="float32")
