"""Scans that are too long to be stored, and scans that underflow."""

from __future__ import annotations

import pytest
import torch
from milbench.engine.profiling import peak_bytes

from milbench.likelihood import bag_log_prob, columns, scan, tree
from tests._helpers.likelihood_reference import PreciseBag
from tests._helpers.likelihood_regimes import regime_log_probs


def test_long_scans_are_stored_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    log_probs = regime_log_probs("background+8", 8, 160)[None]
    parts = columns.select(log_probs, torch.ones(1, 8, dtype=torch.bool), 8)
    scale = tree.label_scale(parts.required)
    monkeypatch.setattr(scan, "block_count", lambda positions, slots: 1)

    def solve() -> scan.Solution:
        return scan.solve(parts.background, parts.required, scale, parts.size, posterior=True)

    whole = solve()
    whole_bytes = peak_bytes(solve)
    monkeypatch.setattr(scan, "SEGMENT", 256 * 12)
    parted = solve()
    assert torch.equal(whole.root, parted.root)
    assert whole.required is not None
    assert parted.required is not None
    assert torch.equal(whole.required, parted.required)
    assert peak_bytes(solve) < whole_bytes / 2
    every_set = peak_bytes(lambda: scan.every_set(parts.background, parts.required, scale))
    value = peak_bytes(lambda: scan.solve(parts.background, parts.required, scale, parts.size, posterior=False))
    assert max(every_set, value) < whole_bytes / 4  # one stretch is stored, not those before it


def test_values_that_underflow_are_solved_in_logarithms() -> None:
    log_probs = torch.full((1, 4, 3), -600.0, dtype=torch.float64)
    log_probs[0, [0, 1], [0, 0]] = -0.6931471805599453
    log_probs[0, [1, 2], [1, 1]] = torch.tensor([-600.0, -1e-300], dtype=torch.float64)
    log_probs[0, 3, 2] = 0.0
    parts = columns.select(log_probs, torch.ones(1, 3, dtype=torch.bool), 3)
    scale = tree.label_scale(parts.required)
    assert scan.solve(parts.background, parts.required, scale, parts.size, posterior=False).root < scan.CERTAIN
    truth = float(PreciseBag(log_probs[0], [0, 1, 2]).log_prob())
    assert bag_log_prob(log_probs, torch.ones(1, 3).bool()).item() == pytest.approx(truth, rel=1e-13)
