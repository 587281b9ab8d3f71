"""All metrics, computed from the predictions of a network.

`milbench.contracts.metric_info` defines them. No code in this file imports torch, so that a report
can compute metrics, outcomes and counts anew without it.

Some tasks have images of strings, such as house numbers. Then predictions have a `reading`: what
several decoders have read. A decoder makes a string of what a network says about the positions of
an image. Where a string is read wrongly, the pattern of the error says why
(`milbench.contracts.decoder`).
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from milbench.contracts.decoder import PATTERNS, Decoder
from milbench.contracts.outcomes import Outcomes
from milbench.contracts.predictions import (
    Bools,
    Predictions,
    Reading,
    SplitPredictions,
    TrainingLabels,
)
from milbench.contracts.reliability import BINS, Bin, calibration_error
from milbench.evaluation.by_bag import (
    auroc_by_bag,
    average_precision_by_bag,
    macro_f1_by_bag,
)
from milbench.evaluation.thresholds import EVEN_ODDS, choose_threshold, predicted_sets

THRESHOLD = "chosen/threshold"
"""The key, among the metrics, of the threshold that is chosen by the set error."""
LABEL_THRESHOLD = "chosen/label_threshold"
"""The key of the threshold that is chosen by the label error."""
CHOOSING_BAGS = "chosen/bags"
"""The key of the number of bags on which both thresholds are chosen."""
LARGEST_LOG_PROB = -(2.0**-24)
"""The logarithm of the largest probability below 1 in single precision.

Networks compute in single precision.
"""
CONFUSION_LIMIT = 30
"""The most classes for which `class_counts` counts which class is taken for which.

