"""Attention: the mean of a class's detectors over positions, weighted by a learnt attention."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Reduction, bag_sizes
from milbench.errors import one_of, positive

from ._class_weights import ClassWeights, PositiveWeights
from ._pooling import PresenceLoss
from ._positions import exclude_masked, fill_empty_bags


class Attention(PresenceLoss):
    """Binary cross-entropy of each class's attention-weighted probability, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = sum_k a_{c,k} sigmoid(z_{c,k}),
        a_{c,k} = softmax_k(w_c^T tanh(V z_k)), or with a gate
        a_{c,k} = softmax_k(w_c^T (tanh(V z_k) * sigmoid(U z_k))),

    where L is the label set of the bag and z_k are all C+1 logits of position k. The logit of a
    class is a detector, as its sigmoid is a probability independent of the other classes. The
    background channel has no detector: only the attention reads it.

    V, U and w are weights of the loss, which are trained and stored with the network. V and U start
    at random numbers from the seed, and w starts at 0, so that attention starts uniform. If the
    recipe has weight decay, it pulls all of them towards 0.

    In the source the attention weighs embeddings of the instances, and a classifier sees their
    mean. A loss that sees only logits cannot do this; `one-vs-rest` with the network
    `gated-attention` does.

    The evidence of a position is its term of P_c, as a logarithm: log(a_{c,k} sigmoid(z_{c,k})).
    For the posterior, in which a position shows one class at most, the odds of a detector are
    multiplied by its attention relative to the mean attention: K a_{c,k} exp(z_{c,k}), with K the
    number of positions. Presence and score are the log-odds of P_c. With uniform attention, P_c of
    a class at few positions falls with the size of the bag.

    Args:
        attention: `class`: every class has a vector w_c of its own. `shared`: all classes share one
            w and so one attention, as in the source.
        gated: whether the gate sigmoid(U z_k) is used.
        hidden: the number of rows of V and U.
        weight, pos_weight: weights of the classes; `mean` describes them.

    Source: M. Ilse, J. M. Tomczak and M. Welling, "Attention-Based Deep Multiple Instance
    Learning", ICML 2018, for the attention and its gate, with 128 hidden units in the authors'
    code; Q. Kong et al., "Weakly Labelled AudioSet Tagging with Attention Neural Networks",
    IEEE/ACM Transactions on Audio, Speech, and Language Processing 27(11), 2019, for attention of
    each class on the level of decisions.
    """

    name = "attention"

    def __init__(
        self,
        attention: Literal["class", "shared"] = "class",
        gated: bool = False,
        hidden: int = 128,
        *,
        weight: ClassWeights = None,
        pos_weight: PositiveWeights = None,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(
            weight=weight, pos_weight=pos_weight, reduction=reduction, validate=validate
        )
        self.attention = one_of("attention of attention", attention, ("class", "shared"))
        self.gated = gated
        self.hidden = positive("hidden of attention", hidden, least=1)

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:
        channels = num_classes + 1
        rows = num_classes if self.attention == "class" else 1
        self.v = torch.nn.Parameter(self._random_rows(channels, rng))
        if self.gated:
            self.u = torch.nn.Parameter(self._random_rows(channels, rng))
        self.w = torch.nn.Parameter(torch.zeros(rows, self.hidden))

    def _random_rows(self, channels: int, rng: torch.Generator) -> Tensor:
        """Return (hidden, C+1) random weights.

        They are scaled so that the product with logits of size 1 is about 1.
        """
        rows = torch.randn(self.hidden, channels, generator=rng)
        return rows / math.sqrt(channels)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        log_attention = self.log_attention(logits, mask)
        if mask is None:
            return self._log_odds(log_attention, logits[:, :-1])
        filled, is_empty = fill_empty_bags(mask)
        log_odds = self._log_odds(log_attention, exclude_masked(logits[:, :-1], filled))
        return log_odds.masked_fill(is_empty, -torch.inf)

    def _log_odds(self, log_attention: Tensor, detectors: Tensor) -> Tensor:
        """Return (B, C), the log-odds of P_c.

        Args:
            log_attention: log a, (B, C, K), or (B, 1, K) if all classes share it.
            detectors: (B, C, K), the logits of the classes.
        """
        # P_c and 1 - P_c are sums of positive terms: their logarithms lose no digits, and neither
        # rounds to 0.
        log_present = (log_attention + F.logsigmoid(detectors)).logsumexp(dim=2)
        log_absent = (log_attention + F.logsigmoid(-detectors)).logsumexp(dim=2)
        return log_present - log_absent

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        # The mean attention of a bag of K positions is 1 / K.
        log_size = bag_sizes(logits, mask).log().view(-1, 1, 1)
        relative_attention = self.log_attention(logits, mask) + log_size
        # In logarithms, as the attention.
        log_odds = logits[:, :-1] + relative_attention
        background = torch.zeros_like(logits[:, -1:])
        return torch.cat([log_odds, background], dim=1).softmax(dim=1)

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return self.log_attention(logits, mask) + F.logsigmoid(logits[:, :-1])

    def log_attention(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return log a, (B, C, K), or (B, 1, K) if all classes share one attention.

        In a bag without instances the attention is uniform over all positions.
        """
        hidden = (self.v.to(logits) @ logits).tanh()
        if self.gated:
            hidden = hidden * (self.u.to(logits) @ logits).sigmoid()
        scores = self.w.to(logits) @ hidden
        if mask is not None:
            # In a bag without instances all scores would be -inf, and their softmax NaN.
            lowest = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~mask.unsqueeze(1), lowest)
        return scores.log_softmax(dim=2)
