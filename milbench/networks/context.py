"""A network that gives each position its own logits, which depend on the whole bag."""

from typing import Literal

from torch import Tensor, nn

from milbench.networks.bag_network import HIDDEN, BagNetwork, SelfAttention, attend
from milbench.networks.initialisation import initialise


class Block(nn.Module):
    """One transformer layer with the norm first: self-attention, then two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """Return the output (B, K, D) of the layer for x (B, K, D).

        `present` (B, K) is True where there is an instance.
        """
        x = x + attend(self.attention_norm(x), present, self.qkv, self.joined, self.heads)
        fed: Tensor = x + self.feed(self.feed_norm(x))
        return fed


class Context(BagNetwork):
    """Let the positions of a bag attend to each other, then give each position its own logits.

        y = x + W MultiHead(LN(x)),    x' = y + W_2 relu(W_1 LN(y)),    z_k = U LN(x'_k) + b.

    Here x_k are the features of position k, LN is layer normalisation, W is `joined`, W_1 and W_2
    are the two layers of `feed`, and U and b are `head`. The features have the width 64; other
    features are projected to it first.

    Networks that pool a bag have one logit for each class. This network has a logit for every class
    and for the background at each position, so it suits losses with a softmax and losses with
    detectors. It does not suit losses with the head "class": their bags have one position, where
    there is nothing to attend to.

    Positions are not encoded, so that the instances of a set may come in any order. Time grows with
    the square of the number of positions. With the optimiser psgd memory does too, as torch's fast
    attention does not support psgd.

    Args:
        layers: the number of transformer layers.
        heads: the number of heads of each attention.

    Source: A. Vaswani et al., "Attention Is All You Need", NIPS 2017; without positions, for sets:
    J. Lee et al., "Set Transformer: A Framework for Attention-based Permutation-Invariant Neural
    Networks", ICML 2019, arXiv:1810.00825; the norm before each layer: R. Xiong et al., "On Layer
    Normalization in the Transformer Architecture", ICML 2020, arXiv:2002.04745.
    """

    head: nn.Linear

    def __init__(
        self,
        inputs: int,
        num_classes: int,
        seed: int,
        layers: Literal[1, 2] = 1,
        heads: Literal[1, 2, 4, 8, 16] = 4,
    ) -> None:
        super().__init__()
        self.attention_heads = heads
        self.embed = nn.Identity() if inputs == HIDDEN else nn.Linear(inputs, HIDDEN)
        self.blocks = nn.ModuleList(Block(HIDDEN, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, num_classes + 1)
        initialise(self, seed)

    def bag_logits(self, features: Tensor, present: Tensor) -> Tensor:
        x = self.embed(features)
        for block in self.blocks:
            x = block(x, present)
        logits: Tensor = self.head(self.norm(x))
        return logits.transpose(1, 2)

    @property
    def self_attention(self) -> SelfAttention:
        return SelfAttention(len(self.blocks), HIDDEN, self.attention_heads)
