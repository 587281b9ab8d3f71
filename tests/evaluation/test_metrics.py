from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.metric_info import METRICS
from milbench.api.scores import Scores
from milbench.errors import UsageError
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import EvalSplit, evaluate_bags

INF, NAN = math.inf, math.nan


def test_instance_error_counts_bags_for_which_nothing_is_named() -> None:
    scores = torch.tensor([[3.0, 1.0], [0.0, 2.0], [-INF, -INF], [NAN, 5.0], [-INF, -9.0]])
    assert metrics.wrong_classes(scores, torch.tensor([0, 0, 0, 1, 1])).tolist() == [False, True, True, True, False]
    # argmax alone would call the third right


def set_error(presence: Tensor, labels: Tensor, threshold: float) -> float:
    return metrics.share(metrics.wrong_sets(presence, labels, threshold))


def naive_set_error(presence: Tensor, labels: Tensor, threshold: float) -> float:
    wrong = 0
    for scores, truth in zip(presence.tolist(), labels.tolist(), strict=True):
        named = {c for c, score in enumerate(scores) if score >= threshold}
        wrong += named != {c for c, there in enumerate(truth) if there}
    return wrong / len(labels)


@pytest.mark.parametrize("seed", range(2))
def test_the_best_thresholds_are_the_best_of_all(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.rand(30, 3, generator=rng) < 0.4
    presence = (labels + torch.randn(30, 3, generator=rng)).mul(3).round()  # with ties, and empty and full label sets
    presence[presence <= -4] = -INF
    scores = sorted({*presence.flatten().tolist()} - {-INF})
    tried = [scores[0] - 1, *scores, *((a + b) / 2 for a, b in itertools.pairwise(scores)), INF]
    threshold, by_labels = (best(presence, labels) for best in (metrics.best_threshold, metrics.best_label_threshold))
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
    assert metrics.best_threshold(torch.cat([scores, scores + 4, scores + 6]), known.repeat(3, 1)) == 4
    assert metrics.best_threshold(presence, torch.zeros(3, 2, dtype=torch.bool)) == INF  # naming nothing is right
    assert set_error(torch.tensor([[NAN, 9.0]]), torch.tensor([[False, True]]), 0.0) == 0


@pytest.mark.parametrize("name", ["average_precision", "auroc"])
def test_ranking_metrics_agree_with_scikit_learn(name: str) -> None:
    rng = torch.Generator().manual_seed(3)
    labels = torch.rand(60, 5, generator=rng) < 0.3
    labels[:, 1], labels[:, 2] = True, False  # no ranking to judge: left out of the mean
    presence = (labels + torch.randn(60, 5, generator=rng)).mul(2).round()
    reference = {"average_precision": average_precision_score, "auroc": roc_auc_score}[name]
    expected = [reference(labels[:, c].numpy(), presence[:, c].numpy()) for c in (0, 3, 4)]
    ours = getattr(metrics, name)
    assert ours(presence, labels) == pytest.approx(sum(expected) / 3)
    lowest = presence == presence.min(dim=0).values
    assert ours(presence.masked_fill(lowest, -INF), labels) == pytest.approx(sum(expected) / 3)
    assert math.isnan(ours(presence[:, 1:3], labels[:, 1:3]))


def test_hits_on_images_agree_with_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    B, C, M, h, w = 20, 4, 3, 5, 6
    ys, xs = 1.5 + 4 * torch.arange(h).double(), 2.5 + 4 * torch.arange(w).double()
    corner = torch.randint(0, 16, (B, M, 2), generator=rng).float()
    truth = Truth(torch.randint(-1, C, (B, M), generator=rng), torch.cat([corner, corner + 9], dim=2))
    instances = torch.rand(B, C + 1, h, w, generator=rng).softmax(dim=1)
    hits = metrics.class_hits(instances[:, :-1], truth, (ys, xs))
    assert truth.boxes is not None
    for b, c in itertools.product(range(B), range(C)):
        i, j = max(itertools.product(range(h), range(w)), key=lambda at: float(instances[b, c][at]))
        expected = any(
            truth.classes[b, m] == c and left <= xs[j] < right and top <= ys[i] < bottom
            for m, (left, top, right, bottom) in enumerate(truth.boxes[b].tolist())
        )
        assert bool(hits[b, c]) == expected
    assert 0.05 < float(hits.double().mean()) < 0.95


def test_wrong_instances_are_counted_where_there_are_instances() -> None:
    truth = Truth(torch.tensor([[0, -1, -1]]), position_classes=torch.tensor([[0, 1, 1]]))
    instances = torch.tensor([[[0.9, 0.6, 0.7], [0.1, 0.4, 0.3]]])
    for known, mask, counts in (
        (truth, None, [2, 3]),
        (truth, torch.tensor([[True, True, False]]), [1, 2]),
        (Truth(truth.classes), None, [0, 0]),
    ):
        assert [int(count) for count in metrics.wrong_instances(instances, known, mask)] == counts


def sets(position_classes: list[list[int]], labels: list[list[bool]]) -> Bags:
    classes = torch.tensor(position_classes)
    return Bags(torch.zeros(*classes.shape, 1), torch.tensor(labels), truth=Truth(classes, position_classes=classes))


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

    splits = {"validation": EvalSplit([single], [validation]), "test": EvalSplit([single, single], [test])}
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
    assert (chosen.pop("chosen/threshold"), chosen.pop("chosen/label_threshold")) == pytest.approx((0.4, 0.4))
    assert [chosen.pop(f"test/{name}") for name in ("set_error", "label_error", "own_label_error")] == [0.5, 0.25, 0.25]
    assert chosen == {name: value for name, value in values.items() if name.startswith("test/") and name in chosen}
    assert "test/average_precision" in chosen


@pytest.mark.parametrize("seed", range(2))
def test_a_preferred_threshold_is_taken_where_it_is_among_the_best_and_else_the_nearest_gap(seed: int) -> None:
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
        presence = bags.labels.double() - torch.tensor([0.0, 0.9])  # misses the second class in one bag of two
        return Scores(presence, presence, torch.full((len(bags), 3, 2), 1 / 3))

    with_truth, found = (
        evaluate_bags(score, {"validation": EvalSplit((), some), "test": EvalSplit((), some)})
        for some in (known, without)
    )
    names = {"set_error", "label_error", "own_label_error", "average_precision", "auroc"}
    assert {name for name in found.metrics if name.startswith("test/")} == {f"test/{name}" for name in names}
    assert found.metrics.items() <= with_truth.metrics.items()
    assert with_truth.metrics.keys() - found.metrics.keys() == {
        f"{split}/{name}" for split in ("validation", "test") for name in ("hit_rate", "posterior_error")
    }
    assert found.outcomes is not None
    assert set(found.outcomes) == {"set_error", "label_error", "own_label_error"}
    with pytest.raises(UsageError, match="of 2 batches to evaluate on, 1 have instance truth: expected all or none"):
        evaluate_bags(score, {"validation": EvalSplit((), [known[0], without[1]])})
