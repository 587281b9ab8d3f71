"""What the differences of one task show: which losses are shown to be worse, and which are not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from milbench.report.formatting import interval, measured, number, with_unit
from milbench.report.pairs import in_figures
from milbench.report.statistics import PairwiseComparison
from milbench.report.study import Study, Variant


@dataclass(frozen=True)
class Judged:
    """One task with what its differences show.

    Args:
        study: the results.
        task: the label of the task.
        comparison: of the losses of one kind of supervision.
    """

    study: Study
    task: str
    comparison: PairwiseComparison[Variant]

    @cached_property
    def losses(self) -> list[Variant]:
        """The losses that can be compared: those with an interval beside another one that the metric tells apart."""
        pairs = self.comparison.differences
        known = {
            v
            for pair, one in pairs.items()
            if math.isfinite(one.interval[0]) and self.comparison.tells_apart(*pair)
            for v in pair
        }
        return [v for v in self.comparison.keys if v in known]

    @cached_property
    def worse(self) -> list[Variant]:
        """The losses than which another one is better."""
        return [v for v in self.losses if self.comparison.better_than(v)]

    @cached_property
    def unbeaten(self) -> list[Variant]:
        """The others, that with the best mean first."""
        sign = 1 if self.comparison.lower_is_better else -1
        kept = [v for v in self.losses if v not in self.worse]
        return sorted(kept, key=lambda v: sign * self.study.sample(self.task, v).mean)

    @property
    def best_mean(self) -> Variant:
        """The loss with the best mean, however many seeds it has."""
        sign = 1 if self.comparison.lower_is_better else -1
        return min(self.comparison.keys, key=lambda v: sign * self.study.sample(self.task, v).mean)

    @property
    def left_out(self) -> list[Variant]:
        """The losses that were planned and cannot be compared."""
        kinds = {v.supervision for v in self.comparison.keys}
        return [v for v in self.study.variants_of(self.task) if v.supervision in kinds and v not in self.losses]

    def value(self, variant: Variant) -> str:
        """Return a mean with its interval."""
        sample, metric = self.study.sample(self.task, variant), self.study.metric(self.task)
        text = with_unit(measured(sample.mean, sample.spread, metric), metric)
        if math.isfinite(sample.student[0]):
            text += f" {interval(sample.student, sample.mean, sample.spread, metric)}"
        return text

    def mean(self, variant: Variant) -> str:
        """Return a mean with two or three digits."""
        metric = self.study.metric(self.task)
        value = self.study.sample(self.task, variant).mean
        return with_unit(number(value, 1 if metric.percent else 3, metric), metric)

    def difference(self, first: Variant, second: Variant) -> str:
        """Return a difference with its interval and unit."""
        metric = self.study.metric(self.task)
        mean, bounds = in_figures(self.comparison.difference(first, second), metric)
        return f"{mean} {bounds}{' percentage points' if metric.percent else ''}"
