"""Synthetic bags with dependent classes, rare classes, context and errors: against enumeration of the whole model."""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch.distributions import MultivariateNormal

from milbench import UsageError, generator, load_task
from milbench.api.registry import tasks
from milbench.families.gaussian_bags import noisy_labels
from milbench.families.instancewise import instancewise_scores
from tests._helpers.enumerated_bags import bags_of, label_set
from tests._helpers.tasks import prepared

SMALL: dict[str, Any] = {"min_size": 2, "max_size": 3, "class_rate": 0.15, "dimension": 4, "separation": 3.0}
SHARES = ("context", "context_without")
COURSE: dict[str, dict[str, Any]] = {
    "together": {"num_classes": 4, "label_sets": "together"},
    "exclusive": {"num_classes": 4, "label_sets": "exclusive", "empty_share": 0.3, "class_rate": 0.1},
    "constant": {"num_classes": 3, "label_sets": "constant", "imbalance": 5.0},
    "uniform": {"num_classes": 3, "label_sets": "uniform", "labels_per_bag": 2, "context": 0.5, "test_sizes": "3-4"},
    "saturated": {"num_classes": 3, "label_sets": "uniform", "labels_per_bag": 3, "min_size": 3},
    "context": {"num_classes": 2, "context": 0.6, "test_sizes": "1-4"},
    "only context": {"num_classes": 2, "context": 1.0, "empty_share": 0.2},
    "absence": {"num_classes": 2, "context_without": 0.5, "context_swapped": True},
    "frequency": {"num_classes": 2, "context": 0.6, "context_without": 0.2, "context_swapped": True},
    "company": {"num_classes": 2, "label_sets": "mostly-together", "test_label_sets": "exclusive", "test_sizes": "1-3"},
    "empty": {"num_classes": 3, "empty_share": 0.4, "imbalance": 100.0},
    "rare": {
        "num_classes": 3,
        "imbalance": 100.0,
        "test_sizes": "4-4",
        "test_label_sets": "uniform",
        "labels_per_bag": 1,
    },
}


def make(limit: int = 40, **params: Any) -> Any:
    return prepared("synthetic-bags", limit=limit, **{**SMALL, **params})


@cache
def model_of(size: int, name: str, split: str = "validation") -> dict[tuple[int, ...], float]:
    """The probability of every assignment of kinds to the instances of a bag of `size`, from the parameters alone."""
    given = {**SMALL, "imbalance": 1.0, **COURSE[name]}
    if split == "test":
        given["label_sets"] = given.get("test_label_sets", given.get("label_sets", "independent"))
        if given.get("context_swapped"):
            given["context"], given["context_without"] = given.get("context_without", 0.0), given.get("context", 0.0)
    classes = given["num_classes"]
    steps = [given["imbalance"] ** (-c / max(1, classes - 1)) for c in range(classes)]
    rates = [step * classes * given["class_rate"] / sum(steps) for step in steps]
    chosen = {key: given[key] for key in ("labels_per_bag", "empty_share", *SHARES) if key in given}
    kind, mean_size = given.get("label_sets", "independent"), (given["min_size"] + given["max_size"]) / 2
    return bags_of(size, [*rates, 1 - sum(rates)], kind=kind, mean_size=mean_size, **chosen)


def log_densities(instances: Tensor, classes: int) -> Tensor:
    """The log-density (K, C+2) of instances (K, 4) of each class, background and context."""
    found = []
    for kind in range(classes + 2):
        mean, scale = (
            torch.zeros(5, dtype=torch.float64),
            2.0 if kind == classes else 1.0,
        )  # four classes have no context
        if kind != classes:
            mean[min(kind, classes)] = 3 / math.sqrt(2)
        found.append(MultivariateNormal(mean[:4], scale**2 * torch.eye(4, dtype=torch.float64)).log_prob(instances))
    return torch.stack(found, dim=1)


def by_enumeration(instances: Tensor, name: str, split: str) -> tuple[dict[frozenset[int], float], Tensor]:
    """The posterior of the label sets, and that (K, C+1) of the class of each instance, of one bag (K, d)."""
    classes, size = COURSE[name]["num_classes"], len(instances)
    model, density = model_of(size, name, split), log_densities(instances.double(), classes).exp().tolist()
    joint = {kinds: p * math.prod(density[k][kind] for k, kind in enumerate(kinds)) for kinds, p in model.items()}
    total = sum(joint.values())
    sets: defaultdict[frozenset[int], float] = defaultdict(float)
    of_instances = [[0.0] * (classes + 1) for _ in range(size)]
    for kinds, p in joint.items():
        sets[label_set(kinds, classes)] += p / total
        for k, kind in enumerate(kinds):
            of_instances[k][min(kind, classes)] += p / total
    return dict(sets), torch.tensor(of_instances, dtype=torch.float64)


