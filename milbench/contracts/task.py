"""The contract of a task: a description of bags, and of the networks and the recipe that suit them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from milbench.contracts.bags import NamedBags
from milbench.contracts.folds import Folds
from milbench.contracts.network import BagKind, Network, NetworkMaker
from milbench.contracts.problem import BagFormat, Problem
from milbench.contracts.published import Published
from milbench.contracts.recipe import Recipe
from milbench.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

CPU = torch.device("cpu")


class Task(ABC):
    """Base class of tasks: a description of bags with label sets, and of how to learn from them.

    A subclass lives in a file of its own. It sets `name` (the file's name with hyphens) and
    `networks`, and writes `check_data`, `load` and `recipe`. Its constructor takes the task's
    parameters, all of them annotated (they are checked against the annotations), and reads no data.
    `milbench list tasks` shows the first line of its docstring.
    A constructor with many parameters may take them as `**options` and name their dataclass in
    `Options`.

    A task does not change after it was made: whatever depends on the data is returned by a method
    that is told where they are, and the bags themselves by `load`, as a `Problem`.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any] | None] = None
    """A dataclass that has the task's parameters as its fields, for a constructor that takes `**options`. None: the
    constructor itself names them."""
    revision: ClassVar[int] = 1
    """Raise it when the same parameters give other bags than before: older results are then not reused."""
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Parameters that are newer than stored cells, see `milbench.contracts.parameters`."""
    bag_kind: ClassVar[BagKind] = "sets"
    """What the instances of a bag are: only networks for this kind suit."""
    format: BagFormat | None = None
    """What its bags are like, set in the class or in the constructor. None: the data decide it. Where the data are not,
    `format_from` makes it from what is stored with a trained network."""
    networks: ClassVar[Mapping[str, NetworkMaker]] = MappingProxyType({})
    """The networks that suit the task by name, the first by default."""
    classifiers: ClassVar[Mapping[str, NetworkMaker]] = MappingProxyType({})
    """The networks with one position, by name, for losses whose `head` is class."""
    primary: str = "set_error"
    """The metric that losses are ranked by, without its split. The default needs label sets alone."""
    chance: float | None = None
    """The value of the primary metric without any skill, where it is known. Reports show it as the line of no skill
    where none was measured."""
    published: tuple[Published, ...] = ()
    """Numbers from the literature to compare with."""
    instances_are_ordered: ClassVar[bool] = False
    """Whether `Truth.classes` has the instances of a bag in their order, for losses with order supervision."""
    is_tested: bool = True
    """Whether there are bags to test on. Without them networks are trained for use, and losses are not compared."""
    amount_parameter: ClassVar[str] = ""
    """The name of the task's parameter that says how many training bags there are; reports draw the error against it.
    "": there is none."""

    def format_from(self, memory: Mapping[str, Any]) -> BagFormat:  # noqa: ARG002
        """Return what its bags were like when a network was trained on them, without the data.

        `memory` is what `BagFormat.memory` returned then; the default does not need it. Raises
        KeyError where something is missing in it, and UsageError where the task has no format
        without its data.
        """
        if self.format is None:
            raise UsageError(
                f"task {self.name} cannot be used without its data: it needs `format`, or a method "
                "`format_from`"
            )
        return self.format

    @abstractmethod
    def recipe(self) -> Recipe:
        """Return the default recipe, the same for every loss."""

    def datasets(self) -> Sequence[str]:
        """Return the data sets that it reads, by their names in `milbench data list`: missing ones are fetched.

        A task that reads the user's own files names none.
        """
        return ()

    @abstractmethod
    def check_data(self, data_dir: Path | None) -> str:
        """Return a digest of the data in a folder, None: the default one; it becomes part of the cells' identity.

        It is one line, never empty, also for bags that are generated. Raises UsageError where a
        file is missing or damaged; the message names it.
        """

    def folds(self, data_dir: Path | None) -> Folds | None:  # noqa: ARG002
        """Return the folds of a cross-validation; None: the task is none.

        The seed is the number of the fold. A run that names no seeds takes all folds.
        """
        return None

    def overlap(self, data_dir: Path | None) -> float:
        """Return the number of test bags divided by that of training bags, where each seed splits the same bags anew.

        Intervals are widened by it, since seeds then share training bags (C. Nadeau and Y. Bengio,
        "Inference for the Generalization Error", Machine Learning 52, 2003, pp. 239-281). 0: there
        is nothing to correct.
        """
        folds = self.folds(data_dir)
        if folds is None:
            return 0.0
        # Each seed tests on one part of the bags and trains on the others.
        return 1 / (folds.count - 1)

    def remarks(self, data_dir: Path | None, seeds: Sequence[int]) -> list[str]:  # noqa: ARG002
        """Return what a reader of a plan and its report should know of the data, a line each."""
        return []

    @abstractmethod
    def load(
        self,
        data_dir: Path | None = None,
        seed: int = 0,
        device: torch.device = CPU,
        limit: int | None = None,
    ) -> Problem:
        """Return the bags of a seed, to train and to evaluate on.

        `check_data` has accepted the folder before, perhaps in another process.

        Args:
            data_dir: the folder of the data; None: the default one.
            seed: of the split of the data and the like, the same for every loss.
            device: where batches are needed.
            limit: the most bags of each kind to evaluate on; None: all. Tasks may ignore it.
        """

    def read_bags(
        self,
        paths: Sequence[Path],  # noqa: ARG002
        bag_format: BagFormat,  # noqa: ARG002
        network: Network,  # noqa: ARG002
    ) -> Iterator[NamedBags]:
        """Yield bags of the user's that have no labels, batch by batch, on the CPU.

        The paths are tables of the task's form, in which labels are not needed, files with a bag
        each, or folders of such; the format is that of the bags that the network was trained on.
        Raises UsageError where the task reads no tables, or cannot use a file; the message names
        it.
        """
        raise UsageError(f"{self.name} reads no bags from tables or files")

    def instances_from(self, picture: Image) -> Tensor:  # noqa: ARG002
        """Return the input (N, H, W) float32 of the network for a picture of any size, mode L or RGB, without any data.

        Raises UsageError where the bags of this task are not pictures.
        """
        raise UsageError(f"{self.name} has no pictures: its networks cannot read one")

    def picture_from(self, instances: Tensor) -> Image:  # noqa: ARG002
        """Return one bag's instances (N, H, W) as a picture: the inverse of `instances_from`, with its errors."""
        raise UsageError(f"{self.name} has no pictures: its bags cannot be shown as such")
