"""The statistics of a report: contenders, differences, intervals of means, and the choice of epochs.

It imports `milbench.api` and numerical libraries alone.
"""

from milbench.report.statistics.contenders import contenders

__all__ = ["contenders"]
