"""The statistics of a comparison: intervals of losses, and which losses may be the best.

As in reports, a loss here is a variant: a loss with its settings, its network and its recipe.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.contracts.metric_info import describe
from milbench.contracts.outcomes import Outcomes
from milbench.report.draws import Searches, SearchSize, arms_of_cells, values_of_draws
from milbench.report.item_noise import item_noise, outcomes_behind
from milbench.report.learning import has_learnt_by
from milbench.report.looks import Look, looks
from milbench.report.statistics.contenders import Contenders, contenders
from milbench.report.statistics.differences import (
    Difference,
    compare_pair,
    share_interval,
    student_interval,
)
from milbench.report.statistics.pairs import scale_of
from milbench.report.statistics.sampling import SamplingNoise
from milbench.report.statistics.selection import Search
from milbench.report.uses import Use
from milbench.report.values import STEP, Values, cached


class Study(Values):
    """The values of results, and the statistics that are computed from them.

    `milbench.report.learning` says whether anything was learnt.
    """

    @cached_property
    def may_be_best(self) -> set[str]:
        """The losses that may be the best on some task; none if no task has a verdict."""
        found = set()
        for task in self.tasks:
            contender = self.summary(task)["contender"]
            found |= set(contender.index[contender])
        return found

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The colour and the marker of each loss: see `milbench.report.looks`."""
        first = self.cells.drop_duplicates("variant")
        cells = zip(first["variant"], first["cell"], strict=True)
        return looks({str(variant): self.planned[cell] for variant, cell in cells})

    @cached
    def summary(self, task: str, metric: str = "") -> pd.DataFrame:
        """Return a row for each loss with what is known by a metric, the best mean first.

        The index has the names of the variants. The columns are:

        - contender (bool): whether it may be the best;
        - worse_by: the largest amount by which it may be worse than the best, in the unit of the
          metric; NaN if the loss is excluded, which means that it is shown to be worse than the
          best, or if the amount is not known;
        - mean, and sd, the sample standard deviation, over seeds;
        - low and high: the 95 % interval of the mean, see `_interval`; NaN if it is not known;
        - seeds and planned: how many seeds have a value, and how many were planned;
        - step: the seconds of the quickest training step of a cell, the mean over seeds;
        - supervision: its kind of supervision.
        """
        name = metric or self.primary(task)
        table = self.table(task, name)
        cells = self.cells_of(task)
        is_contender, worse_by = self._verdict_of_rows(task, name)
        bounds = self._intervals(task, name)
        summary = pd.DataFrame(
            {
                "contender": is_contender,
                "worse_by": worse_by,
                "mean": table.mean(axis=1),
                "sd": table.std(axis=1),
                "low": bounds["low"],
                "high": bounds["high"],
                "seeds": table.notna().sum(axis=1),
                "planned": cells.groupby("variant")["seed"].nunique(),
                "step": self.table(task, STEP).mean(axis=1),
            },
            index=table.index,
        )
        summary["supervision"] = [self.supervision[str(variant)] for variant in summary.index]
        return summary.sort_values("mean", ascending=describe(name).lower_is_better, kind="stable")

    def _verdict_of_rows(
        self, task: str, metric: str
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return, for each row of `table`, whether its loss may be the best, and a bound.

        The bound is the largest amount by which the loss may be worse than the best. It is NaN if
        the loss is excluded, or if nothing is known of variances.
        """
        num_losses = len(self.table(task, metric))
        is_contender = np.zeros(num_losses, bool)
        worse_by = np.full(num_losses, np.nan)
        # Only losses with the same kind of supervision are compared.
        for found in self.contenders(task, metric).values():
            is_contender |= found.contender
            # The bound says how safe it is to choose a loss. Nobody chooses an excluded one.
            worse_by = np.where(found.contender, found.worse_by, worse_by)
        return is_contender, worse_by

    def _intervals(self, task: str, metric: str) -> pd.DataFrame:
        """Return the bounds of the 95 % interval of each mean, low and high."""
        table = self.table(task, metric)
        rows = {}
        for variant, values in table.iterrows():
            rows[variant] = self._interval(task, metric, str(variant), values.dropna())
        bounds = pd.DataFrame.from_dict(rows, orient="index", columns=["low", "high"])
        is_any_negative = bool((table < 0).any(axis=None))
        is_any_above_one = bool((table > 1).any(axis=None))
        # Student's interval may reach beyond the values that a metric can have: 0 to 1 for a share,
        # and from 0 on for other metrics without negative values.
        if is_any_negative:
            return bounds
        # `describe` knows a metric by its name alone, and a user's own task may give values above 1
        # under the name of a share. Intervals of these are not cut at 1.
        if describe(metric).is_share and not is_any_above_one:
            return bounds.clip(0, 1)
        return bounds.clip(lower=0)

    def _interval(
        self, task: str, metric: str, variant: str, values: pd.Series[float]
    ) -> tuple[float, float]:
        """Return the 95 % interval of the mean of a loss over seeds; (nan, nan): not known.

        From three seeds on it is by Student's distribution. With one seed it is an interval over
        test items, if the value is the share of wrong items. Two seeds have none: two values do not
        show how far seeds vary.
        """
        if len(values) == 1:
            only = outcomes_behind(self, task, variant, values.index[0], metric, values.iloc[0])
            if only is not None and _counts_items(only):
                return share_interval(int(only.sums.sum(dtype=np.int64)), len(only))
        return student_interval(values.to_numpy(), overlap=self._overlap(task))

    def _overlap(self, task: str) -> float:
        """Return by how much intervals are widened because seeds share training bags.

        If every seed splits the same bags, the training bags of two seeds overlap. The mean of
        their values then varies more than that of independent values. The correction of Nadeau and
        Bengio for this is the number of test bags divided by the number of training bags: see
        `milbench.report.statistics.differences`. It is 0 if each seed has bags of its own.
        """
        return self.info(task).overlap

    def compare(self, task: str, first: str, second: str, metric: str = "") -> Difference:
        """Return the value of the first loss less that of the second, by a metric.

        The two losses are paired by seeds and test items.
        """
        table = self.table(task, metric)
        noise = self.noise(task, metric)
        rows = list(table.index)
        return compare_pair(
            table.to_numpy(),
            rows.index(first),
            rows.index(second),
            noise=noise,
            overlap=self._overlap(task),
        )

    def noise(self, task: str, metric: str = "") -> SamplingNoise | None:
        """Return how far other test items would change the values of `table`; None: not known."""
        return item_noise(self, task, metric or self.primary(task))

    @cached
    def contenders(
        self, task: str, metric: str = "", *, settings_are_given: bool = False
    ) -> dict[str, Contenders]:
        """Return kind of supervision -> which rows of `table` may be the best.

        The result is empty if fewer than two seeds have values, or if no loss has learnt anything.
        It lacks kinds of supervision whose losses have too few common seeds to show how much they
        vary.

        Args:
            task: one of the tasks.
            metric: the metric without its split; "": the primary one.
            settings_are_given: take the settings that a search has chosen as given, as if another
                search would choose the same settings.
        """
        name = metric or self.primary(task)
        table = self.table(task, name)
        seeds_with_values = int(table.notna().any().sum())
        if seeds_with_values < 2 or not has_learnt_by(self, task, name):
            return {}
        by_kind = {}
        for kind in self.kinds:
            judged = self._judged_losses(task, name, kind)
            searches: dict[str, Search | None] = {}
            if not settings_are_given:
                searches = {loss: self.search(task, loss, name) for loss in judged}
            # `contenders` must get all rows of `table`, since its answers are for rows by their
            # numbers. Therefore the losses that are not judged stay in the table, with NaN.
            is_judged = table.index.isin(judged)
            found = contenders(
                np.where(is_judged[:, None], table, np.nan),
                lower_is_better=describe(name).lower_is_better,
                noise=self.noise(task, name),
                overlap=self._overlap(task),
                searches=[searches.get(str(loss)) for loss in table.index],
                scale=scale_of(describe(name)),
            )
            # `found.rows` are the losses with values. With one common seed of these losses,
            # variances and bounds are not known, and there is no verdict on them. A single loss
            # needs no bounds.
            if len(found.rows) < 2 or np.isfinite(found.worse_by).any():
                by_kind[kind] = found
        return by_kind

    def _judged_losses(self, task: str, metric: str, kind: str) -> list[str]:
        """Return the losses with a kind of supervision whose values of a metric are complete."""
        incomplete = self.incomplete(task, metric)
        return [
            str(loss)
            for loss in self.table(task, metric).index
            if self.supervision[str(loss)] == kind and loss not in incomplete
        ]

    @cached
    def incomplete(self, task: str, metric: str) -> list[str]:
        """Return the losses that have finite values of a metric, but not from all their done cells.

        The value that is missing may be the worst of all, such as an infinite negative
        log-likelihood. The values of the other seeds alone would make the loss look better than it
        is. So the loss is not judged by this metric.
        """
        # The table has NaN for all values that are not finite.
        table = self.table(task, metric)
        cells = self.cells_of(task)
        done = cells[cells["status"] == "done"].groupby("variant")["seed"].nunique()
        values = table.notna().sum(axis=1)
        # A loss without any value does not have the metric, and so lacks none.
        return [str(loss) for loss in table.index if 0 < values[loss] < done.get(loss, 0)]

    def metric_of_use(self, task: str, use: Use) -> str | None:
        """Return the metric by which a use is judged on a task; None if no loss has one.

        A use is what somebody does with a trained network, such as to rank bags. Of its metrics,
        the one that most losses have is returned, and of several such metrics the first one.
        """
        losses_with_value = {}
        for metric in use.metrics:
            if metric in self.metrics(task):
                values = self.table(task, metric).notna().any(axis=1)
                losses_with_value[metric] = int(values.sum())
        most = max(losses_with_value.values(), default=0)
        if most == 0:
            return None
        return next(metric for metric, losses in losses_with_value.items() if losses == most)

    def resolution(self, task: str, metric: str = "") -> float:
        """Return the smallest difference that would show with 80 % power; nan: not known.

        It is for the losses with the least supervision, whose kind is `kinds[0]`. See
        `Contenders.resolution`.
        """
        found = self.contenders(task, metric).get(self.kinds[0])
        return math.nan if found is None else found.resolution()

    def resolution_of_given_settings(self, task: str, metric: str = "") -> float:
        """Return the resolution if the settings that a search has chosen are taken as given."""
        found = self.contenders(task, metric, settings_are_given=True).get(self.kinds[0])
        return math.nan if found is None else found.resolution()

    def worse_with_given_settings(self, task: str, metric: str = "") -> list[str]:
        """Return the contenders that would be excluded if chosen settings were taken as given.

        Like `resolution`, this is about losses with the least supervision.
        """
        kind = self.kinds[0]
        with_search = self.contenders(task, metric).get(kind)
        given = self.contenders(task, metric, settings_are_given=True).get(kind)
        if with_search is None or given is None:
            return []
        only_by_search = with_search.contender & ~given.contender
        losses = self.table(task, metric).index[only_by_search]
        # In the order of the summary, the best mean first.
        return [str(loss) for loss in self.summary(task, metric).index if loss in losses]

    @cached_property
    def values_of_draws(self) -> pd.DataFrame:
        """The values of every draw of a search: see `milbench.report.draws.values_of_draws`."""
        return values_of_draws(self.results)

    @cached_property
    def _searches(self) -> Searches:
        """The searches for settings, with the values of their draws."""
        return Searches(self.plan.search, self.values_of_draws)

    @cached_property
    def _arms(self) -> dict[str, str]:
        """Cell -> the key of the arm whose search gave the cell its settings.

        An arm is what settings are searched for: a variant on a task.
        """
        return arms_of_cells(self.plan)

    @cached
    def _arm(self, task: str, variant: str) -> str | None:
        """Return the key of the arm whose search gave a loss its settings.

        None if no search did, or if several did.
        """
        cells_of_task = self.cells_of(task)
        cells = cells_of_task.loc[cells_of_task["variant"] == variant, "cell"]
        arms = {self._arms[cell] for cell in cells if cell in self._arms}
        return arms.pop() if len(arms) == 1 else None

    def search(self, task: str, variant: str, metric: str) -> Search | None:
        """Return the search that gave a loss its settings, with test values of a metric.

        None if there was no search, or if it was too small.
        """
        arm = self._arm(task, variant)
        return None if arm is None else self._searches.of(arm, metric)

    def small_searches(self, task: str) -> list[SearchSize]:
        """Return the sizes of the searches on a task that were too small, each size once."""
        found = set()
        for variant in self.table(task).index:
            arm = self._arm(task, str(variant))
            size = None if arm is None else self._searches.size_of(arm)
            if size is not None and size.is_small:
                found.add(size)
        return sorted(found)


def _counts_items(outcomes: Outcomes) -> bool:
    """Return whether outcomes are zeros and ones of items with equal weights.

    Their sum is then a number of items, such as those that are wrong.
    """
    count_alike = bool((outcomes.weights == 1).all())
    return count_alike and bool(np.isin(outcomes.sums, (0, 1)).all())
