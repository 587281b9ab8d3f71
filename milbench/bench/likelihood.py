"""Time and memory of the exact likelihood from logits, beside a plain loop and a log-softmax of the same logits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.bench.profiling import paired_timings, peak_bytes
from milbench.likelihood import bag_log_prob_from_logits

if TYPE_CHECKING:
    import pandas as pd

Value = Callable[[Tensor, Tensor], Tensor]

SPREAD = "± fwd+bwd"


class Config(NamedTuple):
    """One batch of random logits."""

    bags: int
    classes: int
    positions: int
    sizes: Sequence[int]
    """Numbers of labels |L|, which the bags have in turn."""
    background: float
    """Added to the background's logits; the larger, the fewer positions show a class."""
    loop: bool = True
    """Whether the plain loop is measured too; with many labels it takes too long."""

    def label(self) -> str:
        """Return bags x classes x positions, the smallest and largest |L|, and what is added to the background."""
        sizes = f"{min(self.sizes)}-{max(self.sizes)}" if len(self.sizes) > 1 else f"{self.sizes[0]}"
        return f"{self.bags} x {self.classes} x {self.positions}, |L| {sizes}, +{self.background:g}"

    def draw(self, device: str) -> tuple[Tensor, Tensor]:
        """Return logits (B, C+1, K) float64 and labels (B, C)."""
        rng = generator("bench-losses", *self)
        logits = torch.randn(self.bags, self.classes + 1, self.positions, generator=rng, dtype=torch.float64)
        logits[:, -1] += self.background
        labels = torch.zeros(self.bags, self.classes, dtype=torch.bool)
        for row in range(self.bags):
            size = self.sizes[row % len(self.sizes)]
            labels[row, torch.randperm(self.classes, generator=rng)[:size]] = True
        return logits.to(device), labels.to(device)


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
    """Return log Prb(L) (B,), summed bag by bag and subset by subset: the obvious way to write Proposition 1."""
    log_probs = logits.log_softmax(dim=1)
    values = []
    for bag, held in enumerate(labels):
        required = torch.nonzero(held)[:, 0].tolist()
        probs = log_probs[bag, [*required, -1]].exp()
        terms = []
        for size in range(len(required) + 1):
            for subset in itertools.combinations(range(len(required)), size):
                log_alpha = probs[[*subset, -1]].sum(dim=0).log().sum()
                terms.append(((-1) ** (len(required) - size), log_alpha))
        top = terms[-1][1]
        series = torch.stack([sign * torch.exp(term - top) for sign, term in terms]).sum()
        values.append(top + torch.log(series.abs() + 1e-16))
    return torch.stack(values)


def measure(device: str = "cpu", *, quick: bool = False) -> pd.DataFrame:
    """Return a row for every configuration, in both precisions.

    Bags per second, half the width of the middle half of the time forward and backward as a share of its median
    (SPREAD), ratios of times (medians; the functions are called in turn), and peak memory in MiB. `quick`: 7
    repetitions instead of 21, without the configurations that have no plain loop.
    """
    import pandas as pd

    configs = [c for c in CONFIGS if c.loop or not quick]
    rows = [_row(c, dtype, device, 7 if quick else 21) for dtype in (torch.float32, torch.float64) for c in configs]
    return pd.DataFrame(rows)


def _row(config: Config, dtype: torch.dtype, device: str, repeats: int) -> dict[str, Any]:
    logits, labels = config.draw(device)
    logits, largest = logits.to(dtype), max(config.sizes)

    def exact(logits: Tensor, required: Tensor) -> Tensor:
        return bag_log_prob_from_logits(logits, required, validate=False, max_labels=largest)

    measured: dict[str, Callable[[], object]] = {
        "forward": _forward(exact, logits, labels),
        "both": _both(exact, logits, labels),
        "log-softmax": _both(lambda logits, _: logits.log_softmax(dim=1), logits, labels),
        "log-softmax forward": _forward(lambda logits, _: logits.log_softmax(dim=1), logits, labels),
    }
    if config.loop:
        measured["loop forward"] = _forward(plain_loop, logits, labels)
        measured["loop both"] = _both(plain_loop, logits, labels)
    timings = dict(zip(measured, paired_timings(list(measured.values()), repeats), strict=True))
    taken = {name: timing.median for name, timing in timings.items()}
    loop, loop_both = taken.get("loop forward", float("nan")), taken.get("loop both", float("nan"))
    return {
        "configuration": f"{config.label()}, {str(dtype).removeprefix('torch.')}",
        "bags/s": config.bags / taken["forward"],
        "bags/s fwd+bwd": config.bags / taken["both"],
        SPREAD: timings["both"].spread / 2 / taken["both"],
        "loop/exact": loop / taken["forward"],
        "loop/exact fwd+bwd": loop_both / taken["both"],
        "exact/softmax": taken["forward"] / taken["log-softmax forward"],
        "exact/softmax fwd+bwd": taken["both"] / taken["log-softmax"],
        "MiB": peak_bytes(measured["both"]) / 2**20,
        "softmax MiB": peak_bytes(measured["log-softmax"]) / 2**20,
    }


def _forward(value: Value, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    def call() -> Tensor:
        with torch.no_grad():
            return value(logits, labels)

    return call


def _both(value: Value, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    leaf = logits.clone().requires_grad_()

    def call() -> None:
        leaf.grad = None
        value(leaf, labels).mean().backward()

    return call
