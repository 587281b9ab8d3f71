"""The errors of the optimal decisions on bags whose distribution is known."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.evaluation import metrics
from milbench.evaluation.evaluate import EvalSplit
from milbench.families.label_set_posterior import BagPosterior


def optimal_errors(
    split: EvalSplit, of_single_instance: Callable[[Tensor], Tensor], of_bags: Callable[[Bags], BagPosterior]
) -> dict[str, float]:
    """Return the smallest expected errors, as they turn out on the bags of a split, by metric.

    Args:
        split: the bags, with a mask and truth by position.
        of_single_instance: from instances (B, 1, d) to the log posterior (B, C+1, 1) of their classes; of those but the
            background the most probable one is named.
        of_bags: from bags to the posterior given all their instances.
    """
    cpu = torch.device("cpu")
    lone = torch.cat([of_single_instance(bags.instances)[:, :-1, 0] for bags in split.single_instance])
    classes = torch.cat([bags.labels.cpu().int().argmax(dim=1) for bags in split.single_instance])
    wrong_sets, wrong_instances = [], []
    for bags in split.bags:
        found, known = of_bags(bags), bags.to(cpu)
        wrong_sets.append((found.best_set != known.labels).any(dim=1))
        wrong_instances.append(metrics.wrong_instances(found.log_instances, known.truth, known.mask))
    return {
        "instance_error": metrics.instance_error(lone, classes),
        "set_error": metrics.share(torch.cat(wrong_sets)),
        "posterior_error": metrics.share(torch.cat(wrong_instances)),
    }
