"""One-vs-rest against its definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests._helpers.label_maps import ALL_LABELS, C, K, bag, exactly, numbers
from tests._helpers.losses import per_bag


def definition(logits: Tensor, labels: list[bool]) -> tuple[float, list[list[float]]]:
    """Return the loss of one bag and its gradient; no two positions tie."""
    value = exactly.mpf(0)
    gradient = [[0.0] * K for _ in range(C + 1)]
    for c, row in enumerate(numbers(logits)[:C]):
        k = max(range(K), key=row.__getitem__)
        present = 1 / (1 + exactly.exp(-row[k]))
        value -= exactly.log(present if labels[c] else 1 - present)
        gradient[c][k] = float(present - labels[c])
    return float(value), gradient


@pytest.mark.parametrize("scale", [2.0, 40.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_value_and_gradient_are_those_of_the_definition(dtype: torch.dtype, scale: float) -> None:
    logits = bag(0, scale).clamp(-200, 200).to(dtype)
    rel = 1e-5 if dtype == torch.float32 else 1e-12
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    value = per_bag("one-vs-rest")(leaf, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    for i, labels in enumerate(ALL_LABELS.tolist()):
        expected, expected_gradient = definition(logits, labels)
        assert value[i].item() == pytest.approx(expected, rel=rel, abs=1e-30)
        for c in range(C + 1):
            assert gradient[i, c].tolist() == pytest.approx(expected_gradient[c], rel=rel, abs=1e-30)


def test_scores_are_the_largest_logits() -> None:
    logits = torch.tensor([[[1.0, 5.0, 9.0], [4.0, 2.0, 0.0], [7.0, 7.0, 7.0]]])
    mask = torch.tensor([[True, True, False]])
    loss = per_bag("one-vs-rest")
    assert loss.class_scores(logits, mask).tolist() == [[5.0, 4.0]]
    assert loss.presence_scores(logits, mask).tolist() == [[5.0, 4.0]]


def test_positions_that_tie_share_the_gradient() -> None:
    logits = torch.tensor([[[0.0, -1.0, 0.0], [-9.0, -9.0, -9.0]]], requires_grad=True)
    (gradient,) = torch.autograd.grad(per_bag("one-vs-rest")(logits, torch.tensor([[True]])).sum(), logits)
    assert gradient.tolist() == [[[-0.25, 0.0, -0.25], [0.0, 0.0, 0.0]]]


def test_instance_probs_are_given_that_at_most_one_detector_fires() -> None:
    probs = per_bag("one-vs-rest").instance_probs(bag(0).unsqueeze(0))[0]
    rows = numbers(bag(0))
    for k in range(K):
        odds = [*(exactly.exp(row[k]) for row in rows[:C]), exactly.mpf(1)]
        assert probs[:, k].tolist() == pytest.approx([float(value / sum(odds)) for value in odds])


def test_the_evidence_is_the_logit_that_the_maximum_is_taken_of() -> None:
    loss, logits = per_bag("one-vs-rest"), bag(0).unsqueeze(0)
    assert torch.equal(loss.instance_evidence(logits).flatten(2).amax(dim=2), loss.presence_scores(logits))
