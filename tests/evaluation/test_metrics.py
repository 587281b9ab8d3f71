"""Metrics from predictions, against values by hand and scikit-learn."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from milbench.contracts.bags import Bags, Truth
from milbench.contracts.metric_info import METRICS
from milbench.contracts.predictions import Predictions, SplitPredictions, TrainingLabels
from milbench.contracts.problem import EvalSplit, Split
from milbench.contracts.registry import tasks
from milbench.contracts.scores import Scores
from milbench.errors import UsageError
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import (
    MOST_BAGS,
    about_training,
    evaluate_bags,
    label_sets,
)
from milbench.testing.task_contract import untrained_scores

INF = math.inf
Array = NDArray[Any]


def split_of(presence: Array, labels: Array, **known: Any) -> SplitPredictions:
    """Return predictions with these presence scores and label sets.

    `known` are further fields. The others do not matter to these tests and get any values.
    """
    scores = np.asarray(presence, np.float32)
    return SplitPredictions(
        labels=labels,
        presence=scores,
        classes=scores,
        bag=np.arange(len(labels)),
        digest="these bags",
        **known,
    )


@pytest.mark.parametrize(
    ("scores", "true_class", "is_wrong"),
    [
        pytest.param([3.0, 1.0], 0, False, id="the largest score is right"),
        pytest.param([0.0, 2.0], 0, True, id="the largest score is wrong"),
        pytest.param([-INF, -INF], 0, True, id="no class is predicted"),
        pytest.param([-INF, -9.0], 1, False, id="one class is predicted"),
    ],
)
def test_bags_for_which_no_class_is_predicted_are_errors(
    scores: list[float], true_class: int, is_wrong: bool
) -> None:
    wrong = metrics.wrong_classes(np.array([scores]), np.array([true_class]))
    assert wrong.tolist() == [is_wrong]


@pytest.fixture
def ranked() -> tuple[Array, Array]:
    """Return presence scores and labels of 60 bags and five classes.

    Class 1 is in all bags and class 2 in none, so that no bags can be ranked by these classes.
    """
    rng = np.random.default_rng(3)
    labels = rng.random((60, 5)) < 0.3
    labels[:, 1] = True
    labels[:, 2] = False
    noise = rng.normal(size=labels.shape)
    # Rounding makes ties between scores.
    presence = np.round(2 * (np.where(labels, 1.0, 0.0) + noise))
    return presence, labels


def ranked_by_scikit_learn(presence: Array, labels: Array) -> dict[str, Any]:
    """Return the expected ranking metrics: means over the classes 0, 3 and 4.

    The classes 1 and 2 of `ranked` are left out.
    """
    precisions = []
    areas = []
    for c in (0, 3, 4):
        precisions.append(average_precision_score(labels[:, c], presence[:, c]))
        areas.append(roc_auc_score(labels[:, c], presence[:, c]))
    return {"average_precision": np.mean(precisions), "auroc": np.mean(areas)}


def test_ranking_metrics_agree_with_scikit_learn(ranked: tuple[Array, Array]) -> None:
    presence, labels = ranked
    expected = ranked_by_scikit_learn(presence, labels)
    assert metrics.ranking_metrics(presence, labels) == pytest.approx(expected)


def test_the_lowest_scores_may_be_minus_infinity(ranked: tuple[Array, Array]) -> None:
    presence, labels = ranked
    # scikit-learn does not take -inf. So it gets the scores before they are changed, which rank the
    # bags in the same way.
    expected = ranked_by_scikit_learn(presence, labels)
    is_lowest = presence == presence.min(axis=0)
    with_infinity = np.where(is_lowest, -INF, presence)
    assert metrics.ranking_metrics(with_infinity, labels) == pytest.approx(expected)


def test_without_a_class_to_rank_ranking_metrics_are_undefined() -> None:
    found = metrics.ranking_metrics(np.zeros((4, 1)), np.ones((4, 1), bool))
    assert all(map(math.isnan, found.values()))


def test_macro_f1_agrees_with_scikit_learn_over_classes_that_occur() -> None:
    rng = np.random.default_rng(4)
    labels = rng.random((50, 4)) < 0.4
    labels[:, 2] = False
    presence = np.where(labels, 1.0, 0.0) + rng.normal(size=labels.shape)
    # Any threshold between the scores of present and of absent classes, 1 and 0 plus noise.
    threshold = 0.7
    of_classes = f1_score(labels, presence >= threshold, average=None, zero_division=0)
    # Class 2 does not occur.
    expected = of_classes[[0, 1, 3]].mean()
    found = metrics.macro_f1(split_of(presence, labels), threshold)
    assert found == pytest.approx(expected, abs=1e-6)


def bags_with(position_classes: list[list[int]], labels: list[list[bool]]) -> Bags:
    """Return a batch of bags whose instances have these classes; 2 is background.

    The bags are sets, in which every instance is a position.
    """
    classes = torch.tensor(position_classes)
    # `Truth.classes` should leave out background, but these tests do not use it.
    truth = Truth(classes=classes, position_classes=classes)
    # Scores do not depend on the features of instances.
    instances = torch.zeros(*classes.shape, 1)
    return Bags(instances, torch.tensor(labels), truth=truth)


@pytest.fixture(scope="module")
def of_two_splits() -> dict[str, float]:
    """Return the metrics of two validation and two test bags whose scores are given."""
    # The label sets of two bags: the first bag has class 0, the second class 1.
    one_of_each = [[True, False], [False, True]]
    # Two bags of one instance with one feature.
    single = Bags(torch.zeros(2, 1, 1), torch.tensor(one_of_each))
    validation = bags_with([[0, 2], [1, 2]], one_of_each)
    test = bags_with([[0, 2], [2, 1]], one_of_each)

    def score(bags: Bags) -> Scores:
        # Compared by identity, since the bags of both splits look alike.
        if bags is validation:
            presence = [[0.6, 0.1], [0.2, 0.7]]
        elif bags is test:
            presence = [[0.9, 0.45], [0.1, 0.55]]
        else:
            # Both bags of one instance are taken for class 0, which is wrong for the second one.
            presence = [[1.0, 0.0], [1.0, 0.0]]
        # Two classes and background. Every instance is taken for class 0.
        instances = torch.zeros(len(bags), 3, bags.instances.shape[1])
        instances[:, 0] = 1
        scores = torch.tensor(presence)
        return Scores(classes=scores, presence=scores, instances=instances)

    # An error is a share of the bags of all batches together. The second batch of single instances
    # checks this: if the errors of the batches were added up, the error of the test split would be
    # twice that of the validation split.
    splits: dict[Split, EvalSplit] = {
        "validation": EvalSplit(single_instance=[single], bags=[validation]),
        "test": EvalSplit(single_instance=[single, single], bags=[test]),
    }
    return evaluate_bags(score, splits).metrics


def test_the_threshold_is_chosen_on_validation_bags(of_two_splits: dict[str, float]) -> None:
    # With thresholds above 0.2 and up to 0.6 both validation bags are right; 0.4 is the middle.
    assert of_two_splits["chosen/threshold"] == pytest.approx(0.4)
    assert of_two_splits["chosen/bags"] == 2
    assert of_two_splits["validation/set_error"] == 0


def test_test_bags_are_judged_by_the_chosen_threshold(of_two_splits: dict[str, float]) -> None:
    # The first test bag has 0.45 for a class that is not in it.
    assert of_two_splits["test/set_error"] == 0.5


@pytest.mark.parametrize("split", ["validation", "test"])
def test_bags_of_one_instance_are_judged_in_each_split(
    of_two_splits: dict[str, float], split: str
) -> None:
    assert of_two_splits[f"{split}/instance_error"] == 0.5


def test_instances_are_judged_by_their_known_classes(of_two_splits: dict[str, float]) -> None:
    # All four instances are predicted as class 0. Their true classes are 0, 2, 1 and 2, so only the
    # first prediction is right.
    assert of_two_splits["validation/posterior_error"] == 3 / 4
    # All instances are equally strong for each class, so the first instance is taken. In the first
    # test bag, [0, 2], it shows the class of the bag; in the second, [2, 1], it does not.
    assert of_two_splits["test/hit_rate"] == 0.5


def test_every_metric_has_a_definition(of_two_splits: dict[str, float]) -> None:
    names = {name.split("/")[1] for name in of_two_splits}
    assert names <= set(METRICS)


@pytest.fixture(scope="module")
def with_and_without_truth() -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of three bags with instance truth, and of the same bags without it."""
    first = bags_with([[0, 2], [0, 1]], [[True, False], [True, True]])
    second = bags_with([[1, 2]], [[False, True]])
    known = [first, second]
    unknown = [replace(bags, truth=None) for bags in known]

    def score(bags: Bags) -> Scores:
        # Class 0 has the presence 1 where it occurs and 0 elsewhere; class 1 has 0.1 where it
        # occurs and -0.9 elsewhere.
        presence = bags.labels.double() - torch.tensor([0.0, 0.9])
        # Each bag has two instances. At each, both classes and background are equally probable.
        instances = torch.full((len(bags), 3, 2), 1 / 3)
        return Scores(classes=presence, presence=presence, instances=instances)

    def metrics_of(batches: list[Bags]) -> dict[str, float]:
        # There is no validation split: the threshold is chosen on the test bags themselves. It is
        # between 0 and 0.1, where all label sets are right.
        test = EvalSplit(single_instance=(), bags=batches)
        return evaluate_bags(score, {"test": test}, calibration=batches).metrics

    of_known = metrics_of(known)
    of_unknown = metrics_of(unknown)
    return of_known, of_unknown


