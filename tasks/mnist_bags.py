"""MNIST-bags, sets of digits of which some hold a nine: M. Ilse, J. Tomczak and M. Welling, ICML 2018, Section 4.2."""

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


class MNISTBags(Task):
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
    format: BagFormat
    amount_parameter = "train_bags"
    eval_bags: ClassVar[dict[Split, int]] = {"validation": 200, "test": 1000}
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
        self.bag_size = bag_size
        self.train_bags = train_bags
        self.batch_bags = batch_bags
        self.fresh = fresh
        self.any_data = any_data
        self.data: image_sets.MnistName = data
        self.nine = labels == "nine"
        self.chance = 0.5 if self.nine else None
        every = image_sets.CLASS_NAMES[data]
        self.format = BagFormat(SIDE * SIDE, every[NINE:] if self.nine else every)

    def datasets(self) -> Sequence[str]:
        return () if self.any_data else (self.data,)

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
            train, test = (
                replace(part, classes=torch.where(part.classes == NINE, 0, 1))
                for part in (train, test)
            )
        trained = len(train) - min(VALIDATION_IMAGES, len(train) // 2)
        to_train = train[:trained]
        # Training images count from 0 on, then test images.
        to_evaluate: dict[Split, LabelledImages] = {
            "validation": train[trained:].numbered(trained),
            "test": test.numbered(len(train)),
        }
        num_classes = self.format.num_classes
        batches = ImageBatches(num_classes, single_at_once=500, bags_at_once=50)
        splits: dict[Split, EvalSplit] = {}
        for split, images in to_evaluate.items():
            # A single image tells nothing where nearly all of them are background.
            single = 0 if self.nine else limited(len(images), limit)
            bags = self.draw(images, limited(self.eval_bags[split], limit), split)
            splits[split] = batches.split(
                images.to(device),
                ChosenBags.in_order(torch.arange(single).split(1) if single else ()),
                ChosenBags.in_order(bags),
            )
        bags = self.draw(to_train, self.train_bags, "train", seed)
        return MNISTBagsProblem(
            task_name=self.name,
            seed=seed,
            format=self.format,
            typical_shape=(self.bag_size, SIDE * SIDE),
            batch_bags=self.batch_bags,
            splits=splits,
            max_labels=num_classes if self.fresh else batches.most_labels(to_train, bags),
            limit=limit,
            fill=partial(batches.filled, to_train.to(device)),
            bags=bags,
            draw_fresh=partial(self.draw, to_train, self.train_bags, "fresh")
            if self.fresh
            else None,
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

    def recipe(self) -> Recipe:
        # The authors' epochs; nothing was searched.
        return Recipe(lr=1e-3, weight_decay=1e-2, epochs=20, evaluate_every=20, precision="float32")


@dataclass(kw_only=True, eq=False, repr=False)
class MNISTBagsProblem(EvaluatedBags):
    """Sets of digits to train and to evaluate on; every epoch may have new ones to train on."""

    fill: Callable[[Sequence[Tensor]], Bags]
    """Makes a batch of bags from the numbers of the images of each."""
    bags: list[Tensor]
    """The numbers of the images of each training bag."""
    draw_fresh: Callable[[int], list[Tensor]] | None
    """Draws as many new training bags by a seed; None: they stay the same."""

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.bags) // self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        bags = self.bags
        if self.draw_fresh is not None:
            bags = self.draw_fresh(int(torch.randint(1 << 62, (), generator=rng)))
        order = draw_in_rounds(len(bags), len(bags), rng)
        for numbers in order.split(self.batch_bags):
            yield self.fill([bags[number] for number in numbers.tolist()])
