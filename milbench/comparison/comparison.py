"""A comparison in Python: its results as a frame, a table, a figure and a report."""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from milbench.api.results import Results
from milbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from milbench.report.study import Study


class Comparison:
    """The results of a comparison, as `milbench.compare` and `milbench.results` return them.

    In a notebook it shows which losses may be the best, and the table of all losses.

    Args:
        results: the planned cells and what was measured.
        reports: the folder of reports, below which `report` writes.
    """

    def __init__(self, results: Results, reports: Path) -> None:
        self.results = results
        self._reports = reports

    def __repr__(self) -> str:
        cells = self._study.cells
        done = int((cells["status"] == "done").sum())
        return f"<milbench.Comparison {self.name!r}: {done} of {len(cells)} cells done>"

    def _repr_html_(self) -> str:
        from milbench.report.tables import main_table

        said = "".join(f"<p><b>{escape(line)}</b></p>" for line in self.sentences)
        return said + main_table(self._study).html()

    @property
    def name(self) -> str:
        """The name of the comparison."""
        return self.results.plan.name

    @property
    def frame(self) -> pd.DataFrame:
        """A row a cell, epoch and metric, with the columns of `milbench.api.results.Results`."""
        return self.results.frame

    @property
    def sentences(self) -> list[str]:
        """Which losses may be the best, a sentence a task, or one for many tasks."""
        from milbench.report.sentences import sentences

        return sentences(self._study)

    def table(self, task: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """Return what is known of each loss by a metric, the best mean first.

        Args:
            task: its label; None: the only one.
            metric: without the split, such as "set_error"; None: the one that losses are ranked by.

        Returns:
            A row a loss, with the columns mean, sd, low and high (95 % interval of the mean), seeds, planned,
            contender (whether it may be the best; None from one seed, which cannot tell), step (seconds) and
            supervision.

        Raises:
            UsageError: there is no such task or metric.
        """
        chosen = self._task(task)
        known = self._study.metrics(chosen)
        if metric is not None and metric not in known:
            raise unknown("metric of this comparison", metric, known)
        found = self._study.summary(chosen, metric or "").copy()
        return found if found["contender"].any() else found.assign(contender=None)

    def differences(self, task: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """Return the difference of every two losses on a task, with its own 95 % interval and p value."""
        from milbench.report.tables import pairs_frame

        return pairs_frame(self._study, self._task(task), metric or "")

    def figure(self) -> Figure:
        """Return the picture that the report opens with: every seed of every loss, a column a task."""
        from milbench.report.figures.overview import overview_figure
        from milbench.report.figures.style import styled

        with styled():
            figure = overview_figure(self._study)
        if figure is None:
            raise UsageError(f"{self.name} has no results to draw yet")
        return figure

    def report(self, out: Path | str | None = None, *, gallery: bool = True) -> Path:
        """Write the report and return its page, index.html.

        Args:
            out: its folder; None: that of `milbench report`.
            gallery: whether test bags are shown.
        """
        from milbench.report.render import render

        return render(self.results, self._reports / self.name if out is None else Path(out), gallery=gallery)

    @cached_property
    def _study(self) -> Study:
        from milbench.report.study import Study

        return Study(self.results)

    def _task(self, task: str | None) -> str:
        tasks = self._study.tasks
        if task is None and len(tasks) > 1:
            raise UsageError(f"this comparison has {len(tasks)} tasks: name one of {', '.join(tasks)}")
        if task is not None and task not in tasks:
            raise unknown("task of this comparison", task, tasks)
        return task or tasks[0]
