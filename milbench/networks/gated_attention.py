"""Gated attention over the instances of a bag."""

from __future__ import annotations

from torch import Tensor, nn

from milbench.networks.attention_pooling import AttentionPooling, class_logits, masked_log_softmax
from milbench.networks.initialisation import initialise


class GatedAttention(AttentionPooling):
    """Classify the mean of the embedded instances, weighted by gated attention.

        a_{c,k} = softmax_k(w_c^T (tanh(V h_k) * sigmoid(U h_k))),    z_c = u_c^T sum_k a_{c,k} h_k + b_c.

    The source has one class and one attention. Here every class has its own w_c on the same V and U: with a single
    attention for all, two classes of a bag would have to share its weights, and its evidence could not tell them apart.

    Args:
        inputs: D, features of an embedded instance.
        num_classes: C, the background not counted.
        seed: decides the initial weights.
        hidden: the number of rows of V and U, 128 in the source.

    Source: M. Ilse, J. M. Tomczak and M. Welling, "Attention-based Deep Multiple Instance Learning", ICML 2018,
    arXiv:1802.04712, equation 9.
    """

    head: nn.Linear

    def __init__(self, inputs: int, num_classes: int, seed: int, hidden: int = 128) -> None:
        super().__init__()
        self.v = nn.Linear(inputs, hidden)
        self.u = nn.Linear(inputs, hidden)
        self.w = nn.Linear(hidden, num_classes)
        self.head = nn.Linear(inputs, num_classes + 1)
        initialise(self, seed)

    def pool(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the bags (B, C) and the log of the attention (B, C, K)."""
        gated = self.v(embedded).tanh() * self.u(embedded).sigmoid()
        log_attention = masked_log_softmax(self.w(gated).transpose(1, 2), mask)
        return class_logits(log_attention.exp() @ embedded, self.head), log_attention
