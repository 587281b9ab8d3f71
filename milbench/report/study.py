"""The values by which losses are compared: of each cell those at the epoch that counts, task by task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from milbench.contracts.metric_info import BASELINE, METRICS, Metric, describe
from milbench.contracts.outcomes import Outcomes
from milbench.contracts.published import Rule
from milbench.contracts.supervision import SUPERVISIONS
from milbench.experiment.cell import Cell
from milbench.experiment.plan import TaskInfo
from milbench.report.evidence import Evidence, NoEvidence, evidence_in
from milbench.report.formatting import readable
from milbench.report.looks import Look, looks
from milbench.report.statistics.contenders import Contenders, contenders
from milbench.report.statistics.differences import (
    LEVEL,
    Difference,
    compare_pair,
    share_interval,
    student_interval,
)
from milbench.report.statistics.sampling import SamplingNoise, sampling_noise
from milbench.store.results import Results

CELL_COLUMNS = [
    "task", "variant", "loss", "network", "recipe", "supervision", "seed", "status", "reason", "cell", "run", "machine",
    "code",
]  # fmt: skip
STEP = "cost/step_seconds_min"
NO_SKILL = "no_skill_"  # before the name of a metric: its value for the best constant answer
RULES: dict[Rule, str] = {
    "last": "last epoch",
    "validation": "chosen on validation",
    "test": "best on test (the rule of the paper's program)",
}
SELECTED_BY = "set_error"  # the metric of validation bags by which epochs are chosen: it needs no more than label sets
_EXCESS = "excess_"  # differences in an excess over an optimum are those of the metric itself


class Study:
    """A view of results by task and variant: a loss and a network with their parameters, under one recipe."""

    def __init__(self, results: Results) -> None:
        self.results, self.plan = results, results.plan
        frame = results.frame[results.frame["draw"].isna()].drop(columns="draw")
        frame = frame.astype(dict.fromkeys(frame.select_dtypes("category"), object))
        networks = frame["network"].map(lambda name: f" with {name}" if name else "")
        recipes = frame["recipe"].map(lambda name: f" ({name})" if name else "")
        frame = frame.assign(variant=frame["loss"] + networks + recipes)  # see `Label.variant`
        self.cells = frame[CELL_COLUMNS].drop_duplicates("cell").reset_index(drop=True)
        self._histories = {
            str(task): rows
            for task, rows in frame[frame["metric"] != ""].groupby("task", sort=False)
        }
        self.tasks: list[str] = list(dict.fromkeys(self.cells["task"]))
        self.supervision: dict[str, str] = dict(
            zip(self.cells["variant"], self.cells["supervision"], strict=True)
        )
        self.planned = {cell.id: cell for cell in self.plan.cells}
        self._cell_ids = {
            (row.task, row.variant, row.seed): str(row.cell) for row in rows_of(self.cells)
        }
        for name in (
            "selected",
            "table",
            "summary",
            "noise",
            "contenders",
            "_done",
            "_evidence_in",
        ):  # asked for many times
            setattr(self, name, cache(getattr(self, name)))

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

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of supervision, from the least to the most."""
        return [kind for kind in SUPERVISIONS if kind in self.supervision.values()]

    def cell_of(self, task: str) -> Cell:
        """Return the first cell of a task, whose data and parameters are those of all."""
        return self.planned[self.cells_of(task)["cell"].iloc[0]]

    def cells_of(self, task: str) -> pd.DataFrame:
        """Return the rows of `cells` of a task."""
        return self.cells[self.cells["task"] == task]

    def done_cells(self, task: str, variant: str) -> list[str]:
        """Return the done cells of a loss on a task, one for each seed."""
        own = self.cells_of(task)
        cells = own.loc[own["variant"] == variant, "cell"]
        return [str(cell) for cell in cells if cell in self.results.folders]

    def info(self, task: str) -> TaskInfo:
        """Return what the plan says of a task."""
        return self.plan.info(self.cell_of(task))

    def history(self, task: str) -> pd.DataFrame:
        """Return every value of a task: the rows of `Results.frame` with a metric, and variant."""
        return self._histories.get(task, self.results.frame.iloc[:0].assign(variant=""))

    def primary(self, task: str) -> str:
        """Return the metric that losses are ranked by on a task, without its split."""
        return str(next(iter(self.plan.spec.compare_by), self.info(task).primary))

    def metric(self, task: str) -> Metric:
        """Return the description of the metric that losses are ranked by."""
        return describe(self.primary(task))

    def margin(self, task: str) -> float:
        """Return the largest difference that counts as none by the metric that losses are ranked by; 0: none is set."""
        return float(self.plan.spec.margin.get(self.primary(task), 0))

    def rule(self, task: str) -> Rule:
        """Return the rule that chooses the epoch: that of the plan, but "last" without validation values of all."""
        if self.plan.spec.selection != "validation":
            return "last"
        done = self.cells_of(task).query("status == 'done'")["cell"]
        validated = self.history(task).loc[
            self.history(task)["metric"] == f"validation/{SELECTED_BY}", "cell"
        ]
        return "validation" if len(done) and done.isin(validated).all() else "last"

    def selected(self, task: str, metric: str = "", rule: Rule | None = None) -> pd.DataFrame:
        """Return the values of a task's done cells at the epoch that counts for a metric, "" being the primary one."""
        name = metric or self.primary(task)
        done = self.history(task)[self.history(task)["status"] == "done"]
        epochs = select_epochs(done, rule or self.rule(task), name, describe(name).lower_is_better)
        return done[
            (done["epoch"] == done["cell"].map(epochs)) | done["metric"].str.startswith("cost/")
        ]

    def _done(self, task: str) -> dict[str, pd.DataFrame]:
        """Return the rows of the done cells of a task by their metric, which many tables are made of."""
        history = self.history(task)
        done = history[history["status"] == "done"]
        return {str(metric): rows for metric, rows in done.groupby("metric", sort=False)}

    def is_final(self) -> pd.Series[bool]:
        """Return of each row of `Results.frame` whether its epoch is the one that counts; False in a search."""
        frame = self.results.frame
        rows = [index for task in self.tasks for index in self.selected(task).index]
        return frame["draw"].isna() & frame.index.isin(rows)

    def table(self, task: str, metric: str = "", rule: Rule | None = None) -> pd.DataFrame:
        """Return a metric, without its split, or a "cost/..." by variant and seed, NaN where no value is finite."""
        name = metric or self.primary(task)
        rows = self._values(task, name, rule)
        cells = self.cells_of(task)
        variants = pd.Index(cells["variant"].unique(), name="variant")
        seeds = pd.Index(sorted(map(int, cells["seed"].unique())), name="seed")
        # Most tasks lack some metrics, such as those of a baseline.
        if rows.empty:
            return pd.DataFrame(np.nan, index=variants, columns=seeds)
        wide = rows.pivot(index="variant", columns="seed", values="value")
        return pd.DataFrame(wide.reindex(index=variants, columns=seeds), dtype=float)

    def _values(self, task: str, name: str, rule: Rule | None) -> pd.DataFrame:
        """Return the finite values of a metric or of a "cost/...", one for each variant and seed."""
        by_metric = self._done(task)
        none = self.history(task).iloc[:0]
        rows: pd.DataFrame
        if name.startswith("cost/"):
            rows = by_metric.get(name, none)
        else:
            rows = by_metric.get(f"test/{name}", none)
            if rows.empty:
                return rows
            validated = by_metric.get(f"validation/{SELECTED_BY}", none)
            lower_is_better = describe(name).lower_is_better
            history = pd.concat([rows, validated])
            epochs = select_epochs(history, rule or self.rule(task), name, lower_is_better)
            rows = rows[rows["epoch"] == rows["cell"].map(epochs)]
        rows = rows[np.isfinite(rows["value"])]
        return rows.drop_duplicates(["variant", "seed"], keep="last")

    def metrics(self, task: str) -> list[str]:
        """Return the test metrics of a task, the primary one first, then known ones in their order."""
        tested = {
            name.removeprefix("test/")
            for name in self.selected(task)["metric"]
            if name.startswith("test/")
        }
        names = sorted(name for name in tested if not name.startswith((NO_SKILL, BASELINE)))
        ordered = dict.fromkeys([self.primary(task), *self.plan.spec.compare_by, *METRICS, *names])
        return [name for name in ordered if name in names]

    def summary(self, task: str, metric: str = "") -> pd.DataFrame:
        """Return what is known of each variant by a metric, the best mean first, indexed by variant.

        contender (bool), worse_by (see `Contenders`; NaN where the loss is excluded), mean, sd (n - 1), low and high
        (the 95 % interval of the mean: Student's from three seeds on, over test items for one seed), seeds, planned,
        step (the least seconds of a training step, which other work disturbs least) and supervision.
        """
        name = metric or self.primary(task)
        table = self.table(task, name)
        planned = self.cells_of(task).groupby("variant")["seed"].nunique()
        bounds = [
            self._interval(task, name, str(variant), row.dropna())
            for variant, row in table.iterrows()
        ]
        # Each verdict is about the losses of one kind of supervision.
        verdicts = self.contenders(task, name).values()
        is_contender = np.zeros(len(table), bool)
        worse_by = np.full(len(table), np.nan)
        for verdict in verdicts:
            is_contender |= verdict.contender
            # A bound says what a tick is worth. Beside an excluded loss it would mislead.
            worse_by = np.where(verdict.contender, verdict.worse_by, worse_by)
        summary = pd.DataFrame({
            "contender": is_contender, "worse_by": worse_by,
            "mean": table.mean(axis=1), "sd": table.std(axis=1), "low": [low for low, _ in bounds],
            "high": [high for _, high in bounds], "seeds": table.notna().sum(axis=1), "planned": planned,
            "step": self.table(task, STEP).mean(axis=1),
        }, index=table.index)  # fmt: skip
        is_share = (
            describe(name).percent or not describe(name).lower_is_better
        )  # as areas below curves are
        if is_share and not ((table < 0) | (table > 1)).any(
            axis=None
        ):  # Student's interval knows no bounds of a share
            summary[["low", "high"]] = summary[["low", "high"]].clip(0, 1)
        summary["supervision"] = [self.supervision[str(variant)] for variant in summary.index]
        return summary.sort_values("mean", ascending=describe(name).lower_is_better, kind="stable")

    def ranking(self) -> list[str]:
        """Return all variants, the best first: by their mean rank over tasks, those with less supervision first."""
        ranks = pd.DataFrame({
            task: self.table(task).mean(axis=1).rank(ascending=self.metric(task).lower_is_better)
            for task in self.tasks
        }).mean(axis=1)  # fmt: skip
        levels = {variant: self.kinds.index(kind) for variant, kind in self.supervision.items()}
        return sorted(
            ranks.index,
            key=lambda variant: (levels[variant], np.nan_to_num(ranks[variant], nan=np.inf)),
        )

    def compare(self, task: str, first: str, second: str, metric: str = "") -> Difference:
        """Return the first loss less the second by a metric, paired by seeds and test items."""
        table, noise = self.table(task, metric), self.noise(task, metric)
        rows = list(table.index)
        return compare_pair(
            table.to_numpy(), rows.index(first), rows.index(second), noise, self.info(task).overlap
        )

    def contenders(self, task: str, metric: str = "") -> dict[str, Contenders]:
        """Return by kind of supervision which rows of `table` may be the best; nothing where none has learnt."""
        table = self.table(task, metric)
        if int(table.notna().any().sum()) < 2 or not self.has_learnt(task):
            return {}
        noise, overlap = self.noise(task, metric), self.info(task).overlap
        lower = describe(metric or self.primary(task)).lower_is_better
        kinds = np.array([self.supervision[str(variant)] for variant in table.index])
        verdicts = {
            kind: contenders(np.where((kinds == kind)[:, None], table, np.nan), lower_is_better=lower, noise=noise,
                             overlap=overlap)
            for kind in self.kinds
        }  # fmt: skip
        # One common seed shows no variances.
        are_known = all(
            len(found.rows) < 2 or np.isfinite(found.worse_by).any() for found in verdicts.values()
        )
        return verdicts if are_known else {}

    def no_skill(self, task: str, metric: str = "") -> pd.Series[float]:
        """Return what the best constant answer reaches with each seed, else `Task.chance`; NaN: neither is known."""
        name = metric or self.primary(task)
        info = self.info(task)
        # It is the same for every loss.
        line = self.table(task, NO_SKILL + name).mean()
        if info.chance is not None and name == info.primary:
            return line.fillna(info.chance)
        return line

    def baseline(self, task: str, metric: str = "") -> pd.Series[float]:
        """Return what pooled features with extra trees reach with each seed; NaN where that was not computed.

        It is no loss: it is not ranked, and is never among those that may be the best.
        """
        name = metric or self.primary(task)
        # It is the same for every loss.
        return self.table(task, BASELINE + name).mean()

    def line_metric(self, task: str) -> str:
        """Return the metric that shows whether anything was learnt: the primary one, or set error if it has no line.

        Of the posterior error it is the set error: label sets are learnt before most instances leave the background.
        """
        names = [name for name in (self.primary(task), SELECTED_BY) if name != "posterior_error"]
        return next((name for name in names if self.no_skill(task, name).notna().any()), names[0])

    def has_learnt(self, task: str) -> bool:
        """Return whether a loss is better than the best constant answer beyond noise; True where that is not known.

        The constant answer is judged as one more loss; with one seed or two a loss has to beat it with each. The mean
        of a loss also has to beat it by more than another draw of the test items explains, where that is known.
        """
        name = self.line_metric(task)
        table, line, lower = (
            self.table(task, name),
            self.no_skill(task, name),
            describe(name).lower_is_better,
        )
        gains, noise = (line - table) * (1 if lower else -1), self.noise(task, name)
        gains = gains[[self.supervision[str(variant)] == self.kinds[0] for variant in table.index]]
        if gains.isna().all(axis=None):
            return True
        if int(gains.notna().any().sum()) >= 3:
            with_line = np.vstack([table.loc[gains.index], line.where(gains.notna().any())])
            if contenders(
                with_line, lower_is_better=lower, overlap=self.info(task).overlap
            ).contender[-1]:
                return False
        else:
            gains = gains[gains.min(axis=1) > 0]
        weights = table.notna().div(table.notna().sum(axis=1), axis=0).to_numpy()
        variances = (
            0 if noise is None else np.einsum("isit,is,it->i", noise.covariance, weights, weights)
        )
        # The line has the variance of a loss as well. Of about so many constant answers alike, a loss may have hit on
        # one that suits the test items better than the one that training bags have shown.
        alike = 1 / max(1 - float(line.mean()), 0.01)
        least = ndtri(1 - (1 - LEVEL) / len(table) / alike) * np.sqrt(
            2 * pd.Series(variances, table.index)
        )
        return bool((gains.mean(axis=1) > least[gains.index]).any())

    def noise(self, task: str, metric: str = "") -> SamplingNoise | None:
        """Return what the draw of the test items adds to `table`; None where the outcomes of a value are not known."""
        name = (metric or self.primary(task)).removeprefix(_EXCESS)
        table, values, info = self.table(task, metric), self.table(task, name), self.info(task)
        rows: list[list[Outcomes | None]] = []
        for variant, row in table.iterrows():
            by_seed = {}
            for seed in row.dropna().index:
                outcomes = self._outcomes(task, str(variant), seed, name, values[seed][variant])
                if outcomes is None:
                    return None
                if info.overlap or info.folds:  # equal digests of other seeds are still other bags
                    outcomes = replace(outcomes, items=f"{outcomes.items} of seed {seed}")
                by_seed[seed] = outcomes
            rows.append([by_seed.get(seed) for seed in table.columns])
        return sampling_noise(rows)

    def _interval(
        self, task: str, metric: str, variant: str, values: pd.Series[float]
    ) -> tuple[float, float]:
        """Return the 95 % interval of the mean of a loss, or over test items where it has one seed and is a share."""
        only = (
            self._outcomes(task, variant, values.index[0], metric, values.iloc[0])
            if len(values) == 1
            else None
        )
        if only is None or not (only.weights == 1).all() or not np.isin(only.sums, (0, 1)).all():
            return student_interval(values.to_numpy(), overlap=self.info(task).overlap)
        return share_interval(int(only.sums.sum(dtype=np.int64)), len(only))

    def _outcomes(
        self, task: str, variant: str, seed: int, metric: str, value: float
    ) -> Outcomes | None:
        """Return the outcomes behind a value; None where they were not kept, or are those of another epoch."""
        cell = self._cell_ids[task, variant, seed]
        for by_metric in self.evidence(cell).outcomes:
            outcomes = by_metric.get(metric) or by_metric.get(f"{cell}/{metric}")
            # The sums are in single precision.
            if outcomes is not None and np.isclose(outcomes.value, value, rtol=1e-5, atol=1e-9):
                return outcomes
        return None

    def evidence(self, cell: str) -> Evidence:
        """Return what is known of a cell beside its metrics, nothing where it is not done."""
        folder = self.results.folders.get(cell)
        return NoEvidence() if folder is None else self._evidence_in(folder)

    def _evidence_in(self, folder: Path) -> Evidence:
        return evidence_in(folder)


