"""Sums of numbers that are given by their logarithms, with right derivatives in every mode.

The functions of torch have the right value and gradient, and are fast. In other modes of
differentiation they fail:

- the second derivative of `logaddexp` is NaN under `torch.func` where one term stands for log 0;
- the forward derivative of `logcumsumexp` loses digits with large logarithms;
- the forward derivatives of `logsumexp` and `log_softmax` cannot be differentiated backwards.

In those modes this file uses plain operations instead, which torch differentiates one by one.
"""

import torch
from torch import Tensor
from torch.nn import functional

from milbench.contracts.autocast import inside_function_transform

LOG_ZERO = -1e30
"""Stands for log 0, far below the logarithm of any float.

It is finite, since the difference of two infinite values would be NaN.
"""


def add(first: Tensor, second: Tensor) -> Tensor:
    """Return log(exp(first) + exp(second))."""
    if not _is_differentiated_by_operations(first, second):
        return torch.logaddexp(first, second)
    return _add(first, second)


def total(values: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the sum of exp(values) over a dimension."""
    if not _is_differentiated_by_operations(values):
        return torch.logsumexp(values, dim)
    # The largest term is subtracted, so that exp does not overflow, and added again. Its
    # derivatives would cancel, so it is treated as a constant.
    largest = values.detach().amax(dim, keepdim=True)
    return (values - largest).exp().sum(dim).log() + largest.squeeze(dim)


def running_total(values: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the running sum of exp(values) over the last dimension."""
    if not _is_differentiated_by_operations(values):
        return torch.logcumsumexp(values, dim)
    if dim not in (-1, values.dim() - 1):
        raise ValueError(f"a running total is over the last dimension, not over {dim}")
    # At first each entry is the sum of one term. Each round adds to an entry the sum of the terms
    # before its own, which doubles its terms.
    sums = values
    terms = 1
    while terms < values.shape[-1]:
        earlier = functional.pad(sums[..., :-terms], (terms, 0), value=LOG_ZERO)
        sums = _add(sums, earlier)
        terms *= 2
    return sums


def log_softmax(logits: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the softmax over a dimension."""
    if not has_tangent(logits):
        return torch.log_softmax(logits, dim)
    return logits - total(logits, dim).unsqueeze(dim)


def _add(first: Tensor, second: Tensor) -> Tensor:
    """Return what `add` does, by plain operations."""
    larger = torch.maximum(first.detach(), second.detach())
    return ((first - larger).exp() + (second - larger).exp()).log() + larger


def _is_differentiated_by_operations(*values: Tensor) -> bool:
    """Return whether torch.func or forward mode differentiates a function of these values."""
    if inside_function_transform():
        return True
    return any(has_tangent(value) for value in values)


def has_tangent(values: Tensor) -> bool:
    """Return whether forward mode (`torch.autograd.forward_ad`) differentiates by these values."""
    return torch.autograd.forward_ad.unpack_dual(values).tangent is not None
