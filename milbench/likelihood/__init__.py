"""The exact likelihood of a bag's label set, and what follows from it.

These are posteriors, bounds, and the most probable label set. The source is X.-L. Li,
arXiv:1811.12346, 2018. Given the probabilities of a bag, every position independently emits one
class or the background. The functions share three arguments:

- `log_probs` (B, C+1, *positions) holds natural logarithms of probabilities, for B bags and C
  classes, background last. There may be any number of position dimensions; without any, a bag has
  one position.
- `labels` (B, C), bool or 0/1, says which classes occur in the bag.
- `mask` (B, *positions) bool is True where there is an instance.

Logarithms that are returned are natural as well (nats). The package may import `milbench.contracts`
and `milbench.errors` only.
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
    "EXACT_LABEL_LIMIT", "Bounds", "bag_log_prob", "bag_log_prob_bounds",
    "bag_log_prob_from_logits", "best_label_set", "instance_posterior", "label_set_distribution",
    "presence_log_odds", "presence_log_prob",
]  # fmt: skip
