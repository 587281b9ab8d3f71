"""Label sets above eight classes: the pruned series against 80 digits, and the number of its terms."""

from __future__ import annotations

import pytest
import torch

from milbench.likelihood import bag_log_prob, columns, grouped, hybrid
from tests._helpers.likelihood_reference import PreciseBag
from tests._helpers.likelihood_regimes import regime_log_probs


@pytest.mark.parametrize("regime", ["uniform", "background+4", "nearly-absent", "dominant"])
def test_hybrid_against_80_digits(regime: str) -> None:
    log_probs = regime_log_probs(regime, 11, 40, seed=2)
    log_probs[1] -= 3.0
    log_probs = log_probs.log_softmax(0)
    labels = torch.arange(11) < 9
    parts = columns.select(log_probs[None], labels[None], 9)
    truth = PreciseBag(log_probs, list(range(9)))
    found = hybrid.solve(parts, lambda part, need: grouped.scanned(part, need), posterior=True, tolerance=1e-10)
    assert found is not None
    value = float(found.ratio + parts.log_scale)
    exact = float(truth.log_prob())
    assert abs(value - exact) <= float(found.error) + 1e-13 * max(1.0, abs(exact))
    assert float(found.error) < 1e-9
    for slot, k in ((0, 3), (1, 0), (9, 39)):
        mine = found.background[0, k] if slot == 0 else found.required[0, slot - 1, k]
        assert float(mine) == pytest.approx(float(truth.posterior(slot, k)), abs=1e-9)


def test_certain_classes_cost_one_term() -> None:
    log_absent = torch.tensor([-400.0] * 14, dtype=torch.float64)
    assert len(hybrid._cheapest(log_absent, 1e-13).terms) == 1


def test_rare_classes_are_scanned() -> None:
    assert hybrid._cheapest(torch.tensor([-1e-3] * 12, dtype=torch.float64), 1e-13).outer == 0


def test_sixteen_classes_and_ten_thousand_positions() -> None:
    log_probs = torch.randn(1, 101, 10_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_probs = log_probs.log_softmax(1).requires_grad_()
    labels = (torch.arange(100) < 16).unsqueeze(0)
    value = bag_log_prob(log_probs, labels)
    chosen = torch.cat([log_probs[:, :16], log_probs[:, -1:]], dim=1)
    assert value.item() == pytest.approx(torch.logsumexp(chosen, 1).sum().item(), rel=1e-14)  # every class is certain
    (gradient,) = torch.autograd.grad(value.sum(), log_probs)
    assert torch.allclose(gradient.sum(dim=1), torch.ones(1, 10_000, dtype=torch.float64))
