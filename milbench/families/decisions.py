"""Decisions that know the distribution of bags: the optimum, by the exact posterior of a bag, and a reference.

The instance-wise reference sees one instance at a time.
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
NEGLIGIBLE = 1e-15
"""Label sets that are less probable are left out, which changes no probability by more than 2^C times this."""
PAIRS_AT_ONCE = 1 << 14
"""How many pairs of a bag and a label set are computed together."""
ALWAYS_PRESENT = 1e6
"""The presence of a class that is in every bag: larger than any log-odds."""


class BagPosterior(NamedTuple):
    """The log-posteriors of label sets and instances given all instances of a bag, float64."""

    log_sets: Tensor
    """(B, 2^C), class c is in set s where bit c of s is 1."""
    log_instances: Tensor
    """(B, C+1, K), background last."""


def bag_posterior(
    log_joint: Tensor,
    mask: Tensor,
    log_weight: Tensor | None = None,
    log_joint_with_0: Tensor | None = None,
) -> BagPosterior:
    """Return the posterior of bags whose label set L is drawn before the classes z of their n instances.

    pi_n(L) is how probable L is in a bag of n instances, and q_n(L) how probable it would be if the
    instances were independent. Given L, the classes are those of independent instances with the
    label set L. Each x_k depends on z_k, and perhaps on whether class 0 is in L. So

        p(L | x) is proportional to pi_n(L) / q_n(L) * sum over all z with the label set L of prod_k p(z_k) p(x_k | z_k)
        P(z_k = c | x) = sum over L of p(L | x) P(z_k = c | x, L).

    `milbench.likelihood` computes the sum, which is the likelihood of L times prod_k p(x_k), and
    P(z_k = c | x, L).

    Args:
        log_joint: (B, C+1, K) float64, log p(z_k) + log p(x_k | z_k), background last.
        mask: (B, K) bool, True where there is an instance.
        log_weight: (B, 2^C) float64, log pi_n(L) - log q_n(L) for the size of each bag; None: 0, L
            is that of z.
        log_joint_with_0: `log_joint` in bags whose label set contains class 0; None: the same.
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
    # Sets with class 0 follow one joint distribution, the others the other one.
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
    """Return the errors of the optimal decisions on the bags of a split with truth by position, by metric.

    `of_single_instance` returns the log posterior (B, C+1, 1) of the classes of instances (B, 1,
    d).
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
    """Return how often the most probable class of a single instance that is not background is another one."""
    log_posteriors = torch.cat(
        [of_single_instance(bags.instances)[:, :-1, 0] for bags in split.single_instance]
    )
    classes = torch.cat([bags.labels.cpu().int().argmax(dim=1) for bags in split.single_instance])
    return float(wrong_classes(log_posteriors.numpy(), classes.numpy()).mean())


def instancewise_scores(
    log_posterior: Callable[[Tensor], Tensor], groups: Sequence[int]
) -> ScoreFunction:
    """Return scores by the posterior of single instances, as if the instances of a bag were independent.

    Presence is the log-odds of 1 - prod_k (1 - p_{c,k}), where p_{c,k} is the probability of the
    group of class c; a class in a group with the background is always present. `log_posterior`
    makes (B, C+1, K) float64 of instances (B, K, d). `groups` has, for each of the C+1 channels,
    background last, the first channel that label sets cannot tell from it.
    """
    group = torch.tensor(groups)
    is_same_group = (group.unsqueeze(0) == group.unsqueeze(1)).double()
    is_always_present = (group[:-1] == group[-1]).unsqueeze(0)

    def score(bags: Bags) -> Scores:
        probs = log_posterior(bags.instances).exp()
        # p_{c,k}, background left out. Below 1, so that its logarithm is finite.
        of_group = torch.einsum("cd,bdk->bck", is_same_group, probs)[:, :-1].clamp(max=1 - 1e-16)
        absent = torch.log1p(-of_group)
        if bags.mask is not None:
            absent = absent.masked_fill(~bags.mask.cpu().unsqueeze(1), 0.0)
        log_absent = absent.sum(dim=2)
        # log(1 - a) - log(a), where expm1 keeps the digits of classes that are nearly certain to be
        # absent.
        log_odds = torch.log(-torch.expm1(log_absent)) - log_absent
        presence = log_odds.masked_fill(is_always_present, ALWAYS_PRESENT)
        return Scores(probs[:, :-1].sum(dim=2), presence, probs)

    return score


def reference_errors(
    log_posterior: Callable[[Tensor], Tensor],
    splits: Mapping[Split, EvalSplit],
    groups: Sequence[int],
) -> dict[str, float]:
    """Return the errors of the reference, judged as a loss, by `split/reference_metric`; see `instancewise_scores`."""
    score = instancewise_scores(log_posterior, groups)
    bags_alone = {split: EvalSplit((), evaluated.bags) for split, evaluated in splits.items()}
    predictions = evaluate_bags(score, bags_alone).predictions
    # `evaluate_bags` always returns them.
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
    """Return learnable_posterior_error of each split: channels that label sets cannot tell apart count as one.

    It is {} where all channels can be told apart.
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
    """Return predictions with a metric of the name for each of these splits."""
    splits = dict(predictions.splits)
    for split, ratio in ratios.items():
        of_split = splits[split]
        splits[split] = replace(of_split, ratios={**of_split.ratios, name: ratio})
    return replace(predictions, splits=splits)


def _weighted_posterior(log_probs: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """Return (B, C+1, K), the sum over label sets L of their weight p(L | x) (B, 2^C) times P(z_k = c | x, L)."""
    total = torch.zeros_like(log_probs)
    sets = membership(log_probs.shape[1] - 1)
    # Pairs of a bag and a set: most sets of most bags are too improbable to matter.
    for pairs in (weight > NEGLIGIBLE).nonzero().split(PAIRS_AT_ONCE):
        bag, number = pairs.unbind(dim=1)
        posterior = instance_posterior(log_probs[bag], sets[number], mask[bag], validate=False)
        total.index_add_(0, bag, weight[bag, number].view(-1, 1, 1) * posterior)
    return total


def _independent_posterior(log_joint: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return log P(z_k | x_k) (B, C+1, K) and log p(x, L) (B, 2^C) of independent instances."""
    # log p(x_k), and of all instances of a bag log p(x).
    evidence = log_joint.logsumexp(dim=1, keepdim=True)
    evidence_of_bag = evidence.squeeze(1).masked_fill(~mask, 0.0).sum(dim=1, keepdim=True)
    log_probs = log_joint - evidence
    log_sets = label_set_distribution(log_probs, mask, validate=False)
    return log_probs, log_sets + evidence_of_bag
