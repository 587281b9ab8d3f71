"""A launch: from a spec to folders of cells that are done, with the search and the companions that it asks for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from milbench._utils.interrupts import INTERRUPTED
from milbench.api.plan import Cell, Plan
from milbench.api.registry import losses, tasks
from milbench.engine.cell import State
from milbench.engine.folders import Root
from milbench.engine.spec import CHANGED, Spec, joins, make_spec, parse_setting, spec_values
from milbench.errors import UsageError

if TYPE_CHECKING:
    from milbench.engine.display import Display
    from milbench.engine.worker import Job

Output = Literal["text", "quiet", "json"]


def requested_spec(spec: str | None, preset: str | None, given: dict[str, Any], settings: Sequence[str] = ()) -> Spec:
    """Return a spec with flags in it: where both give a value, the flag's is taken.

    Args:
        spec: a file or the name of a built-in spec; None: there are flags alone.
        preset: a preset of the spec, None for its first one.
        given: fields of the spec that flags replace; those of the table `run` are added to its own.
        settings: each a `-p` setting, such as recipe.epochs=3.
    """
    if spec:
        values = spec_values(spec, preset)
        make_spec(values, owner=f"spec {spec}")  # a mistake in the file is found as such
    elif preset is not None:
        raise UsageError(f"--preset {preset} needs a spec to take it from")
    else:
        if missing := [flag for flag, key in (("--loss", "losses"), ("--task", "tasks")) if not given.get(key)]:
            raise UsageError(
                f"give a spec, or --loss and --task ({' and '.join(missing)} missing); "
                "milbench list losses|tasks|specs shows what there is"
            )
        values = {"name": "+".join(tasks().entry(task).name for task in given["tasks"])}
    chosen = {key: value for key, value in given.items() if key != "run" and value is not None}
    values |= chosen
    run = {key: value for key, value in given.get("run", {}).items() if value is not None}
    values["run"] = values.get("run", {}) | run
    for setting in settings:
        parse_setting(values, setting)
    if spec and (set(chosen) - {"name"} or any(not setting.startswith("run.") for setting in settings)):
        values["source"] += CHANGED
        values["part"] = bool({"losses", "tasks"} & {*chosen})
    return make_spec(values)


def launch(
    spec: Spec, root: Path, command: str, *, output: Output = "text", dry_run: bool = False, smoke: bool = False
) -> int:
    """Print the plan of a comparison and compute its missing cells, then those of its companions.

    Args:
        spec: the comparison.
        root: the folder with the store.
        command: kept with the plan.
        output: what is shown: text, failures alone, or JSON.
        dry_run: whether to show the plan alone.
        smoke: whether the store is thrown away afterwards, so that nothing is mirrored to MLflow.

    Returns:
        The exit code: 0 if every cell is done (or nothing was to be computed), 1 if some are not, 130 after Ctrl-C.

    Raises:
        UsageError: the spec is wrong, and nothing was computed; or a search has found nothing to choose from.
    """
    others = companions(spec)
    launched = _Launch(Root(root), spec, command, output, dry_run, smoke)
    code = launched.tuned() if spec.tune else launched.compute(launched.plan())
    for other in others:
        if code == INTERRUPTED:
            break
        code = launch(other, root, command, output=output, dry_run=dry_run, smoke=smoke) or code
    return code


def companions(spec: Spec) -> list[Spec]:
    """Return the specs by which losses from files take the companions of a spec as well.

    A loss of one's own is seen in all reports by one command then. Who chooses tasks, seeds or settings asks for less.
    """
    own = [loss for loss in spec.losses if loss.endswith(".py")]
    if not own or not spec.companions or not spec.part:
        return []
    written = spec_values(spec.source.partition(" with ")[0].removeprefix("built-in "))
    if any(getattr(spec, key) != written.get(key) for key in ("tasks", "seeds")):
        return []
    return [
        make_spec(spec_values(name) | {"losses": own, "part": True, "companions": [], "run": spec.run.model_dump()})
        for name in spec.companions
    ]


class _Launch:
    def __init__(self, root: Root, spec: Spec, command: str, output: Output, dry_run: bool, smoke: bool) -> None:
        from milbench._utils.devices import resolve, resolve_all, unusable_gpu
        from milbench.engine.run import check_cluster

        self.root, self.spec, self.command = root, spec, command
        self.output, self.dry_run, self.smoke = output, dry_run, smoke
        self.how = spec.run
        if self.how.cluster is None:
            self.devices = resolve_all(self.how.device)
        elif self.how.jobs or self.how.jobs_per_device:
            raise UsageError("--jobs is for the devices of this machine; a cluster has as many jobs as workers")
        else:  # its workers look for their own devices
            check_cluster(self.how.cluster)
            self.devices = [self.how.device]
        self.device = str(resolve(self.how.device)) if self.how.cluster else self.devices[0]
        self.unusable_gpu = unusable_gpu() if self.how.device == "auto" and self.devices == ["cpu"] else ""
        earlier = self._earlier()
        self.precision = earlier.precision if earlier else ""
        if self.how.in_process and (self.how.timeout or self.how.cluster):
            raise UsageError("run.in_process excludes run.timeout and --cluster: a cell is ended with its process")

    def plan(self, make: Callable[[], Plan] | None = None) -> Plan:
        """Return the plan of the comparison; data that it needs may be downloaded meanwhile."""
        from milbench.data import catalog
        from milbench.engine.planning import make_plan

        with catalog.downloads(not self.dry_run):
            return make() if make else make_plan(self.spec, self.device, self.precision)

    def tuned(self) -> int:
        """Search settings as the spec says, then compute the comparison with those that were chosen."""
        from milbench.engine.display import last_metrics
        from milbench.engine.tuning import search_plan, tuned_plan

        plan = self.plan(lambda: search_plan(self.spec, self.device, self.precision))
        code = self.compute(plan)
        if self.dry_run or code == INTERRUPTED:
            return code
        states = self.root.states(plan)
        if any(state.status not in ("done", "failed") for state in states.values()):
            return code  # the search was stopped: what it would have chosen is not known yet
        metric = plan.search.metric if plan.search else ""
        found = {cell.id: last_metrics(self.root, cell) for cell in plan.cells if states[cell.id].status == "done"}
        values = {cell: metrics[metric] for cell, metrics in found.items() if metric in metrics}
        return self.compute(self.plan(lambda: tuned_plan(self.spec, plan, values, self.device)), over=True)

    def compute(self, plan: Plan, *, over: bool = False) -> int:
        """Print a plan and compute its missing cells; those of a search that is `over` are not computed again."""
        from milbench.engine.run import shard, worker_count

        # By the number of all cells, not of those that are left: a resumed cell keeps its number of threads.
        workers, slots = os.cpu_count() or 1, 1
        if self.how.cluster is None:
            workers, slots = worker_count(self.devices, len(plan.cells), self.how.jobs, self.how.jobs_per_device)
        states = self.root.states(plan)
        wanted = {"missing": ("missing",), "failed": ("missing", "failed"), "all": ("missing", "failed", "done")}
        rerun = wanted[self.how.rerun]
        draws = plan.search.draws if plan.search and over else {}
        cells = [cell for cell in shard(plan.cells, self.how.shard) if cell.id not in draws]
        to_run = [cell for cell in cells if states[cell.id].status in rerun]
        display = self._display(plan, states, to_run)
        notes = [self.unusable_gpu] if self.unusable_gpu and to_run else []
        if self.dry_run:
            from milbench.data import catalog
            from milbench.engine.estimate import outlook

            with catalog.downloads(allowed=False):
                lines = outlook(plan, to_run, self.root, workers, self._threads(workers), self.how.data_dir)
            display.planned([*lines, *notes])
            display.over("dry run: nothing was started")
            return 0
        display.planned([*plan.notes[len(self.spec.notes) :], *notes])
        jobs = self._jobs(plan, to_run, workers, slots)
        self._check(jobs, display)
        plan = self._keep(plan)
        if not to_run:
            return self._nothing_to_run(plan, [states[cell.id].status for cell in cells], display)
        if self.how.rerun == "all":
            for cell in to_run:
                self.root.cell(cell.id).remove()
        return self._execute(plan, cells, jobs, display, workers)

    def _nothing_to_run(self, plan: Plan, statuses: list[str], display: Display) -> int:
        """Bring MLflow up to date, which a launch that was killed at its very end has left behind."""
        from milbench.engine.mirror import Mirror

        mirror = Mirror(self.root, plan, log_models=self.how.log_models)
        if mirror.behind():
            mirror.start()
            if behind := mirror.finish():
                display.over(behind)
        left = []
        if running := statuses.count("running"):
            left.append(f"{running} cells are being computed by another launch")
        if undone := len(statuses) - running - statuses.count("done"):
            again = "all" if self.how.rerun == "failed" else "failed"
            left.append(f"{undone} {'cell is' if undone == 1 else 'cells are'} not done (add --rerun {again})")
        display.over("nothing to run" + (f", but {' and '.join(left)}" if left else ""))
        return int(bool(left))

    def _keep(self, plan: Plan) -> Plan:
        """Write the plan, with the cells of other launches that it adds to: of earlier ones, and of those beside it."""
        from milbench._utils import locks

        self.root.make()
        plan = replace(plan, command=self.command, launched=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
        with locks.lock(self.root.runs / f"{plan.name}.lock"):
            earlier = self._earlier()
            plan = plan.joined(earlier) if earlier else plan
            self.root.keep(plan)
        return plan

    def _earlier(self) -> Plan | None:
        """Return the plan of earlier launches of the name that this one adds to, if there are any."""
        try:
            earlier = self.root.plan(self.spec.name)
        except UsageError:
            return None
        return earlier if joins(self.spec.model_dump(mode="json"), earlier.spec) else None

    def _display(self, plan: Plan, states: Mapping[str, State], to_run: list[Cell]) -> Display:
        from milbench._utils.console import console
        from milbench.engine.display import Display, Events, Failures

        kind = {"text": Display, "json": Events, "quiet": Failures}[self.output]
        return kind(console, plan, states, to_run, self.root)

    def _threads(self, workers: int) -> int:
        return self.how.threads or max(1, (os.cpu_count() or 1) // max(workers, 1))

    def _jobs(self, plan: Plan, to_run: list[Cell], workers: int, slots: int) -> list[Job]:
        from milbench.engine.worker import Job

        return [
            Job(
                cell=cell,
                folder=str(self.root.cell(cell.id).path),
                devices=self.devices,
                slots=slots,
                threads=self._threads(workers),
                data_dir=str(self.how.data_dir) if self.how.data_dir else None,
                timeout=self.how.timeout,
                in_process=self.how.in_process,
                classes=plugin_classes(cell),
                label=plan.label(cell),
            )
            for cell in to_run
        ]

    def _check(self, jobs: list[Job], display: Display) -> None:
        from milbench.engine.check import check_all

        if jobs:
            for warning in check_all(jobs, in_process=self.how.in_process):
                display.over(warning)

    def _execute(self, plan: Plan, cells: list[Cell], jobs: list[Job], display: Display, workers: int) -> int:
        from contextlib import closing

        from milbench.engine.mirror import Mirror
        from milbench.engine.run import ClusterLost, compute_all

        mirror = None if self.smoke else Mirror(self.root, plan, log_models=self.how.log_models)
        if mirror:
            mirror.start()
        stopped = ""
        with display.live():
            try:
                with closing(compute_all(jobs, 0 if self.how.in_process else workers, self.how.cluster)) as outcomes:
                    for outcome in outcomes:
                        display.ended(outcome)
            except KeyboardInterrupt:
                stopped = "interrupted"
            except ClusterLost:
                stopped = "the cluster was lost"
        states = self.root.states(plan)
        done = sum(states[cell.id].status == "done" for cell in cells)
        if mirror and (behind := mirror.finish()):
            display.over(behind)
        if self.smoke:
            ended = "ran from start to end" + (f" before it was {stopped}" if stopped == "interrupted" else "")
            display.over(f"smoke run: {done} of {len(cells)} cells {ended}; nothing was kept")
            return INTERRUPTED if stopped == "interrupted" else int(done < len(cells))
        if stopped:
            display.over(f"{stopped}: {done} of {len(cells)} cells done; the same command continues")
            return INTERRUPTED if stopped == "interrupted" else 1
        left = f", {len(cells) - done} not (milbench status {plan.name})" if done < len(cells) else ""
        display.over(f"{done} of {len(cells)} cells done{left}; next: milbench report {plan.name}")
        return int(done < len(cells))


def plugin_classes(cell: Cell) -> tuple[type, ...]:
    """Return the classes of a cell that no file or module holds, as those of a notebook: they are sent to workers."""
    found = [losses().local_class(cell.loss), tasks().local_class(cell.task)]
    return tuple(cls for cls in found if cls is not None)
