import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.metric_info import METRICS
from milbench.api.registry import tasks
from milbench.api.scores import Scores
from milbench.errors import UsageError
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags
from milbench.testing.task import untrained_scores

INF, NAN = math.inf, math.nan


def test_instance_error_counts_bags_for_which_nothing_is_named() -> None:
    scores = torch.tensor([[3.0, 1.0], [0.0, 2.0], [-INF, -INF], [NAN, 5.0], [-INF, -9.0]])
    assert metrics.wrong_classes(scores, torch.tensor([0, 0, 0, 1, 1])).tolist() == [
        False,
        True,
        True,
        True,
        False,
    ]
    # argmax alone would call the third right


def set_error(presence: Tensor, labels: Tensor, threshold: float) -> float:
    return float(metrics.wrong_sets(presence, labels, threshold).double().mean())


def naive_set_error(presence: Tensor, labels: Tensor, threshold: float) -> float:
    every = zip(presence.tolist(), labels.tolist(), strict=True)
    wrong = sum([score >= threshold for score in scores] != truth for scores, truth in every)
    return float(wrong / len(labels))


@pytest.mark.parametrize("seed", range(2))
def test_the_best_thresholds_are_the_best_of_all(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.rand(30, 3, generator=rng) < 0.4
    presence = (
        (labels + torch.randn(30, 3, generator=rng)).mul(3).round()
    )  # with ties, and empty and full label sets
    presence[presence <= -4] = -INF
    scores = sorted({*presence.flatten().tolist()} - {-INF})
    tried = [scores[0] - 1, *scores, *((a + b) / 2 for a, b in itertools.pairwise(scores)), INF]
    threshold = metrics.best_threshold(presence, labels)
    by_labels = metrics.best_threshold(presence, labels, by="labels")
    assert set_error(presence, labels, threshold) == naive_set_error(presence, labels, threshold)
    least = min(naive_set_error(presence, labels, t) for t in tried)
    assert naive_set_error(presence, labels, threshold) == pytest.approx(least)
    wrong = {t: int(((presence >= t) != labels).sum()) for t in [*tried, by_labels]}
    assert wrong[by_labels] == min(wrong.values())


def test_best_threshold_by_hand() -> None:
    labels = torch.tensor([[True, False], [True, True], [False, False]])
    presence = torch.tensor([[5.0, 1.0], [4.0, 3.0], [2.0, -INF]])
    threshold = metrics.best_threshold(presence, labels)
    assert 2 < threshold <= 3
    assert set_error(presence, labels, threshold) == 0
    # 0, 0, 4, 4, 6, 6 and 9 are wrong for three bags each, 13 and 15 for more: the middle of the seven is taken.
    known, scores = torch.tensor([[True], [False], [True]]), torch.tensor([[9.0], [0.0], [0.0]])
    assert (
        metrics.best_threshold(torch.cat([scores, scores + 4, scores + 6]), known.repeat(3, 1)) == 4
    )
    nothing, everything = torch.zeros(3, 2, dtype=torch.bool), torch.ones(3, 2, dtype=torch.bool)
    assert (
        metrics.best_threshold(presence, nothing)
        == metrics.best_threshold(presence, everything, by="labels")
        == 0
    )
    one, last = torch.tensor([[True], [False], [False]]), torch.tensor([[0.0], [1.0], [2.0]])
    for scores, near in itertools.product(
        (last, last - 9), (None, 0.0)
    ):  # naming nothing is best of all
        assert float(scores.max()) < metrics.best_threshold(scores, one, near) < INF
        assert metrics.best_threshold(scores, one, near) < 2.001
    assert set_error(torch.tensor([[NAN, 9.0]]), torch.tensor([[False, True]]), 0.0) == 0


def test_ranking_metrics_agree_with_scikit_learn() -> None:
    rng = torch.Generator().manual_seed(3)
    labels = torch.rand(60, 5, generator=rng) < 0.3
    labels[:, 1], labels[:, 2] = True, False  # no ranking to judge: left out of the mean
    presence = (labels + torch.randn(60, 5, generator=rng)).mul(2).round()
    expected = {}
    for name, metric in (("average_precision", average_precision_score), ("auroc", roc_auc_score)):
        expected[name] = (
            sum(metric(labels[:, c].numpy(), presence[:, c].numpy()) for c in (0, 3, 4)) / 3
        )
    lowest = presence == presence.min(dim=0).values
    for scores in (presence, presence.masked_fill(lowest, -INF)):
        assert metrics.ranking_metrics(scores, labels) == pytest.approx(expected)
    assert all(map(math.isnan, metrics.ranking_metrics(presence[:, 1:3], labels[:, 1:3]).values()))


def test_hits_on_images_agree_with_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    ys, xs = 1.5 + 4 * torch.arange(5).double(), 2.5 + 4 * torch.arange(6).double()
    corner = torch.randint(0, 16, (20, 3, 2), generator=rng).float()
    classes, boxes = (
        torch.randint(-1, 4, (20, 3), generator=rng),
        torch.cat([corner, corner + 9], dim=2),
    )
    strength = torch.rand(20, 4, 5, 6, generator=rng)
    hits = metrics.class_hits(strength, Truth(classes, boxes), (ys, xs))
    for b, c in itertools.product(range(20), range(4)):
        i, j = max(itertools.product(range(5), range(6)), key=lambda at: float(strength[b, c][at]))
        expected = any(
            cls == c and left <= xs[j] < right and top <= ys[i] < bottom
            for cls, (left, top, right, bottom) in zip(
                classes[b].tolist(), boxes[b].tolist(), strict=True
            )
        )
        assert bool(hits[b, c]) == expected
    assert 0.05 < float(hits.double().mean()) < 0.95


def sets(position_classes: list[list[int]], labels: list[list[bool]]) -> Bags:
    classes = torch.tensor(position_classes)
    return Bags(
        torch.zeros(*classes.shape, 1),
        torch.tensor(labels),
        truth=Truth(classes, position_classes=classes),
    )


def test_evaluate_uses_the_threshold_of_the_validation_bags_on_the_test_bags() -> None:
    single = Bags(torch.zeros(2, 1, 1), torch.tensor([[True, False], [False, True]]))
    validation = sets([[0, 2], [1, 2]], [[True, False], [False, True]])
    test = sets([[0, 2], [2, 1]], [[True, False], [False, True]])
    presence = {id(validation): [[0.6, 0.1], [0.2, 0.7]], id(test): [[0.9, 0.65], [0.1, 0.55]]}

    def score(bags: Bags) -> Scores:
        known = torch.tensor(presence.get(id(bags), [[1.0, 0.0], [1.0, 0.0]]))
        instances = torch.zeros(len(bags), 3, bags.instances.shape[1])
        instances[:, 0] = 1
        return Scores(known, known, instances)

    splits = {
        "validation": EvalSplit([single], [validation]),
        "test": EvalSplit([single, single], [test]),
    }
    values = evaluate_bags(score, splits).metrics  # type: ignore[arg-type]
    assert values["validation/set_error"] == 0
    # The only threshold that is right for both validation bags is 0.6; 0.55 would do for the second test bag.
    assert values["test/set_error"] == 1
    assert values["validation/instance_error"] == values["test/instance_error"] == 0.5
    assert values["validation/posterior_error"] == 3 / 4
    assert values["test/hit_rate"] == 0.5
    assert {name.split("/")[1] for name in values} <= set(METRICS)
    chosen = evaluate_bags(score, {"test": splits["test"]}, calibration=[validation]).metrics
    # No threshold of 0 is right for the bags of calibration: the gap from 0.2 to 0.6 is nearest to it, and 0.4 its
    # middle, with which the second test bag is right.
    assert (chosen.pop("chosen/threshold"), chosen.pop("chosen/label_threshold")) == pytest.approx(
        (0.4, 0.4)
    )
    assert [
        chosen.pop(f"test/{name}") for name in ("set_error", "label_error", "own_label_error")
    ] == [0.5, 0.25, 0.25]
    assert chosen == {
        name: value for name, value in values.items() if name.startswith("test/") and name in chosen
    }
    assert "test/average_precision" in chosen


@pytest.mark.parametrize("seed", range(2))
def test_a_preferred_threshold_is_taken_where_it_is_among_the_best_and_else_the_nearest_gap(
    seed: int,
) -> None:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.rand(12, 2, generator=rng) < 0.4
    presence = (labels * 4 + torch.randn(12, 2, generator=rng) - 1).double()
    least = naive_set_error(presence, labels, metrics.best_threshold(presence, labels))
    grid = torch.linspace(-8, 8, 3201).double().tolist()
    best = [t for t in grid if naive_set_error(presence, labels, t) == least]
    for near in (0.0, 1.5, -3.0):
        threshold = metrics.best_threshold(presence, labels, near)
        assert naive_set_error(presence, labels, threshold) == least
        if naive_set_error(presence, labels, near) == least:
            assert threshold == near
            continue
        nearest = min(best, key=lambda t: abs(t - near))
        scores = [-INF, *sorted(presence.flatten().tolist()), INF]
        (gap,) = [(low, high) for low, high in itertools.pairwise(scores) if low < nearest <= high]
        assert threshold == pytest.approx(sum(gap) / 2)


def test_without_instance_truth_the_metrics_of_label_sets_are_the_same() -> None:
    known = [sets([[0, 2], [0, 1]], [[True, False], [True, True]]), sets([[1, 2]], [[False, True]])]
    without = [replace(bags, truth=None) for bags in known]

    def score(bags: Bags) -> Scores:
        presence = bags.labels.double() - torch.tensor(
            [0.0, 0.9]
        )  # misses the second class in one bag of two
        return Scores(presence, presence, torch.full((len(bags), 3, 2), 1 / 3))

    with_truth, found = (
        evaluate_bags(score, {"test": EvalSplit((), some)}, some) for some in (known, without)
    )
    errors = {"set_error", "label_error", "own_label_error"}
    names = {f"test/{name}" for name in (*errors, "average_precision", "auroc")}
    assert {name for name in found.metrics if name.startswith("test/")} == names
    assert found.metrics.items() <= with_truth.metrics.items()
    assert with_truth.metrics.keys() - found.metrics.keys() == {
        "test/hit_rate",
        "test/posterior_error",
    }
    assert set(found.outcomes or {}) == errors
    with pytest.raises(
        UsageError, match="of 2 batches to evaluate on, 1 have instance truth: expected all or none"
    ):
        evaluate_bags(score, {"validation": EvalSplit((), [known[0], without[1]])})


@pytest.mark.parametrize("seed", range(5))
def test_no_constant_answer_is_better_on_the_training_bags(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.rand(31, 4, generator=rng) < torch.tensor([0.8, 0.6, 0.3, 0.1])
    alone = torch.eye(4).bool()[torch.randint(4, (31,), generator=rng)]
    wrong = [
        (labels != torch.tensor(answer)).double()
        for answer in itertools.product([False, True], repeat=4)
    ]
    assert metrics.no_skill_errors(labels, labels, None) == pytest.approx({
        "no_skill_set_error": min(float(errors.amax(dim=1).mean()) for errors in wrong),
        "no_skill_label_error": min(float(errors.mean()) for errors in wrong),
    })  # fmt: skip
    of_instances = metrics.no_skill_errors(alone, labels, alone)["no_skill_instance_error"]
    assert of_instances == pytest.approx(
        min(float((~alone[:, c]).double().mean()) for c in range(4))
    )
    classes = torch.randint(5, (50,), generator=rng)
    of_positions = metrics.no_skill_errors(labels, labels, None, classes)[
        "no_skill_posterior_error"
    ]
    assert of_positions == pytest.approx(
        min(float((classes != c).double().mean()) for c in range(5))
    )


def test_counts_by_class_by_hand() -> None:
    """Of three bags the first is right, the second has 1 in place of 0, the third 1 in place of 2."""
    predicted, labels = (
        torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0]]),
        torch.tensor([[1, 0, 0], [1, 0, 0], [1, 0, 1]]),
    )
    expected = [[3, 2, 2, 0, 1, 0], [0, 2, 0, 0, 0, 0], [1, 0, 0, 0, 1, 0]]
    assert metrics.class_counts(predicted > 0, labels > 0).tolist() == expected


