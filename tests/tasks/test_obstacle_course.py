"""Settings of the task `synthetic-bags` that make it hard, against enumeration of the whole model.

Each is an obstacle for losses: classes that depend on each other, rare classes, context, and errors
in label sets. Context is a kind of background that is more frequent in bags with class 0 than in
bags without it, or the other way round.

The distribution of these bags is known. So the task states the errors of two ways to decide. The
optimum knows the distribution and all instances of a bag. The reference knows the distribution too,
but looks at one instance at a time, as if the rest of its bag were unknown.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
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

DIMENSION = 4
SEPARATION = 3.0
SMALL: dict[str, Any] = {
    "min_size": 2,
    "max_size": 3,
    "class_rate": 0.15,
    "dimension": DIMENSION,
    "separation": SEPARATION,
}
# The parameters of each obstacle, beside those in SMALL. `context` is the share of the background
# that is context in bags with class 0, and `context_without` the share in bags without class 0.
# With `context_swapped` test bags swap the two. The docstring of the task describes all parameters.
COURSE: dict[str, dict[str, Any]] = {
    "together": {"num_classes": 4, "label_sets": "together"},
    "exclusive": {"num_classes": 4, "label_sets": "exclusive", "empty_share": 0.3,
                  "class_rate": 0.1},
    "constant": {"num_classes": 3, "label_sets": "constant", "imbalance": 5.0},
    "uniform": {"num_classes": 3, "label_sets": "uniform", "labels_per_bag": 2, "context": 0.5,
                "test_sizes": "3-4"},
    "saturated": {"num_classes": 3, "label_sets": "uniform", "labels_per_bag": 3, "min_size": 3},
    "context": {"num_classes": 2, "context": 0.6, "test_sizes": "1-4"},
    "only context": {"num_classes": 2, "context": 1.0, "empty_share": 0.2},
    "absence": {"num_classes": 2, "context_without": 0.5, "context_swapped": True},
    "frequency": {"num_classes": 2, "context": 0.6, "context_without": 0.2,
                  "context_swapped": True},
    "company": {"num_classes": 2, "label_sets": "mostly-together", "test_label_sets": "exclusive",
                "test_sizes": "1-3"},
    "empty": {"num_classes": 3, "empty_share": 0.4, "imbalance": 100.0},
    "rare": {"num_classes": 3, "imbalance": 100.0, "test_sizes": "4-4",
             "test_label_sets": "uniform", "labels_per_bag": 1},
}  # fmt: skip
SPLITS = ["validation", "test"]


Assignment = tuple[int, ...]
"""The kind of every instance: a class 0 to C-1, C for other background, C+1 for context."""
LabelSet = frozenset[int]
EMPTY: LabelSet = frozenset()


def label_set(kinds: Assignment, classes: int) -> LabelSet:
    return frozenset(kind for kind in kinds if kind < classes)


def all_label_sets(classes: int) -> list[LabelSet]:
    found = []
    for size in range(classes + 1):
        found += [frozenset(members) for members in itertools.combinations(range(classes), size)]
    return found


PairTable = dict[tuple[bool, bool], float]
"""(whether the first class of a pair occurs, whether the second does) -> its probability."""


# The next three functions get the share of bags in which each class of a pair is to occur.
def together(first: float, second: float) -> PairTable:
    both = (first + second) / 2
    return {(True, True): both, (True, False): 0, (False, True): 0, (False, False): 1 - both}


def exclusive(first: float, second: float) -> PairTable:
    neither = 1 - first - second
    return {(True, True): 0, (True, False): first, (False, True): second, (False, False): neither}


def mostly_together(first: float, second: float) -> PairTable:
    usual = together(first, second)
    rest = exclusive(first, second)
    return {case: 0.9 * usual[case] + 0.1 * rest[case] for case in usual}


PAIRS = {"together": together, "exclusive": exclusive, "mostly-together": mostly_together}


def probability_of_pairs(kind: str, members: LabelSet, presence: Sequence[float]) -> float:
    """Return how probable a label set is by a rule of independent pairs of classes."""
    value = 1.0
    for first in range(0, len(presence), 2):
        second = first + 1
        table = PAIRS[kind](presence[first], presence[second])
        value *= table[first in members, second in members]
    return value


def probability_if_constant(members: LabelSet, presence: Sequence[float]) -> float:
    """Return how probable a label set is where class 0 is in every bag.

    The other classes occur independently of each other.
    """
    value = 1.0
    for cls, share in enumerate(presence):
        how_often = 1.0 if cls == 0 else share
        value *= how_often if cls in members else 1 - how_often
    return value


def probability_if_uniform(members: LabelSet, classes: int, most: int) -> float:
    """Return how probable a label set is where sets of one size are equally probable.

    The size is uniform on 1 to `most`.
    """
    if not 1 <= len(members) <= most:
        return 0.0
    return 1 / most / math.comb(classes, len(members))


@dataclass(frozen=True)
class Parameters:
    """The parameters of the bags of one split, as the docstring of the task names them."""

    classes: int
    rates: list[float]
    """The share of instances that each class has; background is last."""
    presence: list[float]
    """The share of bags in which each class is to occur."""
    label_sets: str
    labels_per_bag: int | None
    empty_share: float | None
    context_with_0: float
    """The share of the background that is context, in bags with class 0."""
    context_without_0: float
    """The share of the background that is context, in bags without class 0."""

    def probability(self, members: LabelSet) -> float:
        """Return how probable a label set is by the rule `label_sets`.

        The size of a bag is not considered: a small bag cannot hold all of these label sets.
        """
        if self.label_sets == "uniform":
            assert self.labels_per_bag is not None
            return probability_if_uniform(members, self.classes, self.labels_per_bag)
        if self.label_sets == "constant":
            return probability_if_constant(members, self.presence)
        return probability_of_pairs(self.label_sets, members, self.presence)


def parameters_of(name: str, split: str) -> Parameters:
    given: dict[str, Any] = SMALL | COURSE[name]
    classes = given["num_classes"]
    imbalance = given.get("imbalance", 1.0)
    # Frequencies fall geometrically, from the first class to the last.
    steps = [imbalance ** (-cls / max(1, classes - 1)) for cls in range(classes)]
    total = classes * given["class_rate"]
    rates = [total * step / sum(steps) for step in steps]
    mean_size = (given["min_size"] + given["max_size"]) / 2
    label_sets = given.get("label_sets", "independent")
    contexts = [given.get("context", 0.0), given.get("context_without", 0.0)]
    if split == "test":
        label_sets = given.get("test_label_sets", label_sets)
        if given.get("context_swapped"):
            contexts.reverse()
    return Parameters(
        classes=classes,
        rates=[*rates, 1 - total],
        presence=[1 - (1 - rate) ** mean_size for rate in rates],
        label_sets=label_sets,
        labels_per_bag=given.get("labels_per_bag"),
        empty_share=given.get("empty_share"),
        context_with_0=contexts[0],
        context_without_0=contexts[1],
    )


@cache
def model_of(size: int, name: str, split: str = "validation") -> dict[Assignment, float]:
    """Return the probability of every assignment of kinds to the instances of a bag of `size`.

    It is computed from the parameters alone, without the code of the task. First every assignment
    gets its probability for independent instances. Then label sets are made as frequent as the
    parameters say. At last some of the background becomes context.
    """
    given = parameters_of(name, split)
    independent = {}
    for kinds in itertools.product(range(given.classes + 1), repeat=size):
        independent[kinds] = math.prod(given.rates[kind] for kind in kinds)
    if_independent: defaultdict[LabelSet, float] = defaultdict(float)
    for kinds, probability in independent.items():
        if_independent[label_set(kinds, given.classes)] += probability
    prior = prior_of_sets(given, if_independent, size)
    model = {}
    for kinds, probability in independent.items():
        members = label_set(kinds, given.classes)
        # Given the label set, instances are distributed like independent instances that happen to
        # have this label set.
        value = prior[members] * probability / if_independent[members]
        share = given.context_with_0 if 0 in members else given.context_without_0
        for way, chance in with_context(kinds, given.classes, share).items():
            if value * chance > 0:
                model[way] = value * chance
    return model


def prior_of_sets(
    given: Parameters, if_independent: dict[LabelSet, float], size: int
) -> dict[LabelSet, float]:
    """Return how probable each label set is in a bag of `size`, which holds at most `size` classes.

    `if_independent` is how probable each would be if instances were independent.
    """
    rule = dict(if_independent)
    if given.label_sets != "independent":
        rule = {members: given.probability(members) for members in all_label_sets(given.classes)}
    possible = {members: p for members, p in rule.items() if len(members) <= size}
    if given.empty_share is None:
        return normalised(possible)
    del possible[EMPTY]
    prior = {}
    for members, share in normalised(possible).items():
        prior[members] = share * (1 - given.empty_share)
    prior[EMPTY] = given.empty_share
    return prior


def normalised(values: dict[LabelSet, float]) -> dict[LabelSet, float]:
    total = sum(values.values())
    return {members: value / total for members, value in values.items()}


def with_context(kinds: Assignment, classes: int, share: float) -> dict[Assignment, float]:
    """Return the assignments in which some background is context, with the probability of each."""
    choices: list[list[tuple[int, float]]] = []
    for kind in kinds:
        if kind < classes:
            choices.append([(kind, 1.0)])
        else:
            choices.append([(classes, 1 - share), (classes + 1, share)])
    ways = {}
    for way in itertools.product(*choices):
        chosen = tuple(kind for kind, _ in way)
        ways[chosen] = math.prod(chance for _, chance in way)
    return ways


def make(limit: int = 40, **params: Any) -> Any:
    """Return a problem with parameters of SMALL and others; `limit` is the bags of each split."""
    return loaded("synthetic-bags", limit=limit, **{**SMALL, **params})


@cache
def problem_of(name: str) -> Any:
    return make(**COURSE[name])


def distribution(problem: Any, split: str) -> Any:
    """Return the distribution that the bags of a split are sampled from."""
    return {name: model for name, model, _ in problem.sources}[split]


def log_densities(instances: Tensor, classes: int) -> Tensor:
    """Return the log-densities (K, C+2) of instances (K, 4): by class, background and context."""
    # A class is normal around a point on its own axis, and context around a point on the axis that
    # follows. Obstacles with four classes have no context, so that the row of zeros that `eye`
    # gives them for a fifth axis has no effect.
    axes = torch.eye(DIMENSION + 1, DIMENSION, dtype=torch.float64)
    # Points at this distance on two axes are SEPARATION apart.
    distance = SEPARATION / math.sqrt(2)
    of_classes = [Normal(distance * axes[cls], 1.0) for cls in range(classes)]
    # By default background has the standard deviation 2 (`background_scale`).
    of_background = Normal(torch.zeros(DIMENSION, dtype=torch.float64), 2.0)
    of_context = Normal(distance * axes[classes], 1.0)
    kinds = [*of_classes, of_background, of_context]
    return torch.stack([kind.log_prob(instances).sum(dim=1) for kind in kinds], dim=1)


@dataclass(frozen=True)
class BagPosterior:
    """The posterior of one bag of K instances by enumeration, and its truth."""

    sets: dict[LabelSet, float]
    """How probable each label set is."""
    instances: Tensor
    """How probable each class is at each instance, (K, C+1); background is last."""
    true_set: LabelSet
    true_classes: Tensor
    """The class of each instance, (K,)."""


@cache
def by_enumeration(name: str, split: str) -> list[BagPosterior]:
    """Return the posterior of each bag of a split."""
    (bags,) = problem_of(name).splits[split].bags
    classes = COURSE[name]["num_classes"]
    found = []
    for bag, size in enumerate(bags.mask.sum(dim=1).tolist()):
        joint = joint_probabilities(bags.instances[bag, :size], name, split)
        total = sum(joint.values())
        sets: defaultdict[LabelSet, float] = defaultdict(float)
        instances = torch.zeros(size, classes + 1, dtype=torch.float64)
        for kinds, probability in joint.items():
            sets[label_set(kinds, classes)] += probability / total
            for instance, kind in enumerate(kinds):
                # Context, which is kind C+1, counts as background, C.
                instances[instance, min(kind, classes)] += probability / total
        true_set = frozenset(bags.labels[bag].nonzero().flatten().tolist())
        true_classes = bags.truth.position_classes[bag, :size]
        found.append(BagPosterior(dict(sets), instances, true_set, true_classes))
    return found


def joint_probabilities(instances: Tensor, name: str, split: str) -> dict[Assignment, float]:
    """Return the joint density of each assignment of kinds and the instances (K, d) of a bag."""
    densities = log_densities(instances.double(), COURSE[name]["num_classes"]).exp().tolist()
    joint = {}
    for kinds, probability in model_of(len(instances), name, split).items():
        of_instances = [density[kind] for density, kind in zip(densities, kinds, strict=True)]
        joint[kinds] = probability * math.prod(of_instances)
    return joint


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", COURSE)
def test_the_posterior_of_label_sets_agrees_with_enumeration(name: str, split: str) -> None:
    problem = problem_of(name)
    (bags,) = problem.splits[split].bags
    found = distribution(problem, split).posterior(bags).log_sets.exp()
    for of_sets, expected in zip(found, by_enumeration(name, split), strict=True):
        assert float(of_sets.sum()) == pytest.approx(1)
        for members, probability in expected.sets.items():
            # The number of a label set has the bit 2^c where the set contains class c.
            number = sum(1 << cls for cls in members)
            assert float(of_sets[number]) == pytest.approx(probability, rel=1e-6)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", COURSE)
def test_the_posterior_of_instances_agrees_with_enumeration(name: str, split: str) -> None:
    problem = problem_of(name)
    (bags,) = problem.splits[split].bags
    found = distribution(problem, split).posterior(bags).log_instances.exp()
    for of_instances, expected in zip(found, by_enumeration(name, split), strict=True):
        without_padding = of_instances[:, : len(expected.instances)].T
        torch.testing.assert_close(without_padding, expected.instances, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", COURSE)
def test_the_optimal_set_error_comes_from_the_most_probable_sets(name: str, split: str) -> None:
    wrong = []
    for posterior in by_enumeration(name, split):
        most_probable = max(posterior.sets, key=posterior.sets.__getitem__)
        wrong.append(most_probable != posterior.true_set)
    known = problem_of(name).known_errors()[f"{split}/bayes_set_error"]
    assert known == pytest.approx(sum(wrong) / len(wrong))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", COURSE)
def test_the_optimal_posterior_error_comes_from_the_most_probable_classes(
    name: str, split: str
) -> None:
    posteriors = by_enumeration(name, split)
    wrong = torch.cat([p.instances.argmax(dim=1) != p.true_classes for p in posteriors])
    known = problem_of(name).known_errors()[f"{split}/bayes_posterior_error"]
    assert known == pytest.approx(float(wrong.double().mean()))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", COURSE)
def test_bags_are_drawn_as_often_as_the_model_says(name: str, split: str) -> None:
    bags = distribution(problem_of(name), split).draw(6000, generator("course", name))
    sizes = bags.mask.sum(dim=1)
    for size in sizes.unique().tolist():
        rows = bags.truth.position_classes[sizes == size, :size].tolist()
        assert_drawn_from([tuple(row) for row in rows], expected_classes(size, name, split))


def expected_classes(size: int, name: str, split: str) -> dict[Assignment, float]:
    """Return the probability of the classes of all instances, where context is background."""
    background = COURSE[name]["num_classes"]
    expected: defaultdict[Assignment, float] = defaultdict(float)
    for kinds, probability in model_of(size, name, split).items():
        expected[tuple(min(kind, background) for kind in kinds)] += probability
    return expected


def assert_drawn_from(found: list[Assignment], expected: dict[Assignment, float]) -> None:
    """Assert by a chi-square test that values were sampled with these probabilities.

    Rare values are put into one group. The seed is fixed, so that the test always gives the same
    answer; a right sampler would fail it for one seed in a thousand.
    """
    assert set(found) <= set(expected)
    count = len(found)
    counts = Counter(found)
    # The chi-square test needs at least five expected values in each group.
    common = [value for value, probability in expected.items() if probability * count >= 5]
    observed = [counts[value] for value in common]
    wanted = [expected[value] * count for value in common]
    rest = count - sum(wanted)
    if rest >= 1:
        observed.append(count - sum(observed))
        wanted.append(rest)
    # scipy requires both sums to be equal.
    factor = sum(observed) / sum(wanted)
    assert chisquare(observed, [factor * number for number in wanted]).pvalue > 1e-3


@pytest.mark.parametrize("name", COURSE)
def test_label_sets_are_the_classes_that_were_drawn(name: str) -> None:
    bags = distribution(problem_of(name), "validation").draw(6000, generator("course", name))
    expected = label_matrix(bags.truth.classes, COURSE[name]["num_classes"])
    assert torch.equal(expected, bags.labels)


@pytest.mark.parametrize(
    ("has_class_0", "share"),
    [pytest.param(True, 0.4, id="with class 0"), pytest.param(False, 0.0, id="without class 0")],
)
def test_context_follows_class_0_along_an_axis_of_its_own(has_class_0: bool, share: float) -> None:
    problem = make(num_classes=2, context=0.4, dimension=3, separation=6.0)
    bags = problem.training.draw(4000, generator("context"))
    is_background = (bags.truth.position_classes == 2) & bags.mask
    is_in_bag = bags.labels[:, :1] == has_class_0
    background = bags.instances[is_background & is_in_bag].double()
    # Classes 0 and 1 have the axes 0 and 1, and context has axis 2.
    means = background.mean(dim=0).tolist()
    assert means[:2] == pytest.approx([0, 0], abs=0.2)
    assert means[2] == pytest.approx(share * 6 / math.sqrt(2), abs=0.2)
    # Context has unit variance, the rest of the background a standard deviation of 2.
    variance = share * 1 + (1 - share) * 4
    assert float(background[:, 0].var()) == pytest.approx(variance, rel=0.1)


@pytest.mark.parametrize("name", COURSE)
def test_the_reference_has_the_posterior_of_one_instance_alone(name: str) -> None:
    """The prior of the reference is the share of each kind of instance in all bags together.

    All sizes of bags are equally frequent, and each instance counts once: a bag of three instances
    counts three times, a bag of two twice.
    """
    problem = problem_of(name)
    classes = COURSE[name]["num_classes"]
    smallest, largest = problem.training.sizes
    frequency = torch.zeros(classes + 2, dtype=torch.float64)
    for size in range(smallest, largest + 1):
        for kinds, probability in model_of(size, name).items():
            for kind in kinds:
                frequency[kind] += probability
    prior = frequency / frequency.sum()
    x = torch.randn(5, DIMENSION, generator=generator("reference", name)) * 2
    of_kinds = (log_densities(x.double(), classes) + prior.log()).softmax(dim=1)
    # Context counts as background.
    of_background = of_kinds[:, classes:].sum(dim=1, keepdim=True)
    expected = torch.cat([of_kinds[:, :classes], of_background], dim=1)
    found = problem.training.marginal_log_posterior(x.unsqueeze(0))[0].T.exp()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)


# "together": classes 0 and 1 only occur in the same bags, and so do 2 and 3. "constant": class 0 is
# in every bag, so that no label set tells it from background, which is channel 3 there.
ALIKE = {
    "context": [{0}, {1}, {2}],
    "together": [{0, 1}, {2, 3}, {4}],
    "constant": [{0, 3}, {1}, {2}],
}
"""Obstacle -> groups of channels that label sets cannot tell apart.

