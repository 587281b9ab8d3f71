"""Examples of misread bags for the gallery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.gallery import Misread
from milbench.evaluation.reading.batches import ReadBatch
from milbench.evaluation.reading.error_patterns import PATTERNS, error_patterns
from milbench.evaluation.reading.reader import Reader

EXAMPLES = 8
"""How many examples of each pattern are kept at most: the first ones."""
_WHITE = 256
"""Instances are pixels divided by this."""


def misread_examples(
    read: ReadBatch, reader: Reader, batches: Sequence[Bags], classes: int = 10, examples: int = EXAMPLES
) -> Misread:
    """Count the bags that a run misreads, by error pattern, and return the first examples of each.

    Args:
        read: the images, of one size.
        reader: learnt and chosen by other images than these.
        batches: the same images as bags, in the same order.
        classes: C, the background not counted.
        examples: how many examples of each pattern are kept at most.
    """
    strings, counts = reader.read(read), Counter[str]()
    patterns = error_patterns(strings, read.truth, read.vertical, read.winning(classes))
    shown: list[tuple[int, str]] = []
    for i, pattern in enumerate(patterns):
        if pattern is not None:
            counts[pattern] += 1
            if counts[pattern] <= examples:
                shown.append((i, pattern))
    which = [i for i, _ in shown]
    empty = torch.empty(0, *read.class_maps[0].shape)
    return Misread(
        bags=len(read),
        counts={name: counts[name] for name in PATTERNS if counts[name]},
        patterns=tuple(pattern for _, pattern in shown),
        truth=tuple(read.truth[i] for i in which),
        read=tuple(strings[i] for i in which),
        images=_pixels(batches, which).numpy(),
        class_maps=(torch.stack([read.class_maps[i] for i in which]) if which else empty.byte()).numpy(),
        strengths=(torch.stack([read.strengths[i] for i in which]) if which else empty.half()).numpy(),
    )


def _pixels(batches: Sequence[Bags], which: Sequence[int]) -> Tensor:
    """Return the images of the bags of these indices, (n, N, H, W) uint8."""
    parts, first = [], 0
    for n in range(len(batches)):  # batches may be made when they are accessed
        bags = batches[n]
        instances = bags.instances[[i - first for i in which if first <= i < first + len(bags)]]
        parts.append((instances.detach().cpu() * _WHITE).round().clamp(0, 255).byte())
        first += len(bags)
    return torch.cat(parts)
