"""The measured values of a comparison, by task and loss, at the epoch that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pandas as pd

from milbench.contracts.metric_info import BASELINE, METRICS, Metric, describe
from milbench.contracts.published import Rule
from milbench.contracts.supervision import SUPERVISIONS
from milbench.experiment.cell import Cell
from milbench.experiment.plan import TaskInfo
from milbench.report.epochs import SELECTED_BY, select_epochs
from milbench.report.evidence import Evidence, NoEvidence, evidence_in
from milbench.report.formatting import readable
from milbench.store.results import Results

STEP = "cost/step_seconds_min"
"""The metric with the time of the quickest training step, in seconds.

Other work on the machine disturbs the quickest step least.
"""

NO_SKILL = "no_skill_"
"""The prefix of a metric that says what the best constant answer reaches."""

CELL_COLUMNS = [
    "task", "variant", "loss", "network", "recipe", "supervision", "seed", "status", "reason",
    "cell", "run", "machine", "code",
]  # fmt: skip
"""The columns of `Values.cells`."""

_Owner = TypeVar("_Owner", bound="Values")
_Answer = TypeVar("_Answer")
_P = ParamSpec("_P")


def cached(
    method: Callable[Concatenate[_Owner, _P], _Answer],
) -> Callable[Concatenate[_Owner, _P], _Answer]:
    """Make a method, or a function of an object, compute its answer to the same arguments once.

    A page asks for the same answers many times. They are kept in `Values.answers` of the object,
    and are freed together with the object.
    """

    @wraps(method)
    def answer(owner: _Owner, /, *args: _P.args, **kwargs: _P.kwargs) -> _Answer:
        key = (method, args, tuple(sorted(kwargs.items())))
        if key not in owner.answers:
            owner.answers[key] = method(owner, *args, **kwargs)
        found: _Answer = owner.answers[key]
        return found

    return answer


class Values:
    """The values of results by task and variant.

    A variant is a loss and a network with their parameters, trained by one recipe. Reports call a
    variant a loss for short.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self.plan = results.plan
        # Function and arguments -> the answer of a function with `cached`.
        self.answers: dict[Any, Any] = {}
        compared = _with_variants(results.frame)
        self.cells = compared[CELL_COLUMNS].drop_duplicates("cell").reset_index(drop=True)
        measured = compared[compared["metric"] != ""]
        by_task = measured.groupby("task", sort=False)
        self._histories = {str(task): rows for task, rows in by_task}
        self.tasks: list[str] = list(dict.fromkeys(self.cells["task"]))
        kinds = zip(self.cells["variant"], self.cells["supervision"], strict=True)
        self.supervision: dict[str, str] = dict(kinds)
        self.planned = {cell.id: cell for cell in self.plan.cells}
        self.cell_ids: dict[tuple[str, str, int], str] = {}
        for row in rows_of(self.cells):
            self.cell_ids[row.task, row.variant, row.seed] = str(row.cell)

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of supervision, from the least to the most."""
        found = set(self.supervision.values())
        return [kind for kind in SUPERVISIONS if kind in found]

    @cached
    def cells_of(self, task: str) -> pd.DataFrame:
        """Return the rows of `cells` that belong to a task."""
        return self.cells[self.cells["task"] == task]

    def cell_of(self, task: str) -> Cell:
        """Return the first cell of a task; all its cells have the same task parameters and data."""
        return self.planned[self.cells_of(task)["cell"].iloc[0]]

    def done_cells(self, task: str, variant: str) -> list[str]:
        """Return the done cells of a loss on a task, one for each seed."""
        cells_of_task = self.cells_of(task)
        cells = cells_of_task.loc[cells_of_task["variant"] == variant, "cell"]
        return [str(cell) for cell in cells if cell in self.results.folders]

    def info(self, task: str) -> TaskInfo:
        """Return what the plan says of a task."""
        return self.plan.info(self.cell_of(task))

    def history(self, task: str) -> pd.DataFrame:
        """Return every value of a task: rows of `Results.frame` with a further column, variant."""
        nothing = self.results.frame.iloc[:0].assign(variant="")
        return self._histories.get(task, nothing)

    def primary(self, task: str) -> str:
        """Return the metric that losses are ranked by on a task, without its split."""
        asked_for = self.plan.spec.compare_by
        return str(asked_for[0]) if asked_for else self.info(task).primary

    def metric(self, task: str) -> Metric:
        """Return the description of the metric that losses are ranked by."""
        return describe(self.primary(task))

    def margin(self, task: str) -> float:
        """Return the margin of the primary metric: smaller differences do not count. 0: not set."""
        return float(self.plan.spec.margin.get(self.primary(task), 0))

    @cached
    def rule(self, task: str) -> Rule:
        """Return the rule that chooses the epoch of the cells of a task.

        It is the rule of the plan, but "last" if some done cells have no validation values.
        """
        if self.plan.spec.selection != "validation":
            return "last"
        cells = self.cells_of(task)
        done = cells.loc[cells["status"] == "done", "cell"]
        history = self.history(task)
        validated = history.loc[history["metric"] == f"validation/{SELECTED_BY}", "cell"]
        have_all_values = bool(done.isin(validated).all())
        return "validation" if len(done) and have_all_values else "last"

    @cached
    def selected(self, task: str, metric: str = "", rule: Rule | None = None) -> pd.DataFrame:
        """Return the values of a task's done cells at the epoch that counts for a metric.

        "" is the primary metric. Costs have no epoch of their own and are all returned.
        """
        name = metric or self.primary(task)
        history = self.history(task)
        done = history[history["status"] == "done"]
        epochs = select_epochs(done, rule or self.rule(task), name, describe(name).lower_is_better)
        is_of_epoch = done["epoch"] == done["cell"].map(epochs)
        is_cost = done["metric"].str.startswith("cost/")
        return done[is_of_epoch | is_cost]

    def is_final(self) -> pd.Series[bool]:
        """Return, for each row of `Results.frame`, whether its epoch is the one that counts.

        It is False for draws of a search.
        """
        frame = self.results.frame
        rows = [index for task in self.tasks for index in self.selected(task).index]
        return frame["draw"].isna() & frame.index.isin(rows)

    @cached
    def table(self, task: str, metric: str = "", rule: Rule | None = None) -> pd.DataFrame:
        """Return the test values of a metric, or a cost, by variant and seed; NaN: no finite value.

        Args:
            task: one of the tasks.
            metric: the metric without its split, or "cost/..."; "": the primary metric.
            rule: the rule that chooses the epoch; None: that of `rule`.
        """
        name = metric or self.primary(task)
        rows = self._at_epoch(task, name, rule or self.rule(task))
        rows = rows[np.isfinite(rows["value"])]
        rows = rows.drop_duplicates(["variant", "seed"], keep="last")
        cells = self.cells_of(task)
        variants = pd.Index(cells["variant"].unique(), name="variant")
        seeds = pd.Index(sorted(map(int, cells["seed"].unique())), name="seed")
        if rows.empty:
            # A task without any value of the metric gets a table of NaN.
            return pd.DataFrame(np.nan, index=variants, columns=seeds)
        wide = rows.pivot(index="variant", columns="seed", values="value")
        return pd.DataFrame(wide.reindex(index=variants, columns=seeds), dtype=float)

    def _at_epoch(self, task: str, metric: str, rule: Rule) -> pd.DataFrame:
        """Return the rows of a test metric at the epoch that counts, or of a cost."""
        by_metric = self._done_by_metric(task)
        nothing = self.history(task).iloc[:0]
        if metric.startswith("cost/"):
            return by_metric.get(metric, nothing)
        tested = by_metric.get(f"test/{metric}", nothing)
        if tested.empty:
            return tested
        validated = by_metric.get(f"validation/{SELECTED_BY}", nothing)
        # Only these rows are needed to choose an epoch. They are few beside those of all metrics.
        choosing = pd.concat([tested, validated]) if rule == "validation" else tested
        epochs = select_epochs(choosing, rule, metric, describe(metric).lower_is_better)
        return tested[tested["epoch"] == tested["cell"].map(epochs)]

    @cached
    def _done_by_metric(self, task: str) -> dict[str, pd.DataFrame]:
        """Return the values of the done cells of a task, by metric with its split."""
        history = self.history(task)
        done = history[history["status"] == "done"]
        return {str(name): rows for name, rows in done.groupby("metric", sort=False)}

    @cached
    def metrics(self, task: str) -> list[str]:
        """Return the test metrics of a task.

        The order is: the primary metric, those that losses are compared by, the metrics of milbench
        in the order of `METRICS`, and then further metrics.
        """
        tested = set()
        for measured in self.selected(task)["metric"].unique():
            split, _, name = measured.partition("/")
            if split == "test" and not name.startswith((NO_SKILL, BASELINE)):
                tested.add(name)
        ordered = [self.primary(task), *self.plan.spec.compare_by, *METRICS, *sorted(tested)]
        return [name for name in dict.fromkeys(ordered) if name in tested]

    def ranking(self) -> list[str]:
        """Return all variants: those with less supervision first, then by mean rank over tasks."""
        by_task = {}
        for task in self.tasks:
            means = self.table(task).mean(axis=1)
            by_task[task] = means.rank(ascending=self.metric(task).lower_is_better)
        ranks = pd.DataFrame(by_task).mean(axis=1)
        # A loss without any value comes last among those with as much supervision.
        ranks = ranks.fillna(np.inf)

        def supervision_and_rank(variant: str) -> tuple[int, float]:
            supervision = self.kinds.index(self.supervision[variant])
            return supervision, ranks[variant]

        return sorted(ranks.index, key=supervision_and_rank)

    def constant_answer(self, task: str, metric: str = "") -> pd.Series[float]:
        """Return what the best constant answer reaches with each seed.

        If that is not known, it is `Task.chance` for the primary metric, or else NaN.
        """
        name = metric or self.primary(task)
        info = self.info(task)
        # The value is the same for every loss, so that the mean over losses is this value.
        line = self.table(task, NO_SKILL + name).mean()
        if info.chance is not None and name == info.primary:
            return line.fillna(info.chance)
        return line

    def baseline(self, task: str, metric: str = "") -> pd.Series[float]:
        """Return what the simple baseline reaches with each seed; NaN: not computed.

        The baseline is pooled features with extra trees. It is no loss: it is not ranked, and is
        never among the losses that may be the best.
        """
        name = metric or self.primary(task)
        # The value is the same for every loss, so that the mean over losses is this value.
        return self.table(task, BASELINE + name).mean()

    def evidence(self, cell: str) -> Evidence:
        """Return the evidence of a cell, see `evidence`; `NoEvidence` if the cell is not done."""
        folder = self.results.folders.get(cell)
        return NoEvidence() if folder is None else self._evidence_in(folder)

    @cached
    def _evidence_in(self, folder: Path) -> Evidence:
        return evidence_in(folder)


def _with_variants(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a frame that are no draws, with a column variant, see `Label.variant`."""
    compared = frame[frame["draw"].isna()].drop(columns="draw")
    categories = compared.select_dtypes("category")
    compared = compared.astype(dict.fromkeys(categories, object))
    networks = compared["network"].map(lambda name: f" with {name}" if name else "")
    recipes = compared["recipe"].map(lambda name: f" ({name})" if name else "")
    return compared.assign(variant=compared["loss"] + networks + recipes)


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """Return the rows of a frame as tuples, whose attributes are its columns, and Index."""
    return list(frame.itertuples())


def failures(values: Values) -> Iterator[str]:
    """Yield a line for the cells of a variant on a task that are not done, for each reason."""
    unfinished = values.cells[values.cells["status"] != "done"]
    by = ["task", "variant", "status", "reason"]
    for (task, variant, status, reason), group in unfinished.groupby(by, sort=False):
        seeds = ", ".join(map(str, sorted(group["seed"])))
        where = f"{readable(str(variant))} on {readable(str(task))}, seed {seeds}"
        why = f" ({reason})" if reason else ""
        yield f"{state_text(values, str(status))}: {where}{why}"


def state_text(values: Values, status: str) -> str:
    """Return the word of a report for the status of a cell."""
    # What was published as it is lacks nothing that somebody waits for.
    if status == "missing" and values.results.is_published:
        return "not run"
    return status
