"""What a comparison says of one task by one metric, as data.

`milbench.report.judge` makes a `Judgement`. Pages, terminal, Python and site put it into words. Its
`finding` is one of the classes of `Finding`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leader:
    """The loss with the best mean."""

    loss: str
    mean: float
    seeds: int
    """The largest number of seeds that any of the judged losses has."""


@dataclass(frozen=True, slots=True)
class NoResult:
    """No loss has a value yet."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """Losses that are better than the best constant answer, or than chance, by some metric."""

    metric: str
    losses: int
    """The number of losses that are shown to be better."""
    of: int
    """The number of losses that were judged."""
    leader: Leader
    no_skill: float
    """The value of the best constant answer, or of chance."""


@dataclass(frozen=True, slots=True)
class NothingLearnt:
    """No loss is shown to be better than the best constant answer."""

    metric: str
    """The metric by which losses were compared with the best constant answer.

    It differs from `Judgement.metric` if a constant answer has no value by that metric.
    """
    leader: Leader
    losses: int
    """The number of losses that were judged."""
    no_skill: float
    """The value of the best constant answer."""
    by_others: tuple[Learnt, ...]
    """The metrics of other uses by which something was learnt."""


@dataclass(frozen=True, slots=True)
class OneLoss:
    """Only one loss was compared."""

    leader: Leader


@dataclass(frozen=True, slots=True)
class TooFewSeeds:
    """The seeds that losses share do not show how much they vary."""

    leader: Leader


@dataclass(frozen=True, slots=True)
class Compared:
    """Losses were compared: some may be the best, others are worse."""

    leader: Leader
    contenders: tuple[str, ...]
    """The losses that may be the best, the best mean first."""
    worse: tuple[str, ...]
    """The losses that are worse than the best."""
    resolution: float
    """The smallest difference that would show, in the unit of the metric; nan: not known."""


class NotToldApart(Compared):
    """More than half of the losses may be the best: the task does not tell them apart."""


class Best(Compared):
    """At most half of the losses may be the best."""


Finding = NoResult | NothingLearnt | OneLoss | TooFewSeeds | NotToldApart | Best
"""The possible findings about the losses of a task, of which exactly one holds."""


@dataclass(frozen=True, slots=True)
class BetterBaseline:
    """A simple baseline, which is no loss, has a better mean than the best loss."""

    mean: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """A finding about a task by a metric, with what a reader has to know beside it."""

    task: str
    metric: str
    supervision: str
    """The kind of supervision of the judged losses; "" if all losses have the same kind."""
    finding: Finding
    done: int
    """The number of cells of the task that are done."""
    planned: int
    """The number of cells of the task."""
    baseline: BetterBaseline | None = None
    """The simple baseline, if its mean is better than that of the best loss."""
