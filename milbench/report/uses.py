"""The five uses of a trained network, and the metrics by which losses are judged for each.

A loss that gets whole label sets right need not rank bags well, nor know where a class is. Each use
has a verdict of its own, by one of its metrics: the first one that most losses have.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Use:
    """What somebody wants a trained network for."""

    name: str
    """The name of the use in the head of a column."""
    wish: str
    """The end of a sentence that begins with "You want"."""
    metrics: tuple[str, ...]
    """The metrics of the use. Losses are judged by one of them, see `Study.metric_of_use`."""


USES = (
    Use("whole label sets", "whole label sets right", ("set_error",)),
    Use(
        "single classes",
        "single classes right",
        ("own_macro_f1", "own_label_error", "macro_f1", "label_error"),
    ),
    Use("ranking", "bags ranked for each class", ("average_precision", "auroc")),
    Use("where", "to see where a class is", ("hit_rate", "posterior_error")),
    Use("probabilities", "probabilities that can be trusted", ("nll", "presence_ece", "set_ece")),
)
"""Fixed in advance of the comparisons that are judged by them: docs/statistics.md."""
