"""DSMIL: the likeliest instance of a class, and the instances that are like it."""

from __future__ import annotations

import math

from torch import Tensor, nn

from milbench.networks.attention_pooling import AttentionPooling, class_logits, masked_log_softmax
from milbench.networks.initialisation import initialise


class DSMIL(AttentionPooling):
    """Average two streams: the largest instance logit of a class, and attention by likeness to that instance.

        m_c = argmax_k s_{c,k},    s_{c,k} = w_c^T h_k + b_c,
        a_{c,k} = softmax_k(q_k^T q_{m_c} / sqrt(Q)),    q_k = tanh(A h_k),    v_k = B h_k,
        z_c = (s_{c,m_c} + u_c^T sum_k a_{c,k} v_k + b'_c) / 2.

    As in the source every class has a critical instance m_c and an attention of its own. The division by sqrt(Q) and
    the tanh are those of the authors' code, where a class is read from the embeddings of all classes, here from its
    own. That code trains each stream by a cross-entropy of its own; here `one-vs-rest` trains z_c, the average, which
    is the score of the source.

    Args:
        inputs: D, features of an embedded instance.
        num_classes: C, the background not counted.
        seed: decides the initial weights.
        queries: Q, 128 in the source.

    Source: B. Li, Y. Li and K. W. Eliceiri, "Dual-stream Multiple Instance Learning Network for Whole Slide Image
    Classification with Self-supervised Contrastive Learning", CVPR 2021, arXiv:2011.08939.
    """

    head: nn.Linear

    def __init__(self, inputs: int, num_classes: int, seed: int, queries: int = 128) -> None:
        super().__init__()
        self.instance = nn.Linear(inputs, num_classes)
        self.query = nn.Linear(inputs, queries)
        self.value = nn.Linear(inputs, inputs)
        self.head = nn.Linear(inputs, num_classes + 1)
        initialise(self, seed)

    def pool(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the bags (B, C) and the log of the attention (B, C, K)."""
        scores = self.instance(embedded).transpose(1, 2).masked_fill(~mask.unsqueeze(1), -math.inf)
        largest, critical = scores.max(dim=2)
        queries = self.query(embedded).tanh()
        of_critical = queries.gather(1, critical.unsqueeze(2).expand(-1, -1, queries.shape[2]))
        likeness = of_critical @ queries.transpose(1, 2) / math.sqrt(queries.shape[2])
        log_attention = masked_log_softmax(likeness, mask)
        pooled = log_attention.exp() @ self.value(embedded)
        return (largest + class_logits(pooled, self.head)) / 2, log_attention
