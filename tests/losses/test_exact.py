"""The exact loss, and superset, which is half of it, against the enumeration of all label maps."""

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


@pytest.mark.parametrize(
    ("divide_by", "divisors"), [("batch", (3, 3)), ("bag", (4, 2)), ("none", (1, 1))]
)
def test_the_divisor_of_the_negative_log_likelihood(
    divide_by: str, divisors: tuple[int, int]
) -> None:
    logits = torch.stack([bag(0), bag(1)])
    mask = torch.tensor([[True] * 4, [True, False, True, False]])
    labels = torch.tensor([[True, False, True], [False, True, False]])
    value = per_bag("exact", divide_by=divide_by)(logits, labels, mask)
    probs = [
        LabelMaps(bag(0)).set_prob[frozenset({0, 2})],
        LabelMaps(bag(1)[:, [0, 2]]).set_prob[frozenset({1})],
    ]
    expected = [float(-exactly.log(p) / d) for p, d in zip(probs, divisors, strict=True)]
    assert value.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["superset", "exact-em", "hard-em"])
@pytest.mark.parametrize(("divide_by", "divisors"), [("batch", (3, 3)), ("bag", (4, 2))])
def test_other_losses_of_a_label_set_are_divided_alike(
    name: str, divide_by: str, divisors: tuple[int, int]
) -> None:
    logits = torch.stack([bag(0), bag(1)])
    mask = torch.tensor([[True] * 4, [True, False, True, False]])
    labels = torch.tensor([[True, False, True], [False, True, False]])
    whole = per_bag(name, divide_by="none")(logits, labels, mask)
    divided = per_bag(name, divide_by=divide_by)(logits, labels, mask)
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
    """Prb({c}) + Prb({}) is alpha_{c,background}: scores differ by the differences of its logarithm."""
    maps = LabelMaps(bag(seed))
    log_alpha = [
        exactly.log(maps.set_prob[frozenset({c})] + maps.set_prob[frozenset()]) for c in range(C)
    ]
    scores = per_bag("exact", rule="exact").score(bag(seed).unsqueeze(0)).classes[0]
    for c in range(C):
        assert float(scores[c] - scores[0]) == pytest.approx(
            float(log_alpha[c] - log_alpha[0]), abs=1e-12
        )


def large_label_sets() -> tuple[Tensor, Tensor]:
    """Return logits of 20 classes at 40 positions, and label sets of 3, 18 and 17 of them."""
    logits = torch.randn(3, 21, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return logits, torch.arange(20) < torch.tensor([[3], [18], [17]])


def test_bounds_replace_the_sum_for_large_label_sets() -> None:
    logits, labels = large_label_sets()
    probs = [
        bag.softmax(dim=0).numpy()[[*chosen.nonzero()[:, 0], -1]]
        for bag, chosen in zip(logits, labels, strict=True)
    ]
    truth = [-math.log(every_set_prob(own)[-1]) for own in probs]
    found = {
        m: per_bag("exact", divide_by="none", method=m)(logits, labels)
        for m in ("auto", "lower", "upper")
    }
    # A lower bound of the likelihood is an upper one of the loss.
    for i, exact in enumerate(truth):
        assert found["upper"][i].item() <= exact + 1e-9
        assert found["lower"][i].item() >= exact - 1e-9
    assert found["auto"][0].item() == pytest.approx(truth[0], rel=1e-11)
    assert found["auto"][1:].tolist() == found["lower"][1:].tolist()
    log_prob = per_bag("exact").label_log_prob(logits, labels)
    assert log_prob is not None
    assert_close(log_prob, -found["auto"])
    assert per_bag("exact", method="auto")(logits, labels).tolist() == pytest.approx(
        found["auto"].tolist()
    )


@pytest.mark.parametrize("method", ["auto", "lower", "upper"])
def test_padding_changes_nothing_for_a_large_label_set(method: str) -> None:
    (logits, labels), sizes = large_label_sets(), [40, 25, 30]
    mask = torch.arange(40) < torch.tensor(sizes).unsqueeze(1)
    loss = per_bag("exact", divide_by="none", method=method)
    alone = [(logits[i : i + 1, :, :size], labels[i : i + 1]) for i, size in enumerate(sizes)]
    functions: list[Any] = [loss, loss.label_log_prob]
    for function in functions:
        expected = torch.cat([function(*bag) for bag in alone])
        assert_close(function(logits, labels, mask), expected, rtol=1e-10, atol=0)


def test_a_label_set_too_large_is_refused_with_alternatives() -> None:
    logits, labels = large_label_sets()
    exact = per_bag("exact", method="exact")
    assert exact(logits[:1], labels[:1]).isfinite()
    said = (
        "18 classes exceeds the limit of the exact sum, 16 classes; use method=lower, upper or auto"
    )
    with pytest.raises(UsageError, match=said):
        exact(logits, labels)


@pytest.mark.parametrize("name", ["exact", "superset", "exact-em", "hard-em"])
def test_a_label_set_has_the_probability_of_its_label_maps(name: str) -> None:
    maps = LabelMaps(bag(6))
    found = per_bag(name).label_log_prob(bag(6).repeat(len(ALL_SETS), 1, 1), ALL_LABELS)
    assert found is not None
    for got, label_set in zip(found.tolist(), ALL_SETS, strict=True):
        assert got == pytest.approx(float(exactly.log(maps.set_prob[label_set])), abs=1e-12)


def test_the_bound_of_training_holds_for_no_other_label_sets() -> None:
    """Test bags, and sets that a network takes for likely, may have more classes than any training bag."""
    loss = per_bag("exact").build(C, max_labels=1)
    found = loss.label_log_prob(bag(0)[None], torch.tensor([[True, True, True]]))
    assert found is not None
    assert float(found) == pytest.approx(
        float(exactly.log(LabelMaps(bag(0)).set_prob[frozenset({0, 1, 2})]))
    )


SINGLE = [
    (EXTREME[name].float(), 1e-5, 1e-30) for name in ("wide", "signs", "all low", "sure background")
]


@pytest.mark.parametrize(
    ("logits", "rel", "tiny"), [(bag(0), 1e-12, 1e-15), (bag(1), 1e-12, 1e-15), *SINGLE]
)
def test_superset_is_that_of_all_maps_without_another_class(
    logits: Tensor, rel: float, tiny: float
) -> None:
    """The probability of all label maps that show nothing beside the label set and background."""
    prob = LabelMaps(logits).set_prob
    value = per_bag("superset", divide_by="none")(logits.repeat(len(ALL_SETS), 1, 1), ALL_LABELS)
    expected = [
        -float(exactly.log(sum(p for shown, p in prob.items() if shown <= wanted)))
        for wanted in ALL_SETS
    ]
    assert value.tolist() == pytest.approx(expected, rel=rel, abs=tiny)


def test_background_everywhere_is_an_optimum_without_a_gradient() -> None:
    """This is the half of the exact likelihood that superset lacks: there the same bag is as bad as can be."""
    logits = torch.full((len(ALL_LABELS), C + 1, K), -200.0)
    logits[:, C] = 200.0
    logits.requires_grad_()
    value = per_bag("superset")(logits, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.tolist() == [0.0] * len(ALL_LABELS)
    assert not gradient.any()
    exact = per_bag("exact", divide_by="none")(logits, ALL_LABELS)
    assert exact.tolist() == pytest.approx((400.0 * ALL_LABELS.sum(dim=1)).tolist(), rel=0.02)
