"""Results by task and variant: the value of each seed under each rule that chooses an epoch, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from milbench.api.folds import Folds
from milbench.api.metric_info import METRICS, Metric, describe
from milbench.api.outcomes import Outcomes
from milbench.api.published import Published, Rule
from milbench.api.results import Results
from milbench.api.supervision import SUPERVISIONS
from milbench.errors import UsageError
from milbench.report.formatting import shortened
from milbench.report.outcomes import read_outcomes
from milbench.report.statistics import (
    LEVEL,
    RULES,
    SELECTED_BY,
    PairwiseComparison,
    compare,
    select_epochs,
    student_interval,
)

_SUPERVISION_ORDER = list(SUPERVISIONS)
SETS, LABELS = "set_error", ("own_label_error", "label_error")
"""The error of label sets, and what leads in its place where nearly all of them are wrong, the first that is known."""
NEARLY_ALL = 0.95
"""The share of the set error of guessing from which set errors do not tell losses apart."""


class Variant(NamedTuple):
    """What is compared, a line of a table: a loss with its parameters, under one recipe.

    Args:
        supervision: its kind of supervision.
        loss: the label of the loss with the parameters that set it apart.
        recipe: the parameters in which recipes differ, "" where they do not.
    """

    supervision: str
    loss: str
    recipe: str

    @property
    def label(self) -> str:
        """The name that tables and figures show."""
        return f"{self.loss} ({self.recipe})" if self.recipe else self.loss


@dataclass(frozen=True)
class Sample:
    """One value a seed, and the reasons why other seeds have none.

    Args:
        by_seed: the finite values, indexed by seed.
        planned: the number of planned seeds.
        problems: the reasons for missing values, a phrase each.
        overlap: how many bags are tested on for each that is trained on where seeds split the same bags, else 0.
    """

    by_seed: pd.Series[float]
    planned: int
    problems: tuple[str, ...] = ()
    overlap: float = 0.0

    @property
    def mean(self) -> float:
        """The mean of the values, nan for none."""
        return float(self.by_seed.mean()) if len(self.by_seed) else float("nan")

    @property
    def spread(self) -> float:
        """The standard deviation between seeds (n - 1), nan for fewer than two."""
        # Of equal values it can be 1e-17 by rounding, which would show digits that are not meaningful.
        return round(float(self.by_seed.std(ddof=1)), 12) if len(self.by_seed) > 1 else float("nan")

    @cached_property
    def student(self) -> tuple[float, float]:
        """Student's interval of the mean over training seeds, (nan, nan) for fewer than three."""
        return student_interval(self.by_seed.to_numpy(), overlap=self.overlap)


