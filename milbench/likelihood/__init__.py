"""The exact likelihood of a bag's label set, its posterior, bounds, and the most probable label set (Li, 2018).

The package may import `milbench.contracts` and `milbench.errors`. Its functions share three
arguments: `log_probs` (B, C+1, *positions), natural logarithms, background last, with any number of
position dimensions (none: one position); `labels` (B, C), bool or 0/1, the classes that occur in
the bag; `mask` (B, *positions) bool, True where there is an instance. Given `log_probs`, every
position independently emits one class or the background. Logarithms that are returned are natural
as well (nats).
"""

from milbench.likelihood.bounds import Bounds, bag_log_prob_bounds
from milbench.likelihood.distribution import best_label_set, label_set_distribution
from milbench.likelihood.exact_likelihood import (
    EXACT_LABEL_LIMIT,
    bag_log_prob,
    bag_log_prob_from_logits,
    instance_posterior,
)
from milbench.likelihood.presence import presence_log_odds, presence_log_prob

__all__ = [
    "EXACT_LABEL_LIMIT", "Bounds", "bag_log_prob", "bag_log_prob_bounds", "bag_log_prob_from_logits", "best_label_set",
    "instance_posterior", "label_set_distribution", "presence_log_odds", "presence_log_prob",
]  # fmt: skip
