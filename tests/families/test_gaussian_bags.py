"""Parts of the generator of synthetic bags: tiny probabilities, extreme samples, wrong labels.

The tests of the task `synthetic-bags` compare its bags and optimal errors with an enumeration.
"""

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from milbench import generator
from milbench.families.decisions import bag_posterior
from milbench.families.gaussian_bags import noisy_labels
from milbench.families.label_set_prior import LabelSetPrior, LabelSetRule, independent_log_prob

RARE_CLASSES = [Fraction(1, 4), Fraction(1, 10**8), Fraction(1, 10**8)]
"""The rates of three classes; the rest is background."""
BACKGROUND = 1 - sum(RARE_CLASSES, Fraction(0))
CLASSES = frozenset(range(len(RARE_CLASSES)))
LARGEST = 6
"""The number of instances of the largest bag."""


def subsets(classes: Iterable[int]) -> list[frozenset[int]]:
    members = sorted(classes)
    found = []
    for size in range(len(members) + 1):
        found += [frozenset(chosen) for chosen in itertools.combinations(members, size)]
    return found


def alternating_sum(label_set: frozenset[int], size: int) -> Fraction:
    """Return the exact probability that `size` independent instances have a label set."""
    total = Fraction(0)
    for some in subsets(label_set):
        # The probability that an instance is background or of one of these classes.
        allowed = BACKGROUND + sum((RARE_CLASSES[c] for c in some), Fraction(0))
        total += (-1) ** len(label_set - some) * allowed**size
    return total


@pytest.mark.parametrize("size", range(LARGEST + 1))
@pytest.mark.parametrize("label_set", subsets(CLASSES), ids=lambda label_set: str(set(label_set)))
def test_independent_label_sets_are_the_exact_alternating_sum(
    size: int, label_set: frozenset[int]
) -> None:
    """Two classes are so rare that floating point would lose all digits of the alternating sum."""
    rates = torch.tensor([float(rate) for rate in (*RARE_CLASSES, BACKGROUND)], dtype=torch.float64)
    found = independent_log_prob(rates, LARGEST).exp()
    number = sum(1 << c for c in label_set)
    exact = alternating_sum(label_set, size)
    assert float(found[size, number]) == pytest.approx(float(exact), rel=1e-12, abs=0)


LARGEST_BELOW_1 = 1 - 2**-53


@pytest.mark.parametrize("edge", [0.0, LARGEST_BELOW_1], ids=["0", "below 1"])
def test_random_numbers_at_the_ends_of_their_interval_give_possible_bags(edge: float) -> None:
    """A bag has two of at most three instances, and one or two of three classes."""
    background = 3
    rates = torch.tensor([0.2, 0.2, 0.2, 0.4], dtype=torch.float64)
    rule = LabelSetRule("uniform", labels_per_bag=2)
    prior = LabelSetPrior(rule, rates, presence=rates[:-1], largest=3)
    size = torch.tensor([2])
    # One random number decides the label set, and one more each of up to three instances.
    for numbers in itertools.product([edge, 0.5], repeat=1 + 3):
        (bag,) = prior.draw(size, torch.tensor([numbers], dtype=torch.float64)).tolist()
        assert bag[2] == background, "there is no third instance"
        label_set = set(bag) - {background}
        assert 1 <= len(label_set) <= 2


def test_a_label_set_too_rare_for_floats_has_a_posterior() -> None:
    """Each of 3,000 instances is background with probability 1e-200 only."""
    count = 3000
    rare = 1e-200
    rates = torch.tensor([1 - rare, rare], dtype=torch.float64)
    log_joint = rates.log().view(1, 2, 1).repeat(1, 1, count)
    mask = torch.ones(1, count, dtype=torch.bool)
    only_the_empty_set = torch.tensor([[0.0, -torch.inf]], dtype=torch.float64)
    found = bag_posterior(log_joint, mask, only_the_empty_set)
    assert found.log_sets.exp().tolist() == [[1.0, 0.0]]
    assert (found.log_instances[:, 1] == 0).all(), "every instance is background"


COUNT = 3000
"""How many bags of each kind `with_many_wrong_labels` returns."""


def with_many_wrong_labels() -> Tensor:
    """Return label sets of three classes to which nearly every absent class was added.

    First come bags of one instance that have class 1. Then come bags without a class: of one
    instance, and of two instances.
    """
    labels = torch.zeros(3 * COUNT, 3, dtype=torch.bool)
    labels[:COUNT, 1] = True
    sizes = torch.tensor([1, 1, 2]).repeat_interleave(COUNT)
    return noisy_labels(labels, sizes, dropped=0.0, added=0.999, rng=generator(2))


def test_no_small_bag_gets_more_labels_than_instances() -> None:
    sizes = torch.tensor([1, 1, 2]).repeat_interleave(COUNT)
    assert (with_many_wrong_labels().sum(dim=1) <= sizes).all()


def test_a_full_bag_gets_no_wrong_label() -> None:
    assert with_many_wrong_labels()[:COUNT].int().tolist() == [[0, 1, 0]] * COUNT


def test_chance_decides_which_label_a_bag_of_one_gets() -> None:
    shares = with_many_wrong_labels()[COUNT : 2 * COUNT].double().mean(dim=0)
    standard_error = math.sqrt(1 / 3 * 2 / 3 / COUNT)
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=4 * standard_error)


def test_bags_of_two_nearly_always_get_two_wrong_labels() -> None:
    number_of_labels = with_many_wrong_labels()[2 * COUNT :].sum(dim=1)
    assert float(number_of_labels.double().mean()) > 1.99