Nobody would read a larger table.
"""


class Thresholds(NamedTuple):
    """Two thresholds: a class is predicted where its presence score is at least the threshold."""

    by_sets: float
    """The threshold that is chosen by the set error. Most metrics use it."""
    by_labels: float
    """The threshold that is chosen by the label error.

    The metrics `own_label_error` and `own_macro_f1` use it. Their names say that single classes
    have a threshold of their own, beside that of whole label sets.
    """


def chosen_thresholds(predictions: Predictions) -> Thresholds:
    """Return the thresholds, which are chosen before the test bags are seen.

    They are chosen on the calibration bags if there are any, else on the validation bags.
    Calibration bags are training bags or are made of what the network was trained on, so that it
    may separate them by a wide gap. Every threshold in the gap is equally good on them, and the one
    nearest to even odds is taken.
    """
    return Thresholds(
        by_sets=_threshold_by(predictions, "sets"),
        by_labels=_threshold_by(predictions, "labels"),
    )


def _threshold_by(predictions: Predictions, by: Literal["sets", "labels"]) -> float:
    """Return one of the thresholds that `chosen_thresholds` describes."""
    bags = predictions[predictions.choosing_split]
    are_trained_on = predictions.choosing_split == "calibration"
    near = EVEN_ODDS if are_trained_on else None
    return choose_threshold(bags.presence, bags.labels, by=by, near=near)


def metrics_of(predictions: Predictions) -> dict[str, float]:
    """Return all metrics by `split/metric`, and the chosen thresholds by `chosen/...`.

    Undefined metrics are left out.
    """
    thresholds = chosen_thresholds(predictions)
    values = {
        THRESHOLD: thresholds.by_sets,
        LABEL_THRESHOLD: thresholds.by_labels,
        CHOOSING_BAGS: float(len(predictions[predictions.choosing_split])),
    }
    for split in predictions.reported_splits:
        for metric, value in _metrics_of_split(predictions, split, thresholds).items():
            if not math.isnan(value):
                values[f"{split}/{metric}"] = value
    values |= predictions.known
    values |= _beyond_known(values, predictions.known)
    return values


def _metrics_of_split(
    predictions: Predictions, split: str, thresholds: Thresholds
) -> dict[str, float]:
    """Return the metrics of a split by their names. Undefined ones are NaN or left out."""
    bags = predictions[split]
    ratios = outcomes_of_split(predictions, split, thresholds)
    values = {metric: ratio.value for metric, ratio in ratios.items()}
    values["macro_f1"] = macro_f1(bags, thresholds.by_sets)
    values["own_macro_f1"] = macro_f1(bags, thresholds.by_labels)
    values |= ranking_metrics(bags.presence, bags.labels)
    if predictions.training is not None:
        values |= no_skill_errors(predictions.training, bags, predictions.single(split))
    for metric, bins in reliability(bags).items():
        values[metric] = calibration_error(bins)
    if bags.reading is not None:
        values |= _reading_metrics(bags.reading, chosen_decoder(predictions))
    return values


def outcomes(predictions: Predictions) -> dict[str, Outcomes]:
    """Return what each test bag adds to each metric.

    Tests between losses need these values, since a metric alone does not tell how much it varies
    from bag to bag.
    """
    thresholds = chosen_thresholds(predictions)
    of_test = outcomes_of_split(predictions, "test", thresholds)
    of_test |= _outcomes_of_classes(predictions["test"], thresholds)
    reading = predictions["test"].reading
    if reading is not None:
        wrong = wrong_strings(reading, chosen_decoder(predictions))
        of_test["transcription_error"] = _ratio(wrong, np.ones(len(wrong)), predictions["test"])
    return of_test


def _outcomes_of_classes(bags: SplitPredictions, thresholds: Thresholds) -> dict[str, Outcomes]:
    """Return what each bag adds to F1, average precision and AUROC, as `by_bag` computes it.

    These metrics are means over classes. Metrics that are not defined are left out.
    """
    predicted = predicted_sets(bags.presence, thresholds.by_sets)
    predicted_by_labels = predicted_sets(bags.presence, thresholds.by_labels)
    by_metric = {
        "macro_f1": macro_f1_by_bag(predicted, bags.labels),
        "own_macro_f1": macro_f1_by_bag(predicted_by_labels, bags.labels),
        "average_precision": average_precision_by_bag(bags.presence, bags.labels),
        "auroc": auroc_by_bag(bags.presence, bags.labels),
    }
    one = np.ones(len(bags))
    found = {}
    for metric, values in by_metric.items():
        if values is not None:
            found[metric] = _ratio(values, one, bags)
    return found


def outcomes_of_split(
    predictions: Predictions, split: str, thresholds: Thresholds
) -> dict[str, Outcomes]:
    """Return what each bag of a split adds to those metrics that are ratios of sums over bags.

    They are metrics of label sets, hits and instances. Those that are not defined are left out.
    """
    bags = predictions[split]
    one = np.ones(len(bags))
    # (n,), how many classes are judged in each bag: all C of them.
    classes = np.full(len(bags), bags.labels.shape[1])
    # (n, C), whether the predicted label set of a bag is wrong about a class.
    misjudged = predicted_sets(bags.presence, thresholds.by_sets) != bags.labels
    misjudged_by_labels = predicted_sets(bags.presence, thresholds.by_labels) != bags.labels
    found: dict[str, Outcomes] = {}

    one_instance_bags = predictions.single(split)
    if one_instance_bags is not None and one_instance_bags.classes is not None:
        true_classes = one_instance_bags.labels.argmax(axis=1)
        wrong = wrong_classes(one_instance_bags.classes, true_classes)
        found["instance_error"] = _ratio(wrong, np.ones(len(wrong)), one_instance_bags)
    found["set_error"] = _ratio(misjudged.any(axis=1), one, bags)
    found["label_error"] = _ratio(misjudged.sum(axis=1), classes, bags)
    found["own_label_error"] = _ratio(misjudged_by_labels.sum(axis=1), classes, bags)
    if bags.hits is not None and bags.labels.any():
        hits_of_present = bags.hits & bags.labels
        found["hit_rate"] = _ratio(hits_of_present.sum(axis=1), bags.labels.sum(axis=1), bags)
    if bags.wrong is not None and bags.sizes is not None:
        found["posterior_error"] = _ratio(bags.wrong, bags.sizes, bags)
    if bags.log_prob is not None and np.isfinite(bags.log_prob).all():
        found["nll"] = _ratio(-bags.log_prob, one, bags)
    # Metrics that a task defines itself, such as `mean_iou` of boxes in images of strings.
    for metric, ratio in bags.ratios.items():
        found[metric] = _ratio(ratio.sums, ratio.weights, bags)
    return found


def _ratio(sums: NDArray[Any], weights: NDArray[Any], bags: SplitPredictions) -> Outcomes:
    """Return the outcomes of a metric that is the ratio of two sums over bags."""
    return Outcomes(sums, weights, bags.digest)


def wrong_classes(class_scores: NDArray[Any], classes: NDArray[Any]) -> Bools:
    """Return (n,), for bags of one instance whether the class with the largest score is wrong.

    A bag whose scores are all -inf counts as wrong.

    Args:
        class_scores: (n, C).
        classes: (n,), the true class of each instance.
    """
    # Without this, a bag whose scores are all -inf would be taken for the first class.
    names_none = (class_scores == -math.inf).all(axis=1)
    wrong: Bools = names_none | (class_scores.argmax(axis=1) != classes)
    return wrong


def macro_f1(bags: SplitPredictions, threshold: float) -> float:
    """Return the mean of F1 over the classes that occur in some bag; NaN where no class occurs.

    F1 is 2 TP / (2 TP + FP + FN), where TP, FP and FN are the numbers of true positives, of false
    positives and of false negatives.
    """
    predicted = predicted_sets(bags.presence, threshold)
    occurs = bags.labels.any(axis=0)
    if not occurs.any():
        return math.nan
    true_positives = (predicted & bags.labels).sum(axis=0)
    # FP + FN.
    errors = (predicted != bags.labels).sum(axis=0)
    f1 = 2 * true_positives[occurs] / (2 * true_positives + errors)[occurs]
    return float(f1.mean())


def ranking_metrics(presence: NDArray[Any], labels: Bools) -> dict[str, float]:
    """Return average precision and the area under the ROC curve (`auroc`) of presence scores.

    These metrics only depend on how the scores of a class rank the bags. They are means over the
    classes that some bags have and some do not have; NaN where there is no such class.

    Args:
        presence: (n, C).
        labels: (n, C), the true label sets.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    precisions = []
    areas = []
    for c in range(labels.shape[1]):
        if labels[:, c].all() or not labels[:, c].any():
            continue
        # Ranks replace the scores, as scikit-learn refuses infinite scores. Equal scores have equal
        # ranks.
        _, ranks = np.unique(presence[:, c], return_inverse=True)
        precisions.append(average_precision_score(labels[:, c], ranks))
        areas.append(roc_auc_score(labels[:, c], ranks))
    return {
        "average_precision": float(np.mean(precisions)) if precisions else math.nan,
        "auroc": float(np.mean(areas)) if areas else math.nan,
    }


