"""The Python interface: run a comparison, or open one, and look at it as frames and figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from milbench.contracts.metric_info import BASELINE_NAME
from milbench.contracts.registry import Registry
from milbench.contracts.registry import losses as all_losses
from milbench.contracts.registry import tasks as all_tasks
from milbench.contracts.resolver import add_object, reload_edited_plugins, resolve
from milbench.errors import INTERRUPTED, UsageError, unknown
from milbench.experiment.cell import Cell
from milbench.experiment.flags import Flags, spec_and_launch
from milbench.experiment.plan import Plan
from milbench.report.judge import judge
from milbench.report.lengths import keep_longest, lengths_of, verdicts
from milbench.report.more_seeds import more_seeds
from milbench.report.pair_tables import pairs_frame
from milbench.report.study import Study
from milbench.report.tables import main_table
from milbench.report.use_verdicts import use_verdicts
from milbench.report.values import rows_of
from milbench.report.verdict import Judgement
from milbench.running.launch import run_comparison
from milbench.store import folders
from milbench.store.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from milbench.contracts.predictions import Predictions

Reference = str | Path | type | Callable[..., Any] | ModuleType
References = Reference | Iterable[Reference] | Mapping[Any, Mapping[str, Any]]
"""Losses, tasks or networks, as a caller names them, or a mapping from them to their parameters.

