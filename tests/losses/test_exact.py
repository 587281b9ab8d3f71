"""The losses `exact` and `superset` against an enumeration of all label maps.

A label map gives each position a class or background. `superset` is the half of `exact` that
punishes classes outside of the label set; it does not require the classes of the label set.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import UsageError
from tests._helpers.label_maps import ALL_LABELS, EXTREME, C, K, LabelMaps, bag, exactly, softmax
from tests._helpers.likelihood_reference import every_set_prob
from tests._helpers.losses import per_bag

ALL_SETS = [frozenset(labels.nonzero().flatten().tolist()) for labels in ALL_LABELS]

# The first bag has four positions, the second has two that are not masked.
LOGITS = torch.stack([bag(0), bag(1)])
MASK = torch.tensor([[True, True, True, True], [True, False, True, False]])
LABELS = torch.tensor([[True, False, True], [False, True, False]])
DIVISORS = pytest.mark.parametrize(
    ("divide_by", "divisors"),
    [
        pytest.param("none", (1, 1), id="none"),
        pytest.param("bag", (4, 2), id="its positions"),
        pytest.param("batch", (3, 3), id="mean of the positions"),
    ],
)


@DIVISORS
def test_the_divisor_of_the_negative_log_likelihood(
    divide_by: str, divisors: tuple[int, int]
) -> None:
    value = per_bag("exact", divide_by=divide_by)(LOGITS, LABELS, MASK)
    first = LabelMaps(bag(0)).set_prob[frozenset({0, 2})]
    second = LabelMaps(bag(1)[:, MASK[1]]).set_prob[frozenset({1})]
    expected = [
        float(-exactly.log(first) / divisors[0]),
        float(-exactly.log(second) / divisors[1]),
    ]
    assert value.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["superset", "exact-em", "hard-em"])
@DIVISORS
def test_other_likelihood_losses_have_the_same_divisors(
    name: str, divide_by: str, divisors: tuple[int, int]
) -> None:
    whole = per_bag(name, divide_by="none")(LOGITS, LABELS, MASK)
    divided = per_bag(name, divide_by=divide_by)(LOGITS, LABELS, MASK)
    assert_close(divided, whole / torch.tensor(divisors))


@pytest.mark.parametrize("seed", range(2))
def test_the_sum_rule_adds_the_probabilities_of_a_class(seed: int) -> None:
    mask = torch.tensor([[True, False, True, True]])
    scores = per_bag("exact", rule="sum").score(bag(seed).unsqueeze(0), mask).classes
    p = softmax(bag(seed))
    sums = [float(p[c][0] + p[c][2] + p[c][3]) for c in range(C)]
    assert scores[0].tolist() == pytest.approx(sums)


@pytest.mark.parametrize("seed", range(2))
def test_the_exact_rule_compares_label_sets_of_one_class(seed: int) -> None:
    """The score of class c is log(Prb({c}) + Prb({})), up to a constant that all classes share."""
    prob = LabelMaps(bag(seed)).set_prob
    log_alpha = [exactly.log(prob[frozenset({c})] + prob[frozenset()]) for c in range(C)]
    expected = [float(value - log_alpha[0]) for value in log_alpha]
    scores = per_bag("exact", rule="exact").score(bag(seed).unsqueeze(0)).classes[0]
    assert (scores - scores[0]).tolist() == pytest.approx(expected, abs=1e-12)


def large_label_sets() -> tuple[Tensor, Tensor]:
    """Return logits (3, 21, 40) of 20 classes, and label sets of 3, 18 and 17 of the classes."""
    logits = torch.randn(3, 21, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return logits, torch.arange(20) < torch.tensor([[3], [18], [17]])


@pytest.fixture(scope="module")
def exact_costs() -> list[float]:
    """Return -log of the likelihood of each large label set, by a recursion over its subsets."""
    costs = []
    for logits, label_set in zip(*large_label_sets(), strict=True):
        own_channels = [*label_set.nonzero()[:, 0], -1]
        probs = logits.softmax(dim=0).numpy()[own_channels]
        costs.append(-math.log(every_set_prob(probs)[-1]))
    return costs


def cost_by(method: str) -> Tensor:
    logits, labels = large_label_sets()
    value: Tensor = per_bag("exact", divide_by="none", method=method)(logits, labels)
    return value


def test_the_upper_bound_costs_no_more_than_the_sum(exact_costs: list[float]) -> None:
    # An upper bound of the likelihood is a lower bound of the loss, its negative logarithm.
    for cost, exact in zip(cost_by("upper").tolist(), exact_costs, strict=True):
        assert cost <= exact + 1e-9


def test_the_lower_bound_costs_no_less_than_the_sum(exact_costs: list[float]) -> None:
    for cost, exact in zip(cost_by("lower").tolist(), exact_costs, strict=True):
        assert cost >= exact - 1e-9


def test_auto_sums_small_label_sets_and_bounds_large_ones(exact_costs: list[float]) -> None:
    # The first label set has 3 classes, the others 18 and 17.
    found = cost_by("auto")
    assert found[0].item() == pytest.approx(exact_costs[0], rel=1e-11)
    assert found[1:].tolist() == cost_by("lower")[1:].tolist()


def test_label_log_prob_of_large_label_sets_uses_the_method_auto() -> None:
    logits, labels = large_label_sets()
    log_prob = per_bag("exact").label_log_prob(logits, labels)
    assert log_prob is not None
    assert_close(log_prob, -cost_by("auto"))


@pytest.mark.parametrize("method", ["auto", "lower", "upper"])
def test_padding_changes_nothing_for_a_large_label_set(method: str) -> None:
    logits, labels = large_label_sets()
    sizes = [40, 25, 30]
    mask = torch.arange(40) < torch.tensor(sizes).unsqueeze(1)
    loss = per_bag("exact", divide_by="none", method=method)
    functions: list[Any] = [loss, loss.label_log_prob]
    for function in functions:
        padded = function(logits, labels, mask)
        for i, size in enumerate(sizes):
            alone = function(logits[i : i + 1, :, :size], labels[i : i + 1])
            assert_close(padded[i : i + 1], alone, rtol=1e-10, atol=0)


def test_a_label_set_too_large_is_refused_with_alternatives() -> None:
    logits, labels = large_label_sets()
    exact = per_bag("exact", method="exact")
    assert exact(logits[:1], labels[:1]).isfinite()
    with pytest.raises(
        UsageError,
        match="18 classes exceeds the limit of the exact sum, 16 classes; "
        "use method=lower, upper or auto",
    ):
        exact(logits, labels)


@pytest.mark.parametrize("name", ["exact", "superset", "exact-em", "hard-em"])
def test_a_label_set_has_the_probability_of_its_label_maps(name: str) -> None:
    maps = LabelMaps(bag(6))
    found = per_bag(name).label_log_prob(bag(6).repeat(len(ALL_SETS), 1, 1), ALL_LABELS)
    assert found is not None
    for got, label_set in zip(found.tolist(), ALL_SETS, strict=True):
        assert got == pytest.approx(float(exactly.log(maps.set_prob[label_set])), abs=1e-12)


def test_label_sets_may_exceed_the_largest_of_training() -> None:
    """Test bags and predicted label sets may have more classes than any training bag."""
    loss = per_bag("exact").build(C, max_labels=1)
    found = loss.label_log_prob(bag(0)[None], torch.tensor([[True, True, True]]))
    assert found is not None
    expected = exactly.log(LabelMaps(bag(0)).set_prob[frozenset({0, 1, 2})])
    assert float(found) == pytest.approx(float(expected))


PRECISE = [pytest.param(bag(seed), 1e-12, 1e-15, id=f"random {seed}") for seed in range(2)]
SINGLE = [
    pytest.param(EXTREME[name].float(), 1e-5, 1e-30, id=name)
    for name in ("wide", "signs", "all low", "sure background")
]


@pytest.mark.parametrize(("logits", "rel", "tiny"), PRECISE + SINGLE)
def test_superset_sums_the_label_maps_without_another_class(
    logits: Tensor, rel: float, tiny: float
) -> None:
    """Superset is -log of the probability that nothing outside of the label set is shown."""
    prob = LabelMaps(logits).set_prob
    value = per_bag("superset", divide_by="none")(logits.repeat(len(ALL_SETS), 1, 1), ALL_LABELS)
    expected = []
    for wanted in ALL_SETS:
        total = sum(p for shown, p in prob.items() if shown <= wanted)
        expected.append(-float(exactly.log(total)))
    assert value.tolist() == pytest.approx(expected, rel=rel, abs=tiny)


def test_background_everywhere_is_an_optimum_of_superset_without_a_gradient() -> None:
    """For the loss `exact` the same logits are very bad, since the classes must occur."""
    logits = torch.full((len(ALL_LABELS), C + 1, K), -200.0)
    logits[:, C] = 200.0
    logits.requires_grad_()
    value = per_bag("superset")(logits, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.tolist() == [0.0] * len(ALL_LABELS)
    assert not gradient.any()
    exact = per_bag("exact", divide_by="none")(logits, ALL_LABELS)
    # At every position each class has log-odds of -200 - 200 against the background. The number of
    # ways to choose a position for each class changes this by less than 2 %.
    expected = 400.0 * ALL_LABELS.sum(dim=1)
    assert exact.tolist() == pytest.approx(expected.tolist(), rel=0.02)
