from __future__ import annotations

import torch

from milbench.cli.bench_losses import Config, plain_loop
from milbench.likelihood import bag_log_prob


def test_the_plain_loop_computes_what_it_is_compared_with() -> None:
    config = Config(bags=6, classes=5, positions=7, sizes=(0, 1, 3), background=1.0)
    logits, labels = config.draw("cpu")
    assert logits.shape == (6, 6, 7)
    assert labels.sum(dim=1).tolist() == [0, 1, 3, 0, 1, 3]
    log_probs = logits.log_softmax(dim=1)
    torch.testing.assert_close(plain_loop(logits, labels), bag_log_prob(log_probs, labels), rtol=1e-9, atol=0)