def test_without_instance_truth_metrics_of_instances_are_left_out(
    with_and_without_truth: tuple[dict[str, float], dict[str, float]],
) -> None:
    of_known, of_unknown = with_and_without_truth
    assert of_known.keys() - of_unknown.keys() == {"test/hit_rate", "test/posterior_error"}


def test_without_instance_truth_the_other_metrics_stay_the_same(
    with_and_without_truth: tuple[dict[str, float], dict[str, float]],
) -> None:
    of_known, of_unknown = with_and_without_truth
    assert of_unknown.items() <= of_known.items()


def test_some_batches_with_truth_and_some_without_are_refused() -> None:
    known = bags_with([[0, 2]], [[True, False]])
    without = replace(known, truth=None)
    zeros = torch.zeros(1, 2)
    scores = Scores(classes=zeros, presence=zeros, instances=torch.full((1, 3, 2), 1 / 3))
    expected = "of 2 batches to evaluate on, 1 have instance truth: expected all or none"
    with pytest.raises(UsageError, match=expected):
        evaluate_bags(lambda _: scores, {"validation": EvalSplit((), [known, without])})


def no_skill(
    training: Array, labels: Array, alone: Array | None = None, **known: Any
) -> dict[str, float]:
    """Return the errors of no skill: of the best answer that is the same for every bag.

    It is the best answer for the label sets `training`. It is judged on bags with the label sets
    `labels`, and on bags of one instance with the label sets `alone`. `known` are further fields of
    the predictions for the bags with `labels`.
    """
    about = about_training(torch.from_numpy(training))
    # The result is None only without training labels.
    assert about is not None
    # The constant answer does not depend on scores, so any will do: here the labels.
    of_bags = split_of(presence=labels, labels=labels, **known)
    of_alone = None if alone is None else split_of(presence=alone, labels=alone)
    return metrics.no_skill_errors(about, of_bags, of_alone)


