"""Which loss learns best from the label sets of bags, and at what cost.

The names in `__all__` are milbench's public interface: they never move to another module. A loss, a
network or a task in a user's own file needs no other names. Each name is imported on first use, so
that `import milbench` loads neither torch nor any other large library.
"""

import importlib
from typing import TYPE_CHECKING, Any

from milbench._version import __version__
from milbench.errors import UsageError

if TYPE_CHECKING:
    from milbench._utils.seeding import generator
    from milbench.comparison import Comparison, compare, results
    from milbench.contracts.bags import Bags, Origin, Truth, label_matrix, pad_bags
    from milbench.contracts.folds import Folds
    from milbench.contracts.geometry import Layer
    from milbench.contracts.load import load_loss, load_task
    from milbench.contracts.loss import Head, Loss, Reduction, bag_sizes
    from milbench.contracts.loss_checks import LabelSets
    from milbench.contracts.network import Network, NetworkMaker
    from milbench.contracts.outcomes import Outcomes
    from milbench.contracts.problem import (
        BagFormat,
        EvalSplit,
        Evaluation,
        Problem,
        ScoreFunction,
        Split,
    )
    from milbench.contracts.published import Published
    from milbench.contracts.recipe import Recipe
    from milbench.contracts.scores import Scores
    from milbench.contracts.supervision import Supervision
    from milbench.contracts.task import Task
    from milbench.data.labelled_images import ImageSplits, LabelledImages
    from milbench.estimator import BagClassifier
    from milbench.evaluation.evaluate import evaluate_bags
    from milbench.families.fixed_bags import EvaluatedBags, FixedBags
    from milbench.families.nested_digits import NestedDigits
    from milbench.families.one_instance_images import OneInstanceImages
    from milbench.families.street_numbers import StreetNumbers
    from milbench.networks.bag_network import BagNetwork
    from milbench.networks.convolutional import AllConvolutional
    from milbench.networks.instance import InstanceMLP
    from milbench.networks.known_networks import load_network
    from milbench.networks.sequence import SequenceNetwork

__all__ = [
    "AllConvolutional", "BagClassifier", "BagFormat", "BagNetwork", "Bags", "Comparison",
    "EvalSplit", "EvaluatedBags", "Evaluation", "FixedBags", "Folds", "Head", "ImageSplits",
    "InstanceMLP", "LabelSets", "LabelledImages", "Layer", "Loss", "NestedDigits", "Network",
    "NetworkMaker", "OneInstanceImages", "Origin", "Outcomes", "Problem", "Published", "Recipe",
    "Reduction", "ScoreFunction", "Scores", "SequenceNetwork", "Split", "StreetNumbers",
    "Supervision", "Task", "Truth", "UsageError", "__version__", "bag_sizes", "compare",
    "evaluate_bags", "generator", "label_matrix", "load_loss", "load_network", "load_task",
    "pad_bags", "results",
]  # fmt: skip

_HOMES = {
    "milbench._utils.seeding": ("generator",),
    "milbench.contracts.bags": ("Bags", "Origin", "Truth", "label_matrix", "pad_bags"),
    "milbench.contracts.folds": ("Folds",),
    "milbench.contracts.geometry": ("Layer",),
    "milbench.contracts.load": ("load_loss", "load_task"),
    "milbench.contracts.loss_checks": ("LabelSets",),
    "milbench.contracts.network": ("Network", "NetworkMaker"),
    "milbench.contracts.loss": ("Head", "Loss", "Reduction", "bag_sizes"),
    "milbench.contracts.outcomes": ("Outcomes",),
    "milbench.contracts.problem": (
        "BagFormat",
        "EvalSplit",
        "Evaluation",
        "Problem",
        "ScoreFunction",
        "Split",
    ),
    "milbench.contracts.published": ("Published",),
    "milbench.contracts.recipe": ("Recipe",),
    "milbench.contracts.scores": ("Scores",),
    "milbench.contracts.supervision": ("Supervision",),
    "milbench.contracts.task": ("Task",),
    "milbench.comparison": ("Comparison", "compare", "results"),
    "milbench.data.labelled_images": ("ImageSplits", "LabelledImages"),
    "milbench.estimator": ("BagClassifier",),
    "milbench.evaluation.evaluate": ("evaluate_bags",),
    "milbench.families.fixed_bags": ("EvaluatedBags", "FixedBags"),
    "milbench.families.nested_digits": ("NestedDigits",),
    "milbench.families.one_instance_images": ("OneInstanceImages",),
    "milbench.families.street_numbers": ("StreetNumbers",),
    "milbench.networks.bag_network": ("BagNetwork",),
    "milbench.networks.convolutional": ("AllConvolutional",),
    "milbench.networks.instance": ("InstanceMLP",),
    "milbench.networks.known_networks": ("load_network",),
    "milbench.networks.sequence": ("SequenceNetwork",),
}
"""For each module, the public names that are imported from it on first use."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(module), name)
            # Python asks this function only for names that the module lacks, so once for each name.
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
