"""Of what synthetic bags are made: probabilities that floating point loses, the ends of draws, and wrong labels.

That bags, their optimum and their reference are those of the model is tested with the task, by enumeration.
"""

import itertools
import math
from fractions import Fraction

import pytest
import torch

from milbench import generator
from milbench.families.decisions import bag_posterior
from milbench.families.gaussian_bags import noisy_labels
from milbench.families.label_set_prior import LabelSetPrior, LabelSetRule, independent_log_prob


def test_independent_label_sets_are_the_exact_alternating_sum() -> None:
    """With a rare class: q is down to 1e-16, where the alternating sum in floating point has no digit left."""
    rates = [Fraction(1, 4), Fraction(1, 10**8), Fraction(1, 10**8)]
    rates.append(1 - sum(rates, Fraction(0)))
    largest = 6
    found = independent_log_prob(
        torch.tensor([float(r) for r in rates], dtype=torch.float64), largest
    ).exp()
    for size, members in itertools.product(range(largest + 1), range(8)):
        exact = Fraction(0)
        for subset in (s for s in range(8) if s & members == s):
            allowed = rates[-1] + sum((rates[c] for c in range(3) if subset >> c & 1), Fraction(0))
            exact += (-1) ** (members ^ subset).bit_count() * allowed**size
        assert float(found[size, members]) == pytest.approx(float(exact), rel=1e-12, abs=0)


@pytest.mark.parametrize("edge", [0.0, 1 - 2**-53])
def test_the_ends_of_the_interval_draw_what_can_be(edge: float) -> None:
    rates, labels = torch.tensor([0.2, 0.2, 0.2, 0.4], dtype=torch.float64), 2
    prior = LabelSetPrior(LabelSetRule("uniform", labels_per_bag=labels), rates, rates[:-1], 3)
    for draws in itertools.product([edge, 0.5], repeat=4):
        (row,) = prior.draw(torch.tensor([2]), torch.tensor([draws], dtype=torch.float64)).tolist()
        assert row[2] == 3
        assert 1 <= len({*row} - {3}) <= labels


def test_a_label_set_too_rare_for_floats_has_a_posterior() -> None:
    """The empty set, in 3,000 instances each of which is background with probability 1e-200."""
    count, rare = 3000, 1e-200
    log_joint = (
        torch.tensor([1 - rare, rare], dtype=torch.float64).log().view(1, 2, 1).repeat(1, 1, count)
    )
    mask = torch.ones(1, count, dtype=torch.bool)
    weight = torch.tensor([[0.0, -torch.inf]], dtype=torch.float64)
    found = bag_posterior(log_joint, mask, weight)
    assert found.log_sets.exp().tolist() == [[1.0, 0.0]]
    assert (found.log_instances[:, 1] == 0).all()


def test_chance_decides_which_labels_a_small_bag_gets() -> None:
    labels = torch.zeros(9000, 3, dtype=torch.bool)
    labels[:3000, 1] = True
    sizes = torch.tensor([1, 1, 2]).repeat_interleave(3000)
    found = noisy_labels(labels, sizes, 0.0, 0.999, generator(2))
    assert torch.equal(found[:3000], labels[:3000])
    assert (found.sum(dim=1) <= sizes).all()
    shares = found[3000:6000].double().mean(dim=0)
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=4 * math.sqrt(2 / 9 / 3000))
    assert float(found[6000:].sum(dim=1).double().mean()) > 1.99
