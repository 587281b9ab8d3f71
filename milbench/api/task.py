"""The contract of a task: training bags, evaluation, and a network and a recipe that suit them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from milbench.api.bags import Bags, NamedBags
from milbench.api.published import Published as Published  # noqa: PLC0414 re-exported
from milbench.api.recipe import Recipe
from milbench.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

    from milbench.api.outcomes import Outcomes
    from milbench.api.reliability import Bin

Split = Literal["validation", "test"]


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one batch of bags, computed by the methods of `milbench.api.loss.Loss` from the network's logits.

    Args:
        classes: (B, C), the largest names the class of a bag that holds one; -inf in a whole row: none is named.
        presence: (B, C), larger where the class is more likely to occur in the bag, comparable between bags.
        instances: (B, C+1, *positions), the probability that a position shows each class, background last.
        evidence: (B, C, *positions), larger where a position speaks more strongly for a class, comparable between the
            positions of one bag within one class; None: the probabilities of the classes.
        log_prob: (B,), of the true label set by the model of the loss, see `Loss.label_log_prob`; None: not known.
        even_odds_log_prob: (B,), that of the label set at even odds, the classes whose presence is 0 or more.
        presence_log_odds: (B, C), which do not round where a network is sure; None: the presence has no log-odds.
    """

    classes: Tensor
    presence: Tensor
    instances: Tensor
    evidence: Tensor | None = None
    log_prob: Tensor | None = None
    even_odds_log_prob: Tensor | None = None
    presence_log_odds: Tensor | None = None

    @property
    def strength(self) -> Tensor:
        """(B, C, *positions), the evidence, or the probabilities of the classes where there is none."""
        return self.instances[:, :-1] if self.evidence is None else self.evidence


@dataclass(frozen=True, slots=True)
class Folds:
    """Repeated cross-validation of a task: seed s tests on fold s % count of repetition s // count.

    Folds share training bags, which statistics correct for by the `ratio`, or by what `Task.overlap` returns where some
    bags are for validation.
    """

    count: int  # at least 2
    repeats: int = 1

    @property
    def seeds(self) -> int:
        """How many folds there are in all repetitions, one a seed."""
        return self.count * self.repeats

    @property
    def ratio(self) -> float:
        """How many bags are tested on for each that is trained on."""
        return 1 / (self.count - 1)


ScoreFunction = Callable[[Bags], Scores]
"""From a batch of bags on the training device to the scores that a trained network and its loss give it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `Task.evaluate`.

    Args:
        metrics: values by `split/metric`, such as "test/instance_error".
        decoder: what was learnt from validation bags in order to read strings, as data that JSON can hold. None for a
            task that reads no strings.
        outcomes: what each test item contributed to metrics that are ratios of sums over items, by the name of the
            metric without the split: losses are compared item by item. None where the task keeps none.
        reliability: how often what the loss held to be how probable occurred in test bags, by the name of the metric
            without the split. None where the loss has no probabilities.
    """

    metrics: dict[str, float]
    decoder: dict[str, Any] | None = None
    outcomes: dict[str, Outcomes] | None = None
    reliability: dict[str, list[Bin]] | None = None


