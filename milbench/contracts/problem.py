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
"""From a batch of bags on the training device to the scores that a trained network and its loss give it."""


@dataclass(frozen=True)
class BagFormat:
    """What has to be known of bags to make a network for them, and to read new ones.

    A trained network needs nothing else of a task's data. `memory` is stored with the network, and
    where the data are not, `Task.format_from` makes the same format of it.
    """

    inputs: int
    """How many channels an image has, or features an instance or a frame."""
    class_names: tuple[str, ...]
    """The names of the C classes in their order, to write beside or into pictures."""
    frames_per_second: float | None = None
    """Of sequences: a report then shows seconds. None: not known."""
    standardise: Callable[[], torch.nn.Module] | None = field(default=None, compare=False)
    """Makes a module that instances go through before any network, whose tensors are stored with
    the network's weights. None: instances reach the network as they are."""

    @property
    def num_classes(self) -> int:
        """C, the background not counted."""
        return len(self.class_names)

    def memory(self) -> dict[str, Any]:
        """Return what `Task.format_from` needs to make this format again, as JSON can hold it.

        By default nothing: the task knows its format without data.
        """
        return {}


@dataclass(frozen=True, slots=True)
class EvalSplit:
    """The bags of a split, in batches."""

    single_instance: Sequence[Bags]
    """Bags of one instance each, beside the others; possibly none."""
    bags: Sequence[Bags]
    """With their truth where it is known; without it, metrics of instances are left out."""
    is_single_instance: bool = False
    """Whether `bags` themselves hold one instance each. All metrics are then of `bags`, and no others are given."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `Problem.evaluate`."""

    metrics: dict[str, float]
    """Values by `split/metric`, such as "test/instance_error"."""
    decoder: dict[str, Any] | None = None
    """What was learnt from validation bags in order to read strings, as data that JSON can hold."""
    predictions: Predictions | None = field(default=None, repr=False)
    """What the network says of each bag, from which metrics are computed. None: the problem keeps
    none, and losses are compared without knowing the test items."""


@dataclass(kw_only=True, eq=False, repr=False)
class Problem(ABC):
    """Base class of problems: bags that were loaded for one seed, to train and to evaluate on.

    `Task.load` returns one, with all of the fields below. Bags, their order and what is evaluated
    depend neither on the loss nor on the network.

    `milbench.FixedBags` is a problem that is ready to use: `FixedBags.in_memory(task, {"train":
    bags, "test": others}, seed=seed, batch_bags=32)` for bags in memory. Where training bags are
    drawn anew in every epoch, a subclass of `milbench.EvaluatedBags` says how; where bags are
    evaluated in another way, a subclass of this class does. A subclass with further fields is a
    dataclass too, `@dataclass(kw_only=True, eq=False, repr=False)`.
    """

    task_name: str
    """The name of the task. It is part of the seeds of random generators."""
    seed: int
    """The seed that the bags were loaded for."""
    format: BagFormat
    """What the bags are like."""
    typical_shape: tuple[int, ...]
    """The shape of the instances of a typical training bag: (N, H, W) of an image with N channels,
    (F, T) of a sequence of T frames with F features, (K, D) of a set of K instances with D
    features. A network's positions in it decide the initial biases where `head_init` is `prior`."""
    batch_bags: int
    """About how many bags a training batch has. It and the network decide how many threads of a CPU
    a step gets."""
    splits: Mapping[Split, EvalSplit]
    """The bags to validate on and those to test on, where there are any."""
    max_labels: int | None = None
    """A number of classes that no training bag's label set exceeds; None: not known. With it the
    exact likelihood does not make the host wait for a GPU. Training refuses a bag with more."""

    def __repr__(self) -> str:
        # The bags themselves would fill pages.
        counts = [f"{name} {count_bags(split.bags)}" for name, split in self.splits.items()]
        name = f"{self.task_name}, seed {self.seed}"
        return f"<{name}: {self.steps_per_epoch} batches an epoch; bags: {', '.join(counts)}>"

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """How many batches `train_batches` yields."""

    @abstractmethod
    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        """Yield the batches of one epoch, from 0, with their truth where it is known.

        All chance comes from `rng`, a generator on the CPU, seeded by task, seed and epoch.
        """

    @abstractmethod
    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of the validation and test bags, and what else is known of them.

        Metrics are named SPLIT/METRIC, as in `milbench.contracts.metric_info.METRICS`, with the
        task's `primary` among them. `milbench.evaluate_bags(score, self.splits)` computes the usual
        ones: presence is on the loss's own scale, so that label sets need a threshold, which it
        chooses on validation bags.
        """

    @property
    def evaluation_size(self) -> int:
        """About how many bags `evaluate` scores, by which a dry run estimates its time."""
        return sum(count_bags(split.bags) for split in self.splits.values())

    @abstractmethod
    def gallery(self) -> Bags:
        """Return a few test bags, always the same, to show what each loss detects in them."""


def count_bags(batches: Sequence[Bags]) -> int:
    """Return about how many bags there are: all batches are taken to be as large as the first one."""
    if len(batches) == 0:
        return 0
    return len(batches) * len(batches[0])
