"""The task `synthetic-bags`: its generator against the definition, and the metrics of an oracle."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

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


COUNT = 20_000


@pytest.fixture(scope="module")
def many(problem: Any) -> Bags:
    drawn: Bags = problem.training.draw(COUNT, generator("many"))
    return drawn


def instances_of_class(bags: Bags, cls: int) -> Tensor:
    """Return the instances (n, d) of a class, or of background, in float64."""
    assert bags.mask is not None
    assert bags.truth is not None
    assert bags.truth.position_classes is not None
    is_of_class = bags.truth.position_classes == cls
    return bags.instances[bags.mask & is_of_class].double()


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_sizes_are_uniform_on_their_range(many: Bags, size: int) -> None:
    assert many.mask is not None
    count = int((many.mask.sum(dim=1) == size).sum())
    standard_deviation = math.sqrt(COUNT * 1 / 4 * 3 / 4)
    assert count == pytest.approx(COUNT / 4, abs=5 * standard_deviation)


BACKGROUND = 3
RATES = {0: 0.2, 1: 0.2, 2: 0.2, BACKGROUND: 0.4}


@pytest.mark.parametrize(("cls", "rate"), RATES.items())
def test_each_class_is_as_frequent_as_its_rate(many: Bags, cls: int, rate: float) -> None:
    assert many.mask is not None
    number_of_instances = int(many.mask.sum())
    standard_deviation = math.sqrt(number_of_instances * rate * (1 - rate))
    found = len(instances_of_class(many, cls))
    assert found == pytest.approx(number_of_instances * rate, abs=5 * standard_deviation)


@pytest.mark.parametrize("cls", RATES)
def test_a_class_lies_on_its_axis_and_background_at_0(many: Bags, cls: int) -> None:
    expected = torch.zeros(4, dtype=torch.float64)
    if cls != BACKGROUND:
        expected[cls] = 3 / math.sqrt(2)
    instances = instances_of_class(many, cls)
    standard_error = scale_of(cls) / math.sqrt(len(instances))
    assert ((instances.mean(dim=0) - expected).abs() < 5 * standard_error).all()


@pytest.mark.parametrize("cls", RATES)
def test_instances_vary_equally_in_all_directions(many: Bags, cls: int) -> None:
    instances = instances_of_class(many, cls)
    variance = scale_of(cls) ** 2
    expected = variance * torch.eye(4, dtype=torch.float64)
    standard_error = variance * math.sqrt(2 / len(instances))
    assert ((torch.cov(instances.T) - expected).abs() < 5 * standard_error).all()


def scale_of(cls: int) -> float:
    """Return the standard deviation of a class, or of background."""
    return 2.0 if cls == BACKGROUND else 1.0


@pytest.fixture(scope="module")
def metrics_of_oracle(problem: Any) -> dict[str, float]:
    """The metrics of scores by the exact posterior; presence is the probability of a class."""

    def score(bags: Bags) -> Scores:
        probs = problem.training.log_posterior(bags.instances).exp()
        of_classes = probs[:, :-1]
        if bags.mask is not None:
            of_classes = of_classes * bags.mask.unsqueeze(1)
        absent = (1 - of_classes).prod(dim=2)
        return Scores(probs[:, :-1].amax(dim=2), 1 - absent, probs)

    metrics: dict[str, float] = problem.evaluate(score).metrics
    return metrics


def test_all_metrics_have_a_definition(metrics_of_oracle: dict[str, float]) -> None:
    assert {name.split("/")[1] for name in metrics_of_oracle} <= set(METRICS)


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize(
    ("metric", "most"),
    [
        ("instance_error", 0),
        ("posterior_error", 0),
        # The threshold of label sets is chosen on few bags, so it is not quite the best.
        ("set_error", 0.03),
    ],
)
def test_the_oracle_has_no_excess_but_for_the_threshold(
    metrics_of_oracle: dict[str, float], split: str, metric: str, most: float
) -> None:
    assert abs(metrics_of_oracle[f"{split}/excess_{metric}"]) <= most


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("metric", ["instance_error", "posterior_error", "set_error"])
def test_the_excess_is_the_error_minus_the_optimum(
    metrics_of_oracle: dict[str, float], split: str, metric: str
) -> None:
    error = metrics_of_oracle[f"{split}/{metric}"]
    optimum = metrics_of_oracle[f"{split}/bayes_{metric}"]
    assert metrics_of_oracle[f"{split}/excess_{metric}"] == pytest.approx(error - optimum)


def test_numbers_are_drawn_in_the_order_of_published_results() -> None:
    """Each batch takes sizes, then classes, then noise from the random generator.

    With another order, published results could not be repeated, and the revision of the task would
    have to be raised.
    """
    counts = [32] * 11 + [5]
    problem: Any = make(bags_per_epoch=sum(counts))
    model = problem.training
    batches = problem.train_batches(0, generator("order"))
    rng = generator("order")
    for bags, count in zip(batches, counts, strict=True):
        # Sizes are 2 to 5.
        sizes = torch.randint(2, 6, (count, 1), generator=rng)
        drawn = torch.multinomial(model.rates, count * 5, replacement=True, generator=rng)
        classes = drawn.view(count, 5)
        noise = torch.randn(count, 5, 4, generator=rng)
        mask = torch.arange(5) < sizes
        expected = model.means[classes] + model.scales[classes].unsqueeze(2) * noise
        assert torch.equal(bags.mask, mask)
        assert torch.equal(bags.instances, expected * mask.unsqueeze(2))


def overlapping_bags(overlap: float) -> Bags:
    """Return bags of one or two classes, whose points are far apart."""
    params: dict[str, Any] = {
        "label_sets": "uniform",
        "labels_per_bag": 2,
        "separation": 60.0,
        "class_rate": 0.06,
        "min_size": 8,
        "max_size": 16,
    }
    problem = make(**params, overlap=overlap)
    bags: Bags = problem.training.draw(400, torch.Generator().manual_seed(1))
    return bags


def is_shown(bags: Bags) -> Tensor:
    """Return whether each position shows each of the three classes, (B, K, 3)."""
    halfway = 60.0 / math.sqrt(2) / 2
    return bags.instances[..., :3] > halfway


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_overlap_leaves_label_sets_as_they_are(overlap: float) -> None:
    bags = overlapping_bags(overlap)
    assert torch.equal(is_shown(bags).any(dim=1), bags.labels)


@pytest.mark.parametrize(
    ("overlap", "least", "most"),
    [
        pytest.param(0.0, 0, 0, id="none"),
        pytest.param(0.5, 0.5, 0.9, id="half of the instances"),
        pytest.param(1.0, 1, 1, id="all instances"),
    ],
)
def test_classes_that_overlap_share_a_position(overlap: float, least: float, most: float) -> None:
    """With overlap 1, each bag of two classes has a position near the sum of their points."""
    bags = overlapping_bags(overlap)
    shows_two = is_shown(bags).sum(dim=2) == 2
    has_two_classes = bags.labels.sum(dim=1) == 2
    share = float(shows_two.any(dim=1)[has_two_classes].double().mean())
    assert least <= share <= most
