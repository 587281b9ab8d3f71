"""Metrics from predictions, by hand and against scikit-learn."""

import itertools
import math
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
from milbench.contracts.problem import EvalSplit
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

INF, NAN = math.inf, math.nan
Array = NDArray[Any]


def split_of(presence: Array, labels: Array, **known: Any) -> SplitPredictions:
    """Predictions of which scores and label sets alone matter."""
    scores = np.asarray(presence, np.float32)
    bags = np.arange(len(labels))
    return SplitPredictions(labels, scores, scores, bags, "these bags", **known)


def test_bags_for_which_nothing_is_named_are_errors() -> None:
    scores = np.array([[3.0, 1.0], [0.0, 2.0], [-INF, -INF], [-INF, -9.0]])
    wrong = metrics.wrong_classes(scores, np.array([0, 0, 0, 1]))
    assert wrong.tolist() == [False, True, True, False]


def test_ranking_metrics_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    labels = rng.random((60, 5)) < 0.3
    labels[:, 1] = True  # there is no ranking to judge: these two are left out of the mean
    labels[:, 2] = False
    presence = np.round(2 * (labels + rng.normal(size=labels.shape)))
    judged = (0, 3, 4)
    expected = {
        "average_precision": np.mean(
            [average_precision_score(labels[:, c], presence[:, c]) for c in judged]
        ),
        "auroc": np.mean([roc_auc_score(labels[:, c], presence[:, c]) for c in judged]),
    }
    assert metrics.ranking_metrics(presence, labels) == pytest.approx(expected)
    # The lowest scores may be -inf, which scikit-learn does not take.
    lowest = presence == presence.min(axis=0)
    assert metrics.ranking_metrics(np.where(lowest, -INF, presence), labels) == pytest.approx(
        expected
    )


def test_without_a_class_to_rank_ranking_metrics_are_undefined() -> None:
    found = metrics.ranking_metrics(np.zeros((4, 1)), np.ones((4, 1), bool))
    assert all(map(math.isnan, found.values()))


def test_macro_f1_agrees_with_scikit_learn_over_classes_that_occur() -> None:
    rng = np.random.default_rng(4)
    labels = rng.random((50, 4)) < 0.4
    labels[:, 2] = False
    presence = labels + rng.normal(size=labels.shape)
    expected = f1_score(labels, presence >= 0.7, average=None, zero_division=0)[[0, 1, 3]].mean()
    assert metrics.macro_f1(split_of(presence, labels), 0.7) == pytest.approx(expected, abs=1e-6)


def sets(position_classes: list[list[int]], labels: list[list[bool]]) -> Bags:
    classes = torch.tensor(position_classes)
    truth = Truth(classes, position_classes=classes)
    return Bags(torch.zeros(*classes.shape, 1), torch.tensor(labels), truth=truth)


def test_test_bags_are_judged_by_the_threshold_of_validation_bags() -> None:
    single = Bags(torch.zeros(2, 1, 1), torch.tensor([[True, False], [False, True]]))
    validation = sets([[0, 2], [1, 2]], [[True, False], [False, True]])
    test = sets([[0, 2], [2, 1]], [[True, False], [False, True]])
    presence = {id(validation): [[0.6, 0.1], [0.2, 0.7]], id(test): [[0.9, 0.45], [0.1, 0.55]]}

    def score(bags: Bags) -> Scores:
        known = torch.tensor(presence.get(id(bags), [[1.0, 0.0], [1.0, 0.0]]))
        instances = torch.zeros(len(bags), 3, bags.instances.shape[1])
        instances[:, 0] = 1
        return Scores(known, known, instances)

    values = evaluate_bags(
        score,
        {
            "validation": EvalSplit([single], [validation]),
            "test": EvalSplit([single, single], [test]),
        },
    ).metrics
    assert values["validation/set_error"] == 0
    # Above 0.2 and up to 0.6 both validation bags are right; the first test bag has a score of 0.45 between.
    assert values["chosen/threshold"] == pytest.approx(0.4)
    assert values["test/set_error"] == 0.5
    assert values["validation/instance_error"] == values["test/instance_error"] == 0.5
    assert values["validation/posterior_error"] == 3 / 4
    assert values["test/hit_rate"] == 0.5
    assert values["chosen/bags"] == 2
    assert {name.split("/")[1] for name in values} <= set(METRICS)


def test_without_instance_truth_the_metrics_of_label_sets_are_the_same() -> None:
    known = [sets([[0, 2], [0, 1]], [[True, False], [True, True]]), sets([[1, 2]], [[False, True]])]
    without = [replace(bags, truth=None) for bags in known]

    def score(bags: Bags) -> Scores:
        # It misses the second class in one bag of two.
        presence = bags.labels.double() - torch.tensor([0.0, 0.9])
        return Scores(presence, presence, torch.full((len(bags), 3, 2), 1 / 3))

    with_truth = evaluate_bags(score, {"test": EvalSplit((), known)}, known).metrics
    found = evaluate_bags(score, {"test": EvalSplit((), without)}, without).metrics
    of_instances = {"test/hit_rate", "test/posterior_error"}
    assert with_truth.keys() - found.keys() == of_instances
    assert found.items() <= with_truth.items()


