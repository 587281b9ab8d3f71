"""The label, definition, direction and unit of each metric, for reports and documentation.

This module does not import torch.
"""

from dataclasses import dataclass, replace

from milbench.contracts.reliability import BINS


@dataclass(frozen=True, slots=True)
class Metric:
    """The description of a metric."""

    label: str
    """Its name in tables and figures."""
    definition: str
    """What it measures, in sentences."""
    lower_is_better: bool = True
    percent: bool = True
    """Whether it is a share that reports write as a percentage: 0.0052 as 0.52."""

    @property
    def is_share(self) -> bool:
        """Whether its values are from 0 to 1: percentages, areas below a curve, and IoU."""
        # Among the metrics by which losses are compared, those that are better the larger they are
        # have values from 0 to 1.
        return self.percent or not self.lower_is_better

    @property
    def heading(self) -> str:
        """The label for the head of a column, with the unit and an arrow to the better side."""
        heading = self.label
        if self.percent:
            heading += " (%)"
        arrow = "↓" if self.lower_is_better else "↑"
        return f"{heading} {arrow}"


BASELINE = "pooled_trees_"
"""The prefix of a metric of the simple baseline; see `milbench.evaluation.baseline`."""
BASELINE_NAME = "pooled features, extra trees"
BASELINE_METRICS = (
    "set_error",
    "label_error",
    "own_label_error",
    "macro_f1",
    "own_macro_f1",
    "average_precision",
    "auroc",
)
"""The metrics that the baseline has: the metrics of label sets and of rankings."""


