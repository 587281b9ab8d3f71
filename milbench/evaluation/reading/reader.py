"""Reading the strings of images by three decoders, from the probability maps of a network.

`columns` is the rule behind the published numbers. The other two are given the label set that the
loss predicts: `strongest` writes each class once, where its evidence is strongest, and `components`
reads the connected components of the posterior given that label set, see
`milbench.evaluation.reading.component_decoder`.
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
from milbench.contracts.task import CPU
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
from milbench.evaluation.reading.patterns import String
from milbench.likelihood import instance_posterior

LARGEST_SET = 6
"""The most classes of a label set for which the posterior is computed.

For larger ones `posterior_given` uses the network's probabilities instead: the cost of the
posterior grows fast, and a network that finds so many classes in an image is hardly trained yet.
"""


class Reader(BaseModel):
    """How the strings of a run are read. It is the content of decoder.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learnt: ComponentDecoder
    """The component decoder, which is learnt for every run, whichever decoder is chosen."""
    decoder: Decoder = "components"
    """The decoder that read the most validation strings without error."""
    format: Literal["components/2"] = "components/2"
    """The version of this format of decoder.json."""


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """What is kept of B images after their probability maps are freed, on the CPU."""

    columns: list[String]
    """What the decoder `columns` reads in each image."""
    winning: list[set[int]]
    """For each image the classes that are the most probable one at some position."""
    strongest: Components
    """The strongest position of each class in the label set that the loss predicts."""
    components: Components
    """The connected components of the posterior given that label set."""
    boxes: Tensor
    """(N, 4), a box around each of `components` in pixels: left, top, right, bottom."""
    instances: Truth
    """The true instances, with boxes."""

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def truth(self) -> list[String]:
        """The true strings."""
        return [_without_padding(row) for row in self.instances.classes.tolist()]

    def strings(self, decoder: Decoder, learnt: ComponentDecoder) -> list[String]:
        """Return the string that a decoder reads in each image.

        `learnt` is for `components` and, for its tilt, `strongest`.
        """
        if decoder == "columns":
            return self.columns
        if decoder == "strongest":
            return read_strongest(self.strongest, len(self), learnt)
        return read_components(self.components, len(self), learnt)

    def wrong(self, decoder: Decoder, learnt: ComponentDecoder) -> Tensor:
        """Return (B,) bool, in which images a decoder does not read the exact string."""
        pairs = zip(self.strings(decoder, learnt), self.truth, strict=True)
        return torch.tensor([read != truth for read, truth in pairs])


def _without_padding(row: Sequence[int]) -> String:
    """Return the classes of one bag without the -1 that fill up its row."""
    return tuple(cls for cls in row if cls >= 0)


def read_batch(
    probs: Tensor, truth: Truth, labels: Tensor, strength: Tensor, centres: tuple[Tensor, Tensor]
) -> ReadBatch:
    """Return what the metrics need of a batch of images, so that its maps can be freed.

    `columns` has nothing to learn, and reads the strings at once. For the other decoders, which
    learn from all batches, the components are found.

    Args:
        probs: (B, C+1, h, w), the probability of each class at each position, background last.
        truth: the instances of the images, with boxes.
        labels: (B, C) bool, the label sets that the loss predicts.
        strength: (B, C, h, w), larger where a position speaks more strongly for a class.
        centres: y (h,) of the rows and x (w,) of the columns of positions, in pixels.
    """
    probs = probs.detach().cpu()
    labels = labels.cpu()
    background = probs.shape[1] - 1
    class_maps = probs.argmax(dim=1)
    winning = [set(class_map.unique().tolist()) - {background} for class_map in class_maps]
    posterior, classes = posterior_given(probs, labels)
    components = find_components(posterior, classes)
    return ReadBatch(
        columns=read_columns(class_maps, background),
        winning=winning,
        strongest=strongest_positions(strength, probs, labels),
        components=components,
        boxes=boxes_of(components, centres),
        instances=truth.to(CPU),
    )


def join_batches(batches: Sequence[ReadBatch]) -> ReadBatch:
    """Return all batches of a split as one batch."""
    columns: list[String] = []
    winning: list[set[int]] = []
    for batch in batches:
        columns += batch.columns
        winning += batch.winning
    sizes = [len(batch) for batch in batches]
    return ReadBatch(
        columns=columns,
        winning=winning,
        strongest=concatenate([batch.strongest for batch in batches], sizes),
        components=concatenate([batch.components for batch in batches], sizes),
        boxes=torch.cat([batch.boxes for batch in batches]),
        instances=_joined_truth([batch.instances for batch in batches]),
    )


