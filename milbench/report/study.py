"""What the values of losses say: intervals, which losses may be the best, and whether anything was learnt."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from milbench.contracts.metric_info import describe
from milbench.contracts.outcomes import Outcomes
from milbench.report.draws import FEWEST_DRAWS, Searches, arms_of_cells, drawn_values
from milbench.report.epochs import SELECTED_BY
from milbench.report.looks import Look, looks
from milbench.report.statistics.clusters import Clusters
from milbench.report.statistics.contenders import Contenders, contenders
from milbench.report.statistics.differences import (
    FEWEST_SEEDS,
    LEVEL,
    Difference,
    compare_pair,
    share_interval,
    student_interval,
)
from milbench.report.statistics.pairs import kind_of
from milbench.report.statistics.sampling import SamplingNoise, sampling_noise
from milbench.report.statistics.selection import Search
from milbench.report.uses import USES, Use
from milbench.report.values import STEP, Values, cached

CHANCE = {"auroc": 0.5}
"""What scores that say nothing reach by a metric for which no constant answer is evaluated."""

_EXCESS = "excess_"
"""What stands before a metric: its excess over an optimum. Differences are those of the metric itself."""


class Study(Values):
    """The values of results, and what follows from them."""

    @cached_property
    def may_be_best(self) -> set[str]:
        """The losses that may be the best on some task; none where nothing is excluded anywhere."""
        found = set()
        for task in self.tasks:
            contender = self.summary(task)["contender"]
            found |= set(contender.index[contender])
        return found

    @cached_property
    def looks(self) -> dict[str, Look]:
        """How each loss is drawn: see `milbench.report.looks`."""
        first = self.cells.drop_duplicates("variant")
        cells = zip(first["variant"], first["cell"], strict=True)
        return looks({str(variant): self.planned[cell] for variant, cell in cells})

    @cached
    def summary(self, task: str, metric: str = "") -> pd.DataFrame:
        """Return what is known of each variant by a metric, the best mean first, indexed by variant.

        contender (bool), worse_by (see `Contenders`; NaN where the loss is excluded), mean, sd (n - 1), low and high
        (the 95 % interval of the mean: Student's from three seeds on, over test items for one seed), seeds, planned,
        step (the least seconds of a training step, which other work disturbs least) and supervision.
        """
        name = metric or self.primary(task)
        table = self.table(task, name)
        cells = self.cells_of(task)
        is_contender, worse_by = self._ticks(task, name)
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

    def _ticks(self, task: str, metric: str) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return of each row of `table` whether it may be the best, and by how much it may be worse, else NaN."""
        losses = len(self.table(task, metric))
        is_contender = np.zeros(losses, bool)
        worse_by = np.full(losses, np.nan)
        # Each verdict is about the losses of one kind of supervision.
        for found in self.contenders(task, metric).values():
            is_contender |= found.contender
            # A bound says what a tick is worth. Beside an excluded loss it would mislead.
            worse_by = np.where(found.contender, found.worse_by, worse_by)
        return is_contender, worse_by

    def _intervals(self, task: str, metric: str) -> pd.DataFrame:
        """Return the bounds of the 95 % interval of each mean, low and high."""
        table = self.table(task, metric)
        rows = {}
        for variant, values in table.iterrows():
            rows[variant] = self._interval(task, metric, str(variant), values.dropna())
        bounds = pd.DataFrame.from_dict(rows, orient="index", columns=["low", "high"])
        described = describe(metric)
        # Areas below curves are shares, too.
        is_share = described.percent or not described.lower_is_better
        is_beyond = bool(((table < 0) | (table > 1)).any(axis=None))
        # Student's interval knows no bounds of a share, nor that a likelihood ends at zero.
        if is_share and not is_beyond:
            return bounds.clip(0, 1)
        if not (table < 0).any(axis=None):
            return bounds.clip(lower=0)
        return bounds

    def _interval(
        self, task: str, metric: str, variant: str, values: pd.Series[float]
    ) -> tuple[float, float]:
        """Return the 95 % interval of the mean of a loss, or over test items where it has one seed and is a share."""
        if len(values) == 1:
            only = self._outcomes(task, variant, values.index[0], metric, values.iloc[0])
            if only is not None and _counts_items(only):
                return share_interval(int(only.sums.sum(dtype=np.int64)), len(only))
        return student_interval(values.to_numpy(), overlap=self.info(task).overlap)

    def compare(self, task: str, first: str, second: str, metric: str = "") -> Difference:
        """Return the first loss less the second by a metric, paired by seeds and test items."""
        table = self.table(task, metric)
        noise = self.noise(task, metric)
        rows = list(table.index)
        return compare_pair(
            table.to_numpy(), rows.index(first), rows.index(second), noise, self.info(task).overlap
        )

    @cached
    def contenders(
        self, task: str, metric: str = "", *, settings_are_given: bool = False
    ) -> dict[str, Contenders]:
        """Return by kind of supervision which rows of `table` may be the best.

        Nothing where no loss has learnt anything, and where common seeds do not show how much losses vary.

        Args:
            task: one of the tasks.
            metric: without its split; "": the primary one.
            settings_are_given: take the settings that a search has chosen as given, as if another search would choose
                the same ones.
        """
        name = metric or self.primary(task)
        table = self.table(task, name)
        seeds_with_values = int(table.notna().any().sum())
        if seeds_with_values < 2 or not self.has_learnt_by(task, name):
            return {}
        verdicts = {}
        incomplete = self.incomplete(task, name)
        for kind in self.kinds:
            losses = [str(variant) for variant in table.index]
            own = [self.supervision[loss] == kind and loss not in incomplete for loss in losses]
            searches: list[Search | None] = [None] * len(losses)
            if not settings_are_given:
                searches = [
                    self.search(task, loss, name) if is_own else None
                    for loss, is_own in zip(losses, own, strict=True)
                ]
            verdicts[kind] = contenders(
                np.where(np.array(own)[:, None], table, np.nan),
                lower_is_better=describe(name).lower_is_better,
                noise=self.noise(task, name),
                overlap=self.info(task).overlap,
                searches=searches,
                kind=kind_of(describe(name)),
            )
        # One common seed shows no variances: then nothing is known of the losses of a kind.
        return {
            kind: found
            for kind, found in verdicts.items()
            if len(found.rows) < 2 or np.isfinite(found.worse_by).any()
        }

    @cached
    def incomplete(self, task: str, metric: str) -> list[str]:
        """Return the losses that lack a finite value of a metric with a seed whose cell is done.

        An infinite likelihood, say, is the worst of all. Without it the other seeds would make the loss look better
        than it is, so that it is not judged by this metric.
        """
        table = self.table(task, metric)
        cells = self.cells_of(task)
        done = cells[cells["status"] == "done"].groupby("variant")["seed"].nunique()
        values = table.notna().sum(axis=1)
        return [str(loss) for loss in table.index if 0 < values[loss] < done.get(loss, 0)]

    def metric_of_use(self, task: str, use: Use) -> str | None:
        """Return the metric by which a use is judged on a task: the first in its row that most losses have."""
        losses_with_value = {}
        for metric in use.metrics:
            if metric in self.metrics(task):
                values = self.table(task, metric).notna().any(axis=1)
                losses_with_value[metric] = int(values.sum())
        most = max(losses_with_value.values(), default=0)
        for metric, losses in losses_with_value.items():
            if losses == most > 0:
                return metric
        return None

    def resolution(self, task: str, metric: str = "") -> float:
        """Return the smallest difference of losses with the least supervision that would show; nan: not known.

        See `Contenders.resolution`.
        """
        found = self.contenders(task, metric).get(self.kinds[0])
        return math.nan if found is None else found.resolution()

    def resolution_of_given_settings(self, task: str, metric: str = "") -> float:
        """Return the same with the chosen settings taken as given."""
        found = self.contenders(task, metric, settings_are_given=True).get(self.kinds[0])
        return math.nan if found is None else found.resolution()

    def worse_with_given_settings(self, task: str, metric: str = "") -> list[str]:
        """Return the losses that are contenders, but would be worse with the chosen settings taken as given."""
        kind = self.kinds[0]
        with_search = self.contenders(task, metric).get(kind)
        given = self.contenders(task, metric, settings_are_given=True).get(kind)
        if with_search is None or given is None:
            return []
        only_by_search = with_search.contender & ~given.contender
        losses = self.table(task, metric).index[only_by_search]
        return [str(loss) for loss in self.summary(task, metric).index if loss in losses]

    @cached_property
    def drawn_values(self) -> pd.DataFrame:
        """What every draw of a search reached: see `milbench.report.draws.drawn_values`."""
        return drawn_values(self.results)

    @cached_property
    def _searches(self) -> Searches:
        return Searches(self.plan.search, self.drawn_values)

    @cached_property
    def _arms(self) -> dict[str, str]:
        return arms_of_cells(self.plan)

    @cached
    def _arm(self, task: str, variant: str) -> str | None:
        """Return the key of the arm whose search gave a loss its settings; None where none or several did."""
        own = self.cells_of(task)
        cells = own.loc[own["variant"] == variant, "cell"]
        arms = {self._arms[cell] for cell in cells if cell in self._arms}
        return arms.pop() if len(arms) == 1 else None

    def search(self, task: str, variant: str, metric: str) -> Search | None:
        """Return the search that gave a loss its settings, with test values of a metric; None without one."""
        arm = self._arm(task, variant)
        return None if arm is None else self._searches.of(arm, metric)

    def small_searches(self, task: str) -> list[int]:
        """Return the numbers of draws of the searches on a task that are too small to say what another would choose."""
        found = set()
        for variant in self.table(task).index:
            arm = self._arm(task, str(variant))
            draws = 0 if arm is None else self._searches.draws_of(arm)
            if 0 < draws < FEWEST_DRAWS:
                found.add(draws)
        return sorted(found)

    def line(self, task: str, metric: str) -> pd.Series[float]:
        """Return what the best constant answer, or chance, reaches by a metric with each seed; NaN: not known."""
        name = metric
        if name == "own_label_error":
            # The constant answer needs no threshold.
            name = "label_error"
        line = self.constant_answer(task, name)
        if metric in CHANCE:
            return line.fillna(CHANCE[metric])
        return line

    def line_metric(self, task: str) -> str:
        """Return the metric that shows whether anything was learnt: the primary one, or set error if it has no line.

        Of the posterior error it is the set error: label sets are learnt before most instances leave the background.
        """
        names = [name for name in (self.primary(task), SELECTED_BY) if name != "posterior_error"]
        for name in names:
            if self.constant_answer(task, name).notna().any():
                return name
        return names[0]

    def other_lines(self, task: str) -> list[str]:
        """Return the metrics of the uses, beside that of `line_metric`, by which learning can be shown."""
        measured = self.metrics(task)
        found = []
        for use in USES:
            for name in use.metrics:
                if name in measured and self.line(task, name).notna().any():
                    found.append(name)
                    break
        own = self.line_metric(task)
        return [name for name in found if name not in (own, "posterior_error")]

    def has_learnt(self, task: str) -> bool:
        """Return whether any loss has learnt anything, by any use; True where that is not known.

        The metric of `line_metric` is judged at 95 % confidence, and the other uses together at as much.
        """
        return self.has_learnt_by(task, self.line_metric(task)) or bool(self.learnt_by_others(task))

    @cached
    def learnt_by_others(self, task: str) -> dict[str, list[str]]:
        """Return the metrics of other uses by which losses are better than no skill, and which losses are.

        With 95 % confidence for all these metrics together. With one seed or two nobody knows how much losses vary.
        """
        names = self.other_lines(task)
        level = 1 - (1 - LEVEL) / max(len(names), 1)
        found = {}
        for name in names:
            if int(self.table(task, name).notna().any().sum()) >= FEWEST_SEEDS:
                better = self._better_than_line(task, name, level)
                if better:
                    found[name] = better
        return found

    @cached
    def has_learnt_by(self, task: str, metric: str) -> bool:
        """Return whether a loss has learnt anything by a metric; by any use, where the metric itself has no line.

        True where nothing is known.
        """
        has_line = metric != "posterior_error" and self.line(task, metric).notna().any()
        if has_line or metric == self.line_metric(task):
            is_known = self._gains(task, metric).notna().any(axis=None)
            return not is_known or bool(self._better_than_line(task, metric, LEVEL))
        return self.has_learnt(task)

    def _gains(self, task: str, metric: str) -> pd.DataFrame:
        """Return by how much losses with the least supervision are better than the line, by loss and seed."""
        table = self.table(task, metric)
        line = self.line(task, metric)
        gains = line - table if describe(metric).lower_is_better else table - line
        return gains[[self.supervision[str(v)] == self.kinds[0] for v in table.index]]

    def _better_than_line(self, task: str, metric: str, level: float) -> list[str]:
        """Return the losses that are better than the best constant answer beyond noise.

        The constant answer is judged as one more loss; with one seed or two a loss has to beat it with each. The mean
        of a loss also has to beat it by more than another draw of the test items explains, where that is known.
        """
        gains = self._gains(task, metric)
        seeds = int(gains.notna().any().sum())
        if seeds >= FEWEST_SEEDS:
            is_beyond_seeds = self._beats_line_by_seeds(task, metric, level)
        else:
            is_beyond_seeds = gains.min(axis=1) > 0
        least = self._least_gain(task, metric, level)[gains.index]
        is_better = is_beyond_seeds & (gains.mean(axis=1) > least)
        return [str(loss) for loss in gains.index[is_better]]

    def _beats_line_by_seeds(self, task: str, metric: str, level: float) -> pd.Series[bool]:
        """Return which losses are better than the constant answer by more than seeds explain."""
        gains = self._gains(task, metric)
        line = self.line(task, metric).where(gains.notna().any())
        table = self.table(task, metric).loc[gains.index]
        judged = contenders(
            np.vstack([table, line]),
            lower_is_better=describe(metric).lower_is_better,
            overlap=self.info(task).overlap,
            level=level,
            kind=kind_of(describe(metric)),
        )
        beats = pd.Series(False, gains.index)
        # The line is the last row. It is worse than a loss by more than the width.
        is_worse = judged.pairs.difference[-1] > judged.pairs.widths()[-1]
        for place, row in enumerate(judged.rows[:-1]):
            beats.iloc[row] = bool(is_worse[place])
        return beats

    def _least_gain(self, task: str, metric: str, level: float) -> pd.Series[float]:
        """Return what the mean of each loss has to gain on the constant answer, as the draw of test items moves it."""
        table = self.table(task, metric)
        noise = self.noise(task, metric)
        if noise is None:
            return pd.Series(0.0, table.index)
        weights = table.notna().div(table.notna().sum(axis=1), axis=0).to_numpy()
        variances = np.einsum("isit,is,it->i", noise.covariance, weights, weights)
        # Of about so many constant answers alike, a loss may have hit on one that suits the test items better than
        # the one that training bags have shown.
        rest = 1 - float(self.line(task, metric).mean())
        alike = 1 / max(rest, 0.01)
        quantile = ndtri(1 - (1 - level) / len(table) / alike)
        # The line has the variance of a loss as well.
        return pd.Series(quantile * np.sqrt(2 * variances), table.index)

    @cached
    def noise(self, task: str, metric: str = "") -> SamplingNoise | None:
        """Return what the draw of the test items adds to `table`; None where the outcomes of a value are not known."""
        table = self.table(task, metric)
        name = (metric or self.primary(task)).removeprefix(_EXCESS)
        values = self.table(task, name)
        rows: list[list[Outcomes | None]] = []
        clusters: dict[str, Clusters] = {}
        for variant, row in table.iterrows():
            by_seed = {}
            for seed in row.dropna().index:
                outcomes = self._outcomes(task, str(variant), seed, name, values[seed][variant])
                if outcomes is None:
                    return None
                own_name = self._name_of_items(task, outcomes, seed)
                cell = self.cell_ids[task, str(variant), seed]
                shared = self._clusters(cell, outcomes.items)
                if shared is not None:
                    clusters[own_name] = shared
                by_seed[seed] = replace(outcomes, items=own_name)
            rows.append([by_seed.get(seed) for seed in table.columns])
        try:
            return sampling_noise(rows, clusters)
        except ValueError:
            # So many test bags share something that nothing is known of how far they vary.
            return None

    def _name_of_items(self, task: str, outcomes: Outcomes, seed: int) -> str:
        """Return what tells the test items of a cell from others. In folds, equal digests are still other bags."""
        info = self.info(task)
        if info.overlap or info.folds:
            return f"{outcomes.items} of seed {seed}"
        return outcomes.items

    @cached_property
    def _clusters_by_digest(self) -> dict[str, Clusters | None]:
        return {}

    def _clusters(self, cell: str, digest: str) -> Clusters | None:
        """Return which test bags of a cell share something; None where none do, or nobody kept it."""
        known = self._clusters_by_digest
        if digest not in known:
            bag_items = self.evidence(cell).bag_items.get(digest)
            known[digest] = None if bag_items is None else bag_items.clusters()
        return known[digest]

    def _outcomes(
        self, task: str, variant: str, seed: int, metric: str, value: float
    ) -> Outcomes | None:
        """Return the outcomes behind a value; None where they were not kept, or are those of another epoch."""
        cell = self.cell_ids[task, variant, seed]
        for by_metric in self.evidence(cell).outcomes:
            outcomes = by_metric.get(metric) or by_metric.get(f"{cell}/{metric}")
            # The sums are in single precision.
            if outcomes is not None and np.isclose(outcomes.value, value, rtol=1e-5, atol=1e-9):
                return outcomes
        return None


def _counts_items(outcomes: Outcomes) -> bool:
    """Return whether outcomes are zeros and ones of items that count alike."""
    count_alike = bool((outcomes.weights == 1).all())
    return count_alike and bool(np.isin(outcomes.sums, (0, 1)).all())
