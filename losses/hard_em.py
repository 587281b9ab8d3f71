"""Hard expectation maximisation: cross-entropy of every position against the most probable assignment."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ._positions import complete_data_cost, exclude_masked
from ._softmax import PerPosition


class HardEM(PerPosition):
    """Negative log-likelihood of the most probable way to place the classes of the label set.

        loss = -max_a sum_k log p_{a(k),k} / D,

    where P is the softmax over the channels of each of the K positions, and a runs over the
    assignments of L and the background to positions in which every class of L occurs. The maximum
    is exact, for label sets of any size.

    The presence of a class is the log-probability of the best assignment with it minus that of the
    best one without it, whatever other classes occur in them: it is positive where the class is the
    most probable channel of some position. Its score is the same where the bag holds nothing beside
    this class and background. Map and evidence are the softmax.

    Args:
        divide_by: the divisor D, as in `exact`. `none`: 1. `bag`: the positions of the bag.
            `batch`: their mean number over the batch, with which the loss of a bag depends on the
            other bags of its batch.

    Edge cases: a label set of more classes than positions cannot occur: +inf where it is not
    rejected. On a GPU the host waits for the logits, as it computes the assignment.

    Where several assignments are the most probable, the value is the same for all of them, and the
    gradient is that of the shares of channels at each position, made in three steps. First every
    position is shared equally by its most probable channels among L and the background. Where every
    class of L is alone the most probable channel of some position, that is all. Otherwise one best
    choice of a position for each class of L is taken, and these positions show these classes alone.
    Last, positions with the same logits all get the mean of their shares. This is not the mean over
    all of the most probable assignments: with one class, two positions and ties between it and the
    background at both, where the positions have other logits for a class outside L, the class gets
    the shares 1 and 1/2, and in that mean 2/3 and 2/3.

    Source: the classification EM algorithm of G. Celeux and G. Govaert, "A Classification EM
    Algorithm for Clustering and Two Stochastic Versions", Computational Statistics and Data
    Analysis 14, 1992, for the model of `exact-em`.
    """

    name = "hard-em"
    # Its presence compares the best assignments alone, not all of them.
    presence_is_log_odds = False

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        assignment = best_assignment(logits.detach(), labels, mask)
        cost = complete_data_cost(logits, assignment, labels, mask)
        return self.divided(cost, logits, mask)

    def predict(
        self, logits: Tensor, mask: Tensor | None = None, threshold: float | None = 0.0
    ) -> Tensor:
        # Presence is no log-odds here, but 0 is a threshold all the same: above it the best
        # assignment has the class.
        return super().predict(logits, mask, threshold)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return _best_difference(logits[:, :-1] - logits[:, -1:], mask)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        highest, second = logits.topk(2, dim=1).values.split(1, dim=1)
        classes = logits[:, :-1]
        best_other = torch.where(classes == highest, second, highest)
        return _best_difference(classes - best_other, mask)


def best_assignment(logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return the most probable assignment of label set and background to positions in which every class occurs.

    It is (B, C+1, K), the share of each channel at each position, 0 where masked; `HardEM` says how
    ties are shared. For a label set of more classes than positions it means nothing.
    """
    # The channels of the label set, and the background.
    is_allowed = F.pad(labels, (0, 1), value=True).unsqueeze(2)
    allowed = logits.masked_fill(~is_allowed, -torch.inf)
    is_highest = allowed == allowed.amax(dim=1, keepdim=True)
    if mask is None:
        mask = torch.ones_like(is_highest[:, 0])
    is_highest &= mask.unsqueeze(1)
    ties = is_highest.sum(dim=1, keepdim=True)
    shares = is_highest.to(logits) / ties.clamp(min=1).to(logits)
    # A class that is alone the highest at some position occurs in every best assignment.
    occurs = (is_highest & (ties == 1)).any(dim=2)[:, :-1]
    lacks_class = (labels & ~occurs).any(dim=1)
    fits = labels.sum(dim=1) <= mask.sum(dim=1)
    for bag in (lacks_class & fits).nonzero().flatten().tolist():
        here = mask[bag]
        allowed_here = allowed[bag][:, here]
        shares_here = shares[bag][:, here]
        shares[bag, :, here] = _covering(allowed_here, labels[bag], shares_here)
    return shares


def _covering(allowed: Tensor, label_set: Tensor, shares: Tensor) -> Tensor:
    """Return the most probable assignment of one bag in which every class of its label set occurs, (C+1, K).

    Against the highest allowed channel at every position, an assignment loses h_k - z_{c,k} where
    it puts class c. It has to put every class of L at some position, each at another one: the best
    choice of these is a linear assignment, with the highest channels elsewhere.
    """
    from scipy.optimize import linear_sum_assignment

    classes = label_set.nonzero().flatten()
    costs = allowed.amax(dim=0) - allowed[classes]
    _, places = linear_sum_assignment(costs.double().cpu().numpy())
    positions = torch.as_tensor(places, device=classes.device)
    shares = shares.clone()
    shares[:, positions] = 0
    shares[classes, positions] = 1
    # Positions with the same logits may be exchanged, as all those of an empty area. They get the
    # mean of their shares: otherwise the first of them would always be preferred.
    distinct, group = allowed.unique(dim=1, return_inverse=True)
    means: Tensor = torch.zeros_like(distinct).index_add(1, group, shares) / group.bincount()
    return means[:, group]


def _best_difference(margins: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), what the best choice of at least one position adds up to, minus that of no position.

    `margins` (B, C, K) are what a class adds to the log-probability of a position, in place of its
    best other channel.
    """
    margins = exclude_masked(margins, mask)
    largest = margins.amax(dim=2)
    # With a positive margin the best assignment has the class wherever its margin is positive, and
    # without the class loses all of these; otherwise the class has to be put where it costs least.
    return torch.where(largest > 0, margins.relu().sum(dim=2), largest)
