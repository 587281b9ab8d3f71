"""The exact likelihood of a bag's label set under independent instances (Li, 2018), and what follows from it.

Everywhere: `log_probs` is (B, C+1, *positions), natural logarithms, background last, any number of position
dimensions (none: one position); `labels` is (B, C), bool or 0/1, which classes are in the bag; `mask` is
(B, *positions) bool, True where there is an instance. Results are in nats.
"""

from milbench.likelihood.bounds import Bounds, bag_log_prob_bounds
from milbench.likelihood.distribution import label_set_distribution
from milbench.likelihood.exact import EXACT_LABEL_LIMIT, bag_log_prob, instance_posterior
from milbench.likelihood.presence import presence_log_odds, presence_log_prob, presence_prob
from milbench.likelihood.search import BestLabelSets, best_label_set

__all__ = [
    "EXACT_LABEL_LIMIT",
    "BestLabelSets",
    "Bounds",
    "bag_log_prob",
    "bag_log_prob_bounds",
    "best_label_set",
    "instance_posterior",
    "label_set_distribution",
    "presence_log_odds",
    "presence_log_prob",
    "presence_prob",
]