@pytest.mark.parametrize("seed", range(5))
def test_no_constant_answer_is_better_on_the_training_bags(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Some classes are in more than half of the 31 bags, and some in fewer.
    labels = rng.random((31, 4)) < np.array([0.8, 0.6, 0.3, 0.1])
    set_errors = []
    label_errors = []
    for answer in itertools.product([False, True], repeat=4):
        is_wrong = labels != np.array(answer)
        set_errors.append(is_wrong.any(axis=1).mean())
        label_errors.append(is_wrong.mean())
    found = no_skill(training=labels, labels=labels)
    assert found["no_skill_set_error"] == pytest.approx(min(set_errors))
    assert found["no_skill_label_error"] == pytest.approx(min(label_errors))


def test_no_constant_class_is_better_for_instances() -> None:
    rng = np.random.default_rng(9)
    alone = np.eye(4, dtype=bool)[rng.integers(4, size=31)]
    # Instances of four classes and background.
    classes = rng.integers(5, size=50)
    instance_errors = [(~alone[:, c]).mean() for c in range(4)]
    posterior_errors = [(classes != c).mean() for c in range(5)]
    # For the one-instance error, the constant class is chosen by the label sets of training bags.
    # For the posterior error it is chosen by the instances of the judged bags themselves, since
    # training bags do not tell how many instances have each class. To keep the test short, training
    # bags, judged bags and bags of one instance have the same label sets.
    class_counts = np.bincount(classes, minlength=5)
    found = no_skill(training=alone, labels=alone, alone=alone, instance_classes=class_counts)
    assert found["no_skill_instance_error"] == pytest.approx(min(instance_errors))
    assert found["no_skill_posterior_error"] == pytest.approx(min(posterior_errors))


def test_the_answer_is_chosen_on_training_bags_and_judged_elsewhere() -> None:
    training = np.array([[True, False], [True, False], [False, True]])
    other = np.array([[False, True], [False, True], [True, True], [True, False]])
    found = no_skill(training=training, labels=other, alone=other[:2])
    # Two of three training bags have the first class alone, so this is the answer. It is right for
    # the fourth of the other bags, and for no bag of one instance.
    assert found["no_skill_set_error"] == 3 / 4
    # Both classes of the first two bags are wrong, and the second class of the third bag.
    assert found["no_skill_label_error"] == (2 + 2 + 1 + 0) / (4 * 2)
    assert found["no_skill_instance_error"] == 1


def sets_of(*label_sets: set[int]) -> Array:
    """Return label sets of three classes as an array of truth values."""
    rows = [[c in label_set for c in range(3)] for label_set in label_sets]
    return np.array(rows)


def scores_predicting(label_sets: Array) -> Array:
    """Return presence scores: 1 for classes in the label sets, and -1 for all other classes."""
    return np.where(label_sets, 1.0, -1.0)


def test_counts_by_class_by_hand() -> None:
    labels = sets_of({0}, {0}, {0, 2})
    # The first bag is right, the second has class 1 instead of 0, the third class 1 instead of 2.
    predicted = sets_of({0}, {1}, {0, 1})
    # On validation bags the scores are right, so that the threshold is between -1 and 1.
    validation = split_of(scores_predicting(labels), labels)
    test = split_of(scores_predicting(predicted), labels)
    found = metrics.class_counts(Predictions({"validation": validation, "test": test}))
    # How many bags have each class, how many are predicted to have it, and how many both.
    counts_of_present = [3, 0, 1]
    counts_of_predicted = [2, 2, 0]
    counts_of_both = [2, 0, 0]
    # A row for each class that is missed, a column for each class that is wrongly predicted.
    taken_for = [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert found[:, 0].tolist() == counts_of_present
    assert found[:, 1].tolist() == counts_of_predicted
    assert found[:, 2].tolist() == counts_of_both
    assert found[:, 3:].tolist() == taken_for


def test_no_more_batches_are_made_than_are_needed() -> None:
    def endless() -> Iterator[Bags]:
        while True:
            yield Bags(torch.zeros(300, 1, 1), torch.ones(300, 2, dtype=torch.bool))

    # Only as many batches are taken as MOST_BAGS bags need: here four batches of 300 bags.
    assert 900 < MOST_BAGS <= 1200
    assert len(label_sets(endless())) == 1200


def test_no_skill_of_an_evaluation_comes_from_training_bags() -> None:
    # With rare classes the empty label set is by far the most common one.
    task = tasks().create("synthetic-bags", {"training_bags": 60, "class_rate": 0.01})
    problem = task.load(limit=200)
    found = problem.evaluate(untrained_scores(task, problem)).metrics
    # The bags of another epoch, by another seed, have the same most common label set.
    batches = problem.train_batches(epoch=3, rng=torch.Generator().manual_seed(1))
    counts = Counter(tuple(row) for bags in batches for row in bags.labels.tolist())
    most_common = torch.tensor(counts.most_common(1)[0][0])
    for split in ("validation", "test"):
        labels = torch.cat([bags.labels for bags in problem.splits[split].bags])
        expected = float((labels != most_common).any(dim=1).double().mean())
        assert found[f"{split}/no_skill_set_error"] == pytest.approx(expected)


def test_an_evaluation_takes_no_random_values_of_torch() -> None:
    task = tasks().create("synthetic-bags", {"training_bags": 60})
    problem = task.load(limit=200)
    state = torch.get_rng_state()
    problem.evaluate(untrained_scores(task, problem))
    assert torch.equal(torch.get_rng_state(), state)


def test_of_equally_common_label_sets_of_training_the_first_one_counts() -> None:
    about = about_training(torch.tensor([[True, False], [False, True], [False, False]]))
    assert isinstance(about, TrainingLabels)
    # In sorted order (False, False) comes before (False, True) and (True, False).
    assert about.most_common_set.tolist() == [False, False]
    assert about.class_shares.tolist() == pytest.approx([1 / 3, 1 / 3])
