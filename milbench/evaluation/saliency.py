"""Which pixels the detections of a trained network rest on, class by class."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.api.gallery import Gallery
from milbench.api.loss import Loss
from milbench.api.task import Network
from milbench.evaluation.localisation import sensitivity


def sensitivity_maps(
    network: Network, loss: Loss, image: Tensor, positions: Mapping[int, Tensor]
) -> dict[int, NDArray[np.float64]]:
    """Return (H, W) for each class, the sensitivity of its positions to each pixel, 1 where that is largest.

    image: (N, H, W) on the network's device; positions: class -> (h, w) bool. In float64 from the logits on, as the log
    of a probability near 1 has next to no gradient in float32. All 0 where no pixel matters.
    """

    def logits(images: Tensor) -> Tensor:
        values: Tensor = network(images).cpu().double()
        return values

    def log_probs(values: Tensor) -> Tensor:
        return loss.instance_probs(values).log()

    maps = {c: sensitivity(logits, image, c, where, log_probs).cpu().double() for c, where in positions.items()}
    return {c: (values / values.max().clamp(min=1e-300)).numpy() for c, values in maps.items()}


def of_gallery(
    network: Network, loss: Loss, gallery: Gallery, instances: Tensor
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return what a gallery stores of them, `sensitivity` and `sensitivity_of`, for the classes detected in its bags.

    instances: its images (B, N, H, W) on the network's device. A class that is detected but wins no position is judged
    where it is most probable.
    """
    maps, pairs = [], []
    for bag in range(len(gallery)):
        found = sensitivity_maps(network, loss, instances[bag], _places(gallery, bag))
        maps += [(255 * values).round().astype(np.uint8) for values in found.values()]
        pairs += [(bag, c) for c in found]
    size = gallery.instances.shape[-2:]
    return np.array(maps, np.uint8).reshape(-1, *size), np.array(pairs, np.int64).reshape(-1, 2)


def _places(gallery: Gallery, bag: int) -> dict[int, Tensor]:
    """Return where each detected class of a bag shows, class -> (h, w) bool."""
    winners = gallery.winners(bag)
    places = {}
    for c in sorted(gallery.detected(bag)):
        probs = gallery.probs[bag, c].astype(np.float32)
        places[c] = torch.from_numpy(winners == c if (winners == c).any() else probs == probs.max())
    return places
