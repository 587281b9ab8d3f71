"""The variants of the built-in losses that the contract is tested on."""

from __future__ import annotations

from milbench.testing import Variant

BUILT_IN = (
    Variant("exact", couples_bags=True),
    Variant("exact", {"divide_by": "bag"}, couples_bags=False),
    Variant("exact", {"divide_by": "none", "rule": "exact"}, couples_bags=False),
    *(Variant("exact", {"divide_by": "none", "method": m}, couples_bags=False) for m in ("lower", "upper")),
    Variant("superset", {"divide_by": "none"}, couples_bags=False),
    Variant("exact-em", couples_bags=True),
    Variant("exact-em", {"divide_by": "bag", "sharpness": 10.0}, couples_bags=False),
    Variant("hard-em", {"divide_by": "none"}, couples_bags=False),
    Variant("max-pooling", couples_bags=False),
    Variant("max-pooling", {"normalization": "batch"}, couples_bags=True),
    Variant("max-pooling", {"normalization": "position"}, couples_bags=False),
    Variant("attention", couples_bags=False),
    Variant("attention", {"attention": "shared", "gated": True, "hidden": 5}, couples_bags=False),
    Variant("one-vs-rest", couples_bags=False),
    Variant("noisy-or", couples_bags=False),
    Variant("noisy-or", {"head": "softmax"}, couples_bags=False),
    *(Variant(n, couples_bags=False) for n in ("mean", "linear-softmax", "exponential-softmax", "isr", "auto-pool")),
    *(Variant("top-k", {"one_in": n}, couples_bags=False) for n in (8, 2, 1)),
    *(Variant("generalised-mean", {"exponent": r}, couples_bags=False) for r in (2.5, 0.5, 30.0)),
    *(Variant("noisy-and", {"slope": a}, couples_bags=False) for a in (10.0, 0.1, 50.0)),
    *(Variant("log-sum-exp", {"learn": learn}, couples_bags=False) for learn in (True, False)),
    Variant("count", couples_bags=False),
    Variant("position", couples_bags=False),
    Variant("cross-entropy", couples_bags=False, one_class=True),
)
