"""The Python interface: run a comparison, or open one, and look at it as frames and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from milbench.api.registry import Registry
from milbench.api.registry import losses as all_losses
from milbench.api.registry import tasks as all_tasks
from milbench.api.resolver import add_object, read_edited, resolve
from milbench.api.results import Results
from milbench.engine import folders
from milbench.engine.launch import run_comparison
from milbench.engine.spec import requested_spec
from milbench.errors import INTERRUPTED, UsageError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from milbench.report.study import Study

One = str | Path | type | Callable[..., Any] | ModuleType
Named = One | Iterable[One] | Mapping[Any, Mapping[str, Any]]
"""Names, paths, classes (or functions, of networks) or modules, or a mapping from these to parameters of each."""
Rerun = Literal["missing", "failed", "all"]


class Comparison:
    """The results of a comparison, as `milbench.compare` and `milbench.results` return them.

    In a notebook it shows which losses the data exclude, and the table of all losses.

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

        paragraphs = [f"<p><b>{escape(line)}</b></p>" for line in self.sentences]
        notes = [f"<p>{escape(line)}</p>" for line in self.more_seeds]
        return "".join([*paragraphs, main_table(self._study).html(), *notes])

    @property
    def name(self) -> str:
        """The name of the comparison."""
        return self.results.plan.name

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each cell, epoch and metric, with the columns of `milbench.api.results.Results`."""
        return self.results.frame

    @property
    def sentences(self) -> list[str]:
        """Which losses the data exclude as the best: a sentence for each task, or one for many tasks."""
        from milbench.report.sentences import sentences

        return sentences(self._study)

    @property
    def more_seeds(self) -> list[str]:
        """How many seeds would separate the best mean from other contenders, a line a task with several."""
        from milbench.report.sentences import more_seeds

        return more_seeds(self._study)

    def table(self, task: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """Return the results of each loss by a metric, the best mean first.

        Args:
            task: its label; None: the only one.
            metric: without the split, such as "set_error"; None: the one that losses are ranked by.

        Returns:
            A row for each loss, with the columns mean, sd, low and high (95 % interval of the mean), seeds, planned,
            contender (whether it may be the best; None from one seed, which cannot tell), worse_by (than the best by
            at most so much, in the unit of `mean`), step (seconds) and supervision.

        Raises:
            UsageError: there is no such task or metric.
        """
        label = self._task(task)
        metrics = self._study.metrics(label)
        if metric is not None and metric not in metrics:
            raise unknown("metric of this comparison", metric, metrics)
        summary = self._study.summary(label, metric or "").copy()
        return summary if summary["contender"].any() else summary.assign(contender=None)

    def differences(self, task: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """Return the difference of every two losses on a task, with its own 95 % interval and p value."""
        from milbench.report.tables import pairs_frame

        return pairs_frame(self._study, self._task(task), metric or "")

    def figure(self) -> Figure:
        """Return the picture with which the report opens: every seed of every loss, a column for each task."""
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


def compare(
    losses: Named,
    tasks: Named,
    seeds: str | int | Iterable[int] | None = None,
    *,
    networks: Named | None = None,
    recipe: Mapping[str, Any] | None = None,
    name: str | None = None,
    root: Path | str = ".",
    data_dir: Path | str | None = None,
    device: str = "auto",
    jobs: int | None = None,
    supervision: Iterable[str] = (),
    rerun: Rerun = "missing",
    in_process: bool = False,
    progress: bool = True,
) -> Comparison:
    """Run the unfinished cells of a comparison, and return it; `milbench run` does the same.

    Args:
        losses: names, paths of Python files, classes (also those of a notebook) or modules; or a mapping from these to
            parameters, where a list makes an axis.
        tasks: likewise.
        seeds: such as range(3) or "0-9"; None: seed 0, or all folds of a task's cross-validation.
        networks: likewise, "default" for the first of each task; None: that alone. Functions from the number of inputs,
            that of classes, and a seed to a `milbench.Network` are accepted too.
        recipe: changes to the recipes of the tasks, such as {"epochs": 5}.
        name: of the comparison; None: the names of the tasks.
        root: the folder with the store, runs/, and reports/.
        data_dir: the folder of data sets; None: the default one.
        device: auto, cpu, cuda or cuda:N.
        jobs: cells that run at a time; None: one per core, or one per GPU.
        supervision: kinds of supervision that are compared on purpose.
        rerun: run missing cells, failed ones as well, or all cells anew.
        in_process: run cells in this process, one at a time.
        progress: show the progress of cells; failures are shown in any case.

    Returns:
        The comparison. Cells that failed are in it, with their reasons.

    Raises:
        UsageError: an argument is wrong; no cell was run.
        KeyboardInterrupt: it was interrupted. The same call continues.

    Examples:
        >>> import tempfile, milbench
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = milbench.compare(
        ...         ["exact", "noisy-or"], {"synthetic-bags": {"bags_per_epoch": 64}}, recipe={"epochs": 1},
        ...         root=folder, in_process=True, progress=False,
        ...     )
        >>> found
        <milbench.Comparison 'synthetic-bags': 2 of 2 cells done>
    """
    from milbench.networks.registry import networks as network_registry

    registries: list[Registry[Any]] = [all_losses(), all_tasks(), network_registry()]
    for registry in registries:
        read_edited(registry)
    choices, params = zip(*map(_named, (losses, tasks, networks), registries), strict=True)
    for table in params[0].values():  # networks of a single loss may be classes as well
        if "networks" in table:
            table["networks"], _ = _named(table["networks"], network_registry())
    if isinstance(seeds, bool) or not (seeds is None or isinstance(seeds, str | int | Iterable)):
        raise UsageError(f'seeds = {seeds!r}: expected numbers, such as range(3), 3 or "0-9"')
    fields: dict[str, Any] = {
        **dict(zip(("losses", "tasks", "networks"), choices, strict=True)),
        **{kind: table or None for kind, table in zip(("loss", "task", "network"), params, strict=True)},
        "name": name, "recipe": recipe or None, "supervision": list(supervision) or None,
        "seeds": seeds if seeds is None or isinstance(seeds, str | int) else list(seeds),
    }  # fmt: skip
    arguments = ", ".join(f"{key}={value!r}" for key, value in fields.items() if value)
    fields["run"] = {
        "data_dir": data_dir, "device": device, "jobs": jobs, "rerun": rerun, "in_process": in_process
    }  # fmt: skip
    spec = requested_spec(None, None, fields)
    if run_comparison(spec, Path(root), f"milbench.compare({arguments})", quiet=not progress) == INTERRUPTED:
        raise KeyboardInterrupt
    return results(root, spec.name)


def results(root: Path | str = ".", name: str | None = None) -> Comparison:
    """Return a comparison that was computed, by the command line or by `compare`; by default the one launched last.

    The store is in the folder `root`. Raises UsageError where there is no such comparison.
    """
    return Comparison(folders.results(root, name), Path(root) / "reports")


def _named(given: Named | None, registry: Registry[Any]) -> tuple[list[str] | None, dict[str, dict[str, Any]]]:
    if given is None and registry.kind == "network":
        return None, {}
    items: Any = [given] if isinstance(given, str | Path | ModuleType) or callable(given) else given
    if not isinstance(items, Iterable):
        raise UsageError(
            f"{registry.kind} = {given!r}: expected a name, several, or a mapping from names to parameters"
        )
    if not isinstance(items, Mapping):
        return [_name(item, registry) for item in items], {}
    for item, params in items.items():
        if not isinstance(params, Mapping | None):
            raise UsageError(
                f'{registry.kind} {item!r}: {params!r} are no parameters, expected such as {{"KEY": VALUE}}'
            )
    names = {_name(item, registry): params for item, params in items.items()}
    return [*names], {_registered(name, registry): dict(params) for name, params in names.items() if params}


def _registered(name: str, registry: Registry[Any]) -> str:
    """Return the name behind a file or module; one that a task alone knows stays as it is."""
    return resolve(registry, name) if registry.kind != "network" or ":" in name or "." in name else name


def _name(item: Any, registry: Registry[Any]) -> str:
    if isinstance(item, ModuleType):
        return item.__name__
    return add_object(registry, item) if callable(item) else str(item)
