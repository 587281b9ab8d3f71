"""Bags that stay the same: numbered ones to train on, in random order, and splits to evaluate on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar, overload

import torch
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.api.bags import Bags, Truth
from milbench.api.task import Evaluation, ScoreFunction, Split, Task
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags
from milbench.evaluation.no_skill import label_sets

T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence whose items are made on access from parts, such as batches from the numbers of their bags."""

    def __init__(self, parts: Sequence[Any], make: Callable[[Any], T]) -> None:
        self.parts, self.make = parts, make

    @classmethod
    def of(cls, data: Any, size: int, as_bags: Callable[[Any], T], which: Tensor | None = None) -> Self:
        """Return batches of `size` of a sequence, or of its items `which`; the last one may be smaller."""
        starts = range(0, len(data) if which is None else len(which), size)
        parts = [slice(n, n + size) if which is None else which[n : n + size] for n in starts]
        return cls(parts, lambda part: as_bags(data[part]))

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, n: int) -> T: ...
    @overload
    def __getitem__(self, n: slice) -> Lazy[T]: ...
    def __getitem__(self, n: int | slice) -> T | Lazy[T]:
        return Lazy(self.parts[n], self.make) if isinstance(n, slice) else self.make(self.parts[n])


def in_rounds(items: int, count: int, rng: torch.Generator) -> Tensor:
    """Return (count,) numbers of items in random order, every one before any again."""
    rounds = -(-count // items)
    return torch.cat([torch.randperm(items, generator=rng) for _ in range(rounds)])[:count]


def truth_of(instances: Sequence[Sequence[tuple[int, Sequence[float]]]], most: int) -> Truth:
    """Return the truth about bags of up to `most` things, each one given by its class and its box."""
    classes, boxes = torch.full((len(instances), most), -1), torch.zeros(len(instances), most, 4)
    for bag, members in enumerate(instances):
        for place, (cls, box) in enumerate(members):
            classes[bag, place], boxes[bag, place] = cls, torch.tensor(box)
    return Truth(classes, boxes)


class FixedBags(Task):
    """Base class of tasks that evaluate on fixed bags, and train on numbered ones unless they draw new ones.

    A subclass sets the following, at the latest in `prepare`.
    """

    training_count: int
    """How many bags there are to train on."""
    bags_per_epoch: int | None = None
    """How many of them an epoch has, cycling through all of them; None: each once."""
    batch_bags: int
    eval_splits: dict[Split, EvalSplit]
    """The bags to validate on, if there are any, and those to test on."""
    calibration: Sequence[Bags] | None = None
    """Training bags that thresholds are chosen on where there are none to validate on."""

    @property
    def steps_per_epoch(self) -> int:
        """The last batch of an epoch may be smaller."""
        return -(-(self.bags_per_epoch or self.training_count) // self.batch_bags)

    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:  # noqa: ARG002
        order = in_rounds(self.training_count, self.bags_per_epoch or self.training_count, rng)
        for numbers in order.split(self.batch_bags):
            yield self.training_batch(numbers, rng)

    def training_batch(self, numbers: Tensor, rng: torch.Generator) -> Bags:
        """Return the training bags of some numbers (B,), changed by draws from `rng` where the task does so."""
        raise NotImplementedError

    @cached_property
    def training_labels(self) -> Tensor:
        """Label sets of training bags (N, C), to choose the best constant answer by: see `no_skill_errors`."""
        return label_sets(self.train_batches(0, generator(self.name, "no skill", self.seed)))

    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of single instances (instance_error) and of bags (all others)."""
        return evaluate_bags(
            score, self.eval_splits, self.calibration, limit=self.evaluation_limit, training_labels=self.training_labels
        )

    def evaluation_size(self, limit: int | None) -> int:
        kinds = [split.bags for split in self.eval_splits.values()] + ([self.calibration] if self.calibration else [])
        counts = [len(batches) * len(batches[0]) for batches in kinds if len(batches)]
        return sum(min(count, limit or count) for count in counts)

    def gallery(self) -> Bags:
        return self.eval_splits["test"].bags[0].part(0, 8)
