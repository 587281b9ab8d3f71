"""The contract of a task: training bags, evaluation, and the networks and the recipe that suit them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from milbench.api.bags import Bags, NamedBags
from milbench.api.network import BagKind, Network, NetworkMaker
from milbench.api.published import Published as Published  # noqa: PLC0414 re-exported
from milbench.api.recipe import Recipe
from milbench.api.scores import Scores as Scores  # noqa: PLC0414 re-exported
from milbench.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

    from milbench.api.predictions import Predictions

Split = Literal["validation", "test"]


@dataclass(frozen=True, slots=True)
class Folds:
    """Repeated cross-validation of a task: seed s tests on fold s % count of repetition s // count.

    Folds share training bags, for which statistics correct by `Task.overlap`.
    """

    count: int  # at least 2
    repeats: int | None = 1  # None: as many as are asked for, whose folds are the same

    @property
    def seeds(self) -> int:
        """The number of seeds that take every fold of every repetition once."""
        return self.count * (self.repeats or 1)


ScoreFunction = Callable[[Bags], Scores]
"""From a batch of bags on the training device to the scores that a trained network and its loss give it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `Task.evaluate`."""

    metrics: dict[str, float]
    """Values by `split/metric`, such as "test/instance_error"."""
    decoder: dict[str, Any] | None = None
    """What was learnt from validation bags in order to read strings, as data that JSON can hold."""
    predictions: Predictions | None = None
    """What the network says of each bag, from which metrics are computed; None: the task keeps none, and losses are
    compared without knowing the test items."""


class Task(ABC):
    """Base class of tasks: bags with label sets to train on, and the evaluation of what was learnt.

    A subclass lives in a file of its own and sets `name` (the file's name with hyphens), `num_classes`, `inputs`,
    `typical_size` and `networks`. Its constructor takes the task's parameters, all of them annotated (they are checked
    against the annotations), and reads no data; `prepare` does, and is called before what needs them. Bags, their order
    and what is evaluated depend neither on the loss nor on the network.
    """

    name: ClassVar[str]
    revision: ClassVar[int] = 1
    """To be raised when the same parameters give other bags than before: older results are then not reused."""
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The parameters that it got later, each with the neutral value, at which it computes what it did before. At that
    value a parameter changes no cell's id; the default may be another value."""
    num_classes: int
    """C, the background not counted."""
    bag_kind: ClassVar[BagKind] = "sets"
    """What the instances of a bag are, which says what networks may suit."""
    inputs: int
    """How many channels an image has, or features an instance or a frame; known after `prepare`."""
    typical_size: tuple[int, ...]
    """Of a typical training bag: (H, W) of images, (T,) frames of sequences, (K,) instances of sets; known after
    `prepare`. A network's positions in it decide the initial biases where `head_init` is `prior`."""
    batch_bags: int = 32
    """How many bags a training batch has, about: with the network it decides how many threads of a CPU a step gets."""
    networks: ClassVar[Mapping[str, NetworkMaker]] = MappingProxyType({})
    """The networks that suit the task by name, the first by default."""
    classifiers: ClassVar[Mapping[str, NetworkMaker]] = MappingProxyType({})
    """Likewise of networks with one position, for losses that name one class of a bag."""
    max_labels: int | None = None
    """An upper bound of the number of classes in a training bag's label set, known after `prepare`. With it the exact
    likelihood does not make the host wait for a GPU. Training refuses a bag with more. None: not known."""
    primary: str = "set_error"
    """The metric that losses are ranked by, without its split. The default needs label sets alone."""
    frames_per_second: float | None = None
    """Of sequences, known after `prepare`: a report then shows seconds. None: not known."""
    chance: float | None = None
    """The value of the primary metric that guessing gives, where it is known: one end of the gap to the oracle."""
    published: tuple[Published, ...] = ()
    """Numbers from the literature to compare with."""
    instances_are_ordered: ClassVar[bool] = False
    """Whether `Truth.classes` has the instances of a bag in their order, for losses with order supervision."""
    seed: int = 0
    """Seed of the split of the data and the like, set before `prepare`, the same for every loss."""
    folds: Folds | None = None
    """The folds of a cross-validation, which seeds number, known after `check_data`; a run without seeds takes all."""
    is_tested: bool = True
    """Whether there are bags to test on; without, networks are trained for use alone."""
    evaluation_limit: int | None = None
    """The most bags of each kind to evaluate on; None: all. Set before `prepare`. Tasks may ignore it."""
    amount: ClassVar[str] = ""
    """The parameter that is the number of training bags; reports draw the error against it. "": there is none."""

    @property
    def class_names(self) -> list[str]:
        """Return C names, to write beside or into pictures."""
        return [str(c) for c in range(self.num_classes)]

    def instances_from(self, picture: Image) -> Tensor:  # noqa: ARG002
        """Return the input (N, H, W) float32 of the network for a picture of any size, mode L or RGB, without any data.

        Raises UsageError where the bags of this task are not pictures.
        """
        raise UsageError(f"{self.name} has no pictures: its networks cannot read one")

    def picture_from(self, instances: Tensor) -> Image:  # noqa: ARG002
        """Return one bag's instances (N, H, W) as a picture: the inverse of `instances_from`, with its errors."""
        raise UsageError(f"{self.name} has no pictures: its bags cannot be shown as such")

    def memory(self) -> dict[str, Any]:
        """Return what a trained network needs of the data, as data that JSON can hold; called after `prepare`.

        With it the network can be used where the data are not.
        """
        return {}

    def recall(self, memory: Mapping[str, Any]) -> None:  # noqa: B027 a task without a memory recalls nothing
        """Set what `memory` has returned, in place of `prepare`: networks can be made then, and `read_bags` called.

        Raises KeyError where something is missing.
        """

    def read_bags(self, paths: Sequence[Path], network: Network) -> Iterator[NamedBags]:  # noqa: ARG002
        """Yield bags of the user's that have no labels, batch by batch; called after `prepare` or `recall`.

        The paths are tables of the task's form, in which labels are not needed, files with a bag each, or folders of
        such. Raises UsageError where the task reads no tables, or cannot use a file; the message names it.
        """
        raise UsageError(f"{self.name} reads no bags from tables or files")

    def overlap(self, data_dir: Path | None) -> float:  # noqa: ARG002
        """Return how many bags are tested on for each that is trained on, where seeds split the same bags differently.

        Intervals are corrected by it for the bags that seeds share (C. Nadeau and Y. Bengio, "Inference for the
        Generalization Error", Machine Learning 52, 2003, pp. 239-281). 0: there is nothing to correct.
        """
        return 1 / (self.folds.count - 1) if self.folds else 0.0

    def remarks(self, data_dir: Path | None, seeds: Sequence[int]) -> list[str]:  # noqa: ARG002
        """Return what a reader of a plan and its report should know of the data, a line each."""
        return []

    def datasets(self) -> Sequence[str]:
        """Return the data sets that it reads, by their names in `milbench data list`: missing ones are fetched.

        A task that reads the user's own files names none.
        """
        return ()

    @abstractmethod
    def check_data(self, data_dir: Path | None) -> str:
        """Return a digest of the data in a folder, None: the default one; it becomes part of the cells' identity.

        Raises UsageError where a file is missing or damaged; the message names it.
        """

    @abstractmethod
    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        """Load the data onto `device`; `check_data` has accepted the folder before, perhaps in another process."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """How many batches `train_batches` yields; known after `prepare`."""

    @abstractmethod
    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        """Yield the batches of one epoch, from 0, with their truth where it is known.

        All chance comes from `rng`, a generator on the CPU, seeded by task, seed and epoch.
        """

    def standardise(self) -> torch.nn.Module | None:
        """Return a new module that instances go through before any network, known after `prepare`; None: none.

        What it holds is stored with the weights.
        """
        return None

    @abstractmethod
    def recipe(self) -> Recipe:
        """Return the default recipe, the same for every loss."""

    @abstractmethod
    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of the validation and test bags, and what else is known of them."""

    def evaluation_size(self, limit: int | None) -> int:  # noqa: ARG002
        """Return about how many bags `evaluate` scores under an `evaluation_limit`, for a dry run; 0: not known."""
        return 0

    @abstractmethod
    def gallery(self) -> Bags:
        """Return a few test bags, always the same, to show what each loss detects in them."""
