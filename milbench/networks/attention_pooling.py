"""Networks that classify a bag by the mean of its embedded instances, weighted by attention."""

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milbench.contracts.loss import Head
from milbench.networks.bag_network import BagNetwork, SelfAttention, attend
from milbench.networks.initialisation import initialise


class AttentionPooling(BagNetwork):
    """Base class of networks that give a bag one logit for each class, by attention.

    All networks return logits (B, C+1, *positions), background last. This one spreads its logit
    z_c of class c over the positions k by the attention a_{c,k}:

        z_{c,k} = z_c + log(a_{c,k} / max_j a_{c,j}).

    The second term has no gradient. The maximum over positions is z_c, so that `one-vs-rest` trains
    the network by the binary cross-entropy of z_c, and its evidence ranks the positions of a bag by
    their attention. The background is 0, and so are all logits at masked positions.
    """

    # Losses with a softmax let the classes compete with the background, whose logit is not learnt
    # by these networks.
    loss_heads: ClassVar[tuple[Head, ...]] = ("sigmoid",)
    head: nn.Linear
    """A row u_c and a bias b_c for each class, and a last row for background.

    The last row is not used. It is kept so that stored weights fit.
    """

    @abstractmethod
    def pool(self, features: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits z (B, C) and the log-attention log a (B, C, K) of a bag.

        `features` (B, K, D) are the embedded instances. `present` (B, K) is False at masked
        positions, where log a must be -inf.
        """

    def bag_logits(self, features: Tensor, present: Tensor) -> Tensor:
        logits_of_bag, log_attention = self.pool(features, present)
        relative_attention = (log_attention - log_attention.amax(dim=2, keepdim=True)).detach()
        logits = logits_of_bag.unsqueeze(2) + relative_attention
        # The relative attention is -inf at masked positions, where logits must be finite.
        logits = logits.masked_fill(~present.unsqueeze(1), 0)
        # The background, one channel more, is 0.
        return F.pad(logits, (0, 0, 0, 1))

    def start_at_prior(self, positions: int) -> None:  # noqa: ARG002
        """Set the biases of the head to 0, so that each class starts at even odds.

        The number of positions does not matter, as a bag has one logit for each class.
        """
        with torch.no_grad():
            self.head.bias.zero_()


def masked_log_softmax(scores: Tensor, present: Tensor) -> Tensor:
    """Return the log of the softmax of scores (B, C, K) over positions.

    Positions where `present` (B, K) is False are left out, and get -inf.
    """
    return scores.masked_fill(~present.unsqueeze(1), -torch.inf).log_softmax(dim=2)


def class_logits(pooled: Tensor, head: nn.Linear) -> Tensor:
    """Return (B, C), the logit of each class from its own pooled embedding (B, C, D)."""
    # The last row of the head is for background and not used.
    return torch.einsum("bcd,cd->bc", pooled, head.weight[:-1]) + head.bias[:-1]


class GatedAttention(AttentionPooling):
    """Classify the mean of the embedded instances, weighted by gated attention.

        a_{c,k} = softmax_k(w_c^T (tanh(V h_k) * sigmoid(U h_k))),
        z_c = u_c^T sum_k a_{c,k} h_k + b_c.

    Here h_k is the embedding of instance k. The source has one class, and so one attention. This
    network has an attention for every class, by a w_c of its own: with a single attention, two
    classes of a bag would have to share its weights. V and U are shared by all classes. They have
    `hidden` rows, 128 in the source.

    Source: M. Ilse, J. M. Tomczak and M. Welling, "Attention-based Deep Multiple Instance
    Learning", ICML 2018, arXiv:1802.04712, equation 9.
    """

    def __init__(self, inputs: int, num_classes: int, seed: int, hidden: int = 128) -> None:
        super().__init__()
        self.v = nn.Linear(inputs, hidden)
        self.u = nn.Linear(inputs, hidden)
        self.w = nn.Linear(hidden, num_classes)
        self.head = nn.Linear(inputs, num_classes + 1)
        initialise(self, seed)

    def pool(self, features: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        gated = self.v(features).tanh() * self.u(features).sigmoid()
        scores = self.w(gated).transpose(1, 2)
        log_attention = masked_log_softmax(scores, present)
        pooled = log_attention.exp() @ features
        return class_logits(pooled, self.head), log_attention


class DSMIL(AttentionPooling):
    """Average two logits: the largest of all instances, and one by attention to similar instances.

        m_c = argmax_k s_{c,k},    s_{c,k} = w_c^T h_k + b_c,
        a_{c,k} = softmax_k(q_k^T q_{m_c} / sqrt(Q)),    q_k = tanh(A h_k),    v_k = B h_k,
        z_c = (s_{c,m_c} + u_c^T sum_k a_{c,k} v_k + b'_c) / 2.

    Here h_k is the embedding of instance k. As in the source, every class has a critical instance
    m_c, with the largest logit, and an attention of its own. Q is the parameter `queries`, 128 in
    the source. The division by sqrt(Q) and the tanh are taken from the authors' code.

    Two things differ from that code. It computes the logit of a class from the pooled embeddings of
    all classes; this network uses the pooled embedding of the class alone. It trains each of the
    two logits by a cross-entropy of its own; here `one-vs-rest` trains z_c, their average, which is
    the score of the source.

    Source: B. Li, Y. Li and K. W. Eliceiri, "Dual-stream Multiple Instance Learning Network for
    Whole Slide Image Classification with Self-supervised Contrastive Learning", CVPR 2021,
    arXiv:2011.08939.
    """

    def __init__(self, inputs: int, num_classes: int, seed: int, queries: int = 128) -> None:
        super().__init__()
        self.instance = nn.Linear(inputs, num_classes)  # w and b
        self.query = nn.Linear(inputs, queries)  # A
        self.value = nn.Linear(inputs, inputs)  # B
        self.head = nn.Linear(inputs, num_classes + 1)  # u and b'
        initialise(self, seed)

    def pool(self, features: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        instance_logits = self.instance(features).transpose(1, 2)
        instance_logits = instance_logits.masked_fill(~present.unsqueeze(1), -math.inf)
        largest, critical = instance_logits.max(dim=2)

        queries = self.query(features).tanh()
        width = queries.shape[2]
        # (B, C, Q): for each class the query of its critical instance.
        critical_queries = queries.gather(1, critical.unsqueeze(2).expand(-1, -1, width))
        likeness = critical_queries @ queries.transpose(1, 2) / math.sqrt(width)
        log_attention = masked_log_softmax(likeness, present)
        pooled = log_attention.exp() @ self.value(features)
        bag_stream = class_logits(pooled, self.head)
        return (largest + bag_stream) / 2, log_attention


class SetTransformer(AttentionPooling):
    """Let the instances of a bag attend to each other, then pool them by a query for each class.

        e_k = W_0 h_k,    y = LN(e + W MultiHead(e, e)),    x = LN(y + W_2 relu(W_1 y)),
        a_{c,k} = softmax_k(s_c^T key(x_k) / sqrt(D)),
        z_c = u_c^T sum_k a_{c,k} value(x_k) + b_c.

    Here h_k is the embedding of instance k, and LN is layer normalisation. The network has one set
    attention block of the source, then its pooling by multi-head attention. The pooling has a seed
    vector s_c for every class and a single head, so that each class has one attention. The vectors
    s_c are the weights of `seeds`. D is the parameter `width`, a multiple of `heads`.

    Positions are not encoded, so that the order of the instances makes no difference. Time grows
    with the square of the number of instances.

    Source: J. Lee et al., "Set Transformer: A Framework for Attention-based Permutation-Invariant
    Neural Networks", ICML 2019, arXiv:1810.00825; the layers of A. Vaswani et al., "Attention Is
    All You Need", NIPS 2017.
    """

    def __init__(
        self, inputs: int, num_classes: int, seed: int, width: int = 64, heads: int = 4
    ) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.embed = nn.Linear(inputs, width)
        self.qkv = nn.Linear(width, 3 * width)
        # W, which joins the outputs of the heads.
        self.joined = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.seeds = nn.Linear(width, num_classes, bias=False)
        self.head = nn.Linear(width, num_classes + 1)
        initialise(self, seed)

    @property
    def self_attention(self) -> SelfAttention:
        # The check of the first batch reads this, to say what attention costs in time and memory.
        return SelfAttention(layers=1, width=self.width, heads=self.heads)

    def pool(self, features: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        e = self.embed(features)
        y = self.norms[0](e + attend(e, present, self.qkv, self.joined, self.heads))
        x = self.norms[1](y + self.feed(y))
        scores = self.seeds(self.key(x)).transpose(1, 2) / math.sqrt(self.width)
        log_attention = masked_log_softmax(scores, present)
        pooled = log_attention.exp() @ self.value(x)
        return class_logits(pooled, self.head), log_attention
