"""The generator against its definition, and the optimal decisions against enumeration and the drawn truth."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from milbench import Bags, Scores, generator
from milbench.api.metric_info import METRICS
from tests._helpers.tasks import prepared

SMALL = {"num_classes": 3, "dimension": 4, "min_size": 2, "max_size": 5, "class_rate": 0.2, "separation": 3.0}


def make(**params: Any) -> Any:
    return prepared("synthetic-bags", **{**SMALL, **params})


@pytest.fixture(scope="module")
def task() -> Any:
    return make()


@pytest.fixture(scope="module")
def many(task: Any) -> Bags:
    bags: Bags = task.training.draw(20_000, generator("many"))
    return bags


def position_classes(bags: Bags) -> Tensor:
    assert bags.truth is not None
    assert bags.truth.position_classes is not None
    return bags.truth.position_classes


def test_sizes_classes_and_instances_follow_the_generator(many: Bags) -> None:
    classes, mask = position_classes(many), many.mask
    assert mask is not None
    n, sizes = len(many), mask.sum(dim=1)
    for size in (2, 3, 4, 5):
        assert (sizes == size).sum() == pytest.approx(n / 4, abs=5 * math.sqrt(n * 3 / 16))
    real = classes[mask]
    for c, rate in enumerate([0.2, 0.2, 0.2, 0.4]):
        assert (real == c).sum() == pytest.approx(len(real) * rate, abs=5 * math.sqrt(len(real) * rate * (1 - rate)))
        x = many.instances[mask][real == c].double()
        mean, scale = torch.zeros(4).double(), 2.0
        if c < 3:
            mean[c], scale = 3 / math.sqrt(2), 1.0
        assert ((x.mean(dim=0) - mean).abs() < 5 * scale / math.sqrt(len(x))).all()
        wanted = scale**2 * torch.eye(4).double()
        assert ((torch.cov(x.T) - wanted).abs() < 5 * scale**2 * math.sqrt(2 / len(x))).all()


def oracle(task: Any) -> Any:
    """Score as the exact posterior does: presence is the probability that a class occurs."""

    def score(bags: Bags) -> Scores:
        log_probs = task.training.log_posterior(bags.instances)
        if bags.mask is not None:
            log_probs = log_probs.masked_fill(~bags.mask.unsqueeze(1), -math.inf)
            log_probs[:, -1] = log_probs[:, -1].masked_fill(~bags.mask, 0)
        absent = (1 - log_probs[:, :-1].exp()).prod(dim=2)
        return Scores(log_probs[:, :-1].amax(dim=2), 1 - absent, log_probs.exp())

    return score


def test_the_oracle_has_no_excess_but_for_the_threshold(task: Any) -> None:
    values = task.evaluate(oracle(task)).metrics
    assert {name.split("/")[1] for name in values} <= set(METRICS)
    for split in ("validation", "test"):
        assert values[f"{split}/excess_instance_error"] == 0
        assert values[f"{split}/excess_posterior_error"] == 0
        assert abs(values[f"{split}/excess_set_error"]) < 0.03
        for metric in ("instance_error", "posterior_error", "set_error"):
            difference = values[f"{split}/{metric}"] - values[f"{split}/bayes_{metric}"]
            assert values[f"{split}/excess_{metric}"] == pytest.approx(difference)


def test_numbers_are_drawn_in_the_order_of_published_results() -> None:
    """Sizes, classes and noise of one batch after the other. Another order needs another revision of the task."""
    task: Any = make(bags_per_epoch=32 * 11 + 5)
    model, rng = task.training, generator("order")
    for bags, count in zip(task.train_batches(0, generator("order")), [32] * 11 + [5], strict=True):
        sizes = torch.randint(2, 6, (count, 1), generator=rng)
        classes = torch.multinomial(model.rates, count * 5, replacement=True, generator=rng).view(count, 5)
        noise = torch.randn(count, 5, 4, generator=rng)
        assert torch.equal(bags.mask, torch.arange(5) < sizes)
        expected = model.means[classes] + model.scales[classes].unsqueeze(2) * noise
        assert torch.equal(bags.instances, expected * bags.mask.unsqueeze(2))


def test_classes_that_overlap_share_a_position_and_leave_label_sets_as_they_are() -> None:
    """With every instance moved, a bag of two classes has one position near the sum of their points, and no other."""
    params: dict[str, Any] = {"label_sets": "uniform", "labels_per_bag": 2, "separation": 60.0, "min_size": 8}
    drawn = {}
    for overlap in (0.0, 0.5, 1.0):
        task = prepared("synthetic-bags", num_classes=3, **params, overlap=overlap)
        drawn[overlap] = task.training.draw(400, torch.Generator().manual_seed(1))
    near = {overlap: bags.instances[..., :3] > 30 / 2**0.5 for overlap, bags in drawn.items()}
    for overlap, bags in drawn.items():
        assert torch.equal(near[overlap].any(dim=1), bags.labels)
    two = drawn[1.0].labels.sum(dim=1) == 2
    together = {overlap: (shown.sum(dim=2) == 2).any(dim=1)[two].double().mean() for overlap, shown in near.items()}
    assert together[0.0] == 0
    assert 0.5 <= together[0.5] < 0.9
    assert together[1.0] == 1
