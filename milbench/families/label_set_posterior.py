"""The exact posterior of a bag's label set and instances under a prior of label sets, and the optimal errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import CPU, EvalSplit
from milbench.likelihood import instance_posterior, label_set_distribution
from milbench.likelihood.columns import contains

NEGLIGIBLE = 1e-15
"""Label sets that are less probable are left out: all of them together change no probability by more than 2^C times
this."""
TOGETHER = 1 << 14
"""Pairs of a bag and a label set that are computed together."""


class BagPosterior(NamedTuple):
    """The log-posterior (B, 2^C) of all label sets, s with class c where bit c of s is 1, and (B, C+1, K) of instances.

    Both are float64, given all instances of a bag; the background comes last.
    """

    log_sets: Tensor
    log_instances: Tensor


def bag_posterior(
    log_joint: Tensor, mask: Tensor, log_weight: Tensor | None = None, log_joint_with_0: Tensor | None = None
) -> BagPosterior:
    """Return the posterior of bags whose label set L is drawn from pi_n, and whose instances given L as follows.

    The classes z are those of n independent instances on the condition that their label set is L, and each x_k depends
    on z_k alone, or on z_k and on whether class 0 is in L. So with q_n(L), the probability of L for independent ones,

        p(L | x) is proportional to pi_n(L) / q_n(L) * sum over all z with the label set L of prod_k p(z_k) p(x_k | z_k)
        P(z_k = c | x) = sum over L of p(L | x) P(z_k = c | x, L).

    The sum over z is the likelihood of L after division by prod_k p(x_k); P(z_k = c | x, L) is the posterior of
    instances given L. `milbench.likelihood` computes both.

    Args:
        log_joint: (B, C+1, K) float64, log p(z_k) + log p(x_k | z_k), background last.
        mask: (B, K) bool, True where there is an instance.
        log_weight: (B, 2^C) float64, log pi_n(L) - log q_n(L) for the size of each bag; None: 0 for all, which is that
            of independent instances.
        log_joint_with_0: `log_joint` in bags whose label set contains class 0; None: the same.

    Examples:
        Two instances that look the same whatever their class; the label set of both is never {}.

        >>> import torch
        >>> log_joint = torch.tensor([0.5, 0.5]).double().log().view(1, 2, 1).expand(1, 2, 2)
        >>> found = bag_posterior(log_joint, torch.ones(1, 2).bool(), torch.tensor([[-torch.inf, 0.0]]).double())
        >>> found.log_instances.exp()  # in two of three
        tensor([[[0.6667, 0.6667],
                 [0.3333, 0.3333]]], dtype=torch.float64)
    """
    log_probs, log_sets = _independent(log_joint, mask)
    if log_weight is None and log_joint_with_0 is None:
        return BagPosterior(log_sets.log_softmax(dim=1), log_probs)
    if log_weight is None:
        log_weight = torch.zeros_like(log_sets)
    has_0 = contains(log_joint.shape[1] - 1)[:, 0]
    models = [(log_probs, torch.ones_like(has_0))]
    if log_joint_with_0 is not None:
        with_0, log_sets_with_0 = _independent(log_joint_with_0, mask)
        models = [(log_probs, ~has_0), (with_0, has_0)]
        log_sets = torch.where(has_0, log_sets_with_0, log_sets)
    log_sets = (log_sets + log_weight).log_softmax(dim=1)
    parts = [_instances(of_model, mask, log_sets.exp() * its_sets) for of_model, its_sets in models]
    return BagPosterior(log_sets, torch.stack(parts).sum(dim=0).log())


def optimal_errors(
    split: EvalSplit, of_single_instance: Callable[[Tensor], Tensor], of_bags: Callable[[Bags], BagPosterior]
) -> dict[str, float]:
    """Return the smallest expected errors, as they turn out on the bags of a split with truth by position, by metric.

    `of_single_instance` returns, of instances (B, 1, d), the log posterior (B, C+1, 1) of their classes; of those but
    the background the most probable one is named.
    """
    lone = torch.cat([of_single_instance(bags.instances)[:, :-1, 0] for bags in split.single_instance])
    classes = torch.cat([bags.labels.cpu().int().argmax(dim=1) for bags in split.single_instance])
    wrong_sets, wrong_instances = [], []
    for bags in split.bags:
        posterior, on_cpu = of_bags(bags), bags.to(CPU)
        most_probable = contains(on_cpu.labels.shape[1])[posterior.log_sets.argmax(dim=1)]
        wrong_sets.append((most_probable != on_cpu.labels).any(dim=1))
        wrong_instances.append(metrics.wrong_instances(posterior.log_instances, on_cpu.truth, on_cpu.mask))
    return {
        "instance_error": metrics.share(metrics.wrong_classes(lone, classes)),
        "set_error": metrics.share(torch.cat(wrong_sets)),
        "posterior_error": metrics.posterior_error(wrong_instances),
    }


def _instances(log_probs: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """Return (B, C+1, K), the sum over label sets L of their weight p(L | x) (B, 2^C) times P(z_k = c | x, L)."""
    total = torch.zeros_like(log_probs)
    sets = contains(log_probs.shape[1] - 1)
    for pairs in (weight > NEGLIGIBLE).nonzero().split(TOGETHER):
        bag, number = pairs.unbind(dim=1)
        posterior = instance_posterior(log_probs[bag], sets[number], mask[bag], validate=False)
        total.index_add_(0, bag, weight[bag, number].view(-1, 1, 1) * posterior)
    return total


def _independent(log_joint: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    evidence = log_joint.logsumexp(dim=1, keepdim=True)
    log_probs = log_joint - evidence
    of_bag = evidence.squeeze(1).masked_fill(~mask, 0.0).sum(dim=1, keepdim=True)
    return log_probs, label_set_distribution(log_probs, mask, validate=False) + of_bag