METRICS: dict[str, Metric] = {
    "instance_error": Metric(
        "one-instance error",
        "Share of the bags of one instance whose class does not have the largest of the loss's "
        "own class scores. A bag whose scores are all -inf, or include a NaN, counts as an error.",
    ),
    "macro_f1": Metric(
        "macro F1",
        "F1 = 2 TP / (2 TP + FP + FN), the harmonic mean of precision and recall, where TP, FP "
        "and FN count the true positives, false positives and false negatives of a class. Mean "
        "over the classes that occur in test bags, with the threshold of the set error.",
        lower_is_better=False,
    ),
    "own_macro_f1": Metric(
        "macro F1, threshold of the label error",
        "Macro F1 with the threshold that is chosen by the label error.",
        lower_is_better=False,
    ),
    "set_error": Metric(
        "set error",
        "Share of the bags whose predicted label set differs from the true one. The predicted "
        "label set holds the classes with a presence score at or above a threshold. The threshold "
        "of each network is chosen by this error on validation bags, or on training bags where "
        "there are none. The error is smoothed for this choice, so that a few bags do not move "
        "the threshold far.",
    ),
    "label_error": Metric(
        "label error",
        "Share of all pairs of a bag and a class where the predicted label set and the true one "
        "differ (Hamming loss), with the threshold of the set error. Where no whole label set is "
        "predicted right, that threshold is arbitrary: read the label error with a threshold of "
        "its own.",
    ),
    "own_label_error": Metric(
        "label error, own threshold",
        "Label error with a threshold of its own. It is chosen by the label error, on the same "
        "bags as the threshold of the set error.",
    ),
    "no_skill_set_error": Metric(
        "set error without skill",
        "Set error if the most common label set of the training bags is predicted for every bag: "
        "the no-skill line.",
    ),
    "no_skill_label_error": Metric(
        "label error without skill",
        "Label error if the classes that more than half of the training bags have are predicted "
        "for every bag.",
    ),
    "no_skill_instance_error": Metric(
        "one-instance error without skill",
        "One-instance error if the class that is in most training bags is predicted for every "
        "instance.",
    ),
    "no_skill_posterior_error": Metric(
        "posterior error without skill",
        "Posterior error if the class that most instances of these bags have, which may be the "
        "background, is predicted for every instance.",
    ),
    "average_precision": Metric(
        "average precision",
        "Area under the precision-recall curve of the presence scores (scikit-learn's "
        "average_precision_score), mean over the classes that are in some bags and not in others.",
        lower_is_better=False,
        percent=False,
    ),
    "auroc": Metric(
        "AUROC",
        "Probability that a bag with the class has a higher presence score than a bag without it "
        "(scikit-learn's roc_auc_score), mean over the classes that are in some bags and not in "
        "others.",
        lower_is_better=False,
        percent=False,
    ),
    "hit_rate": Metric(
        "hit rate",
        "Share of all pairs of a bag and a class of its label set where the position with the "
        "strongest evidence, by the loss itself, shows the class. In an image or a sequence, the "
        "centre of the position has to be inside the box or interval of an instance of the class. "
        "In a set, the instance at the position has to be of the class.",
        lower_is_better=False,
    ),
    "posterior_error": Metric(
        "posterior error",
        "Share of the instances in all bags whose class, which may be the background, does not "
        "have the largest of the loss's own instance probabilities.",
    ),
    "nll": Metric(
        "negative log-likelihood, nats",
        "Mean of -log Prb(true label set) over bags, by the loss's own model. The model of exact "
        "and its relatives has independent positions; their value is an upper bound for label "
        "sets of more than 16 classes. The model of losses that solve a binary problem for each "
        "class has independent classes. Missing for other losses, and where the label set of a "
        "bag is impossible by the model.",
        percent=False,
    ),
    "presence_ece": Metric(
        "calibration error of presence",
        "Expected calibration error of the presence of each class in each bag, by the loss's own "
        f"probabilities, over {BINS} bins of equal mass: the mean distance between the frequency "
        "and the mean probability in a bin. By chance it is above 0 even where the probabilities "
        "are right.",
    ),
    "set_ece": Metric(
        "calibration error of label sets",
        "Expected calibration error of the probability that the loss's own model gives to the "
        f"label set at even odds, over {BINS} bins of equal mass. This label set holds the "
        "classes with a presence of 0 or more; the threshold of the set error is not used.",
    ),
    "bayes_instance_error": Metric(
        "Bayes one-instance error",
        "One-instance error of the optimal decision on the same bags, which is made with the "
        "distribution of the generator.",
    ),
    "bayes_set_error": Metric(
        "Bayes set error",
        "Set error of the most probable label set given the instances, on the same bags.",
    ),
    "bayes_posterior_error": Metric(
        "Bayes posterior error",
        "Posterior error of the exact posterior of each instance, on the same instances.",
    ),
    **{
        f"excess_{name}": Metric(
            f"excess {label}",
            f"{label.capitalize()} minus the Bayes {label}. It can be negative by chance.",
        )
        for name, label in (
            ("instance_error", "one-instance error"),
            ("set_error", "set error"),
            ("posterior_error", "posterior error"),
        )
    },
    "learnable_posterior_error": Metric(
        "posterior error of what can be learnt",
        "Posterior error where classes that label sets cannot tell apart count as one class: two "
        "classes that occur only together, or the background and a class that is in every bag.",
    ),
    "reference_set_error": Metric(
        "set error of the reference",
        "Set error, on the same bags, of the instance-wise reference. The reference knows the "
        "distribution of training bags, and sees one instance at a time, as the network does: for "
        "instance k it gives a class the probability p_k. The class is present in the bag with "
        "probability 1 - prod_k (1 - p_k), and predicted with the best threshold for validation "
        "bags.",
    ),
    "reference_posterior_error": Metric(
        "posterior error of the reference",
        "Posterior error of the instance-wise reference (see set error of the reference), which "
        "takes the most probable class of each instance, whatever else is in its bag.",
    ),
    "reference_learnable_posterior_error": Metric(
        "reference for what can be learnt",
        "Posterior error of the instance-wise reference where classes that label sets cannot tell "
        "apart count as one class, as in posterior error of what can be learnt.",
    ),
    **{
        f"above_reference_{name}": Metric(
            f"{label} above the reference",
            "The error of the network minus the error of the instance-wise reference on the same "
            "bags. It can be negative by chance, or where a network learns what the reference "
            "ignores, such as which classes occur together.",
        )
        for name, label in (
            ("set_error", "set error"),
            ("posterior_error", "posterior error"),
            ("learnable_posterior_error", "posterior error of what can be learnt,"),
        )
    },
    "transcription_error": Metric(
        "transcription error",
        "Share of the images whose digits are not read exactly by the chosen decoder: the one of "
        "columns, strongest and components (below) that reads most validation strings exactly. "
        "Among equally good decoders it is the first in this order.",
    ),
    "transcription_error_columns": Metric(
        "transcription error, columns",
        "Share of the images whose string is not read exactly by the decoder of the published "
        "numbers. It reads a digit in each column of positions: the digit that is most probable "
        "in most rows (if several digits are, the smallest), or none where the background is most "
        "probable in all rows. A digit is written where it differs from the digit of the column "
        "before.",
    ),
    "transcription_error_strongest": Metric(
        "transcription error, strongest",
        "Share of the images whose string is not read exactly from the strongest positions. Each "
        "class of the loss's own label set (see set error) is written once, at the position where "
        "its evidence is largest. The digits are read from left to right, or from top to bottom "
        "by the rule of the decoder components. Numbers with a repeated digit are never read.",
    ),
    "transcription_error_components": Metric(
        "transcription error, components",
        "Share of the images whose string is not read exactly from connected components. A "
        "component joins positions with the same most probable class, given the loss's own label "
        "set (see set error). Components are read from left to right, or from top to bottom where "
        "they spread by a certain factor further down than across. This factor, the least mass of "
        "a component, the least distance between digits and the length of a digit are learnt on "
        "validation images.",
    ),
    "error_no_detection": Metric(
        "no digit read", "Share of the images in which no digit is read (chosen decoder)."
    ),
    "error_orientation": Metric(
        "orientation errors",
        "Share of the images that are read wrongly in one of two ways. Either the right digits "
        "are read in another order; or the digits stand below each other (by the centres of their "
        "boxes), and the most probable classes are the right ones.",
    ),
    "error_clustering": Metric(
        "clustering errors",
        "Share of the images in which only how often a digit is repeated is read wrongly, without "
        "an orientation error.",
    ),
    "error_edge_or_one": Metric(
        "edges or ones",
        "Share of the images in which only the number of digits 1 is read wrongly, without any of "
        "the errors above. A vertical edge resembles a 1.",
    ),
    "error_substitution": Metric(
        "substitutions",
        "Share of the images in which the right number of digits is read, but some of them "
        "wrongly, without any of the errors above.",
    ),
    "error_other": Metric(
        "other reading errors",
        "Share of the images that are read wrongly in any other way: digits are missing, there "
        "are too many, or errors coincide. This share and the five above add up to the "
        "transcription error.",
    ),
    "mean_iou": Metric(
        "mean IoU",
        "Mean over all instances of the largest intersection over union (IoU) of their box with a "
        "detection of their class, 0 where there is none. A detection is the box around a "
        "connected component (see transcription error, components), enlarged by a margin across "
        "and a margin down. The margins are those that maximise this metric on the validation "
        "images and their boxes.",
        lower_is_better=False,
        percent=False,
    ),
    "box_average_precision": Metric(
        "box average precision",
        "Area under the interpolated precision-recall curve of the detections (see mean IoU), "
        "mean over the classes that have instances. Detections are ranked by the expected number "
        "of positions of their class. A detection is right if it has an IoU of at least 0.5 with "
        "the instance of its class that it overlaps most, and no detection ranked above it "
        "matches that instance.",
        lower_is_better=False,
        percent=False,
    ),
    "threshold": Metric(
        "presence threshold",
        "The presence score from which on a class counts as detected (see set error). Each loss "
        "has its own scale.",
        percent=False,
    ),
    "label_threshold": Metric(
        "presence threshold by label error",
        "The presence score from which on a class counts as detected in label error, own "
        "threshold.",
        percent=False,
    ),
    "bags": Metric(
        "bags to choose by",
        "Number of bags by which thresholds are chosen: validation bags, or training bags where "
        "there are none.",
        lower_is_better=False,
        percent=False,
    ),
    "clipped": Metric(
        "clipped steps",
        "Share of the training steps whose gradient the recipe shortened to a limit, or scaled to "
        "length 1. An absolute limit may shorten the gradients of one loss and leave those of "
        "another loss unchanged.",
    ),
    "loss": Metric(
        "training loss",
        "The loss that was minimised, mean over the bags of an epoch. Each loss has its own units.",
        percent=False,
    ),
}
"""The metrics by their names without the split: "instance_error" for "test/instance_error"."""


def _of_baseline(metric: Metric) -> Metric:
    """Return the description of the same metric of the simple baseline."""
    # `str.capitalize` would turn all other letters into lower case, as in AUROC and F1.
    subject = metric.label[0].upper() + metric.label[1:]
    definition = (
        f"{subject} of extra trees (scikit-learn) on the mean, the largest and the smallest value "
        "of each feature of a bag, trained on the same bags as the losses."
    )
    return replace(metric, label=f"{metric.label} of {BASELINE_NAME}", definition=definition)


METRICS |= {BASELINE + name: _of_baseline(METRICS[name]) for name in BASELINE_METRICS}


def describe(name: str) -> Metric:
    """Return the description of a metric, by its name without the split.

    For a name that is not in `METRICS`, the label is the name, and lower is taken to be better.
    """
    if name in METRICS:
        return METRICS[name]
    definition = (
        "Defined by its task; milbench has no description of it and takes lower to be better."
    )
    return Metric(name.replace("_", " "), definition, percent=False)
