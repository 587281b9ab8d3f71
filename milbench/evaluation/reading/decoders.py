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
from milbench.likelihood import bag_log_prob, instance_posterior

UNSURE = 0.05
"""A class is sure to occur, or not to, if the other has at most this probability."""
LISTED = 2
"""At most so many unsure classes, those nearest to even odds, are tried both ways: 2^LISTED label sets a bag. Trying
more lowered no error on maps of three small trained networks, and cost up to four times as much."""
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
    return _shown_given(log_probs, likely_label_sets(log_probs), probs.dtype)


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


def likely_label_sets(log_probs: Tensor) -> Tensor:
    """Return (B, C) bool, the most probable label set of log-probabilities (B, C+1, h, w).

    As `milbench.likelihood.best_label_set`, at a small share of its cost where P is sharp. A class whose marginal is
    within UNSURE of 0 or 1 is settled by it, as every set without it, or with it, is at most so probable; the others
    are tried both ways. Where more than LISTED are unsure, or MOST are more likely there than not, the marginals settle
    all others, and the set found need not be the best.
    """
    log_absent = torch.log1p(-log_probs[:, :-1].flatten(2).exp().clamp(max=1)).sum(dim=2)
    absent = log_absent.exp()
    sets = absent < 0.5
    unsure = (absent > UNSURE) & (-torch.expm1(log_absent) > UNSURE)
    nearest = (absent - 0.5).abs().masked_fill(~unsure, torch.inf).argsort(dim=1)[:, :LISTED]
    number = unsure.sum(dim=1).clamp(max=LISTED) * (sets.sum(dim=1) <= MOST)
    for n in range(1, int(number.max()) + 1 if len(number) else 0):
        bags = (number == n).nonzero().flatten()
        if not len(bags):
            continue
        choices = (torch.arange(2**n).unsqueeze(1) >> torch.arange(n) & 1).bool()
        tried = sets[bags].unsqueeze(1).repeat(1, len(choices), 1)
        tried.scatter_(2, nearest[bags, None, :n].expand(-1, len(choices), -1), choices.expand(len(bags), -1, -1))
        many = log_probs[bags].repeat_interleave(len(choices), dim=0)
        value = bag_log_prob(many, tried.flatten(0, 1), validate=False).view(len(bags), -1)
        sets[bags] = tried[torch.arange(len(bags)), value.argmax(dim=1)]
    return sets


def logarithms(probs: Tensor) -> Tensor:
    """Return the log-probabilities in float64, normalised as well as that allows."""
    exact = probs.double()
    return (exact / exact.sum(dim=1, keepdim=True)).log()


def _chunks(probs: Tensor) -> Iterator[Tensor]:
    yield from torch.split(probs.detach().cpu(), CHUNK) if len(probs) else (probs.detach().cpu(),)
