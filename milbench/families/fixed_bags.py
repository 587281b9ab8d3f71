"""Problems whose bags stay the same in every epoch, and helpers to make bags and batches."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milbench._utils.devices import to_device
from milbench._utils.seeding import generator
from milbench.contracts.bags import Bags, Origin, Truth
from milbench.contracts.network import BagKind
from milbench.contracts.problem import (
    EvalSplit,
    Evaluation,
    Problem,
    ScoreFunction,
    Split,
    count_bags,
)
from milbench.contracts.task import Task
from milbench.data.in_order import prefetched
from milbench.errors import UsageError, one_of
from milbench.evaluation.evaluate import evaluate_bags, label_sets

T = TypeVar("T")
SHOWN = 8
"""The most bags of a gallery, the pictures of bags in a report."""


class Lazy(Sequence[T]):
    """A sequence whose items are made when they are accessed.

    Item n is `make(parts[n])`, such as a batch that is made from the numbers of its bags.
    """

    def __init__(self, parts: Sequence[Any], make: Callable[[Any], T]) -> None:
        self.parts = parts
        self.make = make

    @classmethod
    def of(cls, data: Any, size: int, as_bags: Callable[[Any], T]) -> Self:
        """Return a sequence of batches of `size` items of `data`; the last one may be smaller.

        `as_bags` makes a batch from a slice of `data`.
        """

        def make_batch(start: int) -> T:
            return as_bags(data[start : start + size])

        return cls(range(0, len(data), size), make_batch)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, n: Any) -> Any:
        return self.make(self.parts[n])


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`; the last one may be shorter."""
    # `itertools.batched` does this from Python 3.12 on.
    remaining = iter(items)
    batch = list(islice(remaining, size))
    while batch:
        yield batch
        batch = list(islice(remaining, size))


def draw_in_rounds(items: int, count: int, rng: torch.Generator) -> Tensor:
    """Return `count` indices of items, in random order.

    Every item occurs once before any occurs again.
    """
    num_rounds = math.ceil(count / items)
    rounds = [torch.randperm(items, generator=rng) for _ in range(num_rounds)]
    return torch.cat(rounds)[:count]


def make_truth(boxes_of_bags: Sequence[Sequence[tuple[int, Sequence[float]]]], most: int) -> Truth:
    """Return the truth about bags in which there are boxes, each with a class.

    Args:
        boxes_of_bags: for each bag, the class and the box of each thing or event in the bag. A box
            has four numbers, as in `Truth.boxes`.
        most: a number of boxes that no bag exceeds. Bags with fewer boxes are filled up with boxes
            of the class -1, which stands for no class.
    """
    classes = torch.full((len(boxes_of_bags), most), -1)
    boxes = torch.zeros(len(boxes_of_bags), most, 4)
    for bag, boxes_of_bag in enumerate(boxes_of_bags):
        for number, (cls, box) in enumerate(boxes_of_bag):
            classes[bag, number] = cls
            boxes[bag, number] = torch.tensor(box)
    return Truth(classes, boxes)


def make_origin(items: Sequence[Tensor]) -> Origin:
    """Return the origin of bags that are numbered from 0.

    `items` has for each bag the numbers (n,) of the items of which it is made. In the result, bags
    of fewer items are filled up with -1.
    """
    padded = pad_sequence(list(items), batch_first=True, padding_value=-1)
    return Origin(torch.arange(len(items)), items=padded)


def limited(count: int, limit: int | None) -> int:
    """Return how many of `count` bags are evaluated with a limit; None: no limit."""
    return count if limit is None else min(count, limit)


@dataclass(kw_only=True, eq=False, repr=False)
class EvaluatedBags(Problem):
    """A problem with fixed bags to evaluate on; a subclass makes the training batches.

    Batches to evaluate on may be `Lazy`: they are then made when they are used.
    """

    calibration: Sequence[Bags] | None = None
    """Training bags on which thresholds are chosen where there is no validation split."""
    training_labels: Tensor | None = None
    """(N, C) bool, label sets of training bags, from which the errors of no skill are computed.

    No skill is the best answer that is the same for every bag. None: the label sets are taken from
    the first training batches.
    """
    limit: int | None = None
    """The most bags of each split, and of each split's bags of one instance; None: all."""

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        return evaluate_bags(
            score,
            self.splits,
            self.calibration,
            limit=self.limit,
            training_labels=self.labels_for_no_skill,
        )

    @cached_property
    def labels_for_no_skill(self) -> Tensor:
        """(N, C) bool, label sets of training bags, for the errors of no skill."""
        if self.training_labels is not None:
            return self.training_labels
        rng = generator(self.task_name, "no skill", self.seed)
        return label_sets(self.train_batches(0, rng))

    @property
    def evaluation_size(self) -> int:
        evaluated = [split.bags for split in self.splits.values()]
        if self.calibration is not None:
            evaluated.append(self.calibration)
        return sum(limited(count_bags(batches), self.limit) for batches in evaluated)

    def gallery(self) -> Bags:
        """Return bags with different classes.

        They are test bags if there are any, and otherwise the bags on which thresholds are chosen,
        which are training or validation bags.
        """
        if "test" in self.splits:
            batches = self.splits["test"].bags
        elif self.calibration is not None:
            batches = self.calibration
        else:
            batches = self.splits["validation"].bags
        bags = batches[0]
        return bags.selected(differing(bags.labels, SHOWN))