The largest channel is the background.
"""


def group_of(name: str, channel: int) -> set[int]:
    (group,) = (group for group in ALIKE[name] if channel in group)
    return group


@cache
def problem_with_reference(name: str) -> Any:
    """Return a problem with more bags than others: here nothing has to be enumerated."""
    return make(limit=200, **COURSE[name])


@dataclass(frozen=True)
class SeenInstance:
    """The posterior of one instance by the reference, and the true class of the instance."""

    posterior: list[float]
    """How probable each class is, (C+1,); background is last."""
    true_class: int

    def probability(self, group: set[int]) -> float:
        return sum(self.posterior[channel] for channel in group)


def seen_instances(name: str, split: str) -> list[list[SeenInstance]]:
    """Return the instances of each bag of a split."""
    problem = problem_with_reference(name)
    (bags,) = problem.splits[split].bags
    posteriors = problem.training.marginal_log_posterior(bags.instances).exp()
    seen = []
    for bag, size in enumerate(bags.mask.sum(dim=1).tolist()):
        of_bag = posteriors[bag, :, :size].T.tolist()
        classes = bags.truth.position_classes[bag, :size].tolist()
        seen.append([SeenInstance(p, cls) for p, cls in zip(of_bag, classes, strict=True)])
    return seen


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", ALIKE)
def test_the_reference_sees_a_class_if_an_instance_shows_it(name: str, split: str) -> None:
    """The reference takes instances for independent.

    So the probability that a class is absent is the product, over the instances, of the
    probabilities that they do not show it. A class that cannot be told from background counts as
    present in every bag.
    """
    problem = problem_with_reference(name)
    score = instancewise_scores(problem.training.marginal_log_posterior, problem.groups)
    (bags,) = problem.splits[split].bags
    background = COURSE[name]["num_classes"]
    expected = torch.ones(len(bags), background, dtype=torch.float64)
    for bag, instances in enumerate(seen_instances(name, split)):
        for cls in range(background):
            group = group_of(name, cls)
            if background not in group:
                absent = math.prod(1 - instance.probability(group) for instance in instances)
                expected[bag, cls] = 1 - absent
    torch.testing.assert_close(score(bags).presence.sigmoid(), expected)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", ALIKE)
def test_the_reference_decides_by_its_posterior_of_each_instance(name: str, split: str) -> None:
    wrong = []
    for instance in itertools.chain.from_iterable(seen_instances(name, split)):
        most_probable = max(range(len(instance.posterior)), key=instance.posterior.__getitem__)
        wrong.append(most_probable != instance.true_class)
    known = problem_with_reference(name).known_errors()[f"{split}/reference_posterior_error"]
    assert known == pytest.approx(sum(wrong) / len(wrong))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", ["together", "constant"])
def test_classes_that_cannot_be_told_apart_count_as_one(name: str, split: str) -> None:
    """A network that learns from label sets cannot learn to tell such classes apart.

    So the learnable posterior error is the share of instances whose group is wrong.
    """
    wrong = []
    for instance in itertools.chain.from_iterable(seen_instances(name, split)):
        most_probable = max(ALIKE[name], key=instance.probability)
        wrong.append(instance.true_class not in most_probable)
    known = problem_with_reference(name).known_errors()
    learnable = known[f"{split}/reference_learnable_posterior_error"]
    assert learnable == pytest.approx(sum(wrong) / len(wrong))


def test_no_learnable_error_is_reported_where_all_classes_can_be_told_apart() -> None:
    # It would be the same as the posterior error.
    known = problem_with_reference("context").known_errors()
    assert not [name for name in known if "learnable" in name]


@pytest.mark.parametrize("name", ALIKE)
def test_the_reference_names_most_label_sets(name: str) -> None:
    """A reference that is wrong more often would be no standard for a network."""
    known = problem_with_reference(name).known_errors()
    assert 0 < known["test/reference_set_error"] < 0.5


@dataclass(frozen=True)
class NoisyAndClean:
    """A task with errors in label sets and without: the problems, and batches of ten epochs."""

    noisy: Any
    clean: Any
    noisy_batches: list[Any]
    clean_batches: list[Any]


@pytest.fixture(scope="module")
def errors_in_training() -> NoisyAndClean:
    """Problems whose training bags differ only in errors of label sets.

    The task samples the bags of ten batches, then the errors of these batches, then the bags of the
    next ten, all from one random generator. An epoch of 320 bags has just ten batches of 32, so
    that its bags are the same with and without errors. In a longer epoch later bags would differ.
    """
    noisy = make(num_classes=3, labels_dropped=0.2, labels_added=0.1, bags_per_epoch=320)
    clean = make(num_classes=3, bags_per_epoch=320)
    return NoisyAndClean(noisy, clean, ten_epochs(noisy), ten_epochs(clean))


def ten_epochs(problem: Any) -> list[Any]:
    """Return the batches of ten epochs, each by a random generator of its own.

    All are made as epoch 0: new bags depend on the generator alone.
    """
    batches = []
    for epoch in range(10):
        batches += problem.train_batches(0, generator(epoch))
    return batches


def test_errors_in_label_sets_leave_instances_as_they_are(
    errors_in_training: NoisyAndClean,
) -> None:
    pairs = zip(errors_in_training.noisy_batches, errors_in_training.clean_batches, strict=True)
    for bags, same in pairs:
        assert torch.equal(bags.instances, same.instances)


def test_bags_with_errors_do_not_tell_the_truth(errors_in_training: NoisyAndClean) -> None:
    assert all(bags.truth is None for bags in errors_in_training.noisy_batches)


def test_errors_add_no_more_labels_than_instances(errors_in_training: NoisyAndClean) -> None:
    for bags in errors_in_training.noisy_batches:
        assert (bags.labels.sum(dim=1) <= bags.mask.sum(dim=1)).all()


def test_labels_are_dropped_and_added_as_often_as_asked(errors_in_training: NoisyAndClean) -> None:
    given = torch.cat([bags.labels for bags in errors_in_training.noisy_batches])
    true = torch.cat([bags.labels for bags in errors_in_training.clean_batches])
    is_dropped = ~given[true]
    is_added = given[~true]
    # 0.2 and 0.1 are `labels_dropped` and `labels_added` of these problems.
    assert float(is_dropped.double().mean()) == pytest.approx(0.2, abs=0.02)
    assert float(is_added.double().mean()) == pytest.approx(0.1, abs=0.02)


def test_the_optimum_knows_nothing_of_training_errors(errors_in_training: NoisyAndClean) -> None:
    noisy = errors_in_training.noisy.known_errors()
    assert noisy == errors_in_training.clean.known_errors()


@pytest.mark.parametrize("split", SPLITS)
def test_evaluated_label_sets_have_no_errors(errors_in_training: NoisyAndClean, split: str) -> None:
    noisy = labels_of(errors_in_training.noisy, split)
    assert torch.equal(noisy, labels_of(errors_in_training.clean, split))


NOISY: dict[str, Any] = {"num_classes": 3, "labels_dropped": 0.2, "labels_added": 0.1}
BOTH = "training+validation"
"""The value of `noise_in` with which validation label sets have errors as well."""


def labels_of(problem: Any, split: str) -> Tensor:
    return torch.cat([bags.labels for bags in problem.splits[split].bags])


def with_noise(noise_in: str, seed: int = 0, **params: Any) -> Any:
    """Return a problem with errors in the label sets of the bags that `noise_in` names."""
    return loaded("synthetic-bags", seed=seed, **NOISY | {"noise_in": noise_in} | params)


def test_validation_label_sets_can_have_the_errors_of_training() -> None:
    noisy = labels_of(with_noise(BOTH), "validation")
    clean = labels_of(with_noise("training"), "validation")
    assert len(noisy) == len(clean) == 1000
    dropped = float((~noisy[clean]).double().mean())
    added = float(noisy[~clean].double().mean())
    assert dropped == pytest.approx(0.2, abs=0.04), "about 1,300 labels: 3.5 standard deviations"
    assert added == pytest.approx(0.1, abs=0.03)


def test_noise_in_validation_leaves_test_label_sets_as_they_are() -> None:
    noisy = labels_of(with_noise(BOTH), "test")
    assert torch.equal(noisy, labels_of(with_noise("training"), "test"))


@pytest.mark.parametrize("split", SPLITS)
def test_noise_in_validation_leaves_instances_as_they_are(split: str) -> None:
    noisy = with_noise(BOTH).splits[split].bags
    clean = with_noise("training").splits[split].bags
    for bags, same in zip(noisy, clean, strict=True):
        assert torch.equal(bags.instances, same.instances)
        assert torch.equal(bags.mask, same.mask)


def test_noise_in_validation_leaves_training_bags_as_they_are() -> None:
    noisy = next(iter(with_noise(BOTH).train_batches(0, generator("t"))))
    clean = next(iter(with_noise("training").train_batches(0, generator("t"))))
    assert torch.equal(noisy.instances, clean.instances)
    assert torch.equal(noisy.labels, clean.labels)


def test_noise_in_validation_is_the_same_for_all_seeds() -> None:
    # With a fixed number of training bags, problems of different seeds differ: in these bags.
    # Validation bags must not depend on them.
    one = with_noise(BOTH, seed=0, training_bags=50)
    other = with_noise(BOTH, seed=1, training_bags=50)
    assert torch.equal(labels_of(one, "validation"), labels_of(other, "validation"))


def test_noisy_validation_bags_do_not_tell_the_truth() -> None:
    validation = with_noise(BOTH).splits["validation"]
    assert all(bags.truth is None for bags in validation.bags)
    # The label set of a bag of one instance would tell the true class of the instance.
    assert not len(validation.single_instance)


def test_with_noisy_validation_the_optimum_of_test_bags_stays() -> None:
    noisy = with_noise(BOTH, **SMALL).known_errors()
    clean = with_noise("training", **SMALL).known_errors()
    assert noisy, "some errors are known"
    assert noisy == {name: error for name, error in clean.items() if name.startswith("test/")}


@pytest.mark.parametrize("label_sets", ["independent", "constant"])
def test_noisy_validation_bags_are_judged_by_label_sets_alone(label_sets: str) -> None:
    problem = with_noise(BOTH, **SMALL, label_sets=label_sets)
    model = problem.training
    # Every class and the background is a group of its own.
    groups = range(model.num_classes + 1)
    score = instancewise_scores(model.marginal_log_posterior, groups)
    metrics = problem.evaluate(score).metrics
    assert "validation/set_error" in metrics
    assert "test/excess_posterior_error" in metrics
    of_validation = [name for name in metrics if name.startswith("validation/")]
    # Parts of the names of metrics that need the truth about instances.
    for part in ("instance_error", "posterior_error", "hit_rate", "bayes_", "reference_"):
        assert not [name for name in of_validation if part in name]


def test_who_knows_the_truth_errs_on_noisy_validation_labels() -> None:
    noisy = with_noise(BOTH)
    clean = with_noise("training")
    # The right labels by the instances of a bag, which are the same with and without errors.
    truth_of = {}
    for split in clean.splits.values():
        for bags in (*split.bags, *split.single_instance):
            for instances, labels in zip(bags.instances, bags.labels, strict=True):
                truth_of[instances.numpy().tobytes()] = labels

    def score(bags: Any) -> Scores:
        known = [truth_of[instances.numpy().tobytes()] for instances in bags.instances]
        presence = torch.stack(known).float()
        # What is said of single instances does not matter here: the three classes and background
        # are equally probable.
        guesses = torch.full((len(bags), 4, bags.instances.shape[1]), 0.25)
        return Scores(classes=presence, presence=presence, instances=guesses, mask=bags.mask)

    metrics = noisy.evaluate(score).metrics
    differs = (labels_of(noisy, "validation") != labels_of(clean, "validation")).any(dim=1)
    assert metrics["validation/set_error"] == pytest.approx(float(differs.double().mean()))
    assert metrics["test/set_error"] == 0


def test_without_errors_noise_in_changes_nothing() -> None:
    problem = with_noise(BOTH, labels_dropped=0.0, labels_added=0.0)
    clean = with_noise("training")
    assert torch.equal(labels_of(problem, "validation"), labels_of(clean, "validation"))
    assert problem.splits["validation"].bags[0].truth is not None


def fixed_training_bags(seed: int, epoch: int) -> list[tuple[float, ...]]:
    """Return the instances of each of the 200 bags of an epoch, taken from 20 training bags."""
    params = {**SMALL, "num_classes": 2, "training_bags": 20, "bags_per_epoch": 200}
    # The limit is for validation and test bags alone, which these tests do not use.
    problem = loaded("synthetic-bags", seed=seed, limit=10, **params)
    bags = []
    for batch in problem.train_batches(epoch, generator("order", epoch)):
        bags += [tuple(instances) for instances in batch.instances.flatten(1).tolist()]
    return bags


def test_an_epoch_goes_through_fixed_bags_again_and_again() -> None:
    bags = fixed_training_bags(seed=0, epoch=0)
    assert Counter(Counter(bags).values()) == {10: 20}, "each of 20 bags ten times"


def test_an_epoch_has_as_many_steps_as_its_bags_fill() -> None:
    params = {**SMALL, "num_classes": 2, "training_bags": 20, "bags_per_epoch": 200}
    problem = loaded("synthetic-bags", limit=10, **params)
    # With 32 bags in a batch: 200 / 32 = 6.25, rounded up.
    assert problem.steps_per_epoch == 7
    assert len(list(problem.train_batches(0, generator("order")))) == 7


def test_fixed_training_bags_are_the_same_in_every_epoch() -> None:
    first = fixed_training_bags(seed=0, epoch=0)
    later = fixed_training_bags(seed=0, epoch=7)
    assert set(first) == set(later)
    assert first != later, "in another order"


def test_another_seed_has_other_fixed_training_bags() -> None:
    one = fixed_training_bags(seed=0, epoch=0)
    other = fixed_training_bags(seed=1, epoch=0)
    assert not set(one) & set(other)
