"""The reader of a run, and batches of images after reading, without the probability maps that they are from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor
from torch.nn.functional import pad

from milbench.api.bags import Truth
from milbench.api.decoder import DECODERS, Decoder
from milbench.evaluation.evaluate import CPU
from milbench.evaluation.localisation import boxes_of
from milbench.evaluation.reading.component_decoder import ComponentDecoder, read_components, read_strongest
from milbench.evaluation.reading.components import (
    Components,
    concatenate,
    find_components,
    strongest_positions,
)
from milbench.evaluation.reading.decoders import posterior_given, read_columns
from milbench.evaluation.reading.patterns import CLASSES, Pattern, String, error_pattern, is_vertical


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

    def patterns(self, read: Sequence[String]) -> list[Pattern | None]:
        """Return the error pattern of what a decoder read in each image; None where it is right."""
        vertical = is_vertical(self.instances)
        return [error_pattern(*case) for case in zip(read, self.truth, vertical, self.winning, strict=True)]


def read_batch(
    probs: Tensor, truth: Truth, labels: Tensor, strength: Tensor, centres: tuple[Tensor, Tensor]
) -> ReadBatch:
    """Read one batch of images by the decoder without learnt numbers, and find the components for those with them.

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
    short = [most - truth.classes.shape[1] for truth in truths]
    classes = [pad(truth.classes, (0, n), value=-1) for truth, n in zip(truths, short, strict=True)]
    boxes = [pad(truth.boxes, (0, 0, 0, n)) for truth, n in zip(truths, short, strict=True) if truth.boxes is not None]
    return ReadBatch(
        columns=[string for batch in batches for string in batch.columns],
        winning=[classes for batch in batches for classes in batch.winning],
        strongest=concatenate([batch.strongest for batch in batches], sizes),
        components=concatenate([batch.components for batch in batches], sizes),
        boxes=torch.cat([batch.boxes for batch in batches]),
        instances=Truth(torch.cat(classes), torch.cat(boxes)),
    )


def best_decoder(batch: ReadBatch, learnt: ComponentDecoder) -> Decoder:
    """Return the decoder that reads most strings of these images without error, the first of equally good ones."""
    return min(DECODERS, key=lambda decoder: string_error(batch.strings(decoder, learnt), batch.truth))


def string_error(read: Sequence[String], truth: Sequence[String]) -> float:
    """Return the share of strings that are not read exactly; NaN of none."""
    return sum(a != b for a, b in zip(read, truth, strict=True)) / len(truth) if truth else math.nan