def select_epochs(
    history: pd.DataFrame, rule: Rule, metric: str, lower_is_better: bool = True
) -> pd.Series[int]:
    """Return the epoch that a rule chooses for each cell that has a finite value to choose by, indexed by cell.

    "validation" takes the epoch with the smallest validation set error, and "test" the one with the best test value of
    the metric; of equals the latest, since learning rates fall towards the end. Only epochs with a test value of the
    metric (named without the split) are candidates. Columns of the history: cell, epoch, metric and value.
    """
    tested = history.loc[history["metric"] == f"test/{metric}", ["cell", "epoch"]].drop_duplicates()
    if rule == "last":
        return pd.Series(tested.groupby("cell")["epoch"].max())
    name = f"test/{metric}" if rule == "test" else f"validation/{SELECTED_BY}"
    candidates = history.loc[history["metric"] == name, ["cell", "epoch", "value"]]
    candidates = candidates[np.isfinite(candidates["value"])].merge(tested, on=["cell", "epoch"])
    candidates = candidates.sort_values(["cell", "epoch"], ascending=[True, False]).reset_index(
        drop=True
    )
    by_cell = candidates.groupby("cell")["value"]
    best = (
        by_cell.idxmax() if rule == "test" and not lower_is_better else by_cell.idxmin()
    )  # the first of equals
    return pd.Series(candidates.loc[best].set_index("cell")["epoch"])


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """Return the rows of a frame with its columns as attributes, and Index."""
    return list(frame.itertuples())


def failures(study: Study) -> Iterator[str]:
    """Yield a line for every group of cells of one variant that are not done, with the reason."""
    unfinished, by = (
        study.cells[study.cells["status"] != "done"],
        ["task", "variant", "status", "reason"],
    )
    for (task, variant, status, reason), group in unfinished.groupby(by, sort=False):
        seeds = ", ".join(map(str, sorted(group["seed"])))
        where = f"{readable(str(variant))} on {readable(str(task))}, seed {seeds}"
        why = f" ({reason})" if reason else ""
        yield f"{status}: {where}{why}"
