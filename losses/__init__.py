"""The built-in losses, one a file, as criteria for any training loop: `from milbench.losses import Exact`.

`milbench.contracts.registry` finds each by the name of its file. A loss may import the public names
of `milbench`, `milbench.errors` and `milbench.likelihood`, and what losses share from this folder:
a user who imports one has installed torch, and waits for nothing else.
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
    "Attention", "AutoPool", "Count", "CrossEntropy", "Ctc", "Exact", "ExactEM", "ExponentialSoftmax",
    "GeneralisedMean", "HardEM", "Isr", "LinearSoftmax", "LogSumExp", "MaxPooling", "Mean", "NoisyAnd", "NoisyOr",
    "OneVsRest", "Position", "PowerPooling", "Superset", "TopK", "pad_bags",
]  # fmt: skip
