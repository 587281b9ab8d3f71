"""Which loss learns best from the label sets of bags, and at what cost.

The names listed in `__all__` are milbench's public interface: they never move. What a loss or a task in a file of its
own needs is among them. Each is imported when it is first used, so that `import milbench` needs neither torch nor any
other large library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, get_args

from milbench._version import __version__
from milbench.errors import UsageError, one_of

if TYPE_CHECKING:
    from milbench._utils.seeding import generator
    from milbench.api.bags import Bags, Truth, label_matrix, pad_bags
    from milbench.api.loss import Head, Loss, Reduction, bag_sizes
    from milbench.api.loss_checks import LabelSets
    from milbench.api.outcomes import Outcomes
    from milbench.api.published import Published
    from milbench.api.recipe import Recipe
    from milbench.api.supervision import Supervision
    from milbench.api.task import Evaluation, Network, ScoreFunction, Scores, Split, Task
    from milbench.comparison import Comparison, compare, results
    from milbench.data.labelled_images import ImageSplits, LabelledImages
    from milbench.estimator import BagClassifier
    from milbench.evaluation.evaluate import EvalSplit, evaluate_bags
    from milbench.families.nested_digits import NestedDigits
    from milbench.families.single_image import OneInstanceImages
    from milbench.families.street_numbers import StreetNumbers
    from milbench.networks.convolutional import AllConvolutional, Layer
    from milbench.networks.instance import InstanceMLP
    from milbench.networks.registry import load_network

__all__ = [
    "AllConvolutional", "BagClassifier", "Bags", "Comparison", "EvalSplit", "Evaluation", "Head", "ImageSplits",
    "InstanceMLP", "LabelSets", "LabelledImages", "Layer", "Loss", "NestedDigits", "Network",
    "OneInstanceImages", "Outcomes", "Published", "Recipe", "Reduction", "ScoreFunction", "Scores", "Split",
    "StreetNumbers", "Supervision", "Task", "Truth", "UsageError", "__version__", "bag_sizes",
    "compare", "evaluate_bags", "generator", "label_matrix", "load_loss", "load_network",
    "load_task", "pad_bags", "results",
]  # fmt: skip

_HOMES = {
    "milbench._utils.seeding": ("generator",),
    "milbench.api.bags": ("Bags", "Truth", "label_matrix", "pad_bags"),
    "milbench.api.loss_checks": ("LabelSets",),
    "milbench.api.loss": ("Head", "Loss", "Reduction", "bag_sizes"),
    "milbench.api.outcomes": ("Outcomes",),
    "milbench.api.published": ("Published",),
    "milbench.api.recipe": ("Recipe",),
    "milbench.api.supervision": ("Supervision",),
    "milbench.api.task": ("Evaluation", "Network", "ScoreFunction", "Scores", "Split", "Task"),
    "milbench.comparison": ("Comparison", "compare", "results"),
    "milbench.data.labelled_images": ("ImageSplits", "LabelledImages"),
    "milbench.estimator": ("BagClassifier",),
    "milbench.evaluation.evaluate": ("EvalSplit", "evaluate_bags"),
    "milbench.families.nested_digits": ("NestedDigits",),
    "milbench.families.single_image": ("OneInstanceImages",),
    "milbench.families.street_numbers": ("StreetNumbers",),
    "milbench.networks.convolutional": ("AllConvolutional", "Layer"),
    "milbench.networks.instance": ("InstanceMLP",),
    "milbench.networks.registry": ("load_network",),
}
"""Where each public name that is imported on first use is defined."""


def load_loss(name: str, *, reduction: Reduction = "mean", **params: Any) -> Loss:
    """Return a new loss, by its name: `load_loss("exact")` is `milbench.losses.Exact()`.

    Args:
        name: the name of a built-in or installed loss, or the path of a Python file that holds one.
        reduction: of the losses of the bags of a batch: `mean`, `sum`, or `none`, one value a bag.
        params: arguments of the loss's constructor, checked against its annotations.

    Raises:
        UsageError: there is no such loss, or a parameter is unknown, missing or out of range.

    Examples:
        >>> import torch
        >>> loss = load_loss("exact", reduction="none")
        >>> logits = torch.zeros(2, 3 + 1, 5)  # two bags of five positions, three classes and the background
        >>> labels = torch.tensor([[True, False, False], [False, False, False]])
        >>> loss(logits, labels)  # log(4^5 / (2^5 - 1)) / 5 and log(4^5) / 5, as every label map is equally probable
        tensor([0.6995, 1.3863])
    """
    from milbench.api.loss import Reduction
    from milbench.api.registry import losses

    losses().read_edited()
    loss = losses().create(name, params)
    loss.reduction = one_of(f"reduction of {loss.name}", reduction, get_args(Reduction))
    return loss


def load_task(name: str, **params: Any) -> Task:
    """Return a new task, by its name; its data are neither checked nor loaded yet.

    Args:
        name: the name of a built-in or installed task, or the path of a Python file that holds one.
        params: arguments of the task's constructor, checked against its annotations.

    Raises:
        UsageError: there is no such task, or a parameter is unknown, missing or out of range.

    Examples:
        >>> task = load_task("synthetic-bags", num_classes=3, min_size=2, max_size=6)
        >>> task.recipe().optimizer
        'adamw'
    """
    from milbench.api.registry import tasks

    tasks().read_edited()
    return tasks().create(name, params)


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
