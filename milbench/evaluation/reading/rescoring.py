"""Another look at the images that leave doubt, smaller and larger: the look with the most probable label set counts.

A network knows digits of the sizes that it was trained on, and a crop does not say how large its digits are. Nothing is
learnt for it and no label is used. `milbench.inference.scale_search` does the same with whole pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from milbench.evaluation.reading.components import Blobs, concatenate, find_blobs
from milbench.evaluation.reading.decoders import MOST, Shown, logarithms, shown_given_best
from milbench.likelihood import bag_log_prob

SCALES = (7 / 8, 5 / 4)
"""Times the size of the image: chosen on validation crops, by one network. Training varies it from 5/6 to 7/6."""
DOUBT = 0.95
"""An image whose most probable label set is less probable is looked at again; more caution changed 1 crop of 400."""
Probs = Callable[[Tensor], Tensor]
"""From images (B, N, H, W) to what their positions show, (B, C+1, h, w)."""


def rescore(images: Tensor, probs: Tensor, shown: Shown, blobs: Blobs, look: Probs) -> Blobs:
    """Return the components of images (B, N, H, W), each from the look that counts, on the grid of that look.

    probs, shown, blobs: at the size that the images have, what their positions show, what they show given the most
    probable label set, and its components. A label set that is empty counts less than any other. Where a network sees
    more classes than `MOST` it is not trained yet, and its image is not looked at again.
    """
    parts = [blobs]
    best = _rank(shown, probs)
    doubt = ((best < math.log(DOUBT)) & (shown.labels.sum(dim=1) <= MOST)).nonzero().flatten()
    counts = np.zeros(len(images), dtype=np.int64)
    for n, factor in enumerate(SCALES if len(doubt) else (), start=1):
        again = look(resized(images[doubt.to(images.device)], factor)).detach().cpu()
        seen = shown_given_best(again)
        rank = _rank(seen, again)
        better = rank > best[doubt]
        best[doubt[better]] = rank[better]
        counts[doubt[better].numpy()] = n
        found = find_blobs(seen.probs, seen.classes)
        parts.append(replace(found, image=doubt.numpy()[found.image]))
    mine = concatenate([part[counts[part.image] == n] for n, part in enumerate(parts)])
    return mine[np.argsort(mine.image, kind="stable")]


def resized(images: Tensor, factor: float) -> Tensor:
    """Return images (B, N, H, W) in [0, 1] with their sides times `factor`."""
    size = tuple(max(round(side * factor), 1) for side in images.shape[-2:])
    seen = torch.nn.functional.interpolate(images, size, mode="bicubic", antialias=True, align_corners=False)
    return seen.clamp(0, 1)


def _rank(shown: Shown, probs: Tensor) -> Tensor:
    """Return (B,) the log-probability of the label sets; of an empty one far less than of any other."""
    few = shown.labels.sum(dim=1) <= MOST
    value = torch.full((len(few),), -1e6, dtype=torch.float64)
    value[few] = bag_log_prob(logarithms(probs[few]), shown.labels[few], validate=False)
    return torch.where(shown.labels.any(dim=1), value, value - 1e9)
