"""The scores that a trained network gives to bags, computed batch by batch."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.contracts.bags import Bags, pad_bags
from milbench.contracts.criterion import score
from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.contracts.scores import Scores
from milbench.errors import UsageError

BATCH = 64
"""How many bags are predicted at once."""


def presence_scores(network: Network, loss: Loss, bags: Sequence[Tensor]) -> NDArray[Any]:
    """Return the presence scores (B, C) of bags (K_i, D)."""
    parts = [scores.presence.cpu() for scores, _ in _scores(network, loss, bags)]
    return torch.cat(parts).numpy()


def instance_probs(
    network: Network, loss: Loss, bags: Sequence[Tensor]
) -> list[NDArray[np.float64]]:
    """Return the probabilities (K_i, C+1) of the classes and of background, for each bag.

    Raises UsageError where the network has another number of positions than there are instances.
    """
    found: list[NDArray[np.float64]] = []
    for scores, mask in _scores(network, loss, bags):
        positions = tuple(scores.instances.shape[2:])
        if positions != tuple(mask.shape[1:]):
            raise UsageError(
                f"the network has {positions} positions, expected one for each of {mask.shape[1]} "
                "instances"
            )
        probs = scores.instances.cpu().double().movedim(1, 2)
        for bag_probs, bag_mask in zip(probs, mask, strict=True):
            found.append(bag_probs[bag_mask].numpy())
    return found


@torch.no_grad()
def _scores(
    network: Network, loss: Loss, bags: Sequence[Tensor]
) -> Iterator[tuple[Scores, Tensor]]:
    """Yield the scores of bags (K_i, D), batch by batch, and the mask (B, K) of their instances."""
    device = next(network.parameters()).device
    for start in range(0, len(bags), BATCH):
        instances, mask = pad_bags(bags[start : start + BATCH])
        unknown_labels = torch.zeros(len(instances), 0, dtype=torch.bool)
        batch = Bags(instances, unknown_labels, mask).to(device)
        logits = network.logits_of(batch).float()
        # Checking values on a GPU would mean waiting for it.
        on_cpu = device.type == "cpu"
        scores = score(loss, logits, network.mask_of(batch), check_values=on_cpu)
        yield scores, mask
