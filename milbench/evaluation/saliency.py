"""Saliency maps: how much the detections of a trained network depend on each pixel, class by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.api.loss import Loss
from milbench.api.task import Network


def sensitivity(
    network: Callable[[Tensor], Tensor],
    image: Tensor,
    cls: int,
    positions: Tensor,
    log_probs: Callable[[Tensor], Tensor] = lambda logits: logits.log_softmax(dim=1),
) -> Tensor:
    """Return (H, W), how much a detection depends on each pixel of an image (N, H, W), in nats per unit of its values.

    That is the sum over the channels of |d log p / d I|, where p is the probability that all of `positions`, (h, w)
    bool, show the class: log p is the sum over them of log p_{c,k}. With one position it is the quantity of X.-L. Li,
    arXiv:1811.12346, Section 5.5. `log_probs` makes log-probabilities of logits.
    """
    with torch.enable_grad():
        leaf = image.detach().clone().requires_grad_()
        log_p = log_probs(network(leaf.unsqueeze(0)))[0, cls]
        (gradient,) = torch.autograd.grad(log_p[positions.to(log_p.device)].sum(), leaf)
    return gradient.abs().sum(dim=0)


def sensitivity_maps(
    network: Network, loss: Loss, image: Tensor, positions: Mapping[int, Tensor]
) -> dict[int, NDArray[np.float64]]:
    """Return for each class (H, W) in [0, 1], the sensitivity of its positions to each pixel, divided by the largest.

    All values of a class are 0 where its positions depend on no pixel. From the logits on everything is in float64, as
    the log of a probability near 1 has next to no gradient in float32. The image (N, H, W) is on the network's device.
    """

    def logits(images: Tensor) -> Tensor:
        values: Tensor = network(images).cpu().double()
        return values

    def log_probs(values: Tensor) -> Tensor:
        # A probability that rounds to 0 even here has no logarithm, and no gradient that would mean anything.
        return loss.instance_probs(values).clamp(min=torch.finfo(torch.float64).tiny).log()

    maps = {c: sensitivity(logits, image, c, where, log_probs).cpu().double() for c, where in positions.items()}
    return {c: (values / values.max().clamp(min=1e-300)).numpy() for c, values in maps.items()}