def _joined_truth(truths: Sequence[Truth]) -> Truth:
    """Return the true instances of several batches as one batch.

    Its rows are as long as the longest row of a batch, and shorter ones are filled up.
    """
    most = max(truth.classes.shape[1] for truth in truths)
    classes = []
    boxes = []
    for truth in truths:
        lacking = most - truth.classes.shape[1]
        classes.append(pad(truth.classes, (0, lacking), value=-1))
        if truth.boxes is not None:
            boxes.append(pad(truth.boxes, (0, 0, 0, lacking)))
    return Truth(torch.cat(classes), torch.cat(boxes))


def read_columns(classes: Tensor, background: int) -> list[String]:
    """Return the strings that the columns of class maps spell, from left to right.

    The digit of a column is the one that most of its rows show, and the lowest of several. A column
    that shows background alone is blank. A digit is written where it differs from the digit of the
    column before. This is the rule of X.-L. Li, arXiv:1811.12346, Section 5.4, as the published
    code has it.

    Args:
        classes: (B, h, w) int64, the class that each position shows.
        background: the number that stands for background, C.
    """
    rows_won = torch.stack([(classes == cls).sum(dim=1) for cls in range(background)], dim=1)
    is_blank = rows_won.amax(dim=1) == 0
    digits = rows_won.argmax(dim=1).masked_fill(is_blank, -1)
    strings = []
    for digits_of_image in digits.tolist():
        string = []
        before = -1
        for digit in digits_of_image:
            if digit >= 0 and digit != before:
                string.append(digit)
            before = digit
        strings.append(tuple(string))
    return strings


def posterior_given(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the posterior given label sets, and the class that each position shows by it.

    A position shows the class with the largest posterior, and only classes of the label set and
    background occur. A class of the label set that is largest nowhere is given one position: among
    those that show background, the one where the class is most probable.

    The posterior is replaced by `probs`, normalised over the label set and the background, in two
    cases: the label set has more than LARGEST_SET classes, or `probs` give it the probability 0,
    which rounding can bring about.

    Args:
        probs: (B, C+1, h, w), the probability of each class at each position, background last.
        labels: (B, C) bool, the label sets.

    Returns:
        The posterior (B, C+1, h, w) in the dtype of `probs`; and the class (B, h, w) int64 that
        each position shows, C for background.
    """
    probs = probs.detach().cpu()
    labels = labels.cpu()
    log_probs = logarithms(probs)
    posterior = _within_label_set(log_probs.exp(), labels)
    is_small = labels.sum(dim=1) <= LARGEST_SET
    exact = instance_posterior(log_probs[is_small], labels[is_small], validate=False)
    is_possible = exact.sum(dim=1, keepdim=True) > 0
    posterior[is_small] = torch.where(is_possible, exact, posterior[is_small])
    return posterior.to(probs.dtype), _shown_classes(posterior, labels)


def _within_label_set(probs: Tensor, labels: Tensor) -> Tensor:
    """Return probs (B, C+1, h, w) normalised over the label sets (B, C) and the background."""
    allowed = pad(labels, (0, 1), value=True)[..., None, None]
    within = allowed * probs
    # Where all of these have the probability 0, the position is taken for background.
    has_any = within.sum(dim=1, keepdim=True) > 0
    within[:, -1:] = torch.where(has_any, within[:, -1:], 1.0)
    return within / within.sum(dim=1, keepdim=True)


def _shown_classes(posterior: Tensor, labels: Tensor) -> Tensor:
    """Return (B, h, w) int64, the class that each position shows.

    Each class of a label set is shown somewhere, if there are positions enough.
    """
    background = labels.shape[1]
    classes = posterior.argmax(dim=1)
    by_position = classes.flatten(1)
    for cls in range(background):
        is_shown = (by_position == cls).any(dim=1)
        bags = (labels[:, cls] & ~is_shown).nonzero().flatten()
        is_free = by_position[bags] == background
        probability = posterior[bags, cls].flatten(1).masked_fill(~is_free, -1)
        largest, position = probability.max(dim=1)
        # Where no position shows background, none is left for this class.
        has_free = largest >= 0
        by_position[bags[has_free], position[has_free]] = cls
    return by_position.view_as(classes)


def logarithms(probs: Tensor) -> Tensor:
    """Return the logarithms of probs (B, C+1, ...), normalised again in float64."""
    precise = probs.double()
    return (precise / precise.sum(dim=1, keepdim=True)).log()
