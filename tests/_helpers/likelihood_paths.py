"""The likelihood by every way that it may take, on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import torch
from torch import Tensor

from milbench.likelihood import bag_log_prob, checks, exact

Solver = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@contextmanager
def accelerator() -> Iterator[None]:
    """Compute as where no value may be looked at: on a GPU, and inside torch.compile and torch.func."""
    with mock.patch.object(checks, "tracing", return_value=True):
        yield


def derived(function: Callable[[Tensor, Tensor], Tensor], values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value and its gradient."""
    leaf = values.clone().requires_grad_()
    value = function(leaf, labels)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def _by_levels(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    value, posterior = exact._by_levels(log_probs, labels, None, int(labels.sum(1).max()), normalise=False)
    return value.to(log_probs.dtype), posterior


def _in_logarithms(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    with accelerator():
        return _by_levels(log_probs, labels)


PATHS: dict[str, Solver] = {
    "eager": partial(derived, bag_log_prob),
    "levels": _by_levels,
    "logarithms": _in_logarithms,
}
"""Functions of log_probs (B, C+1, K) and labels (B, C) that return log Prb (B,) and its gradient."""
