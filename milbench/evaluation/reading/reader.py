"""The reader of a run, and batches of images after reading, without the probability maps that they are from.

The decoder `columns` is the rule behind the published numbers. The other two are given the loss's own label set:
`strongest` writes each class once, where its evidence is strongest, and `components` reads connected components of the
posterior given that label set, see `milbench.evaluation.reading.component_decoder`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from torch.nn.functional import pad

from milbench.contracts.bags import Truth
from milbench.contracts.decoder import Decoder
from milbench.evaluation.evaluate import CPU
from milbench.evaluation.localisation import boxes_of
from milbench.evaluation.reading.component_decoder import (
    ComponentDecoder,
    read_components,
    read_strongest,
)
from milbench.evaluation.reading.components import (
    Components,
    concatenate,
    find_components,
    strongest_positions,
)
from milbench.evaluation.reading.patterns import CLASSES, String
from milbench.likelihood import instance_posterior

LARGEST_SET = 6
"""For larger label sets P replaces the posterior: a network that finds so many classes is hardly trained yet."""


class Reader(BaseModel):
    """How the strings of a run are read, the content of decoder.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learnt: ComponentDecoder  # for every run, whichever decoder is chosen
    decoder: Decoder = "components"  # that read most validation strings without error
    format: Literal["components/2"] = "components/2"


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """The readings of B images for the metrics, on the CPU after the probability maps are freed."""

    columns: list[String]  # as the decoder `columns` reads them
    winning: list[set[int]]  # the classes that are the most probable one of some position
    strongest: Components  # the strongest position of each class in the loss's own label set
    components: Components  # those of the posterior given that label set
    boxes: Tensor  # (N, 4), those of `components`
    instances: Truth  # with boxes

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def truth(self) -> list[String]:
        """The true strings."""
        return [tuple(c for c in row if c >= 0) for row in self.instances.classes.tolist()]

    def strings(self, decoder: Decoder, learnt: ComponentDecoder) -> list[String]:
        """Return the string that a decoder reads in each image; `strongest` uses the learnt tilt alone."""
        if decoder == "columns":
            return self.columns
        if decoder == "strongest":
            return read_strongest(self.strongest, len(self), learnt)
        return read_components(self.components, len(self), learnt)

    def wrong(self, decoder: Decoder, learnt: ComponentDecoder) -> Tensor:
        """Return (B,) bool, which strings a decoder does not read exactly."""
        return torch.tensor(
            [a != b for a, b in zip(self.strings(decoder, learnt), self.truth, strict=True)]
        )


def read_batch(
    probs: Tensor, truth: Truth, labels: Tensor, strength: Tensor, centres: tuple[Tensor, Tensor]
) -> ReadBatch:
    """Read a batch of images by the decoder without learnt numbers, and find the components for those with them.

    Args:
        probs: (B, C+1, h, w), the probability that a position shows each class, background last.
        truth: the instances of the images, with boxes.
        labels: (B, C) bool, the label sets that the loss finds.
        strength: (B, C, h, w), larger where a position speaks more strongly for a class.
        centres: y of every row and x of every column of positions in pixels.
    """
    probs, labels = probs.detach().cpu(), labels.cpu()
    class_maps = probs.argmax(dim=1)
    components = find_components(*posterior_given(probs, labels))
    return ReadBatch(
        columns=read_columns(class_maps, probs.shape[1] - 1),
        winning=[{*class_map.unique().tolist()} - {CLASSES} for class_map in class_maps],
        strongest=strongest_positions(strength, probs, labels),
        components=components,
        boxes=boxes_of(components, centres),
        instances=truth.to(CPU),
    )


def join_batches(batches: Sequence[ReadBatch]) -> ReadBatch:
    """Return all batches of a split as one."""
    sizes, truths = [len(batch) for batch in batches], [batch.instances for batch in batches]
    most = max(truth.classes.shape[1] for truth in truths)
    classes = [pad(truth.classes, (0, most - truth.classes.shape[1]), value=-1) for truth in truths]
    boxes = [
        pad(t.boxes, (0, 0, 0, most - t.boxes.shape[1])) for t in truths if t.boxes is not None
    ]
    return ReadBatch(
        columns=[string for batch in batches for string in batch.columns],
        winning=[classes for batch in batches for classes in batch.winning],
        strongest=concatenate([batch.strongest for batch in batches], sizes),
        components=concatenate([batch.components for batch in batches], sizes),
        boxes=torch.cat([batch.boxes for batch in batches]),
        instances=Truth(torch.cat(classes), torch.cat(boxes)),
    )


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

    A position shows the class with the largest posterior. A class of the label set that wins no position is given the
    one where it is most probable, among those that show background. No other class occurs. For a label set of more than
    LARGEST_SET classes, and for one that the rounding of P rules out, P is taken instead, normalised over the label set
    and the background.

    Returns:
        (B, C+1, h, w) in the type of P; and (B, h, w) int64, the class that each position shows, C for background.
    """
    probs, labels = probs.detach().cpu(), labels.cpu()
    log_probs = logarithms(probs)
    posterior = (
        torch.nn.functional.pad(labels, (0, 1), value=True)[..., None, None] * log_probs.exp()
    )
    posterior[:, -1:] = torch.where(posterior.sum(dim=1, keepdim=True) > 0, posterior[:, -1:], 1.0)
    posterior /= posterior.sum(dim=1, keepdim=True)
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