Each is a name, the path of a file, a class (for a network also a function), or a module.
"""


class Comparison:
    """The results of a comparison, as `milbench.compare` and `milbench.results` return them.

    In a notebook it shows which losses the data exclude, and the table of all losses.
    """

    def __init__(self, results: Results, reports: Path) -> None:
        # The planned cells, and what was measured of them.
        self.results = results
        self.name = results.plan.name
        # The folder below which `report` writes.
        self._reports = reports
        self._study = Study(results)

    def __repr__(self) -> str:
        cells = self._study.cells
        done = int((cells["status"] == "done").sum())
        return f"<milbench.Comparison {self.name!r}: {done} of {len(cells)} cells done>"

    def _repr_html_(self) -> str:
        paragraphs = [f"<p><b>{escape(line)}</b></p>" for line in self.sentences]
        notes = [f"<p>{escape(line)}</p>" for line in more_seeds(self._longest)]
        return "".join([*paragraphs, main_table(self._longest).html(), *notes])

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each compared cell, epoch and metric.

        It has the columns of `milbench.store.results.Results` without draw. It also has final,
        whether the epoch is the one that counts, and a column for every setting of a cell:
        recipe.lr, loss.gamma, task.train_bags, ..., which is NaN if the cell lacks the setting.
        """
        frame = self.results.frame.assign(final=self._study.is_final())
        compared = frame[frame["draw"].isna()].drop(columns="draw")
        return _add_settings(compared, self.results.plan)

    @cached_property
    def draws(self) -> pd.DataFrame:
        """The frame of the draws of a search, with a column draw instead of final.

        It is empty without a search.
        """
        frame = self.results.frame
        of_draws = frame[frame["draw"].notna()]
        return _add_settings(of_draws, self.results.plan)

    @property
    def sentences(self) -> list[str]:
        """Which losses the data exclude as the best.

        There is a sentence for each task, or one for many tasks.
        """
        return verdicts(self._study)

    def verdict(self, task: str | None = None, metric: str | None = None) -> Judgement:
        """Return the verdict on a task, as data: see `milbench.report.verdict`.

        If there are several lengths of training, it is about the longest, like `sentences`.

        Args:
            task: the label of the task; None: the only task.
            metric: the metric without the split, such as "average_precision"; None: the metric that
                losses are ranked by.

        Raises UsageError if there is no such task or metric.

        Examples:
            The losses that may be the best for ranking bags:

                from milbench.report.verdict import Best

                finding = comparison.verdict(metric="average_precision").finding
                if isinstance(finding, Best):
                    print(finding.contenders)
        """
        (label,) = self._tasks(self._one_task(task), metric)
        return judge(self._longest, label, metric or "")

    def uses(self, task: str | None = None) -> pd.DataFrame:
        """Return the verdicts on a task for each use: a row for each use and loss.

        Args:
            task: the label of the task; None: the only task.

        Returns:
            The index has the use, such as "ranking", and the loss. The columns are those of
            `table`, and two more: metric, by which the use is judged, and remark, which says why no
            loss has a tick, and is "" if some have one. If there are several lengths of training,
            it is about the longest. It is empty if fewer than two uses have a metric.
        """
        tables = {}
        for verdict in use_verdicts(self._longest, self._one_task(task)):
            extra = {"metric": verdict.judgement.metric, "remark": verdict.remark}
            tables[verdict.use.name] = verdict.ticked_summary.assign(**extra)
        if not tables:
            return pd.DataFrame()
        return pd.concat(tables, names=["use"])

    def _one_task(self, task: str | None) -> str:
        """Return the label of a task, or of the only task for None.

        Raises UsageError if there is no such task, or there are several for None.
        """
        if not self._study.tasks:
            raise UsageError(f"{self.name} compares nothing yet")
        if task is None and len(self._study.tasks) > 1:
            raise UsageError(f"name one of the tasks: {', '.join(self._study.tasks)}")
        (label,) = self._tasks(task or self._study.tasks[0], metric=None)
        return label

    @cached_property
    def _longest(self) -> Study:
        """The comparison, reduced to the longest training if there are several lengths."""
        return keep_longest(self._study, lengths_of(self._study))

    def table(self, task: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """Return the results of each loss by a metric, the best mean first.

        Args:
            task: the label of the task; None: all tasks. If there are several, the task is the
                first level of the index.
            metric: the metric without the split, such as "set_error"; None: the metric that losses
                are ranked by on each task.

        Returns:
            A row for each loss, with these columns: contender (whether it may be the best; None if
            that is not known), worse_by (the largest amount by which it may be worse than the best,
            in the unit of `mean`; NaN if it is excluded), mean, sd, low and high (the 95 % interval
            of the mean), seeds, planned (seeds), step (seconds of a training step) and supervision.
            For tables of features, the last row is the simple baseline "pooled features, extra
            trees". It is no loss: it has mean, sd and seeds, and is never a contender.

        Raises UsageError if there is no such task or metric.
        """
        tables = {}
        for label in self._tasks(task, metric):
            summary = self._study.summary(label, metric or "")
            # If contenders are known, there is at least one of them.
            if not summary["contender"].any():
                summary = summary.assign(contender=None)
            tables[label] = self._with_baseline(summary, label, metric or "")
        return self._stacked(tables, task)

    def _with_baseline(self, table: pd.DataFrame, task: str, metric: str) -> pd.DataFrame:
        """Return a table with the simple baseline as its last row, if that was computed."""
        values = self._study.baseline(task, metric).dropna()
        if values.empty:
            return table
        has_known_contenders = bool(table["contender"].notna().any())
        known = {
            "mean": values.mean(),
            "sd": values.std(),
            "seeds": len(values),
            "planned": len(self._study.cells_of(task)["seed"].unique()),
            "contender": False if has_known_contenders else None,
            "supervision": "",
        }
        row = {name: known.get(name, np.nan) for name in table.columns}
        last = pd.DataFrame([row], index=pd.Index([BASELINE_NAME], name=table.index.name))
        return pd.concat([table, last.astype(table.dtypes.to_dict())])

    def differences(self, task: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """Return the difference of every two losses, with its own 95 % interval and p value.

        The arguments are those of `table`.
        """
        labels = self._tasks(task, metric)
        pairs = {label: pairs_frame(self._study, label, metric or "") for label in labels}
        return self._stacked(pairs, task)

    def figure(self, task: str | None = None, metric: str | None = None) -> Figure:
        """Return a picture with every seed of every loss, in a column for each task.

        The arguments are those of `table`.
        """
        from milbench.report.figures.overview import overview_figure
        from milbench.report.figures.style import styled

        plan = self.results.plan
        if metric:
            spec = plan.spec.model_copy(update={"compare_by": [metric]})
            plan = replace(plan, spec=spec)
        frame = self.results.frame
        rows = frame[frame["task"].isin(self._tasks(task, metric))]
        shown = replace(self.results, plan=plan, frame=rows)
        with styled():
            figure = overview_figure(Study(shown))
        if figure is None:
            raise UsageError(f"{self.name} has no results to draw yet")
        return figure

    def predictions(self, task: str | None = None) -> dict[tuple[str, int], Predictions]:
        """Return the predictions of each trained network for its evaluated bags.

        They are those after the last epoch.

        Args:
            task: the label of the task; None: the only task.

        Returns:
            The predictions of cells that are done, by loss, as in `table`, and seed. Those of a
            published report are in its files (docs/predictions.md).

        Examples:
            The macro average precision of exact on test bags:

                test = comparison.predictions("extended-digits")["exact", 0]["test"]
                average_precision_score(test.labels, test.presence)
        """
        from milbench.contracts.predictions import PREDICTIONS_FILE, load_predictions

        label = self._one_task(task)
        found = {}
        for row in rows_of(self._study.cells_of(label)):
            folder = self.results.folders.get(row.cell)
            if folder is not None and (folder / PREDICTIONS_FILE).is_file():
                _, predictions = load_predictions(folder / PREDICTIONS_FILE)["last"]
                found[str(row.variant), int(row.seed)] = predictions
        return found

    def report(self, out: Path | str | None = None, *, gallery: bool = True) -> Path:
        """Write the report into a folder, and return its page, index.html.

        Args:
            out: the folder; None: the folder of `milbench report`.
            gallery: whether the report has a gallery of bags.
        """
        from milbench.report.render import render

        folder = self._reports / self.name if out is None else Path(out)
        return render(self.results, folder, gallery=gallery)

    def _tasks(self, task: str | None, metric: str | None) -> list[str]:
        """Return the label of a task, or all labels for None: only of tasks with the metric.

        Raises UsageError if there is none.
        """
        if task is not None and task not in self._study.tasks:
            raise unknown("task of this comparison", task, self._study.tasks)
        labels = self._study.tasks if task is None else [task]
        if metric is None:
            return list(labels)
        metrics = {label: self._study.metrics(label) for label in labels}
        with_metric = [label for label, names in metrics.items() if metric in names]
        if not with_metric:
            raise unknown("metric of this comparison", metric, set().union(*metrics.values()))
        return with_metric

    def _stacked(self, frames: dict[str, pd.DataFrame], task: str | None) -> pd.DataFrame:
        """Return the frames of tasks as one frame.

        If no task was named and there are several, the first level of the index is the task.
        """
        if task is None and len(self._study.tasks) > 1:
            return pd.concat(frames, names=["task"])
        frame = next(iter(frames.values()), pd.DataFrame())
        # A copy, which the caller may change: the study keeps the frame itself.
        return frame.copy()


def _add_settings(frame: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Return a frame with the settings of each cell.

    If the column network has no label, it gets the name of the network.
    """
    networks = frame["cell"].map({cell.id: cell.network.name for cell in plan.cells})
    labels = frame["network"].astype(object)
    labelled = frame.assign(network=labels.where(frame["network"] != "", networks))
    rows = {cell.id: _settings_of(plan, cell) for cell in plan.cells}
    settings = pd.DataFrame(list(rows.values()), index=list(rows)).sort_index(axis=1)
    return labelled.join(settings, on="cell")


def _settings_of(plan: Plan, cell: Cell) -> dict[str, Any]:
    """Return the settings of a cell, such as recipe.lr. Its names and seed have no dot."""
    return {key: value for key, value in plan.params(cell).items() if "." in key}


def compare(
    losses: References,
    tasks: References,
    seeds: str | int | Iterable[int] | None = None,
    *,
    networks: References | None = None,
    recipe: Mapping[str, Any] | None = None,
    name: str | None = None,
    root: Path | str = ".",
    data_dir: Path | str | None = None,
    device: str = "auto",
    jobs: int | None = None,
    supervision: Iterable[str] = (),
    rerun: Literal["missing", "failed", "all"] = "missing",
    in_process: bool = False,
    progress: bool = True,
) -> Comparison:
    """Run the unfinished cells of a comparison, and return it; `milbench run` does the same.

    Args:
        losses: names, paths of Python files, classes (also those of a notebook) or modules; or a
            mapping from these to parameters. A list of values of a parameter makes a variant for
            each value.
        tasks: given like losses.
        seeds: such as range(3) or "0-9"; None: seed 0, or all folds of a task's cross-validation.
        networks: given like losses. A function is accepted too, from the number of inputs, the
            number of classes and a seed to a `milbench.Network`. "default" means the first network
            of each task. None means "default" alone.
        recipe: changes to the recipes of the tasks, such as {"epochs": 5}.
        name: the name of the comparison; None: the names of the tasks.
        root: the folder with the store, runs/, and with reports/.
        data_dir: the folder of data sets; None: the default folder.
        device: auto, cpu, cuda or cuda:N.
        jobs: how many cells run at a time; None: one per core, or one per GPU.
        supervision: kinds of supervision that are compared on purpose, though they differ.
        rerun: which cells to run: the missing ones, the failed ones as well, or all again.
        in_process: run cells in this process, one at a time.
        progress: show the progress of cells. Failures are always shown.

    Cells that failed are in the comparison, with their reasons. Raises UsageError if an argument is
    wrong, before any cell runs. Raises KeyboardInterrupt if the run was interrupted; the same call
    continues it.
    """
    from milbench.networks.known_networks import networks as network_registry

    reload_edited_plugins()
    loss_names, loss_params = _named_parameters(losses, all_losses())
    task_names, task_params = _named_parameters(tasks, all_tasks())
    network_names, network_params = _named_parameters(networks, network_registry())
    # The networks of a single loss may be classes as well.
    for table in loss_params.values():
        if "networks" in table:
            table["networks"], _ = _named_parameters(table["networks"], network_registry())
    if isinstance(seeds, Iterable) and not isinstance(seeds, str):
        seeds = list(seeds)
    flags = Flags(
        losses=loss_names,
        tasks=task_names,
        networks=network_names,
        seeds=seeds,
        name=name,
        loss=loss_params or None,
        task=task_params or None,
        network=network_params or None,
        recipe=dict(recipe) if recipe else None,
        supervision=list(supervision) or None,
        execution={
            "data_dir": data_dir,
            "device": device,
            "jobs": jobs,
            "rerun": rerun,
            "in_process": in_process,
        },
    )
    arguments = ", ".join(f"{key}={value!r}" for key, value in flags.fields.items())
    spec, launch = spec_and_launch(flags)
    command = f"milbench.compare({arguments})"
    launch = replace(launch, root=Path(root), command=command, quiet=not progress)
    if run_comparison(spec, launch) == INTERRUPTED:
        raise KeyboardInterrupt
    return results(root, spec.name)


def results(root: Path | str = ".", name: str | None = None) -> Comparison:
    """Return a comparison in the store of the folder `root`.

    Args:
        root: the folder with runs/ and reports/.
        name: the name of the comparison; None: the comparison that was launched last.

    Raises UsageError if there is none.
    """
    return Comparison(folders.results(root, name), folders.Root(Path(root)).reports)


def _named_parameters(
    references: References | None, registry: Registry[Any]
) -> tuple[list[str] | None, dict[str, dict[str, Any]]]:
    """Return the names of the losses, tasks or networks that a caller refers to.

    Also returns their parameters, by the names of the registry. The names are None if the caller
    names no networks.
    """
    if references is None and registry.kind == "network":
        return None, {}
    if isinstance(references, str | Path | ModuleType) or callable(references):
        return [_name(references, registry)], {}
    if not isinstance(references, Iterable):
        raise UsageError(
            f"{registry.kind} = {references!r}: "
            "expected a name, several, or a mapping to parameters"
        )
    if not isinstance(references, Mapping):
        several: Any = references
        return [_name(reference, registry) for reference in several], {}
    names: list[str] = []
    tables: dict[str, dict[str, Any]] = {}
    for reference, params in references.items():
        if not isinstance(params, Mapping | None):
            raise UsageError(
                f"{registry.kind} {reference!r}: "
                f'{params!r} are no parameters, such as {{"KEY": VALUE}}'
            )
        name = _name(reference, registry)
        names.append(name)
        if params:
            tables[_name_of_table(name, registry)] = dict(params)
    return names, tables


def _name_of_table(name: str, registry: Registry[Any]) -> str:
    """Return the name by which a spec has the parameters of a loss, task or network.

    For a file or a module it is the name of the loss, task or network in it.
    """
    # Only paths and names of modules have these characters, and never the name of an entry.
    is_file_or_module = re.search("[:.]", name) is not None
    if registry.kind == "network" and not is_file_or_module:
        # The registry may lack this name, as a task may have networks of its own.
        return name
    return resolve(registry, name)


def _name(item: Any, registry: Registry[Any]) -> str:
    """Return the name by which a spec refers to a module, a class, a function, a path or a name."""
    if isinstance(item, ModuleType):
        return item.__name__
    if callable(item):
        return add_object(registry, item)
    return str(item)