def no_skill_errors(
    training: TrainingLabels, bags: SplitPredictions, one_instance_bags: SplitPredictions | None
) -> dict[str, float]:
    """Return the errors of no skill: of the best answer that is the same for every bag.

    For the set error, the answer is the most common label set of the training bags. For the label
    error, it is the classes of more than half of the training bags. For the one-instance error, it
    is the class of most training bags. For the posterior error, it is the class of most instances
    of the evaluated bags, since training bags do not tell the classes of their instances.

    Args:
        training: what the training bags tell of their label sets.
        bags: the bags to evaluate on.
        one_instance_bags: the bags of one instance to evaluate on; None: there are none.

    Returns:
        The errors by the names of the metrics.
    """
    misjudged = bags.labels != training.most_common_set
    common_classes = training.class_shares > 0.5
    errors = {
        "no_skill_set_error": misjudged.any(axis=1).mean(),
        "no_skill_label_error": (bags.labels != common_classes).mean(),
    }
    if one_instance_bags is not None:
        most_common_class = training.class_shares.argmax()
        is_of_that_class = one_instance_bags.labels[:, most_common_class]
        errors["no_skill_instance_error"] = 1 - is_of_that_class.mean()
    if bags.instance_classes is not None:
        # How many instances show each class.
        counts = bags.instance_classes
        errors["no_skill_posterior_error"] = 1 - counts.max() / counts.sum()
    return {name: float(error) for name, error in errors.items()}