class Study:
    """A view of `Results` by task and variant; variants are ordered by their supervision, the least first.

    `problems` has a sentence for every file of outcomes that could not be read when a comparison needed it.

    Args:
        results: the planned cells and their results.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self.cells = results.cells
        self.tasks: list[str] = list(dict.fromkeys(self.cells["task_label"].astype(str)))
        keys = self.cells[["supervision", "loss_label", "recipe_label"]].astype(str)
        variants = dict.fromkeys(Variant(*key) for key in keys.itertuples(index=False, name=None))
        self.variants = sorted(variants, key=lambda v: (_supervision_rank(v.supervision), v.supervision))
        first = self.cells.drop_duplicates("task_label")
        self._planned = dict(zip(first["task_label"].astype(str), first["primary"].astype(str), strict=True))
        self._leading: dict[str, str] = {}
        self.problems: list[str] = []
        self._comparisons: dict[tuple[str, str, str], PairwiseComparison[Variant]] = {}
        self._samples: dict[tuple[str, Variant, str, Rule], Sample] = {}
        self._groups: dict[tuple[str, Variant], pd.DataFrame] = {}
        for (task, *key), group in self.cells.groupby(
            ["task_label", "supervision", "loss_label", "recipe_label"], sort=False
        ):
            self._groups[str(task), Variant(*map(str, key))] = group.sort_values("seed")
        self._histories = _by_task(results)

    def group(self, task: str, variant: Variant) -> pd.DataFrame:
        """Return the planned cells of one variant on one task, ordered by seed; none where it was not planned."""
        found = self._groups.get((task, variant))
        return self.cells.iloc[:0] if found is None else found

    def variants_of(self, task: str, supervision: str | None = None) -> list[Variant]:
        """Return the variants that were planned for a task, those of one kind of supervision where it is named."""
        planned = [variant for variant in self.variants if len(self.group(task, variant))]
        return [variant for variant in planned if supervision in (None, variant.supervision)]

    def supervisions_of(self, task: str) -> list[str]:
        """Return the kinds of supervision among the variants of a task."""
        return list(dict.fromkeys(variant.supervision for variant in self.variants_of(task)))

    def primary(self, task: str) -> str:
        """Return the name of the metric that leads on a task: its primary one, as a rule.

        Where nearly all label sets are wrong with every variant, differences in set error say nothing, and the label
        error takes its place, if it was recorded: that with a threshold of its own where every finished cell has it.
        """
        if task not in self._leading:
            self._leading[task] = self._planned[task]
            known = self._with_results(task, SETS)
            if self._planned[task] == SETS and known and self.nearly_all_wrong(task) >= known:
                of_labels = [name for name in LABELS if self._with_results(task, name) == known]
                self._leading[task] = next(iter(of_labels), SETS)
        return self._leading[task]

    def planned_metric(self, task: str) -> str:
        """Return the name of the metric by which the losses were to be compared on a task, whichever leads now."""
        return self._planned[task]

    def is_replaced(self, task: str) -> bool:
        """Return whether the label error leads on a task in place of its primary metric, the set error."""
        return self.primary(task) != self._planned[task]

    def nearly_all_wrong(self, task: str) -> frozenset[Variant]:
        """Return the variants whose mean set error is `nearly_all` or more."""
        known = self._with_results(task, SETS)
        return frozenset(v for v in known if self._of_sets(task, v, SETS).mean >= self.nearly_all(task))

    def nearly_all(self, task: str) -> float:
        """Return the set error from which nearly all label sets are wrong: `NEARLY_ALL` of that of guessing.

        Guessing is taken to be always wrong where its set error is not known.
        """
        guess = self._chance(task) if self._planned[task] == SETS else None
        return NEARLY_ALL * (1.0 if guess is None else guess)

    def _with_results(self, task: str, metric: str) -> frozenset[Variant]:
        return frozenset(v for v in self.variants_of(task) if len(self._of_sets(task, v, metric).by_seed))

    def _of_sets(self, task: str, variant: Variant, metric: str) -> Sample:
        return self.sample(task, variant, metric, self.rule(task))

    def metric(self, task: str) -> Metric:
        """Return the description of the task's primary metric."""
        return describe(self.primary(task))

    def chance(self, task: str) -> float | None:
        """Return the value of the leading metric that guessing gives, None where it is not known."""
        return None if self.is_replaced(task) else self._chance(task)

    def _chance(self, task: str) -> float | None:
        return self.results.chance.get(task)

    def data(self, task: str) -> str:
        """Return which data a task is made of: its name and the digest of its data, for variants of one task alike."""
        first = self.cells.loc[self.cells["task_label"] == task].iloc[0]
        return f"{first['task']} ({first['data_digest']})"

    def folds(self, task: str) -> Folds | None:
        """Return the cross-validation of which the seeds of a task are the folds, None where they are no folds."""
        cells = self.cells.index[self.cells["task_label"] == task]
        return next((self.results.folds[cell] for cell in map(str, cells) if cell in self.results.folds), None)

    def step_cost(self, task: str) -> str:
        """Return the cost by which the steps of losses are compared, one of `Results.costs`, the same for all of them.

        It is the least time, which is less disturbed by what else a machine does than the median. The median stands in
        for it where a cell has no least time, as a run of an earlier version.
        """
        times = self.results.costs.reindex(columns=["step_seconds_min", "step_seconds"])
        times = times.reindex(self.cells.index[(self.cells["task_label"] == task) & (self.cells["status"] == "done")])
        lacks_least = times["step_seconds_min"].isna() & times["step_seconds"].notna()
        return "step_seconds" if lacks_least.any() else "step_seconds_min"

    def overlap(self, task: str) -> float:
        """Return how many bags are tested on for each that is trained on where seeds split the same bags, else 0."""
        cells = map(str, self.cells.index[self.cells["task_label"] == task])
        return next((self.results.overlaps[cell] for cell in cells if cell in self.results.overlaps), 0.0)

    def published(self, task: str) -> list[Published]:
        """Return what was published of a task, for any loss and metric."""
        first = self.cells.loc[self.cells["task_label"] == task].iloc[0]  # all of a label have the same parameters
        params = self.results.params.get(str(first.name), {})
        return [
            Published.from_dict(entry)
            for entry in self.results.published
            if entry["task"] == first["task"]
            and all(params.get(f"task.{name}") == value for name, value in entry.get("params", {}).items())
        ]

    def published_methods(self, task: str) -> list[Published]:
        """Return what was published of methods that are no losses here, on the data of a task and no other."""
        digests = self.cells.loc[self.cells["task_label"] == task, "data_digest"].astype(str)
        return [p for p in self.published(task) if p.method and digests.str.startswith(p.data).all()]

    def history(self, task: str, metric: str) -> pd.DataFrame:
        """Return every value of a metric, such as "test/set_error", with the columns cell, epoch and value."""
        history = self._histories.get(task, self.results.history.iloc[:0])
        return history.loc[history["metric"] == metric, ["cell", "epoch", "value"]]

    @cached_property
    def epochs(self) -> dict[tuple[str, Rule], int]:
        """The epoch that each rule chooses for each finished cell; absent where there is no value to choose by."""
        done = set(self.cells.index[self.cells["status"] == "done"])
        return {
            (str(cell), rule): int(epoch)
            for task, history in self._histories.items()
            for rule in RULES
            for cell, epoch in select_epochs(
                history, rule, self._planned[task], describe(self._planned[task]).lower_is_better
            ).items()
            if cell in done
        }

    @cached_property
    def picked(self) -> dict[tuple[str, Rule], dict[str, float]]:
        """The metrics at the epoch that each rule chooses: (cell, rule) -> "test/set_error" -> value."""
        values: dict[tuple[str, Rule], dict[str, float]] = {key: {} for key in self.epochs}
        if not values:
            return {}
        chosen = pd.DataFrame([(*key, epoch) for key, epoch in self.epochs.items()], columns=["cell", "rule", "epoch"])
        found = self.results.history.merge(chosen, on=["cell", "epoch"])
        for cell, rule, metric, value in zip(
            found["cell"], found["rule"], found["metric"], found["value"].astype(float), strict=True
        ):
            values[cell, rule][metric] = value
        return values

    @cached_property
    def _validated(self) -> dict[str, bool]:
        validated = {}
        for task in self.tasks:
            done = self.cells.index[(self.cells["task_label"] == task) & (self.cells["status"] == "done")]
            known = self.history(task, f"validation/{SELECTED_BY}")["cell"]
            validated[task] = len(done) > 0 and bool(done.isin(known).all())
        return validated

    def validated(self, task: str) -> bool:
        """Return whether all finished cells of a task have a set error on validation bags, and there is one."""
        return self._validated[task]

    def rule(self, task: str) -> Rule:
        """Return the rule by which losses are compared: that of the comparison, but "last" without validation bags."""
        return "last" if self.results.selection == "validation" and not self.validated(task) else self.results.selection

    def candidates(self, task: str) -> str:
        """Return in a sentence among which epochs a rule chooses; "" where all were evaluated on all bags."""
        done = self.cells.index[(self.cells["task_label"] == task) & (self.cells["status"] == "done")]
        tested = self.history(task, f"test/{self.primary(task)}").groupby("cell")["epoch"].nunique()
        trained = self.history(task, "train/loss").groupby("cell")["epoch"].nunique()
        pairs = sorted({(int(tested.get(cell, 0)), int(trained.get(cell, 0))) for cell in done})
        few = " or ".join(f"{count} of {epochs}" for count, epochs in pairs if 0 < count < epochs)
        return f"An epoch is chosen among those that were evaluated on all bags, here {few}." if few else ""

    def metrics(self, task: str) -> list[str]:
        """Return the test metrics of a task besides the primary one, known ones first."""
        names: set[str] = set()
        for variant in self.variants_of(task):
            for cell in self.group(task, variant).index:
                names.update(self.picked.get((str(cell), "last"), {}))
        tested = {name.removeprefix("test/") for name in names if name.startswith("test/")} - {self.primary(task)}
        order = {name: i for i, name in enumerate(METRICS)}
        return sorted(tested, key=lambda name: (order.get(name, len(order)), name))

    def sample(self, task: str, variant: Variant, metric: str | None = None, rule: Rule | None = None) -> Sample:
        """Return the values of a test metric for the seeds of a variant.

        Args:
            task: the label of the task.
            variant: the variant.
            metric: the name of the metric without the split; None: the task's primary metric.
            rule: how the epoch is chosen; None: by the rule of the comparison.

        Returns:
            The values by seed, and the seeds without a value with the reason.
        """
        key = (task, variant, metric or self.primary(task), rule or self.rule(task))
        if key not in self._samples:
            self._samples[key] = self._sample(*key)
        return self._samples[key]

    def _sample(self, task: str, variant: Variant, metric: str, rule: Rule) -> Sample:
        group = self.group(task, variant)
        values: dict[int, float] = {}
        lost: list[tuple[int, str]] = []
        for cell, seed, status, reason in zip(
            map(str, group.index), group["seed"], group["status"], group["reason"], strict=True
        ):
            if status != "done":
                lost.append((seed, f"{status}: {shortened(reason)}" if str(reason or "").strip() else str(status)))
                continue
            # Without any finite validation value no epoch can be chosen; the last one then shows how training ended.
            at = self.picked.get((cell, rule)) or self.picked.get((cell, "last"), {})
            value = at.get(f"test/{metric}")
            if value is None:
                lost.append((seed, "done, but the value was not recorded"))
            elif not np.isfinite(value):
                lost.append((seed, f"diverged, its value is {value}"))
            else:
                values[seed] = value
        return Sample(pd.Series(values, dtype=float), len(group), _by_reason(lost), self.overlap(task))

    def compared(self, task: str) -> list[str]:
        """Return the metrics by which losses are compared on a task: the leading one, and others that were recorded."""
        known = self.metrics(task)
        return [self.primary(task), *(name for name in self.results.compare_by[1:] if name in known)]

    def comparison(self, task: str, supervision: str, metric: str | None = None) -> PairwiseComparison[Variant]:
        """Compare the variants of one kind of supervision by a metric under the rule of the comparison.

        Args:
            task: the label of the task.
            supervision: of the variants.
            metric: its name without the split; None: the primary one.
        """
        metric = metric or self.primary(task)
        if (task, supervision, metric) not in self._comparisons:
            variants = self.variants_of(task, supervision)
            self._comparisons[task, supervision, metric] = self._compared(task, variants, metric)
        return self._comparisons[task, supervision, metric]

    def compare_pairs(
        self, task: str, pairs: Sequence[tuple[Variant, Variant]], metric: str, level: float
    ) -> PairwiseComparison[Variant]:
        """Compare pairs of variants, of any supervision, as a family of their own.

        Args:
            task: the label of the task.
            pairs: the first and the second variant of each.
            metric: its name without the split.
            level: the probability with which the intervals of these pairs hold together.
        """
        variants = list(dict.fromkeys(variant for pair in pairs for variant in pair))
        return self._compared(task, variants, metric, level, pairs)

    def _compared(
        self,
        task: str,
        variants: list[Variant],
        metric: str,
        level: float = LEVEL,
        pairs: Sequence[tuple[Variant, Variant]] | None = None,
    ) -> PairwiseComparison[Variant]:
        return compare(
            {variant: self.sample(task, variant, metric).by_seed for variant in variants},
            {variant: self.outcomes(task, variant, metric) for variant in variants},
            describe(metric).lower_is_better,
            self.results.margin.get(metric),
            level,
            self.overlap(task),
            pairs,
            self.nearly_all_wrong(task) if metric == SETS else (),
        )

    def outcomes(self, task: str, variant: Variant, metric: str) -> dict[int, Outcomes]:
        """Return the outcomes of the test bags behind the values of a variant, by seed, as far as they were kept."""
        rule, group = self.rule(task), self.group(task, variant)
        known: dict[int, Outcomes] = {}
        for cell, seed in zip(map(str, group.index), group["seed"], strict=True):
            # They were kept after the last epoch.
            if cell in self.results.outcomes and self.epochs.get((cell, rule)) == self.epochs.get((cell, "last")):
                at = self.picked.get((cell, "last"), {})
                values = {name.removeprefix("test/"): v for name, v in at.items() if name.startswith("test/")}
                try:
                    found = read_outcomes(self.results.outcomes[cell], metric, values)
                except UsageError as error:
                    self.problems.append(f"{error}.")
                    continue
                if found is not None:
                    known[seed] = found
        if self.overlap(task) or self.folds(task):
            # Test sets of other seeds are other bags, also where their digests are the same: these know no contents.
            known = {seed: replace(found, items=f"{found.items} of seed {seed}") for seed, found in known.items()}
        return known


