"""The base of networks that embed the instances of a bag, weigh the embeddings by attention and classify their mean."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench.api.bags import Bags
from milbench.api.task import Network
from milbench.networks.initialisation import SLOPE, initialise


class AttentionPooling(Network):
    """From embedded instances (B, K, D) to one logit a bag and class, shown at the positions that attention chose.

    The bag has one logit z_c for each class. It is returned in the shape of all networks, (B, C+1, *positions), as

        z_{c,k} = z_c + log(a_{c,k} / max_j a_{c,j}),

    with the attention a and a background of 0. Its maximum over positions is z_c: `one-vs-rest` trains these networks
    by the binary cross-entropy of z_c, and its evidence ranks the positions of a bag by attention. The second term has
    no gradient. Logits at masked positions are 0.
    """

    sees_mask: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.encoder: Network | None = None

    def on(self, encoder: Network, seed: int) -> Self:
        """Return this network on the features (B, D, K) of an encoder, all weights drawn anew.

        Args:
            encoder: from instances to D features at each position.
            seed: decides the initial weights.
        """
        self.encoder = encoder
        initialise(self, seed)
        return self

    @abstractmethod
    def pool(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return z (B, C) and log a (B, C, K), -inf at masked positions.

        Args:
            embedded: (B, K, D), 0 at masked positions.
            mask: (B, K) bool, at least one position in every bag.
        """

    def forward(self, instances: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits (B, C+1, *positions) of bags with a mask (B, K) bool; None: all instances are there."""
        embedded, positions = instances, instances.shape[1:2]
        if self.encoder is not None:
            features = F.leaky_relu(self.encoder(instances), SLOPE)
            embedded, positions = features.flatten(2).transpose(1, 2), features.shape[2:]
        there = torch.ones_like(embedded[..., 0], dtype=torch.bool) if mask is None else mask
        there = there | ~there.any(dim=1, keepdim=True)  # an empty bag, whose logits mean nothing
        bag, log_attention = self.pool(embedded.masked_fill(~there.unsqueeze(2), 0), there)
        relative = (log_attention - log_attention.amax(dim=2, keepdim=True)).detach()
        logits = (bag.unsqueeze(2) + relative).masked_fill(~there.unsqueeze(1), 0)
        with_background: Tensor = F.pad(logits, (0, 0, 0, 1)).unflatten(2, positions)
        return with_background

    def start_at_prior(self, positions: int) -> None:  # noqa: ARG002
        """Set the biases of the head to 0, even odds: a bag has one logit a class, however many positions it has."""
        with torch.no_grad():
            self.head.get_parameter("bias").zero_()

    def centres_in(self, bags: Bags) -> tuple[Tensor, Tensor] | None:
        """Return where the positions of the encoder are."""
        return None if self.encoder is None else self.encoder.centres_in(bags)


def masked_log_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the log of the softmax over the last dimension of scores (B, C, K) where a mask (B, K) allows it."""
    return scores.masked_fill(~mask.unsqueeze(1), -torch.inf).log_softmax(dim=2)


def class_logits(pooled: Tensor, head: torch.nn.Linear) -> Tensor:
    """Return (B, C), the logit of each class from its own pooled embedding (B, C, D)."""
    return torch.einsum("bcd,cd->bc", pooled, head.weight[:-1]) + head.bias[:-1]
