"""The generator against its definition, and the optimal decisions against enumeration and the drawn truth."""

import math
from typing import Any

import pytest
import torch

from milbench import Bags, Scores, generator
from milbench.contracts.metric_info import METRICS
from tests._helpers.tasks import loaded

SMALL = {
    "num_classes": 3,
    "dimension": 4,
    "min_size": 2,
    "max_size": 5,
    "class_rate": 0.2,
    "separation": 3.0,
}


def make(**params: Any) -> Any:
    return loaded("synthetic-bags", **{**SMALL, **params})


@pytest.fixture(scope="module")
def problem() -> Any:
    return make()


def test_sizes_classes_and_instances_follow_the_generator(problem: Any) -> None:
    many, n = problem.training.draw(20_000, generator("many")), 20_000
    sizes = many.mask.sum(dim=1)
    for size in (2, 3, 4, 5):
        assert (sizes == size).sum() == pytest.approx(n / 4, abs=5 * math.sqrt(n * 3 / 16))
    real = many.truth.position_classes[many.mask]
    for c, rate in enumerate([0.2, 0.2, 0.2, 0.4]):
        assert (real == c).sum() == pytest.approx(
            len(real) * rate, abs=5 * math.sqrt(len(real) * rate * (1 - rate))
        )
        x = many.instances[many.mask][real == c].double()
        mean, scale = torch.zeros(4).double(), 2.0
        if c < 3:
            mean[c], scale = 3 / math.sqrt(2), 1.0
        assert ((x.mean(dim=0) - mean).abs() < 5 * scale / math.sqrt(len(x))).all()
        wanted = scale**2 * torch.eye(4).double()
        assert ((torch.cov(x.T) - wanted).abs() < 5 * scale**2 * math.sqrt(2 / len(x))).all()


def test_the_oracle_has_no_excess_but_for_the_threshold(problem: Any) -> None:
    """It scores as the exact posterior does: presence is the probability that a class occurs."""

    def score(bags: Bags) -> Scores:
        probs = problem.training.log_posterior(bags.instances).exp()
        present = torch.ones_like(probs[:, 0]) if bags.mask is None else bags.mask
        absent = (1 - probs[:, :-1] * present.unsqueeze(1)).prod(dim=2)
        return Scores(probs[:, :-1].amax(dim=2), 1 - absent, probs)

    values = problem.evaluate(score).metrics
    assert {name.split("/")[1] for name in values} <= set(METRICS)
    for split in ("validation", "test"):
        for metric, most in (("instance_error", 0), ("posterior_error", 0), ("set_error", 0.03)):
            excess = values[f"{split}/excess_{metric}"]
            assert abs(excess) <= most
            assert excess == pytest.approx(
                values[f"{split}/{metric}"] - values[f"{split}/bayes_{metric}"]
            )


def test_numbers_are_drawn_in_the_order_of_published_results() -> None:
    """Sizes, classes and noise of one batch after the other. Another order needs another revision of the task."""
    problem: Any = make(bags_per_epoch=32 * 11 + 5)
    model, rng = problem.training, generator("order")
    for bags, count in zip(
        problem.train_batches(0, generator("order")), [32] * 11 + [5], strict=True
    ):
        sizes = torch.randint(2, 6, (count, 1), generator=rng)
        classes = torch.multinomial(model.rates, count * 5, replacement=True, generator=rng).view(
            count, 5
        )
        noise = torch.randn(count, 5, 4, generator=rng)
        assert torch.equal(bags.mask, torch.arange(5) < sizes)
        expected = model.means[classes] + model.scales[classes].unsqueeze(2) * noise
        assert torch.equal(bags.instances, expected * bags.mask.unsqueeze(2))


def test_overlap_shares_a_position_and_leaves_label_sets() -> None:
    """With every instance moved, a bag of two classes has one position near the sum of their points, and no other."""
    params: dict[str, Any] = {
        "label_sets": "uniform",
        "labels_per_bag": 2,
        "separation": 60.0,
        "min_size": 8,
    }
    for overlap, least, most in ((0.0, 0, 0), (0.5, 0.5, 0.9), (1.0, 1, 1)):
        problem = make(**params | {"max_size": 16, "class_rate": 0.06}, overlap=overlap)
        bags = problem.training.draw(400, torch.Generator().manual_seed(1))
        shown = bags.instances[..., :3] > 30 / 2**0.5
        assert torch.equal(shown.any(dim=1), bags.labels)
        together = (shown.sum(dim=2) == 2).any(dim=1)[bags.labels.sum(dim=1) == 2]
        assert least <= together.double().mean() <= most
