"""The contract of a task: a description of bags, with the networks and the recipe for them."""

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
    parameters and reads no data. All parameters are annotated, since their values are checked
    against the annotations. A constructor with many parameters may take them as `**options` and
    name their dataclass in `Options`. `milbench list tasks` shows the first line of the class's
    docstring.

    A task does not change after it was made. What depends on the data is returned by methods that
    take the folder of the data, such as `check_data` and `folds`. The bags themselves are returned
    by `load`, as a `Problem`.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any] | None] = None
    """A dataclass whose fields are the task's parameters, for a constructor that takes `**options`.

    None: the constructor itself names the parameters.
    """
    revision: ClassVar[int] = 1
    """A version of the code. Raise it when the same parameters give other bags than before.

    Stored results of an older revision are then not reused.
    """
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Parameters that are newer than stored cells, see `milbench.contracts.parameters`."""
    bag_kind: ClassVar[BagKind] = "sets"
    """What the instances of a bag are. Only networks for this kind of bags suit the task."""
    format: BagFormat | None = None
    """What the bags are like, set in the class or in the constructor.

    None: the data decide it. On a machine without the data, `format_from` makes the format from
    what is stored with a trained network.
    """
    networks: ClassVar[Mapping[str, NetworkMaker]] = MappingProxyType({})
    """The networks that suit the task, by name. The first is the default."""
    classifiers: ClassVar[Mapping[str, NetworkMaker]] = MappingProxyType({})
    """The networks with one position, by name, for losses whose `head` is class."""
    primary: str = "set_error"
    """The metric by which losses are ranked, without the split.

    The default needs no truth but the label sets.
    """
    chance: float | None = None
    """The value of the primary metric without any skill, where it is known.

    Reports show it as the line of no skill, unless that value was measured.
    """
    published: tuple[Published, ...] = ()
    """Numbers from the literature to compare with."""
    instances_are_ordered: ClassVar[bool] = False
    """Whether `Truth.classes` has the instances of a bag in their order.

    Losses with order supervision need this.
    """
    is_tested: bool = True
    """Whether there are bags to test on.

    Without test bags, networks are trained to be used, and losses are not compared.
    """
    amount_parameter: ClassVar[str] = ""
    """The name of the task's parameter that says how many training bags there are; "": none.

    Reports plot the error against this parameter.
    """

    def format_from(self, memory: Mapping[str, Any]) -> BagFormat:  # noqa: ARG002
        """Return the format of the bags on which a network was trained, without reading the data.

        `memory` is what `BagFormat.memory` returned in training. The default method does not use
        it. Raises KeyError where something is missing in `memory`, and UsageError where the task
        has no format without its data.
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
        """Return the names of the data sets that the task reads, as in `milbench data list`.

        Data sets that are missing on the machine are downloaded. A task that reads the user's own
        files returns no names.
        """
        return ()

    @abstractmethod
    def check_data(self, data_dir: Path | None) -> str:
        """Check the data in a folder, and return a digest of them.

        `data_dir` is the folder; None: the default folder. The digest becomes a part of the id of
        each cell. It is one line and never empty, also for bags that are generated. Raises
        UsageError where a file is missing or damaged; the message names the file.
        """

    def folds(self, data_dir: Path | None) -> Folds | None:  # noqa: ARG002
        """Return the folds, if the task is a cross-validation, or None.

        Each seed is the number of a fold. A run that names no seeds takes all folds.
        """
        return None

    def overlap(self, data_dir: Path | None) -> float:
        """Return how many test bags there are for each training bag, or 0.

        The number is not 0 where each seed splits the same bags in another way. Different seeds
        then share training bags, and reports widen confidence intervals by this number (C. Nadeau
        and Y. Bengio, "Inference for the Generalization Error", Machine Learning 52, 2003, pp.
        239-281). 0: seeds do not share training bags in this way.
        """
        folds = self.folds(data_dir)
        if folds is None:
            return 0.0
        # Each seed tests on one part of the bags and trains on the others.
        return 1 / (folds.count - 1)

    def remarks(self, data_dir: Path | None, seeds: Sequence[int]) -> list[str]:  # noqa: ARG002
        """Return remarks about the data for readers of a plan and its report, one line each."""
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

        Before a run calls this method, `check_data` has accepted the folder, perhaps in another
        process.

        Args:
            data_dir: the folder of the data; None: the default folder.
            seed: decides all random choices about bags, such as their split. It is the same for
                every loss.
            device: the device on which batches are needed.
            limit: the most bags of each kind to evaluate on; None: all. Tasks may ignore it.
        """

    def read_bags(
        self,
        paths: Sequence[Path],  # noqa: ARG002
        bag_format: BagFormat,  # noqa: ARG002
        network: Network,  # noqa: ARG002
    ) -> Iterator[NamedBags]:
        """Yield batches of the user's bags without labels, on the CPU.

        `paths` are tables in the form that the task reads, in which labels are not needed, files
        with one bag each, or folders of such files. `bag_format` is the format of the bags on which
        the network was trained. Raises UsageError where the task reads no tables, or cannot use a
        file; the message names the file.
        """
        raise UsageError(f"{self.name} reads no bags from tables or files")

    def instances_from(self, picture: Image) -> Tensor:  # noqa: ARG002
        """Return a picture as the input (N, H, W) float32 of the network, without reading data.

        The picture has any size, and mode L or RGB. Raises UsageError where the bags of this task
        are not pictures.
        """
        raise UsageError(f"{self.name} has no pictures: its networks cannot read one")

    def picture_from(self, instances: Tensor) -> Image:  # noqa: ARG002
        """Return the instances (N, H, W) of one bag as a picture, the inverse of `instances_from`.

        Raises UsageError where the bags of this task are not pictures.
        """
        raise UsageError(f"{self.name} has no pictures: its bags cannot be shown as such")
