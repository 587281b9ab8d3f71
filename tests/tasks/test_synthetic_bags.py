"""The generator against its definition, and the optimal decisions against enumeration and the drawn truth."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from milbench import Bags, EvalSplit, Scores, UsageError, generator, load_task
from milbench.api.metric_info import METRICS
from milbench.families.label_set_posterior import optimal_errors
from milbench.likelihood import best_label_set, label_set_distribution

CPU = torch.device("cpu")
SMALL = {"num_classes": 3, "dimension": 4, "min_size": 2, "max_size": 5, "class_rate": 0.2, "separation": 3.0}


def make(**params: Any) -> Any:
    task = load_task("synthetic-bags", **{**SMALL, **params})
    task.prepare(None, CPU)
    return task


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


def test_log_posterior_is_bayes_rule(task: Any) -> None:
    x = 3 * torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(0)).double()
    densities = []
    for c in range(3):
        mean = torch.zeros(4).double()
        mean[c] = 3 / math.sqrt(2)
        densities.append(0.2 * MultivariateNormal(mean, torch.eye(4).double()).log_prob(x).exp())
    densities.append(0.4 * MultivariateNormal(torch.zeros(4).double(), 4 * torch.eye(4).double()).log_prob(x).exp())
    joint = torch.stack(densities, dim=1)
    torch.testing.assert_close(task.training.log_posterior(x).exp(), joint / joint.sum(dim=1, keepdim=True))


def test_no_rule_beats_the_optimal_decisions_by_more_than_luck(task: Any) -> None:
    """The errors of perturbed posteriors: never below the optimum's, which agree with its own probabilities."""
    bags = task.training.draw(2500, generator("rules"))
    single = task.eval_splits["test"].single_instance
    errors = optimal_errors(EvalSplit(single, [bags]), task.training.log_posterior, task.training.posterior)
    log_probs = task.training.log_posterior(bags.instances)
    sets = label_set_distribution(log_probs, bags.mask).exp()
    risk = 1 - sets.amax(dim=1)
    spread = math.sqrt(float((risk * (1 - risk)).sum())) / len(bags)
    assert errors["set_error"] == pytest.approx(float(risk.mean()), abs=4 * spread)
    risks = (1 - log_probs.exp().amax(dim=1))[bags.mask]
    spread = math.sqrt(float((risks * (1 - risks)).sum())) / len(risks)
    assert errors["posterior_error"] == pytest.approx(float(risks.mean()), abs=4 * spread)
    assert 0.05 < errors["posterior_error"] < 0.6
    for seed in range(3):
        noise = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(seed)).double()
        worse = (log_probs + 2 * noise).log_softmax(dim=1)
        named = best_label_set(worse, bags.mask)[0]
        assert float((named != bags.labels).any(dim=1).double().mean()) > errors["set_error"]
        wrong = (worse.argmax(dim=1) != position_classes(bags))[bags.mask]
        assert float(wrong.double().mean()) > errors["posterior_error"]


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


@pytest.mark.parametrize(("params", "complaint"), [
    ({"dimension": 2}, "3 classes need as many axes, dimension = 2 is too small"),
    ({"min_size": 6}, "min_size = 6 is larger than max_size = 5"),
    ({"class_rate": 0.4}, "3 classes of class_rate = 0.4 leave no room for background"),
])  # fmt: skip
def test_bad_parameters(params: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load_task("synthetic-bags", **{**SMALL, **params})
    assert "\n" not in str(caught.value)


def test_batches_that_are_drawn_together_are_those_drawn_one_by_one() -> None:
    task: Any = make(bags_per_epoch=32 * 23 + 5)
    model, rng = task.training, generator("one by one")
    for bags, size in zip(task.train_batches(0, generator("one by one")), [32] * 23 + [5], strict=True):
        low, high = model.sizes
        sizes = torch.randint(low, high + 1, (size, 1), generator=rng)
        classes = torch.multinomial(model.rates, size * high, replacement=True, generator=rng).view(size, high)
        noise = torch.randn(size, high, model.dimension, generator=rng)
        for bag, (count, kinds) in enumerate(zip(sizes[:, 0].tolist(), classes.tolist(), strict=True)):
            assert bags.mask[bag].tolist() == [k < count for k in range(high)]
            for k, kind in enumerate(kinds):
                expected = model.means[kind] + model.scales[kind] * noise[bag, k] if k < count else torch.zeros(1)
                assert torch.equal(bags.instances[bag, k], expected.expand(model.dimension))
            assert bags.labels[bag].tolist() == [c in kinds[:count] for c in range(task.num_classes)]


def test_label_sets_may_be_uniform_in_test_bags_alone() -> None:
    sizes = {"min_size": 4, "max_size": 4}
    task: Any = load_task("synthetic-bags", **sizes, test_label_sets="uniform", labels_per_bag=1)
    task.prepare(None, torch.device("cpu"))
    rng = torch.Generator().manual_seed(0)
    assert (task.test.draw(500, rng).labels.sum(dim=1) == 1).all()
    assert (task.training.draw(500, rng).labels.sum(dim=1) != 1).any()
    with pytest.raises(UsageError, match="labels_per_bag = 1 is for label_sets = uniform, not for independent"):
        load_task("synthetic-bags", **sizes, labels_per_bag=1)


def test_classes_that_overlap_share_a_position_and_leave_label_sets_as_they_are() -> None:
    """With every instance moved, a bag of two classes has one position near the sum of their points, and no other."""
    params = {"num_classes": 3, "label_sets": "uniform", "labels_per_bag": 2, "separation": 60.0, "min_size": 8}
    drawn = {}
    for overlap in (0.0, 0.5, 1.0):
        task: Any = load_task("synthetic-bags", **params, overlap=overlap)
        task.prepare(None, torch.device("cpu"))
        drawn[overlap] = task.training.draw(400, torch.Generator().manual_seed(1))
    near = {overlap: bags.instances[..., :3] > 30 / 2**0.5 for overlap, bags in drawn.items()}
    for overlap, bags in drawn.items():
        assert torch.equal(near[overlap].any(dim=1), bags.labels)
    two = drawn[1.0].labels.sum(dim=1) == 2
    together = {overlap: (shown.sum(dim=2) == 2).any(dim=1)[two].double().mean() for overlap, shown in near.items()}
    assert together[0.0] == 0
    assert 0.5 <= together[0.5] < 0.9
    assert together[1.0] == 1
