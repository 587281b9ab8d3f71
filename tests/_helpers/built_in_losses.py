"""The built-in losses that the contract is tested on, with each parameter that changes their formula."""

from __future__ import annotations

from milbench.testing import Variant

BUILT_IN = (
    Variant("exact", depends_on_batch=True),
    Variant("exact", {"divide_by": "none", "rule": "exact"}),
    *(Variant("exact", {"divide_by": "none", "method": m}) for m in ("lower", "upper")),
    Variant("superset", {"divide_by": "none"}),
    Variant("exact-em", depends_on_batch=True),
    Variant("hard-em", {"divide_by": "none"}),
    Variant("max-pooling"),
    Variant("max-pooling", {"normalization": "batch"}, depends_on_batch=True),
    Variant("max-pooling", {"normalization": "position"}),
    Variant("attention"),
    Variant("attention", {"attention": "shared", "gated": True, "hidden": 5}),
    Variant("one-vs-rest"),
    Variant("noisy-or"),
    Variant("noisy-or", {"head": "softmax"}),
    *(Variant(n) for n in ("mean", "linear-softmax", "exponential-softmax", "isr", "auto-pool")),
    Variant("top-k", {"one_in": 2}),
    *(Variant(n) for n in ("generalised-mean", "noisy-and", "log-sum-exp")),
    *(Variant("count", {"likelihood": likelihood}) for likelihood in ("joint", "marginal")),
    Variant("position"),
    Variant("ctc"),
    Variant("cross-entropy", one_class=True),
)