def test_the_answer_is_chosen_on_training_bags_and_judged_on_others() -> None:
    training = torch.tensor([[True, False], [True, False], [False, True]])
    other = torch.tensor([[False, True], [False, True], [True, True], [True, False]])
    assert metrics.no_skill_errors(training, other, other[:2]) == {
        "no_skill_set_error": 3 / 4, "no_skill_label_error": 5 / 8, "no_skill_instance_error": 1.0,
    }  # fmt: skip


def test_no_more_batches_are_drawn_than_are_needed() -> None:
    def endless() -> object:
        while True:
            yield Bags(torch.zeros(300, 1, 1), torch.ones(300, 2, dtype=torch.bool))

    assert len(metrics.label_sets(endless())) == 1200 >= metrics.MOST_BAGS  # type: ignore[arg-type]


def test_an_evaluation_has_the_line_of_the_training_bags_of_its_task() -> None:
    task: Any = tasks().create("synthetic-bags", {"training_bags": 60, "class_rate": 0.01})
    task.evaluation_limit = 200
    task.prepare(None, torch.device("cpu"))
    state = torch.get_rng_state()
    found = task.evaluate(untrained_scores(task)).metrics
    assert torch.equal(torch.get_rng_state(), state)
    labels = torch.cat(
        [bags.labels for bags in task.train_batches(3, torch.Generator().manual_seed(1))]
    )
    sets = [tuple(row) for row in labels.tolist()]
    most = torch.tensor(max(set(sets), key=sets.count))
    for split in ("validation", "test"):
        wrong = [(bags.labels != most).any(dim=1) for bags in task.eval_splits[split].bags]
        assert found[f"{split}/no_skill_set_error"] == pytest.approx(
            float(torch.cat(wrong).double().mean())
        )