@pytest.mark.parametrize("name", COURSE)
def test_the_optimum_is_that_of_all_assignments(name: str) -> None:
    task = make(**COURSE[name])
    for split, evaluated in task.eval_splits.items():
        wrong_sets, wrong_instances = [], []
        (bags,) = evaluated.bags
        found = model_to_draw(task, split).posterior(bags)
        for bag, size in enumerate(bags.mask.sum(dim=1).tolist()):
            sets, instances = by_enumeration(bags.instances[bag, :size], name, split)
            for members, p in sets.items():
                assert float(found.log_sets[bag, sum(1 << c for c in members)].exp()) == pytest.approx(p, rel=1e-6)
            assert float(found.log_sets[bag].exp().sum()) == pytest.approx(1)
            torch.testing.assert_close(found.log_instances[bag, :, :size].exp().T, instances, rtol=1e-6, atol=1e-12)
            truth = set(bags.labels[bag].nonzero().flatten().tolist())
            wrong_sets.append(max(sets, key=lambda members: sets[members]) != truth)
            wrong_instances += (instances.argmax(dim=1) != bags.truth.position_classes[bag, :size]).tolist()
        assert task.known_errors()[0][f"{split}/bayes_set_error"] == pytest.approx(sum(wrong_sets) / len(bags))
        share = sum(wrong_instances) / len(wrong_instances)
        assert task.known_errors()[0][f"{split}/bayes_posterior_error"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("name", "split"), [*((name, "validation") for name in COURSE), ("context", "test"), ("company", "test")]
)
def test_bags_are_drawn_as_often_as_the_model_says(name: str, split: Any) -> None:
    params, count = COURSE[name], 6000
    task = make(**params)
    bags = model_to_draw(task, split).draw(count, generator("course", name))
    sizes = bags.mask.sum(dim=1)
    classes = params["num_classes"]
    for size in sizes.unique().tolist():
        expected: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for kinds, p in model_of(size, name, split).items():
            expected[tuple(min(kind, classes) for kind in kinds)] += p
        found = [tuple(row) for row in bags.truth.position_classes[sizes == size, :size].tolist()]
        assert set(found) <= set(expected)
        counts = Counter(found)
        common = {z: p * len(found) for z, p in expected.items() if p * len(found) >= 5}
        observed, probable = [counts[z] for z in common], [*common.values()]
        if (rest := len(found) - sum(probable)) >= 1:
            observed.append(len(found) - sum(observed))
            probable.append(rest)
        assert chisquare(observed, [n * sum(observed) / sum(probable) for n in probable]).pvalue > 1e-3
    labels = [{c for c in row if c < classes} for row in bags.truth.position_classes.tolist()]
    assert [set(row.nonzero().flatten().tolist()) for row in bags.labels] == labels


def test_context_is_where_class_0_is_and_lies_on_an_axis_of_its_own() -> None:
    task = make(num_classes=2, context=0.4, dimension=3, separation=6.0)
    bags = task.training.draw(4000, generator("context"))
    background = (bags.truth.position_classes == 2) & bags.mask
    for has_0, share in ((True, 0.4), (False, 0.0)):
        x = bags.instances[background & (bags.labels[:, :1] == has_0)].double()
        assert float(x[:, 2].mean()) == pytest.approx(share * 6 / math.sqrt(2), abs=0.2)
        assert x[:, :2].mean(dim=0).tolist() == pytest.approx([0, 0], abs=0.2)
        assert float(x[:, 0].var()) == pytest.approx(share + (1 - share) * 4, rel=0.1)


@pytest.mark.parametrize("name", COURSE)
def test_the_reference_has_the_posterior_of_one_instance_of_a_bag_that_is_not_known(name: str) -> None:
    """By enumeration of training bags: of every size as often, and each instance of a bag counts."""
    task = make(**COURSE[name])
    classes, (low, high) = COURSE[name]["num_classes"], task.training.sizes
    often = torch.zeros(classes + 2, dtype=torch.float64)
    for size in range(low, high + 1):
        for kinds, p in model_of(size, name).items():
            for kind in kinds:
                often[kind] += p
    x = torch.randn(5, 4, generator=generator("reference", name)) * 2
    joint = (log_densities(x.double(), classes) + (often / often.sum()).log()).softmax(dim=1)
    expected = torch.cat([joint[:, :classes], joint[:, classes:].sum(dim=1, keepdim=True)], dim=1)
    found = task.training.marginal_log_posterior(x.unsqueeze(0))[0].T.exp()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "alike"),
    [("context", [{0}, {1}, {2}]), ("together", [{0, 1}, {2, 3}, {4}]), ("constant", [{0, 3}, {1}, {2}])],
)
def test_the_reference_decides_by_its_posterior_of_each_instance(name: str, alike: list[set[int]]) -> None:
    task = make(200, **COURSE[name])
    found, of = task.known_errors()[1], {c: group for group in alike for c in group}
    classes = COURSE[name]["num_classes"]
    score = instancewise_scores(task.training.marginal_log_posterior, task._groups)
    for split, (bags,) in evaluated_bags(task).items():
        probs = task.training.marginal_log_posterior(bags.instances).exp()
        wrong, merged_wrong, presence = [], [], []
        for b, size in enumerate(bags.mask.sum(dim=1).tolist()):
            of_bag = probs[b, :, :size].T.tolist()
            presence.append([
                1.0 if classes in of[c] else 1 - math.prod(1 - sum(p[d] for d in of[c]) for p in of_bag)
                for c in range(classes)
            ])  # fmt: skip
            for p, true in zip(of_bag, bags.truth.position_classes[b].tolist(), strict=False):
                wrong.append(p.index(max(p)) != true)
                merged_wrong.append(max(alike, key=lambda group: sum(p[d] for d in group)) != of[true])
        torch.testing.assert_close(score(bags).presence.sigmoid(), torch.tensor(presence, dtype=torch.float64))
        assert found[f"{split}/reference_posterior_error"] == pytest.approx(sum(wrong) / len(wrong))
        share = None if name == "context" else pytest.approx(sum(merged_wrong) / len(wrong))
        assert found.get(f"{split}/reference_learnable_posterior_error") == share
    assert 0 < found["test/reference_set_error"] < 0.5


