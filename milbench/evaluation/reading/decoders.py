"""Decoders: from the probabilities of positions to a string of digits.

Probabilities are (B, C+1, h, w), background last, for images of any size; a string is a tuple of classes. The decoder
`columns` is the rule behind the published numbers. The other two are given the loss's own label set, the classes whose
presence score is at or above its threshold. `strongest` writes each of them once, where its evidence is strongest.
`components` reads connected components of the posterior given that label set, see
`milbench.evaluation.reading.component_decoder`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from milbench.evaluation.reading.patterns import String
from milbench.likelihood import instance_posterior

LARGEST_SET = 6
"""For larger label sets P replaces the posterior: a network that finds so many classes is hardly trained yet."""


def read_columns(classes: Tensor, background: int) -> list[String]:
    """Return the strings that the columns of a class map (B, h, w) spell; `background` is C.

    The digit of a column is the one that wins most of its rows, the lower digit where several do; a column in which
    only the background wins is blank. A digit is written where it differs from the column before (X.-L. Li,
    arXiv:1811.12346, Section 5.4, as its published code has it).
    """
    counts = torch.stack([(classes == c).sum(dim=1) for c in range(background)], dim=1)
    digit = counts.argmax(dim=1).masked_fill(counts.amax(dim=1) == 0, -1)
    before = torch.nn.functional.pad(digit, (1, 0), value=-1)[:, :-1]
    written = (digit >= 0) & (digit != before)
    return [
        tuple(c for c, here in zip(row, write, strict=True) if here)
        for row, write in zip(digit.tolist(), written.tolist(), strict=True)
    ]


def posterior_given(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the posterior of probs (B, C+1, h, w) given label sets (B, C) bool, and what each position shows by it.

    A position shows the class with the largest posterior. Each class of the label set occurs somewhere: a class that
    wins no position is given the position where it is most probable, among those that show background. No other class
    occurs, and with the empty set nothing does. For a label set of more than LARGEST_SET classes, and for one that the
    rounding of P rules out, P is taken instead, normalised over the label set and the background.

    Returns:
        (B, C+1, h, w) in the type of P; and (B, h, w) int64, the class that each position shows, C for background.
    """
    probs, labels = probs.detach().cpu(), labels.cpu()
    log_probs = logarithms(probs)
    posterior = _within(log_probs.exp(), labels)
    few = labels.sum(dim=1) <= LARGEST_SET
    sharper = instance_posterior(log_probs[few], labels[few], validate=False)
    posterior[few] = torch.where(sharper.sum(dim=1, keepdim=True) > 0, sharper, posterior[few])
    classes = posterior.argmax(dim=1)
    for c in range(labels.shape[1]):
        bags = (labels[:, c] & ~(classes == c).flatten(1).any(dim=1)).nonzero().flatten()
        free = (classes[bags] == labels.shape[1]).flatten(1)
        chance, best = posterior[bags, c].flatten(1).masked_fill(~free, -1).max(dim=1)
        bags, best = bags[chance >= 0], best[chance >= 0]
        classes.flatten(1)[bags, best] = c
    return posterior.to(probs.dtype), classes


def logarithms(probs: Tensor) -> Tensor:
    """Return the logarithms of probs (B, C+1, ...) in float64, normalised as well as that allows."""
    exact = probs.double()
    return (exact / exact.sum(dim=1, keepdim=True)).log()


def _within(probs: Tensor, labels: Tensor) -> Tensor:
    """Return probs (B, C+1, h, w) normalised over the label sets and the background, which is sure where nothing is."""
    allowed = torch.nn.functional.pad(labels, (0, 1), value=True)[..., None, None] * probs
    allowed[:, -1:] = torch.where(allowed.sum(dim=1, keepdim=True) > 0, allowed[:, -1:], 1.0)
    return allowed / allowed.sum(dim=1, keepdim=True)
