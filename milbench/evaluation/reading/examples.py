"""Examples of misread bags for the gallery, in one pass over the bags; only the maps of the examples are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.gallery import Misread
from milbench.api.task import ScoreFunction
from milbench.evaluation.reading.batches import read_bags
from milbench.evaluation.reading.components import class_map
from milbench.evaluation.reading.error_patterns import PATTERNS, error_patterns
from milbench.evaluation.reading.reader import Reader

EXAMPLES = 8
"""How many examples of each pattern are kept at most: the first ones."""
_WHITE = 256
"""Instances are pixels divided by this."""


def collect_misread(score: ScoreFunction, batches: Iterable[Bags], reader: Reader, examples: int = EXAMPLES) -> Misread:
    """Count the bags that a run misreads, by error pattern, and return the first examples of each.

    Args:
        score: the scores of a batch of bags.
        batches: bags with their truth, images of one size.
        reader: learnt and chosen by other bags than these.
        examples: how many examples of each pattern are kept at most.

    Returns:
        The number of bags, the counts by pattern, and the images and maps of the examples.

    Raises:
        ValueError: a batch has no truth, or the threshold of the reader is not known.
    """
    if reader.threshold is None:
        raise ValueError("the loss's label sets need a threshold on presence scores")
    rescored_by = score if reader.chosen == "rescored" else None
    number, counts = 0, Counter[str]()
    misread: list[tuple[str, str, str]] = []
    images, class_maps, strengths = [], [], []
    for bags in batches:
        scores = score(bags)
        probs = scores.instances.detach().cpu()
        batch = read_bags(bags, scores, reader.threshold, rescored_by=rescored_by)
        read = reader.read(batch)
        chosen = []
        for i, name in enumerate(error_patterns(read, batch.truth, batch.vertical, batch.winning)):
            if name is not None:
                counts[name] += 1
                if counts[name] <= examples:
                    chosen.append(i)
                    misread.append((name, batch.truth[i], read[i]))
        number += len(batch)
        images.append(_pixels(bags.instances[chosen]))
        class_maps.append(class_map(probs[chosen]).byte())
        strengths.append(probs[chosen].amax(dim=1).half())
    names, truth, read_as = zip(*misread, strict=True) if misread else ((), (), ())
    return Misread(
        bags=number,
        counts={name: counts[name] for name in PATTERNS if counts[name]},
        patterns=names,
        truth=truth,
        read=read_as,
        images=torch.cat(images).numpy(),
        class_maps=torch.cat(class_maps).numpy(),
        strengths=torch.cat(strengths).numpy(),
    )


def _pixels(instances: Tensor) -> Tensor:
    return (instances.detach().cpu() * _WHITE).round().clamp(0, 255).byte()
