"""Losses by name that give one value a bag, those of the contract tests, and random logits, the same in every run."""

from functools import partial

import torch
from torch import Tensor

from milbench import load_loss
from milbench.testing import Variant

per_bag = partial(load_loss, reduction="none")


def random_logits(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    """Return float64 normal numbers of that shape and standard deviation; no two are equal."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


BUILT_IN = (
    *(Variant(name) for name in (
        "max-pooling", "attention", "one-vs-rest", "noisy-or", "mean", "linear-softmax", "exponential-softmax", "isr",
        "auto-pool", "power-pooling", "generalised-mean", "noisy-and", "log-sum-exp", "position", "ctc",
    )),
    Variant("exact"),
    Variant("exact", {"divide_by": "batch"}, depends_on_batch=True),
    Variant("exact", {"divide_by": "bag"}),
    Variant("exact", {"rule": "exact"}),
    *(Variant("exact", {"method": m}) for m in ("lower", "upper")),
    *(Variant(name) for name in ("superset", "hard-em")),
    Variant("exact-em"),
    Variant("exact-em", {"divide_by": "batch"}, depends_on_batch=True),
    Variant("max-pooling", {"normalization": "batch"}, depends_on_batch=True),
    Variant("max-pooling", {"normalization": "position"}),
    Variant("attention", {"attention": "shared", "gated": True, "hidden": 5}),
    Variant("noisy-or", {"head": "softmax"}),
    Variant("top-k", {"one_in": 2}),
    *(Variant("count", {"likelihood": likelihood}) for likelihood in ("joint", "marginal")),
    Variant("cross-entropy", one_class=True),
)  # fmt: skip
"""The built-in losses that the contract is tested on, with each parameter that changes their formula."""
