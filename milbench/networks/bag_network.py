"""The base class of networks that see all instances of a bag at once."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milbench.contracts.bags import Bags
from milbench.contracts.network import Network
from milbench.errors import UsageError
from milbench.networks.initialisation import SLOPE, initialise

HIDDEN = 64
"""How many features an encoder gives for each position."""


class SelfAttention(NamedTuple):
    """The size of the self-attention in a network.

    Its cost in time and memory for bags of many positions follows from it.
    """

    layers: int
    width: int
    heads: int


class BagNetwork(Network):
    """Base class of networks that see the whole bag: a logit may depend on all its instances.

    The data flow as follows:

    1. The encoder, which is the task's first network, has 64 outputs for each position. They go
       through a leaky ReLU and become the features (B, K, 64), so `inputs` of the constructor is
       64. Without an encoder the features are the instances (B, K, D) of a set.
    2. Features are set to 0 where a bag has no instance.
    3. `bag_logits`, which a subclass writes, makes logits of the features.
    4. Logits are set to 0 where a bag has no instance, and get the shape of the positions.
    """

    takes_encoder: ClassVar[bool] = True
    sees_mask: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.encoder: Network | None = None

    @abstractmethod
    def bag_logits(self, features: Tensor, present: Tensor) -> Tensor:
        """Return the logits (B, C+1, K), background last, of features (B, K, D).

        `present` (B, K) is True where there is an instance. Elsewhere the features are 0. In a bag
        without instances it is True everywhere, so that it is never False at all positions.
        """

    @property
    def self_attention(self) -> SelfAttention | None:
        """The size of the self-attention; None where positions are not compared in pairs."""
        return None

    def with_encoder(self, encoder: Network, seed: int) -> Self:
        """Put this network on an encoder and return it.

        The weights of the encoder are initialised again, by the seed and the names that they have
        in this network. So every network of this base class starts with the same encoder.
        """
        initialise(nn.ModuleDict({"encoder": encoder}), seed)
        self.encoder = encoder
        return self

    def forward(self, instances: Tensor, mask: Tensor | None = None) -> Tensor:
        features = self._features(instances, mask)
        positions = features.shape[2:]
        features = features.flatten(2).transpose(1, 2)

        if mask is None:
            mask = torch.ones_like(features[..., 0], dtype=torch.bool)
        mask = mask.flatten(1)
        features = features.masked_fill(~mask.unsqueeze(2), 0)
        # Attention needs at least one position, even in a bag without instances.
        is_empty = ~mask.any(dim=1, keepdim=True)
        present = mask | is_empty
        logits = self.bag_logits(features, present)
        logits = logits.masked_fill(~mask.unsqueeze(1), 0)
        shaped: Tensor = logits.unflatten(2, positions)
        return shaped

    def _features(self, instances: Tensor, mask: Tensor | None) -> Tensor:
        """Return the features (B, D, *positions)."""
        if self.encoder is None:
            if instances.ndim != 3:
                raise UsageError(
                    f"{type(self).__name__} without an encoder is for sets (B, K, D), "
                    f"got {(*instances.shape,)}"
                )
            return instances.transpose(1, 2)
        if self.encoder.sees_mask:
            return F.leaky_relu(self.encoder(instances, mask), SLOPE)
        return F.leaky_relu(self.encoder(instances), SLOPE)

    def mask_of(self, bags: Bags) -> Tensor | None:
        return bags.mask if self.encoder is None else self.encoder.mask_of(bags)

    def centres_in(self, bags: Bags) -> tuple[Tensor, Tensor] | None:
        return None if self.encoder is None else self.encoder.centres_in(bags)


def attend(x: Tensor, present: Tensor, qkv: nn.Linear, joined: nn.Linear, heads: int) -> Tensor:
    """Return the multi-head attention (B, K, D) of all positions of x to those that are present.

    Args:
        x: (B, K, D).
        present: (B, K) bool, which must be True somewhere in every bag.
        qkv: makes the queries, keys and values of all heads.
        joined: mixes the outputs of the heads.
        heads: the number of heads.
    """
    # The shape becomes (3, B, heads, K, D / heads).
    q, k, v = qkv(x).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    by_head = F.scaled_dot_product_attention(q, k, v, attn_mask=present[:, None, None])
    attended: Tensor = joined(by_head.transpose(1, 2).flatten(2))
    return attended
