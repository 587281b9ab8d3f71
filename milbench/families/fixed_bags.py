"""Bags that stay the same: numbered ones to train on, in random order, and splits to evaluate on."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Origin, Truth
from milbench.api.task import Evaluation, ScoreFunction, Split, Task
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags, label_sets

T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence whose items are made on access from parts, such as batches from the numbers of their bags."""

    def __init__(self, parts: Sequence[Any], make: Callable[[Any], T]) -> None:
        self.parts, self.make = parts, make

    @classmethod
    def of(cls, data: Any, size: int, as_bags: Callable[[Any], T]) -> Self:
        """Return batches of `size` of a sequence; the last one may be smaller."""
        return cls(range(0, len(data), size), lambda start: as_bags(data[start : start + size]))

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, n: Any) -> Any:
        return self.make(self.parts[n])


def draw_in_rounds(items: int, count: int, rng: torch.Generator) -> Tensor:
    """Return (count,) numbers of items in random order, every one before any again."""
    rounds = -(-count // items)
    return torch.cat([torch.randperm(items, generator=rng) for _ in range(rounds)])[:count]


def make_truth(instances: Sequence[Sequence[tuple[int, Sequence[float]]]], most: int) -> Truth:
    """Return the truth about bags of up to `most` things, each one given by its class and its box."""
    classes, boxes = torch.full((len(instances), most), -1), torch.zeros(len(instances), most, 4)
    for bag, members in enumerate(instances):
        for place, (cls, box) in enumerate(members):
            classes[bag, place], boxes[bag, place] = cls, torch.tensor(box)
    return Truth(classes, boxes)


def make_origin(items: Sequence[Tensor]) -> Origin:
    """Return the origin of bags numbered from 0, by the numbers (n,) of the items of each."""
    padded = pad_sequence(list(items), batch_first=True, padding_value=-1)
    return Origin(torch.arange(len(items)), items=padded)


class FixedBags(Task):
    """Base class of tasks that evaluate on fixed bags, and train on numbered ones unless they draw new ones.

    A subclass sets these, at the latest in `prepare`.
    """

    training_count: int  # how many bags there are to train on
    bags_per_epoch: int | None = (
        None  # how many of them an epoch has, cycling through all of them; None: each once
    )
    batch_bags: int
    eval_splits: dict[
        Split, EvalSplit
    ]  # the bags to validate on and those to test on, if there are any
    calibration: Sequence[Bags] | None = (
        None  # to train on, by which thresholds are chosen without a validation split
    )

    @property
    def steps_per_epoch(self) -> int:
        return -(-(self.bags_per_epoch or self.training_count) // self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        order = draw_in_rounds(self.training_count, self.bags_per_epoch or self.training_count, rng)
        for numbers in order.split(self.batch_bags):
            yield self.training_batch(numbers, rng)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:
        """Return the training bags of some numbers (B,), changed by draws from `rng` where the task does so."""
        raise NotImplementedError

    @cached_property
    def training_labels(self) -> Tensor:
        """Label sets of training bags (N, C), to choose the best constant answer by: see `about_training`."""
        return label_sets(self.train_batches(0, generator(self.name, "no skill", self.seed)))

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        limit, labels = self.evaluation_limit, self.training_labels
        return evaluate_bags(
            score, self.eval_splits, self.calibration, limit=limit, training_labels=labels
        )

    def evaluation_size(self, limit: int | None) -> int:
        kinds = [*(split.bags for split in self.eval_splits.values()), self.calibration or ()]
        counts = [len(batches) * len(batches[0]) for batches in kinds if len(batches)]
        return sum(min(count, limit or count) for count in counts)

    def limited(self, count: int) -> int:
        """Return how many of `count` bags are evaluated on."""
        return min(count, self.evaluation_limit or count)

    def gallery(self) -> Bags:
        """Return test bags that differ, or training bags where there are none."""
        batches = self.eval_splits["test"].bags if self.is_tested else self.calibration
        assert batches is not None  # noqa: S101 without test bags no bag is for validation either
        bags = batches[0]
        return bags.selected(differing(bags.labels, 8))


def differing(labels: Tensor, count: int) -> Tensor:
    """Return numbers of bags that differ, (count,) or fewer, from their label sets (N, C) bool.

    The bag with most classes comes first, then always one with most classes that are not among those chosen.
    """
    left, chosen = labels.cpu().numpy().astype(int), []
    for _ in range(min(count, len(left))):
        chosen.append(int(left.sum(axis=1).argmax()))
        left[:, left[chosen[-1]] > 0] = 0
        left[chosen] = -1
    return torch.tensor(chosen)
