"""The labels and definitions of all metrics, for reports and documentation; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """The label and the definition of a metric.

    Args:
        label: to write in tables and figures.
        definition: one or two sentences.
        lower_is_better: whether smaller values are better.
        percent: whether values are written as percentages (0.0052 as 0.52); otherwise as they are.
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
    "transcription_error": Metric(
        "transcription error",
        "Share of the images whose string of digits is not read exactly by the default decoder, see transcription "
        "error, components.",
    ),
    "transcription_error_columns": Metric(
        "transcription error, columns",
        "Share of the images whose string is not read exactly by the rule behind the published numbers: the digit of a "
        "column is the one that wins most of its rows (the lower one of several), written where it differs from the "
        "column before; a column without one is blank.",
    ),
    "transcription_error_posterior": Metric(
        "transcription error, posterior",
        "As transcription error, columns, with the classes that positions show given the most probable label set; each "
        "of its classes is shown somewhere.",
    ),
    "transcription_error_components": Metric(
        "transcription error, components",
        "Share of the images whose string is not read exactly from the connected components of what positions show "
        "given the most probable label set, from left to right, or from top to bottom where they are spread so many "
        "times as far down as across. That number, the least mass of a component, the least distance of different "
        "digits and how far one digit of each class reaches are learnt from the strings of the validation images.",
    ),
    "transcription_error_rescored": Metric(
        "transcription error, components rescored",
        "As transcription error, components, but where the most probable label set of an image has a probability "
        "below 0.95, the network also scores the image scaled to 7/8 and 5/4 of its size. The scale whose most "
        "probable label set has the highest probability is read; the empty set is chosen only if it is the most "
        "probable at every scale. Nothing more is learnt.",
    ),
    "error_no_detection": Metric("no digit read", "Share of the images in which no digit is read (default decoder)."),
    "error_orientation": Metric(
        "orientation errors",
        "Share of the images read wrongly with the right digits in another order, or whose digits are written from top "
        "to bottom (the middles of their boxes are spread further down than across) while the classes that win a "
        "position are just theirs.",
    ),
    "error_clustering": Metric(
        "clustering errors",
        "Share of the images read wrongly only in how often a digit is repeated, and not by an orientation error.",
    ),
    "error_edge_or_one": Metric(
        "edges or ones",
        "Share of the images read wrongly only in digits 1 too many or too few, and by none of the errors before: "
        "vertical edges look like ones.",
    ),
    "error_substitution": Metric(
        "substitutions",
        "Share of the images in which as many digits are read as there are, some of them wrong, by none of the errors "
        "before.",
    ),
    "error_other": Metric(
        "other reading errors",
        "Share of the images read wrongly in any other way: digits are missing, or too many, or errors coincide. With "
        "no digit read, orientation, clustering, edges or ones and substitutions these add up to the transcription "
        "error.",
    ),
    "mean_iou": Metric(
        "mean IoU",
        "Mean over all instances of the largest intersection over union of their box with a detection of their class, "
        "0 where there is none. A detection is the box around a connected component of what positions show given the "
        "most probable label set, with a margin across and one down, each the same for all boxes, that make this "
        "largest on the validation images, whose boxes are used for it.",
        lower_is_better=False,
        percent=False,
    ),
    "box_average_precision": Metric(
        "box average precision",
        "Area under the interpolated precision-recall curve of the detections (see mean IoU), ranked by how many "
        "positions are expected to show the class there, mean over the classes that have instances; a detection is "
        "right if the instance of its class that it overlaps most has an IoU of 0.5 at least and was not found before.",
        lower_is_better=False,
        percent=False,
    ),
    "mass": Metric(
        "least mass",
        "Components of which fewer positions than this are expected to show the class are not read, see transcription "
        "error, components.",
        percent=False,
    ),
    "apart": Metric(
        "least distance",
        "Different digits are at least so many positions apart, see transcription error, components.",
        percent=False,
    ),
    "tilt": Metric(
        "least tilt",
        "A number is read from top to bottom where its components are spread more than so many times as far down as "
        "across, see transcription error, components.",
        percent=False,
    ),
    "margin_x": Metric(
        "margin across", "In pixels, on the left and the right of a detection, see mean IoU.", percent=False
    ),
    "margin_y": Metric("margin down", "In pixels, above and below a detection, see mean IoU.", percent=False),
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

RENAMED_METRICS = {"transcription_error_looks": "transcription_error_rescored"}
"""Earlier names of metrics, without the split, with those of today; stores from before the renaming have the former."""


_REACH = (
    "How many positions one digit of this class reaches in the direction of reading: a run of its components is as "
    "many digits as stretches of this length are needed to cover it, see transcription error, components."
)


def describe(name: str) -> Metric:
    """Return the label and definition of a metric by its name without the split.

    For a metric that is not in `METRICS` the label is the name, and lower values are taken to be better.
    """
    if name.startswith("reach_"):
        return Metric(f"reach of {name.removeprefix('reach_')}", _REACH, percent=False)
    unknown = "Defined by its task; milbench does not know it and takes lower to be better."
    return METRICS.get(name) or Metric(name.replace("_", " "), unknown, percent=False)
