"""Measure the exact likelihood: its time, memory and operators.

It is the probability Prb(L) of the label set L of a bag (docs/likelihood.md). It is compared with a
plain loop over the subsets of L, and with a log-softmax of the same logits. Operators are the
operations of PyTorch that run.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pandas as pd
import torch
from _measuring import QuickOption, ThreadsOption, paired_timings, peak_bytes, show, start
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from milbench import load_loss
from milbench._utils.devices import resolve
from milbench._utils.seeding import generator
from milbench.cli.options import DeviceOption
from milbench.likelihood import bag_log_prob_from_logits
from milbench.running.worker import set_torch_defaults

BagFunction = Callable[[Tensor, Tensor], Tensor]
"""A function of logits (B, C+1, K) and labels (B, C)."""


class Config(NamedTuple):
    """A batch of random logits to measure."""

    bags: int
    classes: int
    positions: int
    sizes: Sequence[int]
    """The sizes |L| of label sets. The first bag has the first size, and so on, again and again."""
    background: float
    """A number added to the background's logits. If it is large, few positions show a class."""
    loop: bool = True
    """Whether the plain loop is measured too, which takes too long for large label sets.

    With --quick, batches without the loop are left out.
    """

    def label(self) -> str:
        """Return how a table names this batch.

        It is bags x classes x positions, the smallest and largest |L|, and the background.
        """
        sizes = str(self.sizes[0])
        if len(self.sizes) > 1:
            sizes = f"{min(self.sizes)}-{max(self.sizes)}"
        shape = f"{self.bags} x {self.classes} x {self.positions}"
        return f"{shape}, |L| {sizes}, +{self.background:g}"

    def sample(self, device: str) -> tuple[Tensor, Tensor]:
        """Return logits (B, C+1, K) float64 and labels (B, C)."""
        # The seed is made of this name and the fields. With another name there would be other
        # logits, and results could not be compared with published ones.
        rng = generator("bench-losses", *self)
        shape = (self.bags, self.classes + 1, self.positions)
        logits = torch.randn(shape, generator=rng, dtype=torch.float64)
        logits[:, -1] += self.background
        labels = torch.zeros(self.bags, self.classes, dtype=torch.bool)
        for row in range(self.bags):
            size = self.sizes[row % len(self.sizes)]
            classes = torch.randperm(self.classes, generator=rng)
            labels[row, classes[:size]] = True
        return logits.to(device), labels.to(device)


# Bags, classes, positions, sizes of label sets, and what is added to the logits of the background.
CONFIGS = (
    Config(32, 10, 625, (1, 2), 0.0),
    Config(32, 10, 625, (1, 2), 6.0),
    Config(32, 10, 784, (1, 2, 3, 4, 5), 0.0),
    Config(32, 10, 784, (1, 2, 3, 4, 5), 6.0),
    Config(32, 10, 784, (1, 2, 3, 4, 5), 9.0),
    Config(64, 10, 16, (1,), 0.0),
    Config(1, 100, 10_000, (16,), 0.0, loop=False),
    Config(1, 100, 10_000, (16,), 4.0, loop=False),
    Config(1, 100, 10_000, (16,), 8.0, loop=False),
)


