"""From the probabilities of the positions to a string of digits: the paper's rule, and two that lose less.

Probabilities are (B, C+1, h, w), background last, for images of any size; a reading is one string a bag, a character a
class ("0" to "9"). `columns` is the rule behind the published numbers. `posterior` applies it to what the positions
show given the most probable label set. `components` reads connected components in either direction, with a handful of
numbers that `learn_reader` takes from validation data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from milbench.evaluation.reading.component_decoder import CHARACTERS, Reader, spell
from milbench.evaluation.reading.components import find_blobs, winners
from milbench.likelihood import instance_posterior, likely_label_set

MOST = 6
"""The posterior given a larger label set is taken for P: a network that sees so many classes is not trained yet."""
CHUNK = 256
"""Bags worked on at once, in float64."""


def columns(probs: Tensor) -> list[str]:
    """Read columns of the winners by the rule of the paper.

    The digit of a column is the one that wins most of its rows, the lower digit where several do; a column in which
    only the background wins is blank. A digit is written where it differs from the column before.

    X.-L. Li, arXiv:1811.12346, Section 5.4, in the words of its published code.
    """
    return read_columns(winners(probs), probs.shape[1] - 1)


def posterior(probs: Tensor) -> list[str]:
    """Read columns of what the positions show given the most probable label set, by the rule of `columns`."""
    return read_columns(shown_given_best(probs).classes, probs.shape[1] - 1)


def components(probs: Tensor, reader: Reader) -> list[str]:
    """Read connected components of what the positions show given the most probable label set, by `Reader`."""
    shown = shown_given_best(probs)
    return spell(find_blobs(shown.probs, shown.classes), len(probs), reader)


def read_columns(shown: Tensor, background: int) -> list[str]:
    """Return the readings of `shown` (B, h, w), the class of every position, column by column."""
    counts = torch.stack([(shown == c).sum(dim=1) for c in range(background)], dim=1)
    digit = counts.argmax(dim=1).masked_fill(counts.amax(dim=1) == 0, -1)
    before = torch.nn.functional.pad(digit, (1, 0), value=-1)[:, :-1]
    written = (digit >= 0) & (digit != before)
    return [
        "".join(CHARACTERS[c] for c, here in zip(row, write, strict=True) if here)
        for row, write in zip(digit.tolist(), written.tolist(), strict=True)
    ]


def strings(classes: Tensor) -> list[str]:
    """Return what classes (B, M), -1 where a bag has fewer than M, spell in their order."""
    return ["".join(CHARACTERS[c] for c in row if c >= 0) for row in classes.tolist()]


class Shown(NamedTuple):
    """What positions show given a label set.

    classes: (B, h, w) int64, C for background.
    probs: (B, C+1, h, w), Prb(position emits c | L, P), in the type of P.
    labels: (B, C) bool, the label set L.
    """

    classes: Tensor
    probs: Tensor
    labels: Tensor


def shown_given_best(probs: Tensor) -> Shown:
    """Return what positions show given the most probable label set.

    That is the class with the largest Prb(position emits c | L, P). Each class of L occurs somewhere: one that wins
    nowhere is given the position where it is most probable, of those that are left to the background.
    """
    parts = [_shown(part) for part in _chunks(probs)]
    return Shown(*(torch.cat(field) for field in zip(*parts, strict=True)))


def shown_given(probs: Tensor, labels: Tensor) -> Shown:
    """Return the same given label sets (B, C) bool; of one that is too large for its posterior, what P says."""
    return _shown_given(logarithms(probs), labels, probs.dtype)


def _shown(probs: Tensor) -> Shown:
    log_probs = logarithms(probs)
    return _shown_given(log_probs, likely_label_set(log_probs), probs.dtype)


def _shown_given(log_probs: Tensor, labels: Tensor, dtype: torch.dtype) -> Shown:
    few = labels.sum(dim=1) <= MOST
    given = log_probs.exp()
    sharper = instance_posterior(log_probs[few], labels[few], validate=False)
    # A label set that the rounding of P rules out has no posterior.
    given[few] = torch.where(sharper.sum(dim=1, keepdim=True) > 0, sharper, given[few])
    shown = winners(given)
    for c in range(labels.shape[1]):
        bags = (labels[:, c] & ~(shown == c).flatten(1).any(dim=1)).nonzero().flatten()
        free = (shown[bags] == labels.shape[1]).flatten(1)
        chance, best = given[bags, c].flatten(1).masked_fill(~free, -1).max(dim=1)
        bags, best = bags[chance >= 0], best[chance >= 0]
        shown.flatten(1)[bags, best] = c
    return Shown(shown, given.to(dtype), labels)


def logarithms(probs: Tensor) -> Tensor:
    """Return the log-probabilities in float64, normalised as well as that allows."""
    exact = probs.double()
    return (exact / exact.sum(dim=1, keepdim=True)).log()


def _chunks(probs: Tensor) -> Iterator[Tensor]:
    yield from torch.split(probs.detach().cpu(), CHUNK) if len(probs) else (probs.detach().cpu(),)