def model_to_draw(task: Any, split: str) -> Any:
    return task.test if split == "test" else task.training


def evaluated_bags(task: Any) -> dict[str, list[Any]]:
    return {split: evaluated.bags for split, evaluated in task.eval_splits.items()}


def test_training_label_sets_alone_have_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    true: list[Tensor] = []

    def noted(labels: Tensor, *others: Any) -> Tensor:
        true.append(labels)
        return noisy_labels(labels, *others)

    monkeypatch.setattr(sys.modules[tasks().get("synthetic-bags").__module__], "noisy_labels", noted)
    noisy = make(num_classes=3, labels_dropped=0.2, labels_added=0.1, bags_per_epoch=3200)
    clean = make(num_classes=3)
    dropped = added = present = absent = 0
    for bags in noisy.train_batches(0, generator("noise")):
        assert bags.truth is None, "it would tell of the errors"
        is_there = true.pop()
        dropped += int((is_there & ~bags.labels).sum())
        added += int((~is_there & bags.labels).sum())
        present, absent = present + int(is_there.sum()), absent + int((~is_there).sum())
        assert (bags.labels.sum(dim=1) <= bags.mask.sum(dim=1)).all()
    assert dropped / present == pytest.approx(0.2, abs=0.02)
    assert added / absent == pytest.approx(0.1, abs=0.02)
    assert noisy.known_errors() == clean.known_errors()
    for split, (bags,) in evaluated_bags(noisy).items():
        (other,) = evaluated_bags(clean)[split]
        assert torch.equal(bags.labels, other.labels)
        assert torch.equal(bags.instances, other.instances)


def test_a_fixed_number_of_training_bags_is_the_same_in_every_epoch_and_another_one_for_every_seed() -> None:
    seen = []
    for seed, epoch in ((0, 0), (0, 7), (1, 0)):
        params = {**SMALL, "num_classes": 2, "training_bags": 20, "bags_per_epoch": 200}
        task = prepared("synthetic-bags", None, seed, 10, **params)
        batches = list(task.train_batches(epoch, generator("order", epoch)))
        assert len(batches) == task.steps_per_epoch == 7
        seen.append([tuple(bag) for bags in batches for bag in bags.instances.flatten(1).tolist()])
    first, later, other = seen
    assert len(set(first)) == 20
    assert set(first) == set(later)
    assert first != later
    assert not set(first) & set(other)


@pytest.mark.parametrize(("params", "complaint"), [
    ({"min_size": 6}, "min_size = 6 is larger than max_size = 3"),
    ({"num_classes": 3, "label_sets": "together"}, "together needs pairs of classes, num_classes = 3 is odd"),
    ({"label_sets": "exclusive", "class_rate": 0.4}, r"the probabilities of two such classes add up to 1\.44"),
    ({"labels_per_bag": 2}, "labels_per_bag = 2 is for label_sets = uniform, not for independent"),
    ({"label_sets": "uniform", "labels_per_bag": 3}, "more than 2: num_classes = 2, and the smallest bag has 2"),
    ({"label_sets": "constant", "empty_share": 0.1}, "empty_share = 0.1: with label_sets = constant no bag is"),
    ({"num_classes": 10, "class_rate": 0.05, "dimension": 10, "empty_share": 0.1}, "at most 8 classes"),
    ({"context": 0.1, "dimension": 2}, "2 classes and context need as many axes and one more, dimension = 2"),
    ({"test_sizes": "9-6"}, "test_sizes = 9-6: the smallest is larger than the largest"),
])  # fmt: skip
def test_bad_combinations_are_one_line(params: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load_task("synthetic-bags", **{**SMALL, "num_classes": 2, **params})
    assert "\n" not in str(caught.value)
    assert "synthetic-bags: " in str(caught.value)