def plain_loop(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log Prb(L) (B,) by the plain formula, bag by bag and subset by subset.

        Prb(L) = sum_S (-1)^(|L| - |S|) prod_k (p_{background,k} + sum_{c in S} p_{c,k}),

    where S goes through all subsets of L.

    Source: X.-L. Li, arXiv:1811.12346, 2018, Proposition 1.
    """
    log_probs = logits.log_softmax(dim=1)
    values = []
    for bag, label_set in enumerate(labels):
        required = torch.nonzero(label_set)[:, 0].tolist()
        probs = log_probs[bag, [*required, -1]].exp()
        terms = []
        for size in range(len(required) + 1):
            for subset in itertools.combinations(range(len(required)), size):
                log_product = probs[[*subset, -1]].sum(dim=0).log().sum()
                terms.append(((-1) ** (len(required) - size), log_product))
        # The last term, of the whole label set, is the largest.
        _, top = terms[-1]
        series = torch.stack([sign * torch.exp(term - top) for sign, term in terms]).sum()
        # Where the terms cancel, rounding may leave 0 or a negative sum. `abs` and 1e-16 keep its
        # logarithm finite, but it means nothing.
        values.append(top + torch.log(series.abs() + 1e-16))
    return torch.stack(values)


def main(
    device: DeviceOption = "auto", threads: ThreadsOption = 1, quick: QuickOption = False
) -> None:
    """Measure time and peak memory of the exact likelihood, beside a plain loop and a log-softmax.

    It prints medians of 21 repetitions (--quick: 7), in float32 and float64. The functions are
    called in turn. A ratio such as loop/exact is a ratio of times.

    Example: python benchmarks/likelihood.py --quick
    """
    device_name = str(resolve(device))
    set_torch_defaults(threads)
    repeats = 7 if quick else 21
    configs = [config for config in CONFIGS if config.loop or not quick]
    rows = []
    for dtype in (torch.float32, torch.float64):
        rows += [_row(config, dtype, device_name, repeats) for config in configs]
    show(
        pd.DataFrame(rows),
        f"exact likelihood from logits: bags x classes x positions, {threads} threads, medians; "
        "± fwd+bwd: half the interquartile range of that time, in % of its median; "
        "MiB: the most that tensors occupy",
    )
    # The number of operators of `exact` grows with the largest label set. The number of noisy-or,
    # for comparison, does not depend on label sets.
    counts = [_counts("exact", most) for most in range(7)]
    counts.append(_counts("noisy-or"))
    show(
        pd.DataFrame(counts),
        "operators of the whole loss with its gradient, whatever the number of positions and bags",
    )


def _row(config: Config, dtype: torch.dtype, device: str, repeats: int) -> dict[str, Any]:
    """Return the row of a batch: times and memory of the exact likelihood and of the others."""
    logits, labels = config.sample(device)
    logits = logits.to(dtype)
    largest = max(config.sizes)

    def exact(logits: Tensor, labels: Tensor) -> Tensor:
        return bag_log_prob_from_logits(logits, labels, validate=False, max_labels=largest)

    # "both" are the forward and the backward pass.
    measured: dict[str, Callable[[], object]] = {
        "forward": _forward(exact, logits, labels),
        "both": _both(exact, logits, labels),
        "log-softmax forward": _forward(_log_softmax, logits, labels),
        "log-softmax both": _both(_log_softmax, logits, labels),
    }
    if config.loop:
        measured["loop forward"] = _forward(plain_loop, logits, labels)
        measured["loop both"] = _both(plain_loop, logits, labels)
    timings = dict(zip(measured, paired_timings(list(measured.values()), repeats), strict=True))
    taken = {name: timing.median for name, timing in timings.items()}
    forward = taken["forward"]
    both = taken["both"]
    # Where the plain loop takes too long, its ratios are not known.
    loop_forward = taken.get("loop forward", math.nan)
    loop_both = taken.get("loop both", math.nan)
    return {
        "configuration": f"{config.label()}, {str(dtype).removeprefix('torch.')}",
        "bags/s": config.bags / forward,
        "bags/s fwd+bwd": config.bags / both,
        "± fwd+bwd": f"{timings['both'].spread / 2 / both:.0%}",
        "loop/exact": loop_forward / forward,
        "loop/exact fwd+bwd": loop_both / both,
        "exact/softmax": forward / taken["log-softmax forward"],
        "exact/softmax fwd+bwd": both / taken["log-softmax both"],
        "MiB": peak_bytes(measured["both"]) / 2**20,
        "softmax MiB": peak_bytes(measured["log-softmax both"]) / 2**20,
    }


def _log_softmax(logits: Tensor, _: Tensor) -> Tensor:
    return logits.log_softmax(dim=1)


def _forward(function: BagFunction, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    """Return a call of the function without gradients."""

    def call() -> Tensor:
        with torch.no_grad():
            return function(logits, labels)

    return call


def _both(function: BagFunction, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    """Return a call of the function and of its backward pass."""
    leaf = logits.clone().requires_grad_()

    def call() -> None:
        leaf.grad = None
        function(leaf, labels).mean().backward()

    return call


def _counts(name: str, most: int | None = None) -> dict[str, Any]:
    """Return a row with the numbers of operators of a loss.

    `most` is the largest number of classes in a label set, None where the loss need not know it.
    """
    label = name
    if most is not None:
        label = f"{name}, up to {most} classes"
    return {
        "loss": label,
        "operators": operators(name, most),
        "with a mask": operators(name, most, masked=True),
        "with a mask and a Hessian product": operators(
            name, most, masked=True, hessian_product=True
        ),
    }


class _Operators(TorchDispatchMode):
    """Counts the operators that run, including views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operators(
    name: str, most: int | None = None, *, masked: bool = False, hessian_product: bool = False
) -> int:
    """Return the number of operators of a loss and its gradient.

    They are counted on the device "meta", whose tensors have no values. An accelerator runs the
    same operators: as on "meta", no step looks at the values of labels.

    Args:
        name: the loss.
        most: the largest number of classes in a label set; None: not known.
        masked: whether there is a mask.
        hessian_product: whether a product of the Hessian with a vector is computed too.
    """
    # 32 bags, 10 classes and the background, 28 x 28 positions. How many bags and positions there
    # are does not matter.
    logits = torch.empty(32, 11, 28, 28, device="meta", requires_grad=True)
    labels = torch.empty(32, 10, dtype=torch.bool, device="meta")
    mask = torch.empty(32, 28, 28, dtype=torch.bool, device="meta") if masked else None
    loss = load_loss(name, reduction="none").build(num_classes=10, max_labels=most)
    # Values are not checked, since tensors on the device "meta" have none. `load_loss` takes no
    # argument for this.
    loss.validate = False

    def step() -> int:
        with _Operators() as counted:
            mean = loss(logits, labels, mask).mean()
            (gradient,) = torch.autograd.grad(mean, logits, create_graph=hessian_product)
            if hessian_product:
                # The Hessian's product with a vector is the gradient of the gradient's product with
                # it. Only operators are counted, so that any vector will do.
                any_vector = torch.empty_like(logits)
                torch.autograd.grad(gradient, logits, any_vector)
        return int(counted.count)

    # The first step makes the tables of label sets, once for all steps.
    step()
    return step()


if __name__ == "__main__":
    start(main)
