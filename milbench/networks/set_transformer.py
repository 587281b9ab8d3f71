"""A small transformer over the instances of a bag."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from milbench.networks.attention_pooling import AttentionPooling, class_logits, masked_log_softmax
from milbench.networks.initialisation import initialise


class SetTransformer(AttentionPooling):
    """Let the instances of a bag attend to each other, then pool them by a learnt query for every class.

        h' = LN(x + W MultiHead(x, x)),    h = LN(h' + W_2 relu(W_1 h')),    x_k = W_0 h_k,
        a_{c,k} = softmax_k(s_c^T key(h_k) / sqrt(D)),    z_c = u_c^T sum_k a_{c,k} value(h_k) + b_c.

    It is one set attention block and the pooling by multihead attention of the source, with a seed vector s_c for every
    class and one head, so that each class has one attention. No instance has a position. Time grows with the square of
    the number of instances.

    Args:
        inputs: features of an embedded instance.
        num_classes: C, the background not counted.
        seed: decides the initial weights.
        width: D, a multiple of `heads`.
        heads: of the attention between instances.

    Source: J. Lee et al., "Set Transformer: A Framework for Attention-based Permutation-Invariant Neural Networks",
    ICML 2019, arXiv:1810.00825; the layers of A. Vaswani et al., "Attention Is All You Need", NIPS 2017.
    """

    head: nn.Linear

    def __init__(self, inputs: int, num_classes: int, seed: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.embed = nn.Linear(inputs, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.seeds = nn.Linear(width, num_classes, bias=False)
        self.head = nn.Linear(width, num_classes + 1)
        initialise(self, seed)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, K, D), what each instance takes from those that are there."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        taken = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        attended: Tensor = self.joined(taken.transpose(1, 2).flatten(2))
        return attended

    def pool(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the bags (B, C) and the log of the attention (B, C, K)."""
        x = self.embed(embedded)
        x = self.norms[0](x + self.attend(x, mask))
        x = self.norms[1](x + self.feed(x))
        log_attention = masked_log_softmax(self.seeds(self.key(x)).transpose(1, 2) / math.sqrt(self.width), mask)
        return class_logits(log_attention.exp() @ self.value(x), self.head), log_attention
