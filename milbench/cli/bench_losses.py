"""Time and memory of the exact likelihood, beside a plain loop and cross-entropy on the same logits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from milbench._utils.seeding import generator
from milbench.cli.bench_files import Row, Seconds
from milbench.engine.profiling import paired_timings, peak_bytes
from milbench.likelihood import bag_log_prob

if TYPE_CHECKING:
    import pandas as pd

Value = Callable[[Tensor, Tensor], Tensor]


TIMINGS = "timings"
"""A column with what the others are computed from, by the name of the function: it is not printed."""


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


def series_loop(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return log P(L) (B,), summed bag by bag and subset by subset: the obvious way to write Proposition 1."""
    background = log_probs.shape[1] - 1
    values = []
    for bag in range(len(labels)):
        required = torch.nonzero(labels[bag])[:, 0].tolist()
        terms = []
        for size in range(len(required) + 1):
            for subset in itertools.combinations(required, size):
                log_alpha = torch.logsumexp(log_probs[bag, [*subset, background]], dim=0).sum()
                terms.append(((-1) ** (len(required) - size), log_alpha))
        top = terms[-1][1]
        series = torch.stack([sign * torch.exp(term - top) for sign, term in terms]).sum()
        values.append(top + torch.log(series.abs() + 1e-16))
    return torch.stack(values)


def measure(device: str = "cpu", *, quick: bool = False) -> pd.DataFrame:
    """Measure every configuration on `device` and return one row each.

    Args:
        device: cpu, cuda or cuda:N.
        quick: Take 3 repetitions instead of 21, and leave out the configurations without a plain loop.

    Returns:
        Bags per second, ratios of times (medians; the functions are called in turn), peak memory in MiB, and the column
        TIMINGS.
    """
    import pandas as pd

    configs = [c for c in CONFIGS if c.loop or not quick]
    return pd.DataFrame([_row(config, device, 3 if quick else 21) for config in configs])


def _row(config: Config, device: str, repeats: int) -> dict[str, Any]:
    logits, labels = config.draw(device)
    largest = max(config.sizes)

    def exact(log_probs: Tensor, required: Tensor) -> Tensor:
        return bag_log_prob(log_probs, required, validate=False, max_labels=largest)

    measured: dict[str, Callable[[], object]] = {
        "forward": _forward(exact, logits, labels),
        "both": _both(exact, logits, labels),
        "checked": _both(bag_log_prob, logits, labels),
        "cross-entropy": _cross_entropy(logits),
    }
    if config.loop:
        measured["loop forward"] = _forward(series_loop, logits, labels)
        measured["loop both"] = _both(series_loop, logits, labels)
    timings = dict(zip(measured, paired_timings(list(measured.values()), repeats), strict=True))
    taken = {name: timing.median for name, timing in timings.items()}
    loop, loop_both = taken.get("loop forward", float("nan")), taken.get("loop both", float("nan"))
    return {
        TIMINGS: timings,
        "configuration": config.label(),
        "bags/s": config.bags / taken["forward"],
        "bags/s fwd+bwd": config.bags / taken["both"],
        "validated": config.bags / taken["checked"],
        "loop/exact": loop / taken["forward"],
        "loop/exact fwd+bwd": loop_both / taken["both"],
        "exact/CE": taken["both"] / taken["cross-entropy"],
        "MiB": peak_bytes(measured["both"]) / 2**20,
        "CE MiB": peak_bytes(measured["cross-entropy"]) / 2**20,
    }


def _forward(value: Value, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    def call() -> Tensor:
        with torch.no_grad():
            return value(logits.log_softmax(dim=1), labels)

    return call


def _both(value: Value, logits: Tensor, labels: Tensor) -> Callable[[], object]:
    leaf = logits.clone().requires_grad_()

    def call() -> None:
        leaf.grad = None
        (-value(leaf.log_softmax(dim=1), labels)).mean().backward()

    return call


def _cross_entropy(logits: Tensor) -> Callable[[], object]:
    leaf = logits.clone().requires_grad_()
    target = torch.zeros(logits.shape[0], logits.shape[2], dtype=torch.int64, device=logits.device)

    def call() -> None:
        leaf.grad = None
        torch.nn.functional.cross_entropy(leaf, target).backward()

    return call


def as_rows(frame: pd.DataFrame) -> list[Row]:
    """Return what `measure` returned as rows of a file."""
    return [
        Row(
            record["configuration"],
            {name: Seconds.of(timing) for name, timing in record[TIMINGS].items()},
            {name.removesuffix("MiB").strip() or "exact": 2**20 * record[name] for name in ("MiB", "CE MiB")},
        )
        for record in frame.to_dict("records")
    ]


def print_table(frame: pd.DataFrame) -> None:
    """Print the table."""
    from rich.table import Table

    from milbench.cli.console import PlainConsole

    table = Table(
        title=f"exact likelihood: bags x classes x positions, float64, {torch.get_num_threads()} threads, medians"
    )
    frame = frame.drop(columns=TIMINGS)
    for column in frame.columns:
        table.add_column(column, justify="left" if column == "configuration" else "right", no_wrap=True)
    for row in frame.itertuples(index=False):
        table.add_row(*(cell if isinstance(cell, str) else _number(cell) for cell in row))
    PlainConsole(width=150).print(table)


def _number(value: float) -> str:
    """Format with three significant digits and no exponent; not a number is left empty."""
    if value != value:
        return ""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