@dataclass(kw_only=True, eq=False, repr=False)
class FixedBags(EvaluatedBags):
    """A problem whose bags stay the same, those to train on and those to evaluate on.

    An epoch has the training bags in a random order. `FixedBags.in_memory` makes a problem of bags
    that are in memory. For other bags, `make_batch` makes each training batch when it is needed.
    """

    training_count: int
    """How many bags there are to train on."""
    make_batch: Callable[[Tensor, torch.Generator], Bags]
    """A function that makes a batch of training bags, given their numbers (B,), from 0 on.

    It may change bags at random, by random numbers of the generator that it is given.
    """
    bags_per_epoch: int | None = None
    """How many training bags an epoch has; None: each bag once.

    All bags are used once before any is used again.
    """
    prefetches: bool = False
    """Whether a thread makes the next batch while the network trains on the present one.

    It saves time where bags are read from files.
    """

    @classmethod
    def in_memory(
        cls,
        task: Task,
        parts: Mapping[str, Bags],
        *,
        seed: int,
        batch_bags: int = 32,
        limit: int | None = None,
    ) -> Self:
        """Return a problem of bags that are in memory.

        The bags must be on the device of the network already: batches are not moved.

        Args:
            task: the task of the bags, which has a `format`.
            parts: the bags of `train`, and of `validation` and `test` where there are any. Without
                `validation`, thresholds are chosen on training bags.
            seed: the seed by which the bags were split into these parts.
            batch_bags: the number of bags of a training batch.
            limit: the most bags of each split to evaluate on; None: all.
        """
        if task.format is None:
            raise UsageError(f"task {task.name} has no `format`, which its bags need")
        for name in parts:
            one_of(f"part of the bags of {task.name}", name, ("train", "validation", "test"))
        if "train" not in parts:
            raise UsageError(f"the bags of {task.name} have no part 'train'")
        train = parts["train"]
        splits: dict[Split, EvalSplit] = {}
        if "validation" in parts:
            splits["validation"] = EvalSplit((), [parts["validation"]])
        if "test" in parts:
            splits["test"] = EvalSplit((), [parts["test"]])

        def make_batch(numbers: Tensor, rng: torch.Generator) -> Bags:  # noqa: ARG001
            # An index has to be on the device of what it selects from.
            return train.selected(to_device(numbers, train.labels.device))

        return cls(
            task_name=task.name,
            seed=seed,
            format=task.format,
            typical_shape=_mean_shape(train, task.bag_kind),
            batch_bags=batch_bags,
            splits=splits,
            calibration=None if "validation" in splits else [train],
            max_labels=int(train.labels.sum(dim=1).max()),
            training_count=len(train),
            make_batch=make_batch,
            training_labels=train.labels,
            limit=limit,
        )

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self._epoch_bags / self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        batches = self._in_random_order(rng)
        if self.prefetches:
            batches = prefetched(batches)
        yield from batches

    def _in_random_order(self, rng: torch.Generator) -> Iterator[Bags]:
        """Yield the training batches of an epoch, with bags in random order."""
        order = draw_in_rounds(self.training_count, self._epoch_bags, rng)
        for numbers in order.split(self.batch_bags):
            yield self.make_batch(numbers, rng)

    @property
    def _epoch_bags(self) -> int:
        """How many training bags an epoch has."""
        return self.bags_per_epoch or self.training_count


def _mean_shape(bags: Bags, kind: BagKind) -> tuple[int, ...]:
    """Return the shape of the instances of a typical bag.

    A set has the mean number of instances, and a sequence the mean number of frames.
    """
    shape = tuple(bags.instances.shape[1:])
    # Without a mask all bags have this shape. Images with a mask are all padded to it.
    if bags.mask is None or kind == "images":
        return shape
    mean_size = max(1, round(float(bags.mask.sum(dim=1).double().mean())))
    if kind == "sets":
        _, features = shape
        return mean_size, features
    features, _ = shape
    return features, mean_size


def differing(labels: Tensor, count: int) -> Tensor:
    """Return the indices of up to `count` bags that together have many classes.

    The bag with the most classes comes first. Each further bag is the one with the most classes
    that no bag before it has. `labels` (N, C) are the label sets.
    """
    has_class = labels.bool().cpu().numpy()
    is_covered = np.zeros(has_class.shape[1], dtype=bool)
    chosen: list[int] = []
    for _ in range(min(count, len(has_class))):
        uncovered = (has_class & ~is_covered).sum(axis=1)
        # A bag is not chosen again.
        uncovered[chosen] = -1
        best = int(uncovered.argmax())
        chosen.append(best)
        is_covered |= has_class[best]
    return torch.tensor(chosen)
