"""The built-in losses, each in a file of its own, as criteria for any training loop.

A user writes `from milbench.losses import Exact`. `milbench.contracts.registry` finds a loss by the
name of its file.

To import a loss must take no other package than torch, and no time. So a loss imports only public
names of `milbench`, `milbench.errors` and `milbench.likelihood`, and shared files of this folder,
whose names begin with an underscore.

Symbols in the docstrings: L is the label set of a bag, and K its number of positions. z_{c,k} is
the logit of class c at position k, p_{c,k} its probability, and P_c the probability that class c
occurs in the bag. B is the number of bags of a batch, and C the number of classes.
"""

from milbench.contracts.bags import pad_bags

from .attention import Attention
from .auto_pool import AutoPool
from .count import Count
from .cross_entropy import CrossEntropy
from .ctc import Ctc
from .exact import Exact
from .exact_em import ExactEM
from .exponential_softmax import ExponentialSoftmax
from .generalised_mean import GeneralisedMean
from .hard_em import HardEM
from .isr import Isr
from .linear_softmax import LinearSoftmax
from .log_sum_exp import LogSumExp
from .max_pooling import MaxPooling
from .mean import Mean
from .noisy_and import NoisyAnd
from .noisy_or import NoisyOr
from .one_vs_rest import OneVsRest
from .position import Position
from .power_pooling import PowerPooling
from .superset import Superset
from .top_k import TopK

__all__ = [
    "Attention", "AutoPool", "Count", "CrossEntropy", "Ctc", "Exact", "ExactEM",
    "ExponentialSoftmax", "GeneralisedMean", "HardEM", "Isr", "LinearSoftmax", "LogSumExp",
    "MaxPooling", "Mean", "NoisyAnd", "NoisyOr", "OneVsRest", "Position", "PowerPooling",
    "Superset", "TopK", "pad_bags",
]  # fmt: skip
