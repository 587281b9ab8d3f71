"""The label, definition, direction and unit of each metric, for reports and documentation; needs no torch."""

from dataclasses import dataclass

from milbench.api.reliability import BINS


@dataclass(frozen=True, slots=True)
class Metric:
    """The description of a metric."""

    label: str  # its name in tables and figures
    definition: str  # in sentences
    lower_is_better: bool = True
    percent: bool = True  # whether it is a share that is written as a percentage, 0.0052 as 0.52

    @property
    def heading(self) -> str:
        """The label with its unit and an arrow in the better direction, for the head of a column."""
        return f"{self.label}{' (%)' if self.percent else ''} {'↓' if self.lower_is_better else '↑'}"


METRICS: dict[str, Metric] = {
    "instance_error": Metric(
        "one-instance error",
        "Share of the bags of one instance whose class is not the argmax of the loss's own class scores. A bag "
        "without an argmax, because all scores are -inf or one of them is NaN, counts as an error.",
    ),
    "set_error": Metric(
        "set error",
        "Share of the bags whose predicted label set, the classes with a presence score at or above a threshold, "
        "differs from the true one. Each trained network has one threshold, which minimises this error on the "
        "validation bags, or on training bags where the task holds none out.",
    ),
    "label_error": Metric(
        "label error",
        "Share of all pairs of a bag and a class where the predicted label set and the true one differ (Hamming loss), "
        "with the threshold of the set error. It tells losses apart where hardly any whole set is right; where none "
        "is, that threshold is arbitrary, and the label error with a threshold of its own is the one to read.",
    ),
    "own_label_error": Metric(
        "label error, own threshold",
        "As label error, with the threshold that minimises the label error itself on the same bags.",
    ),
    "no_skill_set_error": Metric(
        "set error without skill",
        "Set error of the most common label set of the training bags, given as the answer for every bag: the no-skill "
        "line, which a loss has to beat.",
    ),
    "no_skill_label_error": Metric(
        "label error without skill",
        "Label error of the answer that holds, for every bag, the classes of more than half of the training bags.",
    ),
    "no_skill_instance_error": Metric(
        "one-instance error without skill",
        "One-instance error of the class that is in most training bags, given as the answer for every instance.",
    ),
    "average_precision": Metric(
        "average precision",
        "Area under the precision-recall curve of the presence scores (scikit-learn's average_precision_score), "
        "mean over the classes that are in some bags and not in others.",
        lower_is_better=False,
        percent=False,
    ),
    "auroc": Metric(
        "AUROC",
        "Probability that a bag with the class has a higher presence score than one without (scikit-learn's "
        "roc_auc_score), mean over the classes that are in some bags and not in others.",
        lower_is_better=False,
        percent=False,
    ),
    "hit_rate": Metric(
        "hit rate",
        "Share of all pairs of a bag and a class of its label set where the position with the strongest evidence for "
        "the class, by the loss itself, is on an instance of it: the centre of the position is inside the box of the "
        "instance (in a sequence, between its begin and its end), or, in a bag of unordered instances, the instance is "
        "of that class.",
        lower_is_better=False,
    ),
    "posterior_error": Metric(
        "posterior error",
        "Share of the instances in all bags whose class, background included, is not the argmax of the loss's own "
        "instance probabilities.",
    ),
    "nll": Metric(
        "negative log-likelihood, nats",
        "Mean over the bags of -log Prb(true label set), by the loss's own model: of independent positions for exact "
        "and its relatives (an upper bound for label sets of more than 16 classes), of independent classes for losses "
        "that solve a binary problem a class. Other losses have none. Neither has a network by whose model the label "
        "set of some bag cannot occur.",
        percent=False,
    ),
    "presence_ece": Metric(
        "calibration error of presence",
        "Expected calibration error of the presence of each class in each bag, by the loss's own probabilities, over "
        f"{BINS} bins of equal mass: the mean distance between the share of a bin's pairs of a bag and a class whose "
        "class occurs and their mean probability. By chance it is above 0 also where the probabilities are right.",
    ),
    "set_ece": Metric(
        "calibration error of label sets",
        "Expected calibration error of the probability that the loss gives, by its own model, to the label set at even "
        "odds, the classes with a presence of 0 or more, against that set being right; over "
        f"{BINS} bins of equal mass. These label sets are not those of the set error, which has its own threshold.",
    ),
    "bayes_instance_error": Metric(
        "Bayes one-instance error",
        "One-instance error of the optimal decision, made with the distribution of the generator, on the same bags.",
    ),
    "bayes_set_error": Metric(
        "Bayes set error", "Set error of the most probable label set given the instances, on the same bags."
    ),
    "bayes_posterior_error": Metric(
        "Bayes posterior error", "Posterior error of the exact instance posterior, on the same instances."
    ),
    **{
        f"excess_{name}": Metric(
            f"excess {label}", f"{label.capitalize()} minus the Bayes {label}; it can be negative by chance."
        )
        for name, label in (
            ("instance_error", "one-instance error"),
            ("set_error", "set error"),
            ("posterior_error", "posterior error"),
        )
    },
    "learnable_posterior_error": Metric(
        "posterior error of what can be learnt",
        "Posterior error where the probabilities of channels that label sets cannot tell apart are added up and count "
        "as one: of two classes that occur only together, or of the background and a class that is in every bag.",
    ),
    "reference_set_error": Metric(
        "set error of the reference",
        "Set error, on the same bags, of the instance-wise reference: it knows the distribution of training bags and "
        "sees one instance at a time, as the network does. A class is present with the probability "
        "1 - prod_k (1 - p_k), with one threshold, which minimises the error on the validation bags.",
    ),
    "reference_posterior_error": Metric(
        "posterior error of the reference",
        "Posterior error of the most probable class of each instance, whatever is in its bag, by that distribution.",
    ),
    "reference_learnable_posterior_error": Metric(
        "reference for what can be learnt", "As posterior error of the reference, of what can be learnt."
    ),
    **{
        f"above_reference_{name}": Metric(
            f"{label} above the reference",
            "The error minus that of the instance-wise reference on the same bags. It can be negative: by chance, and "
            "where a network learns what the reference ignores, such as which classes occur together.",
        )
        for name, label in (
            ("set_error", "set error"),
            ("posterior_error", "posterior error"),
            ("learnable_posterior_error", "posterior error of what can be learnt,"),
        )
    },
    "transcription_error": Metric(
        "transcription error",
        "Share of the images whose string of digits is not read exactly by the chosen decoder: of columns, strongest "
        "and components (below) the first that reads most validation strings exactly.",
    ),
    "transcription_error_columns": Metric(
        "transcription error, columns",
        "Share of the images whose string is not read exactly by the decoder of the published numbers. The digit of "
        "a column of positions is the one that is most probable in most of its rows (the smallest of several); a "
        "column where the background is most probable in all rows has none. A digit is written where it differs "
        "from that of the column before.",
    ),
    "transcription_error_strongest": Metric(
        "transcription error, strongest",
        "Share of the images whose string is not read exactly from the strongest positions: each class of the loss's "
        "own label set (see set error) is written once, where the loss's evidence for it is largest, from left to "
        "right, or from top to bottom by the rule of transcription error, components. No digit is written twice, so "
        "numbers in which a digit is repeated are never read.",
    ),
    "transcription_error_components": Metric(
        "transcription error, components",
        "Share of the images whose string is not read exactly from the connected components of the most probable class "
        "of each position, given the loss's own label set of the image (see set error). Components are read from left "
        "to right, or from top to bottom where they are spread more than a certain factor as far down as across. That "
        "factor, the least mass of a component, the least distance between different digits and the length of one "
        "digit of each class are learnt from the strings of the validation images.",
    ),
    "error_no_detection": Metric("no digit read", "Share of the images in which no digit is read (chosen decoder)."),
    "error_orientation": Metric(
        "orientation errors",
        "Share of the images that are read wrongly with the right digits in another order, or whose digits are "
        "written from top to bottom (the centres of their boxes are spread further down than across) while the "
        "classes that are most probable at some position are the right ones.",
    ),
    "error_clustering": Metric(
        "clustering errors",
        "Share of the images in which only how often a digit occurs is read wrongly, without an orientation error.",
    ),
    "error_edge_or_one": Metric(
        "edges or ones",
        "Share of the images in which only the number of digits 1 is read wrongly, without any of the errors above: "
        "a vertical edge resembles a 1.",
    ),
    "error_substitution": Metric(
        "substitutions",
        "Share of the images in which the right number of digits is read, some wrongly, without the errors above.",
    ),
    "error_other": Metric(
        "other reading errors",
        "Share of the images that are read wrongly in any other way: digits are missing, there are too many, or "
        "errors coincide. This and the five shares above (no digit read, orientation, clustering, edges or ones, "
        "substitutions) add up to the transcription error.",
    ),
    "mean_iou": Metric(
        "mean IoU",
        "Mean over all instances of the largest intersection over union of their box with a detection of their "
        "class, 0 where there is none. A detection is the box around a connected component (see transcription "
        "error, components), enlarged by one margin across and one down. The margins are those that maximise this "
        "metric on the validation images, whose boxes are used for it.",
        lower_is_better=False,
        percent=False,
    ),
    "box_average_precision": Metric(
        "box average precision",
        "Area under the interpolated precision-recall curve of the detections (see mean IoU), mean over the classes "
        "that have instances. Detections are ranked by the expected number of positions of their class in the "
        "component. A detection is right if the instance of its class with which it overlaps most has an IoU of at "
        "least 0.5 with it and has no earlier detection.",
        lower_is_better=False,
        percent=False,
    ),
    "threshold": Metric(
        "presence threshold",
        "The presence score from which a class counts as detected: see set error. Each loss has its own scale.",
        percent=False,
    ),
    "label_threshold": Metric(
        "presence threshold by label error",
        "The presence score from which a class counts as detected in label error, own threshold.",
        percent=False,
    ),
    "clipped": Metric(
        "clipped steps",
        "Share of the training steps whose gradient was longer than the limit of the recipe and was shortened to it, "
        "or brought to length 1 where the recipe normalises gradients. A limit in absolute units may shorten the "
        "gradients of one loss and not those of another.",
    ),
    "loss": Metric(
        "training loss",
        "The loss that was minimised, mean over the bags of an epoch; each loss has its own units.",
        percent=False,
    ),
}
"""The metrics by their names without the split: "instance_error" for "test/instance_error"."""


def describe(name: str) -> Metric:
    """Return the description of a metric, by its name without the split.

    A name that is not in `METRICS` is its own label, and lower is taken for better.
    """
    unknown = "Defined by its task; milbench has no description of it and takes lower to be better."
    return METRICS.get(name) or Metric(name.replace("_", " "), unknown, percent=False)
