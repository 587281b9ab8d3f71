"""One temperature for the map of positions, fitted so that the label sets of validation bags are most probable.

Source: C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, for
single labels; here the likelihood is that of a bag's label set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from milbench.api.bags import Bags
from milbench.errors import UsageError
from milbench.inference.load import Trained
from milbench.inference.predict_bags import tempered
from milbench.likelihood import EXACT_LABEL_LIMIT, bag_log_prob

LARGEST = 100.0
"""The temperature is searched for between its inverse and this."""
LEAST_LOG_PROB = -700.0
"""Nats. A label set that the map excludes counts as one of this log-probability: else no temperature would be best."""


def fit_temperature(model: Trained, validation: Sequence[Bags]) -> float:
    """Return the temperature that makes the label sets of validation bags most probable by the map.

    Args:
        model: the trained network.
        validation: batches of bags that were not trained on.

    Raises:
        UsageError: no bag has a label set within the exact limit.
    """
    maps: list[tuple[Tensor, Tensor]] = []
    for bags in validation:
        labels = bags.labels.cpu().bool()
        few = labels.sum(dim=1) <= EXACT_LABEL_LIMIT
        if few.any():
            maps.append((model.scores_of(bags).instances[few], labels[few]))
    if not maps:
        raise UsageError(f"no validation bag of {model.cell} has at most {EXACT_LABEL_LIMIT} classes")

    def cost(log_temperature: float) -> float:
        return -sum(
            float(bag_log_prob(tempered(probs, math.exp(log_temperature)), labels, validate=False)
                  .clamp(min=LEAST_LOG_PROB).sum())
            for probs, labels in maps
        )  # fmt: skip

    limit = math.log(LARGEST)
    with torch.no_grad():
        found = minimize_scalar(cost, bounds=(-limit, limit), method="bounded", options={"xatol": 1e-3})
    return math.exp(float(found.x))
