"""What many tests of losses need: loading a loss, random logits, and a list of losses.

The logits are the same in every run. The contract tests check the losses of the list.
"""

from functools import partial

import torch
from torch import Tensor

from milbench import load_loss
from milbench.testing import Variant

per_bag = partial(load_loss, reduction="none")
"""Loads a loss by its name and parameters; the loss then gives one value for each bag."""


def random_logits(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    """Return normal numbers of a shape in float64, with the standard deviation `scale`.

    No two of them are equal, so that no maximum is tied.
    """
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


BUILT_IN = (
    Variant("max-pooling"),
    Variant("attention"),
    Variant("one-vs-rest"),
    Variant("noisy-or"),
    Variant("mean"),
    Variant("linear-softmax"),
    Variant("exponential-softmax"),
    Variant("isr"),
    Variant("auto-pool"),
    Variant("power-pooling"),
    Variant("generalised-mean"),
    Variant("noisy-and"),
    Variant("log-sum-exp"),
    Variant("position"),
    Variant("ctc"),
    Variant("exact"),
    Variant("exact", {"divide_by": "batch"}, depends_on_batch=True),
    Variant("exact", {"divide_by": "bag"}),
    Variant("exact", {"rule": "exact"}),
    Variant("exact", {"method": "lower"}),
    Variant("exact", {"method": "upper"}),
    Variant("superset"),
    Variant("hard-em"),
    Variant("exact-em"),
    Variant("exact-em", {"divide_by": "batch"}, depends_on_batch=True),
    Variant("max-pooling", {"normalization": "batch"}, depends_on_batch=True),
    Variant("max-pooling", {"normalization": "position"}),
    Variant("attention", {"attention": "shared", "gated": True, "hidden": 5}),
    Variant("noisy-or", {"head": "softmax"}),
    Variant("top-k", {"one_in": 2}),
    Variant("count", {"likelihood": "joint"}),
    Variant("count", {"likelihood": "marginal"}),
    Variant("cross-entropy", one_class=True),
)
"""The built-in losses that the contract is tested on, with parameters that change their formula.

Other parameters, such as the sharpness of exact-em, are tested with their loss.
"""
