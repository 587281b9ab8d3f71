"""The contract of a problem: the loaded bags of a task, to train and to evaluate on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from milbench.contracts.bags import Bags
from milbench.contracts.scores import Scores

if TYPE_CHECKING:
    from milbench.contracts.predictions import Predictions

Split = Literal["validation", "test"]

ScoreFunction = Callable[[Bags], Scores]
"""A function of a batch of bags on the training device.

It returns the scores that a trained network and its loss give to the bags.
"""


@dataclass(frozen=True)
class BagFormat:
    """What has to be known about bags to make a network for them, and to read new bags.

    A trained network needs nothing else of a task's data. What `memory` returns is stored with the
    network. `Task.format_from` makes the same format from it on a machine without the data.
    """

    inputs: int
    """How many channels an image has, or features an instance or a frame."""
    class_names: tuple[str, ...]
    """The names of the C classes in their order, to write beside or into pictures."""
    frames_per_second: float | None = None
    """For sequences: with it a report shows times in seconds. None: not known."""
    standardise: Callable[[], torch.nn.Module] | None = field(default=None, compare=False)
    """Returns a new module that instances go through before the network.

    The module's tensors are stored with the network's weights. None: instances reach the network as
    they are.
    """

    @property
    def num_classes(self) -> int:
        """C, the background not counted."""
        return len(self.class_names)

    def memory(self) -> dict[str, Any]:
        """Return what `Task.format_from` needs to make this format again, as JSON can hold it.

        By default this is an empty dict, for a task that knows its format without data.
        """
        return {}


@dataclass(frozen=True, slots=True)
class EvalSplit:
    """The bags of a split, in batches."""

    single_instance: Sequence[Bags]
    """Further bags of one instance each, besides `bags`; possibly none."""
    bags: Sequence[Bags]
    """The bags of the split, with their truth where it is known.

    Without the truth, metrics of instances are left out.
    """
    is_single_instance: bool = False
    """Whether `bags` themselves hold one instance each.

    All metrics are then computed on `bags`, and `single_instance` is empty.
    """


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `Problem.evaluate`."""

    metrics: dict[str, float]
    """The values of metrics by SPLIT/METRIC, such as "test/instance_error"."""
    decoder: dict[str, Any] | None = None
    """What was learnt from validation bags in order to read strings, as data that JSON can hold."""
    predictions: Predictions | None = field(default=None, repr=False)
    """What the network says about each bag, from which metrics are computed.

    None: the problem keeps no predictions, and losses are compared without knowing the test items.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class Problem(ABC):
    """Base class of problems: bags that were loaded for one seed, to train and to evaluate on.

    `Task.load` returns a problem, with all of the fields below. The bags, their order and what is
    evaluated depend neither on the loss nor on the network.

    `milbench.FixedBags` is a problem that is ready to use: `FixedBags.in_memory(task, {"train":
    bags, "test": others}, seed=seed, batch_bags=32)` for bags in memory. To make other training
    bags in every epoch, write a subclass of `milbench.EvaluatedBags`. To evaluate bags in another
    way, write a subclass of this class. A subclass with further fields is a dataclass too,
    `@dataclass(kw_only=True, eq=False, repr=False)`.
    """

    task_name: str
    """The name of the task. Random generators are seeded with it, among other things."""
    seed: int
    """The seed that the bags were loaded for."""
    format: BagFormat
    """What the bags are like."""
    typical_shape: tuple[int, ...]
    """The shape of the instances of a typical training bag.

    It is (N, H, W) for an image with N channels, (F, T) for a sequence of T frames with F features,
    and (K, D) for a set of K instances with D features. Where `head_init` is `prior`, the number of
    positions that a network has in such a bag decides its initial biases.
    """
    batch_bags: int
    """About how many bags a training batch has.

    This number and the network decide how many threads of a CPU a step gets.
    """
    splits: Mapping[Split, EvalSplit]
    """The bags to validate on and the bags to test on. Either may be missing."""
    max_labels: int | None = None
    """A number of classes that no training bag's label set exceeds; None: not known.

    With it the exact likelihood does not make the host wait for a GPU. Training raises an error for
    a bag with more classes.
    """

    def __repr__(self) -> str:
        # The `repr` of a dataclass would print the bags, which fill pages.
        counts = [f"{name} {count_bags(split.bags)}" for name, split in self.splits.items()]
        name = f"{self.task_name}, seed {self.seed}"
        return f"<{name}: {self.steps_per_epoch} batches an epoch; bags: {', '.join(counts)}>"

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """How many batches `train_batches` yields."""

    @abstractmethod
    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        """Yield the batches of one epoch, with their truth where it is known.

        Epochs are counted from 0. All random numbers come from `rng`, a generator on the CPU that
        is seeded by task, seed and epoch.
        """

    @abstractmethod
    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of the validation and test bags, and the predictions for them.

        Metrics are named SPLIT/METRIC; `milbench.contracts.metric_info.METRICS` lists the names
        after the slash. The task's `primary` must be among them. `milbench.evaluate_bags(score,
        self.splits)` computes the usual metrics. It predicts label sets with a threshold that it
        chooses on validation bags, since each loss has its own scale of presence.
        """

    @property
    def evaluation_size(self) -> int:
        """About how many bags `evaluate` scores. A dry run estimates its time from this number."""
        return sum(count_bags(split.bags) for split in self.splits.values())

    @abstractmethod
    def gallery(self) -> Bags:
        """Return a few test bags, always the same, on which a report shows what losses detect."""


def count_bags(batches: Sequence[Bags]) -> int:
    """Return about how many bags there are, as if all batches were as large as the first."""
    if len(batches) == 0:
        return 0
    return len(batches) * len(batches[0])
