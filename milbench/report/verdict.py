"""What a comparison says of one task by one metric, as data. Pages, terminal, Python and site say it in words.

A `Judgement` is the whole answer. Its `finding` is the part that differs: one of the classes of
`Finding`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leader:
    """The loss with the best mean."""

    loss: str
    mean: float
    seeds: int
    """The most seeds that a loss has."""


@dataclass(frozen=True, slots=True)
class NoResult:
    """No loss has a value yet."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """Losses that are better than the best constant answer, or than chance, by some metric."""

    metric: str
    losses: int
    """How many of the losses are shown to be better, each for itself."""
    of: int
    """How many losses were judged."""
    leader: Leader
    no_skill: float
    """What the best constant answer or chance has."""


@dataclass(frozen=True, slots=True)
class NothingLearnt:
    """No loss is shown to be better than the best constant answer."""

    metric: str
    """The metric of this comparison with the constant answer, which some metrics do not have."""
    leader: Leader
    losses: int
    no_skill: float
    by_others: tuple[Learnt, ...]
    """The other uses by whose metrics something was learnt."""


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
    """A smaller difference would not show, in the unit of the metric; nan where that is not known."""


class NotToldApart(Compared):
    """More than half of the losses may be the best: the task, with these seeds, does not tell them apart."""


class Best(Compared):
    """At most half of the losses may be the best."""


Finding = NoResult | NothingLearnt | OneLoss | TooFewSeeds | NotToldApart | Best
"""What the losses of a task are found to be. Exactly one of these holds."""


@dataclass(frozen=True, slots=True)
class BetterBaseline:
    """A simple baseline, which is no loss, has a better mean than the best loss."""

    mean: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """A finding, what it is about, and what has to be said beside it."""

    task: str
    metric: str
    supervision: str
    """The kind whose losses are judged; "" where all losses have the same kind."""
    finding: Finding
    done: int
    """Cells of the task that are done."""
    planned: int
    baseline: BetterBaseline | None = None
