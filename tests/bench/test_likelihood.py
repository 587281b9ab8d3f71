from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from milbench.bench import likelihood
from milbench.bench.likelihood import Config, plain_loop
from milbench.bench.profiling import Timing
from milbench.likelihood import bag_log_prob
from tests._helpers.command_line import Milbench


def test_the_plain_loop_computes_what_it_is_compared_with() -> None:
    config = Config(bags=6, classes=5, positions=7, sizes=(0, 1, 3), background=1.0)
    logits, labels = config.draw("cpu")
    assert logits.shape == (6, 6, 7)
    assert labels.sum(dim=1).tolist() == [0, 1, 3, 0, 1, 3]
    log_probs = logits.log_softmax(dim=1)
    torch.testing.assert_close(plain_loop(logits, labels), bag_log_prob(log_probs, labels), rtol=1e-9, atol=0)


def test_quick_measurements_come_with_their_spread(milbench: Milbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "CONFIGS", (Config(4, 3, 5, (1, 2), 0.0),))
    calls: list[int] = []

    def timings(functions: list[Callable[[], object]], repeats: int) -> list[Timing]:
        calls.append(repeats)
        return [Timing(median=1.0 + number, spread=0.1 + number) for number in range(len(functions))]

    monkeypatch.setattr(likelihood, "paired_timings", timings)
    ran = milbench("bench", "losses", "--quick", "--device", "cpu")
    assert ran.code == 0, ran
    assert calls == [7, 7]
    # Forward and backward is measured second: 2 s with a middle half 1.1 s wide, half of which is 28 % of 2 s.
    assert [line.count("28%") for line in ran.out.splitlines() if "4 x 3 x 5" in line] == [1, 1]
