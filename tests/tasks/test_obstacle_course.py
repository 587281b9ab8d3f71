"""Synthetic bags with dependent classes, rare classes, context and errors: against enumeration of the whole model."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch.distributions import Normal

from milbench import Scores, generator, label_matrix
from milbench.families.decisions import instancewise_scores
from tests._helpers.tasks import loaded

SMALL: dict[str, Any] = {
    "min_size": 2,
    "max_size": 3,
    "class_rate": 0.15,
    "dimension": 4,
    "separation": 3.0,
}
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
    "rare": {"num_classes": 3, "imbalance": 100.0, "test_sizes": "4-4", "test_label_sets": "uniform",
             "labels_per_bag": 1},
}  # fmt: skip


Assignment = tuple[int, ...]
"""The kind of every instance: a class 0 to C-1, C for background, C+1 for its context."""


def label_set(kinds: Assignment, classes: int) -> frozenset[int]:
    return frozenset(kind for kind in kinds if kind < classes)


def rule_of_sets(
    kind: str, presence: Sequence[float], labels_per_bag: int | None
) -> dict[frozenset[int], float]:
    """The probability of every label set before it is made to fit a size, from the words of the docstring."""
    classes, found = range(len(presence)), {}
    for members in itertools.chain.from_iterable(
        itertools.combinations(classes, n) for n in range(len(presence) + 1)
    ):
        value = 1.0
        if kind == "uniform":
            assert labels_per_bag is not None
            allowed = 1 <= len(members) <= labels_per_bag
            value = 1 / labels_per_bag / math.comb(len(presence), len(members)) if allowed else 0.0
        elif kind == "constant":
            for c in classes:
                p = 1.0 if c == 0 else presence[c]
                value *= p if c in members else 1 - p
        else:
            for a, b in zip(classes[::2], classes[1::2], strict=True):
                both, neither = (presence[a] + presence[b]) / 2, 1 - presence[a] - presence[b]
                cases = {
                    "together": {(True, True): both, (False, False): 1 - both},
                    "exclusive": {(True, False): presence[a], (False, True): presence[b], (False, False): neither},
                    "mostly-together": {
                        (True, True): 0.9 * both, (True, False): 0.1 * presence[a], (False, True): 0.1 * presence[b],
                        (False, False): 0.9 * (1 - both) + 0.1 * neither,
                    },
                }[kind]  # fmt: skip
                value *= cases.get((a in members, b in members), 0.0)
        found[frozenset(members)] = value
    return found


@cache
def model_of(size: int, name: str, split: str = "validation") -> dict[Assignment, float]:
    """The probability of every assignment of kinds to the instances of a bag of `size`, from the parameters alone."""
    given = {
        **SMALL,
        "imbalance": 1.0,
        "label_sets": "independent",
        "context": 0.0,
        "context_without": 0.0,
    }
    given |= COURSE[name]
    if split == "test":
        given["label_sets"] = given.get("test_label_sets", given["label_sets"])
        if given.get("context_swapped"):
            given["context"], given["context_without"] = given["context_without"], given["context"]
    classes = given["num_classes"]
    steps = [given["imbalance"] ** (-c / max(1, classes - 1)) for c in range(classes)]
    rates = [step * classes * given["class_rate"] / sum(steps) for step in steps]
    rates.append(1 - sum(rates))
    mean_size, empty_share = (given["min_size"] + given["max_size"]) / 2, given.get("empty_share")
    everything = itertools.product(range(classes + 1), repeat=size)
    drawn = {
        kinds: math.prod(rates[kind] for kind in kinds) for kinds in everything
    }  # independent instances
    q: defaultdict[frozenset[int], float] = defaultdict(float)
    for kinds, probability in drawn.items():
        q[label_set(kinds, classes)] += probability
    presence = [1 - (1 - rate) ** mean_size for rate in rates[:-1]]
    kind = given["label_sets"]
    rule = (
        dict(q)
        if kind == "independent"
        else rule_of_sets(kind, presence, given.get("labels_per_bag"))
    )
    rule = {members: p for members, p in rule.items() if len(members) <= size}
    if empty_share is not None:
        rest = sum(p for members, p in rule.items() if members)
        rule = {
            members: p / rest * (1 - empty_share) if members else empty_share
            for members, p in rule.items()
        }
    total = sum(rule.values())
    found: dict[Assignment, float] = {}
    for kinds, probability in drawn.items():
        members = label_set(kinds, classes)
        value = rule[members] / total * probability / q[members]
        share = given["context"] if 0 in members else given["context_without"]
        ways = [[(k, 1.0)] if k < classes else [(k, 1 - share), (k + 1, share)] for k in kinds]
        for way in itertools.product(*ways):
            weight = value * math.prod(p for _, p in way)
            if weight > 0:
                found[tuple(k for k, _ in way)] = weight
    return found


def make(limit: int = 40, **params: Any) -> Any:
    return loaded("synthetic-bags", limit=limit, **{**SMALL, **params})


def distribution(problem: Any, split: str) -> Any:
    """The distribution that the bags of a split are drawn from."""
    return {name: model for name, model, _ in problem.drawn}[split]


def log_densities(instances: Tensor, classes: int) -> Tensor:
    """The log-density (K, C+2) of instances (K, 4) of each class, background and context."""
    axes = torch.eye(5, 4, dtype=torch.float64)  # four classes have no context
    at = [*axes[:classes], 0 * axes[0], axes[classes]]
    kinds = [(3 / math.sqrt(2) * mean, 2.0 if n == classes else 1.0) for n, mean in enumerate(at)]
    return torch.stack([Normal(*kind).log_prob(instances).sum(dim=1) for kind in kinds], dim=1)


def by_enumeration(
    instances: Tensor, name: str, split: str
) -> tuple[dict[frozenset[int], float], Tensor]:
    """The posterior of the label sets, and that (K, C+1) of the class of each instance, of one bag (K, d)."""
    classes, size = COURSE[name]["num_classes"], len(instances)
    model, density = (
        model_of(size, name, split),
        log_densities(instances.double(), classes).exp().tolist(),
    )
    joint = {
        kinds: p * math.prod(density[k][kind] for k, kind in enumerate(kinds))
        for kinds, p in model.items()
    }
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
    problem = make(**COURSE[name])
    for split, (bags,) in evaluated_bags(problem).items():
        wrong_sets, wrong_instances = list[bool](), list[bool]()
        found = distribution(problem, split).posterior(bags)
        for bag, size in enumerate(bags.mask.sum(dim=1).tolist()):
            sets, instances = by_enumeration(bags.instances[bag, :size], name, split)
            of_sets = found.log_sets[bag].exp()
            for members, p in sets.items():
                assert float(of_sets[sum(1 << c for c in members)]) == pytest.approx(p, rel=1e-6)
            assert float(of_sets.sum()) == pytest.approx(1)
            torch.testing.assert_close(
                found.log_instances[bag, :, :size].exp().T, instances, rtol=1e-6, atol=1e-12
            )
            truth = set(bags.labels[bag].nonzero().flatten().tolist())
            wrong_sets.append(max(sets, key=lambda members: sets[members]) != truth)
            wrong_instances += (
                instances.argmax(dim=1) != bags.truth.position_classes[bag, :size]
            ).tolist()
        for metric, wrong in (("set_error", wrong_sets), ("posterior_error", wrong_instances)):
            assert problem.known_errors()[f"{split}/bayes_{metric}"] == pytest.approx(
                sum(wrong) / len(wrong)
            )


@pytest.mark.parametrize(
    ("name", "split"),
    [*((name, "validation") for name in COURSE), ("context", "test"), ("company", "test")],
)
def test_bags_are_drawn_as_often_as_the_model_says(name: str, split: Any) -> None:
    params, count = COURSE[name], 6000
    problem = make(**params)
    bags = distribution(problem, split).draw(count, generator("course", name))
    sizes = bags.mask.sum(dim=1)
    classes = params["num_classes"]
    for size in sizes.unique().tolist():
        expected: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for kinds, p in model_of(size, name, split).items():
            expected[tuple(min(kind, classes) for kind in kinds)] += p
        found = [tuple(row) for row in bags.truth.position_classes[sizes == size, :size].tolist()]
        assert set(found) <= set(expected)
        counts, common = Counter(found), [z for z, p in expected.items() if p * len(found) >= 5]
        observed, probable = [counts[z] for z in common], [expected[z] * len(found) for z in common]
        if (rest := len(found) - sum(probable)) >= 1:
            observed.append(len(found) - sum(observed))
            probable.append(rest)
        assert (
            chisquare(observed, [n * sum(observed) / sum(probable) for n in probable]).pvalue > 1e-3
        )
    assert torch.equal(label_matrix(bags.truth.classes, classes), bags.labels)


def test_context_follows_class_0_along_an_axis_of_its_own() -> None:
    problem = make(num_classes=2, context=0.4, dimension=3, separation=6.0)
    bags = problem.training.draw(4000, generator("context"))
    background = (bags.truth.position_classes == 2) & bags.mask
    for has_0, share in ((True, 0.4), (False, 0.0)):
        x = bags.instances[background & (bags.labels[:, :1] == has_0)].double()
        assert float(x[:, 2].mean()) == pytest.approx(share * 6 / math.sqrt(2), abs=0.2)
        assert x[:, :2].mean(dim=0).tolist() == pytest.approx([0, 0], abs=0.2)
        assert float(x[:, 0].var()) == pytest.approx(share + (1 - share) * 4, rel=0.1)


@pytest.mark.parametrize("name", COURSE)
def test_the_reference_has_the_posterior_of_one_instance_alone(
    name: str,
) -> None:
    """By enumeration of training bags: of every size as often, and each instance of a bag counts."""
    problem = make(**COURSE[name])
    classes, (low, high) = COURSE[name]["num_classes"], problem.training.sizes
    often = torch.zeros(classes + 2, dtype=torch.float64)
    for size in range(low, high + 1):
        for kinds, p in model_of(size, name).items():
            for kind in kinds:
                often[kind] += p
    x = torch.randn(5, 4, generator=generator("reference", name)) * 2
    joint = (log_densities(x.double(), classes) + (often / often.sum()).log()).softmax(dim=1)
    expected = torch.cat([joint[:, :classes], joint[:, classes:].sum(dim=1, keepdim=True)], dim=1)
    found = problem.training.marginal_log_posterior(x.unsqueeze(0))[0].T.exp()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("name", "alike"), [
    ("context", [{0}, {1}, {2}]), ("together", [{0, 1}, {2, 3}, {4}]), ("constant", [{0, 3}, {1}, {2}]),
])  # fmt: skip
def test_the_reference_decides_by_its_posterior_of_each_instance(
    name: str, alike: list[set[int]]
) -> None:
    problem = make(200, **COURSE[name])
    found, of = problem.known_errors(), {c: group for group in alike for c in group}
    classes = COURSE[name]["num_classes"]
    score = instancewise_scores(problem.training.marginal_log_posterior, problem.groups)
    for split, (bags,) in evaluated_bags(problem).items():
        probs = problem.training.marginal_log_posterior(bags.instances).exp()
        wrong, merged_wrong, presence = [], [], []
        for b, size in enumerate(bags.mask.sum(dim=1).tolist()):
            of_bag = probs[b, :, :size].T.tolist()
            presence.append([
                1.0 if classes in of[c] else 1 - math.prod(1 - sum(p[d] for d in of[c]) for p in of_bag)
                for c in range(classes)
            ])  # fmt: skip
            for p, true in zip(of_bag, bags.truth.position_classes[b].tolist(), strict=False):
                wrong.append(p.index(max(p)) != true)
                merged_wrong.append(
                    max(alike, key=lambda group: sum(p[d] for d in group)) != of[true]
                )
        torch.testing.assert_close(
            score(bags).presence.sigmoid(), torch.tensor(presence, dtype=torch.float64)
        )
        assert found[f"{split}/reference_posterior_error"] == pytest.approx(sum(wrong) / len(wrong))
        share = None if name == "context" else pytest.approx(sum(merged_wrong) / len(wrong))
        assert found.get(f"{split}/reference_learnable_posterior_error") == share
    assert 0 < found["test/reference_set_error"] < 0.5


def evaluated_bags(problem: Any) -> dict[str, list[Any]]:
    return {split: evaluated.bags for split, evaluated in problem.splits.items()}


def test_training_label_sets_alone_have_errors() -> None:
    """The ten batches of an epoch are drawn before their errors are, so that without errors they are the same."""
    noisy = make(num_classes=3, labels_dropped=0.2, labels_added=0.1, bags_per_epoch=320)
    clean = make(num_classes=3, bags_per_epoch=320)
    batches = [
        [bags for n in range(10) for bags in problem.train_batches(0, generator(n))]
        for problem in (noisy, clean)
    ]
    for bags, same in zip(*batches, strict=True):
        assert torch.equal(bags.instances, same.instances)
        assert bags.truth is None, "it would tell of the errors"
        assert (bags.labels.sum(dim=1) <= bags.mask.sum(dim=1)).all()
    given, known = (torch.cat([bags.labels for bags in of_task]) for of_task in batches)
    assert float((~given[known]).double().mean()) == pytest.approx(0.2, abs=0.02)
    assert float(given[~known].double().mean()) == pytest.approx(0.1, abs=0.02)
    assert noisy.known_errors() == clean.known_errors()
    for split, (bags,) in evaluated_bags(noisy).items():
        assert torch.equal(bags.labels, evaluated_bags(clean)[split][0].labels)


NOISY: dict[str, Any] = {"num_classes": 3, "labels_dropped": 0.2, "labels_added": 0.1}
BOTH = "training+validation"


def labels_of(problem: Any, split: str) -> Tensor:
    return torch.cat([bags.labels for bags in problem.splits[split].bags])


def with_noise(noise_in: str, seed: int = 0, **params: Any) -> Any:
    return loaded("synthetic-bags", None, seed, **NOISY | {"noise_in": noise_in} | params)


def test_validation_label_sets_can_have_the_errors_of_training() -> None:
    noisy, clean = (labels_of(with_noise(kind), "validation") for kind in (BOTH, "training"))
    assert len(noisy) == len(clean) == 1000
    dropped = float((~noisy[clean]).double().mean())
    added = float(noisy[~clean].double().mean())
    assert dropped == pytest.approx(0.2, abs=0.04), "about 1,300 labels: 3.5 standard deviations"
    assert added == pytest.approx(0.1, abs=0.03)


def test_noise_in_validation_changes_nothing_but_its_label_sets() -> None:
    noisy, clean = with_noise(BOTH), with_noise("training")
    assert torch.equal(labels_of(noisy, "test"), labels_of(clean, "test"))
    for split in ("validation", "test"):
        pairs = zip(noisy.splits[split].bags, clean.splits[split].bags, strict=True)
        for bags, same in pairs:
            assert torch.equal(bags.instances, same.instances)
            assert torch.equal(bags.mask, same.mask)
    trained = [next(iter(problem.train_batches(0, generator("t")))) for problem in (noisy, clean)]
    assert torch.equal(trained[0].instances, trained[1].instances)
    assert torch.equal(trained[0].labels, trained[1].labels)


def test_noise_in_validation_is_the_same_for_all_seeds() -> None:
    one, other = (with_noise(BOTH, seed, training_bags=50) for seed in (0, 1))
    assert torch.equal(labels_of(one, "validation"), labels_of(other, "validation"))


def test_noisy_validation_bags_do_not_tell_the_truth() -> None:
    validation = with_noise(BOTH).splits["validation"]
    assert all(bags.truth is None for bags in validation.bags)
    assert not len(validation.single_instance)


def test_with_noisy_validation_the_optimum_of_test_bags_stays() -> None:
    noisy, clean = (with_noise(kind, **SMALL).known_errors() for kind in (BOTH, "training"))
    assert noisy == {name: error for name, error in clean.items() if name.startswith("test/")}
    assert noisy


@pytest.mark.parametrize("label_sets", ["independent", "constant"])
def test_noisy_validation_bags_are_judged_by_label_sets_alone(label_sets: str) -> None:
    problem = with_noise(BOTH, **SMALL, label_sets=label_sets)
    model = problem.training
    score = instancewise_scores(model.marginal_log_posterior, range(model.num_classes + 1))
    metrics = problem.evaluate(score).metrics
    assert "validation/set_error" in metrics
    assert "test/excess_posterior_error" in metrics
    of_instances = ("instance_error", "posterior_error", "hit_rate", "bayes_", "reference_")
    for name in metrics:
        is_of_validation = name.startswith("validation/")
        assert not (is_of_validation and any(part in name for part in of_instances)), name


def test_who_knows_the_truth_errs_on_noisy_validation_labels() -> None:
    noisy, clean = with_noise(BOTH), with_noise("training")
    truth_of = {}
    for split in clean.splits.values():
        for bags in (*split.bags, *split.single_instance):
            for instances, labels in zip(bags.instances, bags.labels, strict=True):
                truth_of[instances.numpy().tobytes()] = labels

    def score(bags: Any) -> Scores:
        known = [truth_of[instances.numpy().tobytes()] for instances in bags.instances]
        presence = torch.stack(known).float()
        guesses = torch.full((len(bags), 4, bags.instances.shape[1]), 0.25)
        return Scores(presence, presence, guesses, mask=bags.mask)

    metrics = noisy.evaluate(score).metrics
    differs = (labels_of(noisy, "validation") != labels_of(clean, "validation")).any(dim=1)
    assert metrics["validation/set_error"] == pytest.approx(float(differs.double().mean()))
    assert metrics["test/set_error"] == 0


def test_without_errors_noise_in_changes_nothing() -> None:
    problem = with_noise(BOTH, labels_dropped=0.0, labels_added=0.0)
    clean = with_noise("training")
    assert torch.equal(labels_of(problem, "validation"), labels_of(clean, "validation"))
    assert problem.splits["validation"].bags[0].truth is not None


def test_fixed_training_bags_differ_by_seed_and_not_by_epoch() -> None:
    seen = []
    for seed, epoch in ((0, 0), (0, 7), (1, 0)):
        params = {**SMALL, "num_classes": 2, "training_bags": 20, "bags_per_epoch": 200}
        problem = loaded("synthetic-bags", None, seed, 10, **params)
        batches = list(problem.train_batches(epoch, generator("order", epoch)))
        assert len(batches) == problem.steps_per_epoch == 7
        seen.append([tuple(bag) for bags in batches for bag in bags.instances.flatten(1).tolist()])
    first, later, other = seen
    assert len(set(first)) == 20
    assert set(first) == set(later)
    assert first != later
    assert not set(first) & set(other)
