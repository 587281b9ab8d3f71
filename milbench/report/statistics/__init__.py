"""The statistics of a report: the choice of epochs, intervals of means, and differences between losses.

It imports `milbench.api` and numerical libraries alone.
"""

from milbench.report.statistics.comparison import PairwiseComparison, Verdict, compare
from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL, Difference, compare_all
from milbench.report.statistics.epochs import RULES, SELECTED_BY, select_epochs
from milbench.report.statistics.means import student_interval
from milbench.report.statistics.pareto import pareto_front
from milbench.report.statistics.ratio import Ratio, paired_ratio
from milbench.report.statistics.sampling import SamplingNoise, sampling_noise
from milbench.report.statistics.shares import share_interval
from milbench.report.statistics.summaries import Unpaired, best_of, welch
from milbench.report.statistics.unpaired import compare_unpaired

__all__ = [
    "FEWEST_SEEDS",
    "LEVEL",
    "RULES",
    "SELECTED_BY",
    "Difference",
    "PairwiseComparison",
    "Ratio",
    "SamplingNoise",
    "Unpaired",
    "Verdict",
    "best_of",
    "compare",
    "compare_all",
    "compare_unpaired",
    "paired_ratio",
    "pareto_front",
    "sampling_noise",
    "select_epochs",
    "share_interval",
    "student_interval",
    "welch",
]
