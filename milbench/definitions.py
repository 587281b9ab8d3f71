"""What each metric means: one torch-free place that the metrics' code, the report and the documentation share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tier = Literal["set", "count", "order", "position"]
"""How much a loss is told of a bag: which classes, how often each, in which order, or where."""


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is called, what it is, which way is better and how to write it.

    percent: written as a percentage (0.0052 as 0.52); otherwise as it is.
    """

    label: str
    definition: str
    lower_is_better: bool = True
    percent: bool = True

    @property
    def heading(self) -> str:
        """Return the label with its unit and the direction that is better, for the head of a column."""
        return f"{self.label}{' (%)' if self.percent else ''} {'↓' if self.lower_is_better else '↑'}"


METRICS: dict[str, Metric] = {
    "instance_error": Metric(
        "one-instance error",
        "Share of the bags of one instance whose class is not the argmax of the loss's own class scores (a bag for "
        "which no class is named, all scores -inf or one of them NaN, is an error).",
    ),
    "set_error": Metric(
        "set error",
        "Share of the bags whose predicted label set, the classes with a presence score at or above one threshold, is "
        "not exactly theirs; the threshold, one for each trained network, is the one that makes this error smallest on "
        "the validation bags.",
    ),
    "average_precision": Metric(
        "average precision",
        "Area under the precision-recall curve of the presence scores (scikit-learn's average_precision_score), mean "
        "over the classes that some bags have and some have not.",
        lower_is_better=False,
        percent=False,
    ),
    "auroc": Metric(
        "AUROC",
        "Probability that a bag with the class has a higher presence score than one without (scikit-learn's "
        "roc_auc_score), mean over the classes that some bags have and some have not.",
        lower_is_better=False,
        percent=False,
    ),
    "hit_rate": Metric(
        "hit rate",
        "Share of all pairs of a bag and a class in its label set where the position with the largest instance "
        "probability of that class is on one of its instances: the position's centre is inside its box, or, in a bag "
        "of unordered instances, it is of that class.",
        lower_is_better=False,
    ),
    "posterior_error": Metric(
        "posterior error",
        "Share of the instances in all bags whose class, background included, is not the argmax of the instance "
        "probabilities.",
    ),
    "bayes_instance_error": Metric(
        "Bayes one-instance error",
        "One-instance error of the optimal decision, which knows the generator, on the same bags.",
    ),
    "bayes_set_error": Metric(
        "Bayes set error", "Set error of the most probable label set given the instances, on the same bags."
    ),
    "bayes_posterior_error": Metric(
        "Bayes posterior error", "Posterior error of the exact instance posterior, on the same instances."
    ),
    "excess_instance_error": Metric(
        "excess one-instance error",
        "One-instance error less that of the optimal decision on the same bags; chance can make it negative.",
    ),
    "excess_set_error": Metric(
        "excess set error",
        "Set error less that of the optimal decision on the same bags; chance can make it negative.",
    ),
    "excess_posterior_error": Metric(
        "excess posterior error", "Posterior error less that of the exact posterior on the same instances."
    ),
    "threshold": Metric(
        "presence threshold",
        "From this presence score on a class counts as detected: see set error; each loss has its own scale.",
        percent=False,
    ),
    "clipped": Metric(
        "clipped steps",
        "Share of the training steps whose gradient was longer than the recipe's clip_norm and was shortened to it: "
        "one limit may bind for one loss and not for another.",
    ),
    "loss": Metric(
        "training loss",
        "The loss that was minimised, averaged over the bags of an epoch; each loss has its own units.",
        percent=False,
    ),
}
"""By the name that follows the split: "instance_error" of "test/instance_error"."""


def describe(name: str) -> Metric:
    """Return the metric of that name; one that milbench does not know is written as it is, lower taken as better."""
    unknown = "Defined by its task; milbench does not know it and takes lower to be better."
    return METRICS.get(name) or Metric(name.replace("_", " "), unknown, percent=False)
