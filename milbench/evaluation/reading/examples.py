"""Collects examples of what is read wrongly: one pass over bags, of whose maps only those of the examples are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.gallery import Misread
from milbench.api.task import ScoreFunction
from milbench.evaluation.reading.component_decoder import Reader, spell
from milbench.evaluation.reading.components import winners
from milbench.evaluation.reading.error_patterns import PATTERNS, patterns
from milbench.evaluation.reading.metrics import read_batch

EXAMPLES = 8
"""Of each pattern at most, the first ones of the test bags."""
WHITE = 256
"""Instances are pixels divided by this."""


def collect(score: ScoreFunction, batches: Iterable[Bags], reader: Reader, examples: int = EXAMPLES) -> Misread:
    """Return which of the bags are misread, as `components` reads them; their images must be of one size.

    reader: as learnt, never from these bags. Raises ValueError without truth.
    """
    read_bags, counts = 0, Counter[str]()
    found: list[tuple[str, str, str]] = []
    images, won, strengths = [], [], []
    for bags in batches:
        if bags.truth is None:
            raise ValueError("bags to read need their truth")
        probs = score(bags).instances.detach().cpu()
        page = read_batch(probs, bags.truth)
        read = spell(page.blobs, len(page), reader)
        wrong = patterns(read, page.truth, page.vertical, page.seen)
        chosen = []
        for i, name in enumerate(wrong):
            if name is not None:
                counts[name] += 1
                if counts[name] <= examples:
                    chosen.append(i)
                    found.append((name, page.truth[i], read[i]))
        read_bags += len(page)
        images.append(_pixels(bags.instances[chosen]))
        won.append(winners(probs[chosen]).byte())
        strengths.append(probs[chosen].amax(dim=1).half())
    names, truth, read_as = zip(*found, strict=True) if found else ((), (), ())
    return Misread(
        bags=read_bags,
        counts={name: counts[name] for name in PATTERNS if counts[name]},
        patterns=names,
        truth=truth,
        read=read_as,
        images=torch.cat(images).numpy(),
        winners=torch.cat(won).numpy(),
        strengths=torch.cat(strengths).numpy(),
    )


def _pixels(instances: Tensor) -> Tensor:
    return (instances.detach().cpu() * WHITE).round().clamp(0, 255).byte()