def _beyond_known(values: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """Return how far metrics are above the known values of an optimum or a reference.

    Tasks with a known distribution of bags know the errors of the optimal decisions, and of a
    reference that looks at one instance at a time (`milbench.families.decisions`). From
    `bayes_METRIC` of the optimum this computes `excess_METRIC`, and from `reference_METRIC` it
    computes `above_reference_METRIC`.
    """
    prefix_of_difference = {"bayes_": "excess_", "reference_": "above_reference_"}
    beyond = {}
    for name, known_value in known.items():
        split, known_metric = name.split("/")
        for prefix, new_prefix in prefix_of_difference.items():
            if not known_metric.startswith(prefix):
                continue
            metric = known_metric.removeprefix(prefix)
            value = values.get(f"{split}/{metric}")
            if value is not None:
                beyond[f"{split}/{new_prefix}{metric}"] = value - known_value
    return beyond


def class_counts(predictions: Predictions) -> NDArray[np.int64]:
    """Return for each class how often it occurs, is predicted, and is taken for another class.

    The result is (C, 3), or (C, 3 + C) with at most CONFUSION_LIMIT classes. The first three
    columns say in how many test bags the class is present, is predicted, and is both. A further
    column for each class j says in how many test bags the class of the row is missed and class j is
    wrongly predicted.
    """
    bags = predictions["test"]
    predicted = predicted_sets(bags.presence, _threshold_by(predictions, "sets"))
    both = bags.labels & predicted
    # (3, n, C), summed over the n bags to (3, C).
    sums = np.stack([bags.labels, predicted, both]).sum(axis=1)
    counts: NDArray[np.int64] = sums.T.astype(int)
    num_classes = len(counts)
    if num_classes > CONFUSION_LIMIT:
        return counts
    missed = (bags.labels & ~predicted).astype(np.int64)
    wrongly_predicted = (predicted & ~bags.labels).astype(np.int64)
    # (C, C), how many bags have both a missed class and a wrongly predicted one.
    taken_for = missed.T @ wrongly_predicted
    return np.concatenate([counts, taken_for], axis=1)


def reliability(bags: SplitPredictions) -> dict[str, list[Bin]]:
    """Return the bins behind the calibration errors, by the name of the error.

    `presence_ece` needs log-odds of single classes, `set_ece` probabilities of label sets. A loss
    that has no such scores has no bins.
    """
    # Imported only now, as scipy takes a while to import and a plan of cells does not need it.
    from scipy.special import expit

    bins: dict[str, list[Bin]] = {}
    if bags.log_odds is not None:
        probabilities = expit(bags.log_odds.astype(np.float64).ravel())
        bins["presence_ece"] = reliability_bins(probabilities, bags.labels.ravel())
    if bags.even_odds_log_prob is not None:
        wrong = (predicted_sets(bags.presence, EVEN_ODDS) != bags.labels).any(axis=1)
        # The probability of the label set that is predicted at even odds, which may be wrong. How
        # far it is from 1 is rounding noise where its logarithm is above
        # LARGEST_LOG_PROB. Such probabilities are made equal, so that they share a bin.
        log_prob = bags.even_odds_log_prob.astype(np.float64).clip(max=LARGEST_LOG_PROB)
        bins["set_ece"] = reliability_bins(np.exp(log_prob), ~wrong)
    return bins


def reliability_bins(probabilities: NDArray[Any], happened: Bools) -> list[Bin]:
    """Return bins of forecasts that are sorted and cut into BINS groups of about equal size.

    Equal forecasts are all in the bin of the first of them. Otherwise the order of the bags would
    decide which of them share a bin.

    Source of the expected calibration error: M. P. Naeini, G. F. Cooper and M. Hauskrecht,
    "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015.

    Args:
        probabilities: (n,), the forecasts.
        happened: (n,), whether what was forecast is true.
    """
    # The rank of a forecast is how many are smaller, so that equal forecasts have equal ranks.
    ranks = np.searchsorted(np.sort(probabilities), probabilities)
    bin_of_forecast = BINS * ranks // len(probabilities)
    counts = np.bincount(bin_of_forecast, minlength=BINS)
    sums = np.bincount(bin_of_forecast, probabilities, minlength=BINS)
    hits = np.bincount(bin_of_forecast, happened.astype(float), minlength=BINS)
    bins = []
    for index in np.flatnonzero(counts).tolist():
        count = int(counts[index])
        # Rounding may make the mean of forecasts near to 1 larger than 1.
        probability = min(1.0, float(sums[index] / counts[index]))
        frequency = float(hits[index] / counts[index])
        bins.append(Bin(index, count, probability, frequency))
    return bins


def wrong_strings(reading: Reading, decoder: Decoder) -> Bools:
    """Return (n,), in which images a decoder does not read the exact string."""
    # A reading has what each decoder reads in a field of the decoder's name.
    read = getattr(reading, decoder)
    wrong: Bools = (read != reading.true).any(axis=1)
    return wrong


def chosen_decoder(predictions: Predictions) -> Decoder:
    """Return the decoder that reads the most strings exactly, the first of equally good ones.

    It is chosen on the bags by which thresholds are chosen. Raises ValueError where the strings of
    these bags were not read.
    """
    reading = predictions[predictions.choosing_split].reading
    if reading is None:
        raise ValueError("no strings were read in the bags by which a decoder is chosen")
    decoders: tuple[Decoder, ...] = get_args(Decoder)
    return min(decoders, key=lambda decoder: int(wrong_strings(reading, decoder).sum()))


def _reading_metrics(reading: Reading, chosen: Decoder) -> dict[str, float]:
    """Return the shares of strings that are read wrongly, and the average precision of boxes.

    The share of wrong strings is given for every decoder, and without a decoder's name for
    `chosen`, the decoder that was chosen. For `chosen`, the share of each pattern of errors is
    given too.
    """
    values = {}
    for decoder in get_args(Decoder):
        values[f"transcription_error_{decoder}"] = float(wrong_strings(reading, decoder).mean())
    values["transcription_error"] = values[f"transcription_error_{chosen}"]
    # `reading.pattern` is about the errors of the chosen decoder alone.
    for number, pattern in enumerate(PATTERNS):
        values[f"error_{pattern}"] = float((reading.pattern == number).mean())
    values["box_average_precision"] = box_average_precision(reading)
    return values


def box_average_precision(reading: Reading) -> float:
    """Return the average precision of detections, as PASCAL VOC has defined it from 2010 on.

    The detections of a class are ranked by their mass, the largest first: the expected number of
    positions of the class (`Reading.detection_mass`). The average precision is the area under
    the curve of precision over recall, where the precision at a recall is replaced by the largest
    precision at this or a higher recall. The result is the mean over the classes that have
    instances; NaN where no class has any.

    Source: M. Everingham et al., "The PASCAL Visual Object Classes Challenge: A Retrospective",
    IJCV 111, 2015.
    """
    areas = []
    classes = np.unique(reading.true[reading.true >= 0])
    for c in classes:
        instances = int((reading.true == c).sum())
        detections = np.flatnonzero(reading.detection_class == c)
        ranking = np.argsort(-reading.detection_mass[detections], kind="stable")
        right = reading.detection_right[detections[ranking]].astype(float)
        precision = right.cumsum() / np.arange(1, len(right) + 1)
        # The largest precision at this or a later detection.
        best_precision = np.maximum.accumulate(precision[::-1])[::-1]
        # Recall rises by 1 / instances at each right detection.
        areas.append(float((best_precision * right).sum() / instances))
    return float(np.mean(areas)) if areas else math.nan