def test_some_batches_with_truth_and_some_without_are_refused() -> None:
    known = sets([[0, 2]], [[True, False]])
    without = replace(known, truth=None)
    zeros = torch.zeros(1, 2)
    expected = "of 2 batches to evaluate on, 1 have instance truth: expected all or none"
    with pytest.raises(UsageError, match=expected):
        evaluate_bags(
            lambda bags: Scores(zeros, zeros, torch.full((1, 3, 2), 1 / 3)),
            {"validation": EvalSplit((), [known, without])},
        )


def no_skill(training: Array, labels: Array, **known: Any) -> dict[str, float]:
    """The errors of the best constant answer for training label sets, on other ones."""
    about = about_training(torch.from_numpy(training))
    assert about is not None
    alone = known.pop("alone", None)
    of_alone = None if alone is None else split_of(alone, alone)
    return metrics.no_skill_errors(about, split_of(labels, labels, **known), of_alone)


@pytest.mark.parametrize("seed", range(5))
def test_no_constant_answer_is_better_on_the_training_bags(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.random((31, 4)) < np.array([0.8, 0.6, 0.3, 0.1])
    wrong = [labels != np.array(answer) for answer in itertools.product([False, True], repeat=4)]
    assert no_skill(labels, labels) == pytest.approx({
        "no_skill_set_error": min(errors.any(axis=1).mean() for errors in wrong),
        "no_skill_label_error": min(errors.mean() for errors in wrong),
    })  # fmt: skip


def test_no_constant_class_is_better_for_instances() -> None:
    rng = np.random.default_rng(9)
    alone = np.eye(4, dtype=bool)[rng.integers(4, size=31)]
    classes = rng.integers(5, size=50)
    found = no_skill(alone, alone, alone=alone, instance_classes=np.bincount(classes, minlength=5))
    assert found["no_skill_instance_error"] == pytest.approx(
        min((~alone[:, c]).mean() for c in range(4))
    )
    assert found["no_skill_posterior_error"] == pytest.approx(
        min((classes != c).mean() for c in range(5))
    )


def test_the_answer_is_chosen_on_training_bags_and_judged_on_others() -> None:
    training = np.array([[True, False], [True, False], [False, True]])
    other = np.array([[False, True], [False, True], [True, True], [True, False]])
    assert no_skill(training, other, alone=other[:2]) == {
        "no_skill_set_error": 3 / 4, "no_skill_label_error": 5 / 8, "no_skill_instance_error": 1.0,
    }  # fmt: skip


def test_counts_by_class_by_hand() -> None:
    """Of three bags the first is right, the second has 1 in place of 0, the third 1 in place of 2."""
    predicted = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]]) * 2.0 - 1
    labels = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 1]]) > 0
    right = split_of(labels * 2.0 - 1, labels)  # by which a threshold between -1 and 1 is chosen
    found = metrics.class_counts(
        Predictions({"validation": right, "test": split_of(predicted, labels)})
    )
    assert found.tolist() == [[3, 2, 2, 0, 1, 0], [0, 2, 0, 0, 0, 0], [1, 0, 0, 0, 1, 0]]


def test_no_more_batches_are_drawn_than_are_needed() -> None:
    def endless() -> Any:
        while True:
            yield Bags(torch.zeros(300, 1, 1), torch.ones(300, 2, dtype=torch.bool))

    assert len(label_sets(endless())) == 1200 >= MOST_BAGS


def test_an_evaluation_has_the_line_of_the_training_bags_of_its_task() -> None:
    task = tasks().create("synthetic-bags", {"training_bags": 60, "class_rate": 0.01})
    problem = task.load(limit=200)
    state = torch.get_rng_state()
    found = problem.evaluate(untrained_scores(task, problem)).metrics
    assert torch.equal(torch.get_rng_state(), state)
    batches = problem.train_batches(3, torch.Generator().manual_seed(1))
    labels = torch.cat([bags.labels for bags in batches])
    label_tuples = [tuple(row) for row in labels.tolist()]
    most = torch.tensor(max(set(label_tuples), key=label_tuples.count))
    for split in ("validation", "test"):
        of_split = torch.cat([bags.labels for bags in problem.splits[split].bags])
        expected = float((of_split != most).any(dim=1).double().mean())
        assert found[f"{split}/no_skill_set_error"] == pytest.approx(expected)


def test_of_training_labels_the_first_of_equally_common_sets_counts() -> None:
    about = about_training(torch.tensor([[True, False], [False, True], [False, False]]))
    assert isinstance(about, TrainingLabels)
    assert about.most_common_set.tolist() == [False, False]
    assert about.class_shares.tolist() == pytest.approx([1 / 3, 1 / 3])
