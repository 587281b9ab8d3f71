"""The probabilities of all label sets, and the most probable one, against 80 digits and against each other."""

import math

import pytest
import torch
from hypothesis import given

from milbench.likelihood import bag_log_prob, best_label_set, distribution, label_set_distribution
from tests._helpers.likelihood_reference import PreciseBag, RandomBag, random_bags, regime_log_probs


@given(random_bags(max_classes=6, max_positions=20))
def test_distribution_is_every_set_on_its_own(bag: RandomBag) -> None:
    classes = bag.labels.shape[1]
    table = label_set_distribution(bag.log_probs)[0]
    sets = torch.arange(2**classes).unsqueeze(-1) >> torch.arange(classes) & 1
    expected = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets.bool())
    assert (
        (table == expected) | ((table - expected).abs() <= 1e-12 * expected.abs().clamp(min=1))
    ).all()


def mixed_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return log_probs (7, 4, 5) and the mask (7, 5) of bags that need different treatment.

    In turn: an ordinary bag, bags of one position and of none, a bag without class 1, one whose probabilities
    underflow, one with rare classes, and an ordinary bag of three positions.
    """
    log_probs = torch.stack(
        [regime_log_probs("uniform" if b == 6 else "background+4", 3, 5, seed=b) for b in range(7)]
    )
    log_probs[3, 1] = -torch.inf
    log_probs[3] = log_probs[3].log_softmax(dim=0)
    log_probs[4] = -800.0
    log_probs[4, [0, 1], [0, 0]] = -0.6931471805599453
    log_probs[4, 2, 1] = -1e-300
    log_probs[4, 3, 2:] = 0.0
    log_probs[5] = regime_log_probs("all-tiny", 3, 5)
    sizes = torch.tensor([5, 1, 0, 4, 3, 5, 3])
    return log_probs, torch.arange(5) < sizes.unsqueeze(1)


@pytest.mark.parametrize("group", [1, 100, 1 << 20])
def test_bags_of_every_kind_in_one_batch(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "GROUP", group)  # one bag, two bags, or all at a time
    log_probs, mask = mixed_batch()
    sets = [[c for c in range(3) if index >> c & 1] for index in range(8)]
    rows = [
        [float(PreciseBag(bag[:, kept], labels).log_prob()) for labels in sets]
        for bag, kept in zip(log_probs, mask, strict=True)
    ]
    truth = torch.tensor(rows, dtype=torch.float64)
    assert -math.inf < truth[4, 7] < -750  # below the smallest float
    torch.testing.assert_close(
        label_set_distribution(log_probs, mask), truth, rtol=1e-12, atol=1e-12
    )
    labels, log_prob = best_label_set(log_probs, mask)
    torch.testing.assert_close(log_prob, truth.amax(dim=1), rtol=1e-12, atol=1e-12)
    index = (labels * 2 ** torch.arange(3)).sum(dim=1)
    torch.testing.assert_close(truth[torch.arange(7), index], log_prob, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sharpness", [0.3, 3.0, 30.0])
def test_the_best_set_of_large_bags_and_of_many_classes(sharpness: float) -> None:
    rng = torch.Generator().manual_seed(round(10 * sharpness))
    for classes, shape in (
        (1, (1,)),
        (3, (2,)),
        (7, (5, 8)),
        (10, (300,)),
        (4, (70, 70)),
        (13, (3,)),
        (14, (4,)),
    ):
        logits = sharpness * torch.randn(2, classes + 1, *shape, generator=rng, dtype=torch.float64)
        logits[:, -1] += torch.tensor(logits[0, 0].numel()).log() + 2
        log_probs = logits.log_softmax(dim=1)
        labels, log_prob = best_label_set(log_probs)
        table = label_set_distribution(log_probs)
        index = (labels * 2 ** torch.arange(classes)).sum(dim=1)
        assert log_prob.tolist() == pytest.approx(table.amax(dim=1).tolist(), abs=1e-9)
        assert table[torch.arange(2), index].tolist() == pytest.approx(
            table.amax(dim=1).tolist(), abs=1e-9
        )
