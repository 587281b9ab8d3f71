"""Rescoring: images in doubt are evaluated at other scales; the scale whose own label set is most probable is used.

A network recognises digits of the sizes that it was trained on, and the size of the digits in a crop is unknown. At
every scale the label set is the one that the loss finds there, and its probability that by the loss's own map.
Rescoring has no learnt parameters and uses no true label set. `milbench.inference.scale_search` does the same with
whole pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from milbench.evaluation.reading.components import Components, concatenate, find_components
from milbench.evaluation.reading.decoders import LARGEST_SET, PosteriorMap, logarithms, posterior_given
from milbench.likelihood import bag_log_prob

SCALES = (7 / 8, 5 / 4)
"""The other scales, chosen on validation crops with one network. Training varies the scale from 5/6 to 7/6."""
DOUBT = 0.95
"""An image is in doubt if its label set is less probable; a larger value changed 1 crop of 400."""


def rescore(
    images: Tensor,
    probs: Tensor,
    given: PosteriorMap,
    components: Components,
    scored: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> Components:
    """Return the components of every image at its chosen scale, on the grid of positions of that scale.

    An empty label set ranks below every other. An image in which a network finds more than LARGEST_SET classes is
    not rescored, since the network is hardly trained yet.

    Args:
        images: (B, N, H, W) in [0, 1].
        probs: (B, C+1, h, w), the probability that a position shows each class, at scale 1.
        given: the posterior of `probs` given the loss's own label sets.
        components: those of `given`.
        scored: from images (B', N, H', W') to their (B', C+1, h', w') and the loss's own label sets (B', C) bool.

    Returns:
        The components of all B images, sorted by image.
    """
    parts = [components]
    best = _rank(given, probs)
    doubt = ((best < math.log(DOUBT)) & (given.labels.sum(dim=1) <= LARGEST_SET)).nonzero().flatten()
    scale_index = np.zeros(len(images), dtype=np.int64)  # of the chosen scale
    for n, factor in enumerate(SCALES if len(doubt) else (), start=1):
        scaled_probs, labels = scored(resized(images[doubt.to(images.device)], factor))
        scaled_probs = scaled_probs.detach().cpu()
        scaled = posterior_given(scaled_probs, labels)
        rank = _rank(scaled, scaled_probs)
        better = rank > best[doubt]
        best[doubt[better]] = rank[better]
        scale_index[doubt[better].numpy()] = n
        found = find_components(scaled.probs, scaled.classes)
        parts.append(replace(found, image=doubt.numpy()[found.image]))
    chosen = concatenate([part[scale_index[part.image] == n] for n, part in enumerate(parts)])
    return chosen[np.argsort(chosen.image, kind="stable")]


def resized(images: Tensor, factor: float) -> Tensor:
    """Return images (B, N, H, W) in [0, 1] with their sides times `factor`."""
    size = tuple(max(round(side * factor), 1) for side in images.shape[-2:])
    scaled = torch.nn.functional.interpolate(images, size, mode="bicubic", antialias=True, align_corners=False)
    return scaled.clamp(0, 1)


def _rank(given: PosteriorMap, probs: Tensor) -> Tensor:
    """Return (B,) the log-probability of the label sets; of an empty one far less than of any other."""
    few = given.labels.sum(dim=1) <= LARGEST_SET
    value = torch.full((len(few),), -1e6, dtype=torch.float64)
    value[few] = bag_log_prob(logarithms(probs[few]), given.labels[few], validate=False).clamp(min=-1e6)
    return torch.where(given.labels.any(dim=1), value, value - 1e9)
