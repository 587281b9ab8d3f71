"""A comparison in Python: its results as frames, tables, figures and a report."""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd

from milbench.api.results import Results
from milbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from milbench.report.study import Study

FIGURES = ("seeds", "curves", "costs", "gallery")


class Comparison:
    """The results of a comparison, as `milbench.compare` and `milbench.results` return them.

    In a notebook it shows what was found and the main table.

    Args:
        results: the planned cells and what was measured.
        reports: the folder of reports, below which `report` writes.
    """

    def __init__(self, results: Results, reports: Path) -> None:
        self.results = results
        self._reports = reports

    def __repr__(self) -> str:
        done = int((self.results.cells["status"] == "done").sum())
        return f"<milbench.Comparison {self.results.name!r}: {done} of {len(self.results.cells)} cells done>"

    @property
    def name(self) -> str:
        """The name of the comparison."""
        return self.results.name

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row a cell and metric at the epoch by which losses are compared; docs/python.md describes the columns."""
        from milbench.report.tidy import tidy_frame

        return tidy_frame(self._study)

    @cached_property
    def differences(self) -> pd.DataFrame:
        """A row a pair of losses on a task: their difference, its simultaneous interval, and the verdict."""
        from milbench.report.pairs import pairs_frame

        return pairs_frame(self._study)

    @property
    def findings(self) -> list[str]:
        """What was found, a sentence for each task, metric and kind of supervision."""
        from milbench.report.pairs import findings

        return [f"{where}: {sentence}" for where, sentence in findings(self._study)]

    def table(self, metric: str | None = None) -> pd.DataFrame:
        """Return the mean of a metric for every loss on every task.

        Args:
            metric: without the split, such as "set_error"; None: the primary metric of each task.

        Returns:
            A row a loss and recipe, and for each task the columns mean, low, high (Student's 95 % interval of the mean
            over training seeds, nan for fewer than three) and seeds.

        Raises:
            UsageError: no task has such a metric.
        """
        study = self._study
        known = {name for task in study.tasks for name in (study.primary(task), *study.metrics(task))}
        if metric is not None and metric not in known:
            raise unknown("metric of this comparison", metric, known)
        rows: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        for variant in study.variants:
            row = rows.setdefault((variant.loss, variant.recipe), {})
            for task in study.tasks:
                sample = study.sample(task, variant, metric)
                low, high = sample.student
                row |= {(task, "mean"): sample.mean, (task, "low"): low, (task, "high"): high}
                row[task, "seeds"] = len(sample.by_seed)
        frame = pd.DataFrame.from_dict(rows, orient="index")
        frame.index = pd.MultiIndex.from_tuples(list(rows), names=["loss", "recipe"])
        frame.columns = pd.MultiIndex.from_tuples([*frame.columns.to_flat_index()], names=["task", ""])
        return frame

    def figure(self, kind: str = "seeds", task: str | None = None) -> Figure:
        """Return a figure of the report.

        Args:
            kind: seeds, curves, costs or gallery.
            task: the label of the task; None: the only one.

        Raises:
            UsageError: there is no such kind or task, or nothing to draw.
        """
        from milbench.report.figures import charts

        if kind not in FIGURES:
            raise unknown("kind of figure", str(kind), FIGURES)
        tasks = self._study.tasks
        if task is None and len(tasks) > 1:
            raise UsageError(f"this comparison has {len(tasks)} tasks: name one of {', '.join(tasks)}")
        chosen = task or tasks[0]
        if chosen not in tasks:
            raise unknown("task of this comparison", chosen, tasks)
        drawn = charts.draw(self._study, chosen, "python", gallery=kind == "gallery")
        for picture in drawn:
            if picture.kind == kind:
                return picture.figure
        raise UsageError(f"{self.name} has nothing to draw as {kind} on {chosen}")

    def report(
        self,
        out: Path | str | None = None,
        *,
        gallery: Literal["all", "none"] = "all",
        figures: Literal["all", "few"] = "all",
    ) -> Path:
        """Write the report and return its page, index.html.

        Args:
            out: its folder; None: that of `milbench report`.
            gallery: "none" leaves out pictures of test bags.
            figures: "few" draws every seed alone, and what concerns all tasks.
        """
        from milbench.report.render import render

        folder = self._reports / self.name if out is None else Path(out)
        return render(self.results, folder, gallery=gallery, figures=figures)[-1]

    @cached_property
    def _study(self) -> Study:
        from milbench.report.study import Study

        return Study(self.results)

    def _repr_html_(self) -> str:
        sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.findings)
        return f"<p><b>{escape(self.name)}</b></p><ul>{sentences}</ul>{self.table().to_html()}"
