"""The contract of a task: bags to train on, bags to test on, a network and a recipe that suit them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.published import Published as Published  # noqa: PLC0414 re-exported
from milbench.api.recipe import Recipe
from milbench.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

    from milbench.api.gallery import Misread

Split = Literal["validation", "test"]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a loss makes of the logits of one batch, by its own rules: see `milbench.api.loss.Loss`.

    classes: (B, C), the largest names the class of a bag that holds one; -inf in a whole row: none is named.
    presence: (B, C), how sure the loss is that each class occurs.
    instances: (B, C+1, *positions), the probability that a position shows each class.
    """

    classes: Tensor
    presence: Tensor
    instances: Tensor


ScoreFunction = Callable[[Bags], Scores]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `Task.evaluate`.

    Args:
        metrics: values by `split/metric`, such as "test/instance_error".
        decoder: what was learnt from validation bags in order to read strings, as data that JSON can hold: it is kept
            as the run's artifact decoder.json. None for a task that reads no strings.
    """

    metrics: dict[str, float]
    decoder: dict[str, Any] | None = None


class Network(torch.nn.Module, ABC):
    """Base class of networks: instances (B, *bag_shape) to logits (B, C+1, *positions), background last."""

    head: torch.nn.Conv2d | torch.nn.Linear
    """The last layer, with C+1 outputs and a bias."""

    def start_at_prior(self, positions: int) -> None:
        """Set the biases of the head to the bag prior: about one instance of each class in a bag of `positions`.

        Class biases become -log(positions) and the background's 0. A softmax then gives each class a probability near
        1/positions everywhere (as long as the classes together are few beside the positions), and so does a sigmoid,
        which does not read the background: the rule is the same for both. With random biases of order one instead, a
        bag of K positions starts out with some K C/(C+1) expected instances, nearly all label sets look impossible, and
        the likelihood is flat in a direction where every class is equally unlikely everywhere: training can stay there.
        For 60 positions the rule gives -4.1, for 600 it gives -6.4.
        """
        bias = self.head.get_parameter("bias")
        with torch.no_grad():
            bias.fill_(-math.log(positions))
            bias[-1] = 0

    def move_to(self, device: torch.device) -> Self:
        """Move to `device`, with the weights in the memory format for the instances that `as_input` returns.

        Here: convolutions with their channels last, which is faster on a CPU and in half precision on a GPU.
        """
        return self.to(device).to(memory_format=torch.channels_last)

    def as_input(self, instances: Tensor) -> Tensor:
        """Return a batch of instances in the memory format in which the network is fastest; here images channels last.

        The values and the shape stay the same.
        """
        return instances.contiguous(memory_format=torch.channels_last) if instances.ndim == 4 else instances

    def position_centres(self, height: int, width: int) -> tuple[Tensor, Tensor] | None:  # noqa: ARG002
        """Return where the positions of an image of `height` x `width` pixels are; None where that is not known.

        Returns:
            y of every row and x of every column of positions, in pixels from the left and top edges of the image.
        """
        return None

    def centres_in(self, bags: Bags) -> tuple[Tensor, Tensor] | None:
        """Return `position_centres` for the images of `bags`; None where they are no images or it is not known."""
        return self.position_centres(*bags.instances.shape[-2:]) if bags.are_images else None


class Task(ABC):
    """Bags with label sets, and how to judge what was learnt from them.

    A subclass lives in a file of its own and sets `name` (the file's name with hyphens). Its constructor takes the
    task's parameters, fully annotated (the command line checks them against the annotations), and touches no data.
    """

    name: ClassVar[str]
    revision: ClassVar[int] = 1
    """Raise it when the same parameters give other bags than before: results of the older one are then not reused."""
    num_classes: int
    positions: int
    """How many positions a training bag typically has: where `head_init = prior` starts from."""
    primary: str = "instance_error"
    """The metric that the comparison is about, without its split."""
    chance: float | None = None
    """The value of the primary metric that guessing gives, where it is known: one end of the gap to the oracle."""
    published: tuple[Published, ...] = ()
    decoder: ClassVar[str] = "each"
    """How to read a map of positions where no decoder was learnt, a name in `milbench.inference.predict`."""

    crop_side: ClassVar[int | None] = None
    """Side in pixels of the crops that are learnt from, where whole pictures show their instances at any size: what
    reads such a picture then looks for the size as well."""

    @property
    def class_names(self) -> list[str]:
        """Return how to write each class in a picture."""
        return [str(c) for c in range(self.num_classes)]

    def instances_from(self, picture: Image) -> Tensor:  # noqa: ARG002
        """Return (N, H, W), what the network is shown of a picture of any size, mode L or RGB: needs no data."""
        raise UsageError(f"{self.name} has no pictures: its networks cannot look at one")

    @abstractmethod
    def check_data(self, data_dir: Path | None) -> str:
        """Return a digest of the data, or raise UsageError with one line that says what is missing or damaged."""

    @abstractmethod
    def prepare(self, data_dir: Path | None, device: torch.device) -> None:
        """Load the data onto `device`; called once, after `check_data`."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """How many batches `train_batches` yields when nobody stops it; known after `prepare`."""

    @abstractmethod
    def train_batches(self, epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        """Yield the batches of one epoch; `rng` (on the CPU) is the only source of chance."""

    @abstractmethod
    def network(self, seed: int) -> Network:
        """Return the network with its initial weights, which depend on the seed and the shapes alone."""

    def classifier(self, seed: int) -> Network:  # noqa: ARG002
        """Return the network for losses that name one class of a whole bag (`Loss.head == "class"`): one position."""
        raise UsageError(f"{self.name} has no network for a loss that names one class of a whole bag")

    @abstractmethod
    def recipe(self) -> Recipe:
        """Return the recipe that suits the task, the same for every loss."""

    @abstractmethod
    def evaluate(self, score: ScoreFunction) -> Evaluation:
        """Return the metrics of a network, see `milbench.evaluation.metrics`, and the decoder learnt for it, if any."""

    @abstractmethod
    def gallery(self) -> Bags:
        """Return a few test bags, always the same, for pictures of what each loss detects where."""

    def misread(self, score: ScoreFunction, decoder: Mapping[str, Any] | None) -> Misread | None:  # noqa: ARG002
        """Return examples of the test bags whose string is misread; None for a task that reads none.

        Args:
            score: the scores of a batch of bags, as for `evaluate`.
            decoder: the one that `evaluate` returned last.
        """
        return None