class Network(torch.nn.Module, ABC):
    """Base class of networks: instances (B, *bag_shape) to logits (B, C+1, *positions), background last.

    The logits of a position must not depend on how far its bag was padded: those of a set depend on the instance there
    alone, those of a sequence on frames that are numbers, since its padding is NaN. A network that looks at all
    instances of a set `sees_mask`: it is given the mask of the bags as a second argument.
    """

    head: torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Linear
    """The last layer, with C+1 outputs and a bias."""
    sees_mask: ClassVar[bool] = False

    def logits_of(self, bags: Bags) -> Tensor:
        """Return the logits (B, C+1, *positions) of B bags, which are on the device of the network."""
        instances = bags.instances
        if instances.ndim == 4:
            instances = instances.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self(instances, bags.mask) if self.sees_mask else self(instances)
        return logits

    def start_at_prior(self, positions: int) -> None:
        """Set the biases of the head to the bag prior: about one instance of each class in a bag of `positions`.

        Class biases become -log(positions) and the background's 0. A softmax then gives each class a probability near
        1/positions everywhere (as long as the classes together are few beside the positions), and so does a sigmoid.
        With random biases of order one instead, a bag of K positions starts out with some K C/(C+1) expected instances,
        nearly all label sets have a probability near 0, and the likelihood is flat in a direction where every class is
        equally unlikely everywhere: training can stay there. AttributeError: the head has no `bias`.
        """
        bias = self.head.get_parameter("bias")
        with torch.no_grad():
            bias.fill_(-math.log(positions))
            bias[-1] = 0

    def move_to(self, device: torch.device) -> Self:
        """Move to `device`, weights channels last, as images: faster on a CPU and in half precision on a GPU."""
        return self.to(device).to(memory_format=torch.channels_last)

    def output_shape(self, height: int, width: int) -> tuple[int, int] | None:  # noqa: ARG002
        """Return (h, w), the positions of an image of `height` x `width` pixels; None where that is not known."""
        return None

    def smallest_side(self) -> int:
        """Return the side in pixels of the smallest square image that has a position; 1 where that is not known."""
        shapes = ((side, self.output_shape(side, side)) for side in range(1, 100_000))
        return next((side for side, shape in shapes if shape is None or min(shape) > 0), 1)

    def position_centres(self, height: int, width: int) -> tuple[Tensor, Tensor] | None:  # noqa: ARG002
        """Return y of every row and x of every column of positions, in pixels from the left and top edges of an image.

        None where they are not known.
        """
        return None

    def centres_in(self, bags: Bags) -> tuple[Tensor, Tensor] | None:
        """Return `position_centres` for the images of `bags`, or of sequences in time; None: not known."""
        return self.position_centres(*bags.instances.shape[-2:]) if bags.are_images else None


class Task(ABC):
    """Base class of tasks: bags with label sets to train on, and the evaluation of what was learnt.

    A subclass lives in a file of its own and sets `name` (the file's name with hyphens), `num_classes` and `positions`.
    Its constructor takes the task's parameters, all of them annotated (they are checked against the annotations), and
    reads no data; `prepare` does, and is called before what needs them.
    """

    name: ClassVar[str]
    revision: ClassVar[int] = 1
    """To be raised when the same parameters give other bags than before: older results are then not reused."""
    num_classes: int
    """C, the background not counted."""
    positions: int
    """How many positions a training bag typically has, for the initial biases where `head_init` is `prior`."""
    max_labels: int | None = None
    """The largest number of classes in a training bag's label set, or an upper bound, known after `prepare`. With it
    the exact likelihood does not make the host wait for a GPU. Training refuses a bag with more. None: not known."""
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
    """Seed of per-run randomness, such as the split of the data, set before `prepare` and the same for every loss: the
    spread between seeds then includes the choice of test data."""
    folds: Folds | None = None
    """Where seeds are the folds of a cross-validation; a run without seeds then takes all. None: there is none."""
    evaluation_limit: int | None = None
    """The most bags of each kind to evaluate on; None: all. Set before `prepare` in trial runs, and changed for a call
    of `evaluate` where the recipe has `interim_bags`. Tasks may ignore it."""
    amount: ClassVar[str] = ""
    """The parameter that is the number of training bags; reports draw the error against it. "": there is none."""
    dependencies: str = ""
    """Names and versions of what comes from other packages, such as a network: another version makes another cell."""

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

        With it the network can be used where the data are not: where they decide a width, it is part of this.
        """
        return {}

    def recall(self, memory: Mapping[str, Any]) -> None:  # noqa: B027 a task without a memory recalls nothing
        """Set what `memory` has returned, in place of `prepare`; `network` and `read_bags` can be called afterwards.

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
        return self.folds.ratio if self.folds else 0.0

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

    @abstractmethod
    def network(self, seed: int) -> Network:
        """Return a new network on the CPU; its initial weights depend on the seed and their shapes alone."""

    def classifier(self, seed: int) -> Network:  # noqa: ARG002
        """Return a new network with one position, for losses that name one class of a bag.

        Raises UsageError where there is none.
        """
        raise UsageError(f"{self.name} has no network for a loss that names one class of a whole bag")

    def encoder(self, width: int, seed: int) -> Network:  # noqa: ARG002
        """Return the task's network with `width` outputs at each position, for a network that pools them.

        Raises UsageError where there is none.
        """
        raise UsageError(f"{self.name} has no encoder for a network that pools instances")

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
