"""Errors of decisions that know how synthetic bags are made, to compare losses with.

The optimum decides by the exact posterior, given all instances of a bag. The reference looks at one
instance at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from milbench.contracts.bags import Bags
from milbench.contracts.predictions import Predictions, Ratio
from milbench.contracts.problem import EvalSplit, ScoreFunction, Split
from milbench.contracts.scores import Scores
from milbench.contracts.task import CPU
from milbench.evaluation.evaluate import evaluate_bags
from milbench.evaluation.maps import wrong_instances
from milbench.evaluation.metrics import metrics_of, wrong_classes
from milbench.likelihood import instance_posterior, label_set_distribution
from milbench.likelihood.columns import membership

LEARNABLE = "learnable_posterior_error"
"""The name of the metric that `learnable_errors` computes."""
NEGLIGIBLE = 1e-15
"""Label sets that are less probable than this are left out of sums.

This changes no probability by more than 2^C times this number.
"""
PAIRS_AT_ONCE = 1 << 14
"""How many pairs of a bag and a label set are computed together."""
ALWAYS_PRESENT = 1e6
"""The presence score of a class that is in every bag. It is larger than any log-odds."""


class BagPosterior(NamedTuple):
    """Log-posteriors in float64, given all instances of a bag."""

    log_sets: Tensor
    """(B, 2^C), of label sets. Set s contains class c where bit c of s is 1."""
    log_instances: Tensor
    """(B, C+1, K), of the classes of instances, background last."""


def bag_posterior(
    log_joint: Tensor,
    mask: Tensor,
    log_weight: Tensor | None = None,
    log_joint_with_0: Tensor | None = None,
) -> BagPosterior:
    """Return the exact posterior of bags, given how they were made.

    A bag of n instances is made in three steps. Its label set L is chosen with the probability
    pi_n(L). The classes z of its instances are chosen as if they were independent, under the
    condition that they show exactly L. Each instance x_k depends on its class z_k, and perhaps on
    whether class 0 is in L. If q_n(L) is the probability of L for independent instances, then

        p(L | x) is proportional to pi_n(L) / q_n(L) * S(L),
        S(L) = sum over all z with the label set L of prod_k p(z_k) p(x_k | z_k),
        P(z_k = c | x) = sum over L of p(L | x) P(z_k = c | x, L).

    `milbench.likelihood` computes P(z_k = c | x, L), and the likelihood of L. S(L) is this
    likelihood times prod_k p(x_k).

    Args:
        log_joint: (B, C+1, K) float64, log p(z_k) + log p(x_k | z_k), background last.
        mask: (B, K) bool, True where there is an instance.
        log_weight: (B, 2^C) float64, log pi_n(L) - log q_n(L) for the size of each bag; None: 0, as
            for independent instances.
        log_joint_with_0: what replaces `log_joint` where the label set contains class 0; None:
            `log_joint` holds for all label sets.
    """
    log_probs, log_sets = _independent_posterior(log_joint, mask)
    if log_weight is None and log_joint_with_0 is None:
        return BagPosterior(log_sets.log_softmax(dim=1), log_probs)
    if log_weight is None:
        log_weight = torch.zeros_like(log_sets)
    if log_joint_with_0 is None:
        log_sets = (log_sets + log_weight).log_softmax(dim=1)
        posterior = _weighted_posterior(log_probs, mask, log_sets.exp())
        return BagPosterior(log_sets, posterior.log())
    # `log_joint` now holds only for label sets without class 0.
    has_0 = membership(log_joint.shape[1] - 1)[:, 0]
    log_probs_with_0, log_sets_with_0 = _independent_posterior(log_joint_with_0, mask)
    log_sets = torch.where(has_0, log_sets_with_0, log_sets)
    log_sets = (log_sets + log_weight).log_softmax(dim=1)
    sets = log_sets.exp()
    without_0 = _weighted_posterior(log_probs, mask, sets * ~has_0)
    with_0 = _weighted_posterior(log_probs_with_0, mask, sets * has_0)
    return BagPosterior(log_sets, (without_0 + with_0).log())


def optimal_errors(
    split: EvalSplit,
    of_single_instance: Callable[[Tensor], Tensor],
    of_bags: Callable[[Bags], BagPosterior],
) -> dict[str, float]:
    """Return the errors of the optimal decisions on the bags of a split, by metric.

    Args:
        split: bags whose truth has the class of each position, and bags of one instance.
        of_single_instance: returns the log-posterior (B, C+1, 1) of the class of single instances
            (B, 1, d).
        of_bags: returns the posterior of bags given all their instances.
    """
    is_wrong_set = []
    count_wrong = 0
    count_instances = 0
    for bags in split.bags:
        posterior = of_bags(bags)
        on_cpu = bags.to(CPU)
        most_probable = membership(on_cpu.labels.shape[1])[posterior.log_sets.argmax(dim=1)]
        is_wrong_set.append((most_probable != on_cpu.labels).any(dim=1))
        wrong, sizes = wrong_instances(posterior.log_instances, on_cpu.truth, on_cpu.mask)
        count_wrong += int(wrong.sum())
        count_instances += int(sizes.sum())
    return {
        "instance_error": _single_instance_error(split, of_single_instance),
        "set_error": float(torch.cat(is_wrong_set).double().mean()),
        "posterior_error": count_wrong / count_instances,
    }


def _single_instance_error(
    split: EvalSplit, of_single_instance: Callable[[Tensor], Tensor]
) -> float:
    """Return how often the most probable class of a single instance is wrong.

    No single instance is background, so that background is not considered.
    """
    log_posteriors = torch.cat(
        [of_single_instance(bags.instances)[:, :-1, 0] for bags in split.single_instance]
    )
    classes = torch.cat([bags.labels.cpu().int().argmax(dim=1) for bags in split.single_instance])
    return float(wrong_classes(log_posteriors.numpy(), classes.numpy()).mean())


def instancewise_scores(
    log_posterior: Callable[[Tensor], Tensor], groups: Sequence[int]
) -> ScoreFunction:
    """Return the score function of the reference, which takes instances for independent.

    The presence of class c is the log-odds of 1 - prod_k (1 - p_{c,k}), where p_{c,k} is the
    probability that instance k is of a class in the group of c. A group has the classes that label
    sets cannot tell apart. A class in a group with the background is always present.

    Args:
        log_posterior: returns the log-posterior (B, C+1, K) float64 of the classes of instances
            (B, K, d), background last.
        groups: for each of C classes and, last, the background, the first one of its group.
    """
    group = torch.tensor(groups)
    is_same_group = (group.unsqueeze(0) == group.unsqueeze(1)).double()
    is_always_present = (group[:-1] == group[-1]).unsqueeze(0)

    def score(bags: Bags) -> Scores:
        probs = log_posterior(bags.instances).exp()
        # p_{c,k} for the C classes, kept below 1 so that log(1 - p) is finite.
        of_group = torch.einsum("cd,bdk->bck", is_same_group, probs)[:, :-1].clamp(max=1 - 1e-16)
        absent = torch.log1p(-of_group)
        if bags.mask is not None:
            absent = absent.masked_fill(~bags.mask.cpu().unsqueeze(1), 0.0)
        log_absent = absent.sum(dim=2)
        # log(1 - a) - log(a), where a is the probability that the class is absent. Where a is near
        # to 1, expm1 keeps the digits of 1 - a.
        log_odds = torch.log(-torch.expm1(log_absent)) - log_absent
        presence = log_odds.masked_fill(is_always_present, ALWAYS_PRESENT)
        return Scores(probs[:, :-1].sum(dim=2), presence, probs)

    return score


def reference_errors(
    log_posterior: Callable[[Tensor], Tensor],
    splits: Mapping[Split, EvalSplit],
    groups: Sequence[int],
) -> dict[str, float]:
    """Return the errors of the reference by `split/reference_metric`.

    The reference is judged like a loss. `instancewise_scores` describes it and the arguments.
    """
    score = instancewise_scores(log_posterior, groups)
    bags_alone = {split: EvalSplit((), evaluated.bags) for split, evaluated in splits.items()}
    predictions = evaluate_bags(score, bags_alone).predictions
    # `evaluate_bags` always returns predictions. The line is for the type checker.
    assert predictions is not None  # noqa: S101
    predictions = with_ratios(predictions, LEARNABLE, learnable_errors(score, splits, groups))
    errors = {}
    for name, value in metrics_of(predictions).items():
        split, metric = name.split("/")
        if metric in ("set_error", "posterior_error", LEARNABLE):
            errors[f"{split}/reference_{metric}"] = value
    return errors


def learnable_errors(
    score: ScoreFunction, splits: Mapping[Split, EvalSplit], groups: Sequence[int]
) -> dict[Split, Ratio]:
    """Return the learnable posterior error of each split.

    It is the posterior error if classes that label sets cannot tell apart count as one class. Where
    all classes can be told apart, the result is {}. `instancewise_scores` describes `groups`.
    """
    can_be_told_apart = len(set(groups)) == len(groups)
    if can_be_told_apart:
        return {}
    group = torch.tensor(groups)
    ratios = {}
    for split, evaluated in splits.items():
        wrong = []
        sizes = []
        for bags in evaluated.bags:
            probs = score(bags).instances.cpu()
            merged = torch.zeros_like(probs).index_add(1, group, probs)
            on_cpu = bags.to(CPU)
            truth: Any = on_cpu.truth
            truth = replace(truth, position_classes=group[truth.position_classes])
            wrong_of_bags, sizes_of_bags = wrong_instances(merged, truth, on_cpu.mask)
            wrong.append(wrong_of_bags)
            sizes.append(sizes_of_bags)
        ratios[split] = Ratio(
            sums=torch.cat(wrong).float().numpy(), weights=torch.cat(sizes).float().numpy()
        )
    return ratios


def with_ratios(predictions: Predictions, name: str, ratios: Mapping[Split, Ratio]) -> Predictions:
    """Return predictions with one more metric, `name`, whose values are given by split."""
    splits = dict(predictions.splits)
    for split, ratio in ratios.items():
        bags = splits[split]
        splits[split] = replace(bags, ratios={**bags.ratios, name: ratio})
    return replace(predictions, splits=splits)


def _weighted_posterior(log_probs: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """Return (B, C+1, K), the sum over label sets L of their weight times P(z_k = c | x, L).

    `weight` (B, 2^C) is p(L | x).
    """
    total = torch.zeros_like(log_probs)
    sets = membership(log_probs.shape[1] - 1)
    # Only pairs of a bag and a label set that matter are computed: in most bags, most label sets
    # are too improbable.
    for pairs in (weight > NEGLIGIBLE).nonzero().split(PAIRS_AT_ONCE):
        bag, number = pairs.unbind(dim=1)
        posterior = instance_posterior(log_probs[bag], sets[number], mask[bag], validate=False)
        total.index_add_(0, bag, weight[bag, number].view(-1, 1, 1) * posterior)
    return total


def _independent_posterior(log_joint: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return log P(z_k | x_k) (B, C+1, K) and log p(x, L) (B, 2^C) of independent instances."""
    # log p(x_k) (B, 1, K), and for the whole bag log p(x) (B, 1).
    log_density = log_joint.logsumexp(dim=1, keepdim=True)
    log_density_of_bag = log_density.squeeze(1).masked_fill(~mask, 0.0).sum(dim=1, keepdim=True)
    log_probs = log_joint - log_density
    log_sets = label_set_distribution(log_probs, mask, validate=False)
    return log_probs, log_sets + log_density_of_bag
