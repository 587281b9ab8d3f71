"""The instance-wise reference: what can be decided with the distribution known, from one instance at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.scores import Scores
from milbench.api.task import ScoreFunction, Split
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import CPU, EvalSplit, evaluate_bags

ALWAYS_PRESENT = 1e6
"""The presence of a class that is in every bag: larger than any log-odds."""


def instancewise_scores(log_posterior: Callable[[Tensor], Tensor], groups: Sequence[int]) -> ScoreFunction:
    """Return scores by the posterior of single instances, as if the instances of a bag were independent.

    A class is present with the probability 1 - prod_k (1 - p_{c,k}), and its presence is the log-odds of that. Where
    classes occur only together, p_{c,k} is the probability that it is one of them; a class in a group with the
    background is always present.

    Args:
        log_posterior: from instances (B, K, d) to the log posterior (B, C+1, K) float64 of their classes.
        groups: of each of the C+1 channels, background last, the number of the group that label sets do not divide.
    """
    group = torch.tensor(groups)
    alike = (group.unsqueeze(0) == group.unsqueeze(1)).double()
    always = (group[:-1] == group[-1]).unsqueeze(0)

    def score(bags: Bags) -> Scores:
        probs = log_posterior(bags.instances).exp()
        absent = torch.log1p(-torch.einsum("cd,bdk->bck", alike, probs)[:, :-1].clamp(max=1 - 1e-16))
        if bags.mask is not None:
            absent = absent.masked_fill(~bags.mask.cpu().unsqueeze(1), 0.0)
        log_absent = absent.sum(dim=2)
        presence = torch.log(-torch.expm1(log_absent)) - log_absent
        return Scores(probs[:, :-1].sum(dim=2), presence.masked_fill(always, ALWAYS_PRESENT), probs)

    return score


def reference_errors(
    log_posterior: Callable[[Tensor], Tensor], splits: Mapping[Split, EvalSplit], groups: Sequence[int]
) -> dict[str, float]:
    """Return the errors of the reference, by `split/reference_metric`; arguments are as in `instancewise_scores`.

    Its label sets are those of a loss: classes whose presence reaches the threshold that suits the validation bags
    best.
    """
    score = instancewise_scores(log_posterior, groups)
    evaluated = evaluate_bags(score, {name: EvalSplit((), split.bags) for name, split in splits.items()}).metrics
    errors = {name: value for name, value in evaluated.items() if name.endswith(("/set_error", "/posterior_error"))}
    return {name.replace("/", "/reference_"): v for name, v in (errors | merged_errors(score, splits, groups)).items()}


def merged_errors(score: ScoreFunction, splits: Mapping[Split, EvalSplit], groups: Sequence[int]) -> dict[str, float]:
    """Return the share of wrong instances where channels of a group count as one: learnable_posterior_error.

    There is nothing to return where every channel is a group of its own: it is the posterior error then.
    """
    if len(set(groups)) == len(groups):
        return {}
    group, errors = torch.tensor(groups), {}
    for split, evaluated in splits.items():
        batches = []
        for bags in evaluated.bags:
            probs, on_cpu = score(bags).instances.cpu(), bags.to(CPU)
            if on_cpu.truth is None or on_cpu.truth.position_classes is None:
                raise ValueError("the posterior error needs the class of every instance")
            merged = torch.zeros_like(probs).index_add(1, group, probs)
            truth = Truth(on_cpu.truth.classes, position_classes=group[on_cpu.truth.position_classes])
            batches.append(metrics.wrong_instances(merged, truth, on_cpu.mask))
        errors[f"{split}/learnable_posterior_error"] = metrics.posterior_error(batches)
    return errors
