"""Hard expectation maximisation: cross-entropy against the most probable assignment of classes."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ._positions import complete_data_cost, exclude_masked
from ._softmax import PerPosition


class HardEM(PerPosition):
    """Negative log-likelihood of the most probable way to place the classes of the label set.

        loss = -max_a sum_k log p_{a(k),k} / D,

    where P is the softmax over the channels of each of the K positions. An assignment a gives each
    position a class of the label set L or the background, such that every class of L occurs. The
    maximum is exact, for label sets of any size.

    The presence of a class compares two assignments of any classes to the positions: it is the
    log-probability of the best assignment with the class, minus the log-probability of the best
    assignment without it. So it is positive where the class is the most probable channel of some
    position. The score of a class is the same difference, for assignments of only this class and
    the background. Posterior and evidence are the softmax.

    Args:
        divide_by: the divisor D, as in `exact`. `none`: 1. `bag`: the number of positions of the
            bag. `batch`: the mean number of positions of the bags of the batch; the loss of a bag
            then depends on the other bags of its batch.

    Edge cases: a label set of more classes than positions cannot occur. It is rejected, and has a
    loss of +inf if the check of values is off. On a GPU the CPU waits for the logits, as it
    computes the assignment.

    Ties: where several assignments are the most probable, the loss has the same value for all of
    them. The gradient is then that of a cross-entropy against shares of the channels at each
    position, which are made in three steps:

    1. The most probable channels of a position, among L and the background, share it equally. If
       every class of L is alone the most probable channel of some position, the shares are ready.
    2. Otherwise a position is chosen for each class of L, so that the assignment is a most probable
       one. Each chosen position then shows its class alone.
    3. All positions with the same logits get the mean of their shares.

    The result is not the mean over all of the most probable assignments. For example, let a bag
    have two positions and one class that ties with the background at both positions, which differ
    in the logit of a class outside L. Then the class gets the shares 1 and 1/2. The mean over the
    assignments would give 2/3 and 2/3.

    Source: G. Celeux and G. Govaert, "A Classification EM Algorithm for Clustering and Two
    Stochastic Versions", Computational Statistics and Data Analysis 14, 1992. This loss is their
    classification EM algorithm for the model of `exact-em`.
    """

    name = "hard-em"
    # The presence compares only the best assignments, where log-odds would sum over all of them.
    presence_is_log_odds = False

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        assignment = best_assignment(logits.detach(), labels, mask)
        cost = complete_data_cost(logits, assignment, labels, mask)
        return self.divided(cost, logits, mask)

    def predict(
        self, logits: Tensor, mask: Tensor | None = None, threshold: float | None = 0.0
    ) -> Tensor:
        # Other losses whose presence is no log-odds need a threshold from their user. For this loss
        # 0 is right: above it the best assignment has the class.
        return super().predict(logits, mask, threshold)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return _best_difference(logits[:, :-1] - logits[:, -1:], mask)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        highest, second = logits.topk(2, dim=1).values.split(1, dim=1)
        classes = logits[:, :-1]
        best_other = torch.where(classes == highest, second, highest)
        return _best_difference(classes - best_other, mask)


def best_assignment(logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C+1, K), the most probable assignment in which all of the label set occurs.

    It is given as the share of each channel at each position, 0 where masked; `HardEM` says how
    ties are shared. For a label set of more classes than positions the result means nothing.
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
        occupied = mask[bag]
        allowed_of_bag = allowed[bag][:, occupied]
        shares_of_bag = shares[bag][:, occupied]
        shares[bag, :, occupied] = _covering(allowed_of_bag, labels[bag], shares_of_bag)
    return shares


def _covering(allowed: Tensor, label_set: Tensor, shares: Tensor) -> Tensor:
    """Return (C+1, K), the most probable assignment of one bag in which every class of L occurs.

    Let h_k be the highest allowed logit at position k. An assignment with class c at position k has
    a log-probability lower by h_k - z_{c,k}. Each class of L needs a position of its own; where to
    put them at the lowest total cost is the linear assignment problem. All other positions keep
    their highest channels.

    Args:
        allowed: (C+1, K), logits, -inf for classes outside the label set.
        label_set: (C,) bool, L.
        shares: (C+1, K), the shares of the highest allowed channels at each position.
    """
    from scipy.optimize import linear_sum_assignment

    classes = label_set.nonzero().flatten()
    costs = allowed.amax(dim=0) - allowed[classes]
    _, chosen = linear_sum_assignment(costs.double().cpu().numpy())
    positions = torch.as_tensor(chosen, device=classes.device)
    shares = shares.clone()
    shares[:, positions] = 0
    shares[classes, positions] = 1
    # Positions with the same logits, as in an empty area of an image, are equally good. They get
    # the mean of their shares: otherwise the first of them would always be preferred.
    distinct, group = allowed.unique(dim=1, return_inverse=True)
    means: Tensor = torch.zeros_like(distinct).index_add(1, group, shares) / group.bincount()
    return means[:, group]


def _best_difference(margins: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), by how much the best assignment with each class beats the best without it.

    Args:
        margins: (B, C, K), the logit of a class minus the highest logit of other channels.
        mask: (B, K), True where a position counts; None if all count.
    """
    margins = exclude_masked(margins, mask)
    largest = margins.amax(dim=2)
    # If a margin is positive, the best assignment has the class wherever its margin is positive,
    # and the best assignment without the class loses all of these margins. If none is, the class
    # has to be put where it costs least.
    return torch.where(largest > 0, margins.relu().sum(dim=2), largest)
