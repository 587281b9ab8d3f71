"""Hard EM against the enumeration of all assignments."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests._helpers.label_maps import ALL_LABELS, C
from tests._helpers.losses import per_bag, random_logits

K = 5


def bag(seed: int, scale: float = 2.0, background: float = 0.0) -> Tensor:
    """Return the (C+1, K) logits of one bag; with a probable background, classes have to be put somewhere."""
    logits = random_logits(C + 1, K, seed=seed, scale=scale)
    logits[-1] += background
    return logits


def best_maps(logits: Tensor) -> dict[frozenset[int], tuple[float, list[tuple[int, ...]]]]:
    """Return for every label set the log-probability of its most probable label maps, and all maps that have it."""
    log_p = logits.double().log_softmax(dim=0).tolist()
    channels, positions = logits.shape
    found: dict[frozenset[int], tuple[float, list[tuple[int, ...]]]] = {}
    for shown in itertools.product(range(channels), repeat=positions):
        value = sum(log_p[c][k] for k, c in enumerate(shown))
        label_set = frozenset(shown) - {channels - 1}
        best, maps = found.get(label_set, (-torch.inf, []))
        if value > best + 1e-9:
            found[label_set] = (value, [shown])
        elif value > best - 1e-9:
            maps.append(shown)
    return found


def held(labels: Tensor) -> frozenset[int]:
    return frozenset(labels.nonzero().flatten().tolist())


def value_and_gradient(
    logits: Tensor, labels: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    value = per_bag("hard-em", divide_by="none")(leaf, labels, mask)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


PRECISE = [
    (bag(seed, background=background), 1e-12)
    for seed in range(2)
    for background in (0.0, 3.0, 30.0)
]
SINGLE = [(bag(seed, 100).clamp(-200, 200).float(), 1e-5) for seed in range(3)]


@pytest.mark.parametrize(("logits", "rel"), PRECISE + SINGLE)
def test_value_and_gradient_are_those_of_the_best_assignment(logits: Tensor, rel: float) -> None:
    found = best_maps(logits)
    value, gradient = value_and_gradient(logits.repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    for i, labels in enumerate(ALL_LABELS):
        best, (shown,) = found[held(labels)]
        assert value[i].item() == pytest.approx(-best, rel=rel, abs=1e-6)
        one_hot = torch.nn.functional.one_hot(torch.tensor(shown), C + 1).T
        assert_close(gradient[i], logits.softmax(dim=0) - one_hot)


@pytest.mark.parametrize(
    "logits",
    [
        torch.zeros(C + 1, 4),
        torch.tensor([[0.0], [0.0], [1.0], [5.0]]).expand(-1, 4),
        torch.tensor(
            [[2.0, 2.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0], [-9.0] * 4, [0.0, 0.0, 3.0, 3.0]]
        ),
    ],
    ids=["all equal", "equal positions", "two pairs"],
)
def test_where_assignments_tie_the_gradient_has_no_favourite(logits: Tensor) -> None:
    found = best_maps(logits)
    value, gradient = value_and_gradient(logits.double().repeat(len(ALL_LABELS), 1, 1), ALL_LABELS)
    for i, labels in enumerate(ALL_LABELS):
        best, maps = found[held(labels)]
        assert value[i].item() == pytest.approx(-best, rel=1e-12)
        shares = logits.double().softmax(dim=0) - gradient[i]
        possible = (
            torch.stack([torch.nn.functional.one_hot(torch.tensor(m), C + 1).T for m in maps]).sum(
                dim=0
            )
            > 0
        )
        assert (shares[~possible].abs() < 1e-12).all(), (
            "a share of a channel that no best assignment has"
        )
        assert_close(shares.sum(dim=0), torch.ones(4, dtype=torch.float64))
        assert (shares[:-1].sum(dim=1)[labels] >= 1 - 1e-12).all(), (
            "every class of the label set is placed"
        )
        for j, k in itertools.combinations(range(4), 2):
            if torch.equal(logits[:, j], logits[:, k]):
                assert_close(shares[:, j], shares[:, k])


def test_label_sets_have_no_limit() -> None:
    """Thirty classes on thirty positions: each is placed once, wherever that loses least together."""
    classes = 30
    planted = torch.randperm(classes, generator=torch.Generator().manual_seed(0))
    logits = random_logits(classes + 1, classes, scale=0.1)
    logits[planted, torch.arange(classes)] += 1.0
    logits[-1] += 10.0
    value, gradient = value_and_gradient(
        logits.unsqueeze(0), torch.ones(1, classes, dtype=torch.bool)
    )
    assert torch.equal(gradient[0].argmin(dim=0), planted)
    expected = -logits.log_softmax(dim=0)[planted, torch.arange(classes)].sum()
    assert_close(value[0], expected)


@pytest.mark.parametrize("background", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_presence_and_scores_compare_best_assignments(seed: int, background: float) -> None:
    logits = bag(seed, background=background)
    best = {label_set: value for label_set, (value, _) in best_maps(logits).items()}
    loss = per_bag("hard-em")
    both = loss.score(logits.unsqueeze(0))
    presence, scores = both.presence[0], both.classes[0]
    for c in range(C):
        with_it = max(value for label_set, value in best.items() if c in label_set)
        without = max(value for label_set, value in best.items() if c not in label_set)
        assert presence[c].item() == pytest.approx(with_it - without, rel=1e-9)
        assert scores[c].item() == pytest.approx(best[frozenset({c})] - best[frozenset()], rel=1e-9)
    found = frozenset((presence > 0).nonzero().flatten().tolist())
    assert found == max(best, key=lambda label_set: best[label_set]), (
        "the label set of the best assignment of all"
    )