def _by_task(results: Results) -> dict[str, pd.DataFrame]:
    """Return the history of the cells of each task."""
    history = results.history.assign(metric=results.history["metric"].astype("category"))
    tasks = history["cell"].map(results.cells["task_label"])
    return {str(task): frame for task, frame in history.groupby(tasks, sort=False)}


def seeds_named(seeds: list[int]) -> str:
    """Return seeds with their noun, runs of three and more as a range.

    Examples:
        >>> seeds_named([1]), seeds_named([6, 4, 5, 0])
        ('seed 1', 'seeds 0, 4-6')
    """
    parts: list[str] = []
    numbers = sorted(seeds)
    while numbers:
        run = 1
        while run < len(numbers) and numbers[run] == numbers[0] + run:
            run += 1
        run = run if run > 2 else 1
        parts.append(f"{numbers[0]}-{numbers[run - 1]}" if run > 1 else str(numbers[0]))
        numbers = numbers[run:]
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(parts)}"


def _by_reason(lost: list[tuple[int, str]]) -> tuple[str, ...]:
    reasons: dict[str, list[int]] = {}
    for seed, reason in lost:
        reasons.setdefault(reason, []).append(seed)
    return tuple(f"{seeds_named(seeds)} {reason}" for reason, seeds in reasons.items())


def _supervision_rank(supervision: str) -> int:
    return _SUPERVISION_ORDER.index(supervision) if supervision in _SUPERVISION_ORDER else len(_SUPERVISION_ORDER)
