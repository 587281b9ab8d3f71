"""The no-skill line: the errors of the best answer that is the same for every bag, chosen on training bags."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from milbench.api.bags import Bags

MOST_BAGS = 1000
"""So many label sets show which is the most common where training bags are drawn anew or have to be read."""


def label_sets(batches: Iterable[Bags]) -> Tensor:
    """Return the label sets (N, C) of the first batches, of as few as hold MOST_BAGS bags."""
    found: list[Tensor] = []
    for bags in batches:
        found.append(bags.labels.cpu())
        if sum(map(len, found)) >= MOST_BAGS:
            break
    return torch.cat(found)


def no_skill_errors(training: Tensor, labels: Tensor, alone: Tensor | None) -> dict[str, float]:
    """Return the errors of the best constant answers, by the names of the metrics.

    The label set is the most common one of the training bags (the first of equals in their order as numbers), the
    classes by themselves are those of more than half of these bags, and the class of an instance is the most common.

    Args:
        training: (N, C) bool, label sets of training bags.
        labels: (B, C) bool, those of the bags of a split.
        alone: (K, C) bool, those of its bags of one instance; None without such.
    """
    sets, counts = training.unique(dim=0, return_counts=True)
    wrong = labels != sets[counts.argmax()]
    shares = training.double().mean(dim=0)
    errors = {
        "no_skill_set_error": wrong.any(dim=1).double().mean(),
        "no_skill_label_error": (labels != (shares > 0.5)).double().mean(),
    }
    if alone is not None:
        errors["no_skill_instance_error"] = 1 - alone[:, shares.argmax()].double().mean()
    return {name: float(error) for name, error in errors.items()}
