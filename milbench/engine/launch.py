"""A launch: from a spec to folders of cells that are done, with the search that it asks for."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milbench._utils import locks
from milbench.api.plan import Cell, Plan
from milbench.api.registry import Registry, losses, tasks
from milbench.api.resolver import local_object
from milbench.engine.folders import Root
from milbench.engine.spec import Spec
from milbench.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from milbench.engine.display import Display
    from milbench.engine.worker import Job

RERUN = {"missing": ("missing",), "failed": ("missing", "failed"), "all": ("missing", "failed", "done")}
"""What has become of the cells that `--rerun` computes."""

HUGE_PAGES = ("THP_MEM_ALLOC_ENABLE", "1")
"""Lets PyTorch ask Linux for pages of 2 MB: batches of slides are gone through in two thirds of the time."""


def launch(spec: Spec, root: Path, command: str, *, quiet: bool = False, dry_run: bool = False) -> int:
    """Print the plan of a comparison and compute its missing cells in the store of a root.

    The command is kept with the plan. A dry run shows the plan alone; a quiet launch prints failures alone.

    Returns:
        The exit code: 0 if every cell is done (or nothing was to be computed), 1 if some are not, 130 after Ctrl-C.

    Raises:
        UsageError: the spec is wrong, and nothing was computed; or a search has found nothing to choose from.
    """
    os.environ.setdefault(*HUGE_PAGES)
    launched = _Launch(Root(root), spec, command, quiet, dry_run)
    return launched.tuned() if spec.tune else launched.compute(launched.plan())


class _Launch:
    def __init__(self, root: Root, spec: Spec, command: str, quiet: bool, dry_run: bool) -> None:
        from milbench._utils.devices import resolve_all, unusable_gpu
        from milbench.engine.run import check_cluster

        self.root, self.spec, self.command = root, spec, command
        self.quiet, self.dry_run = quiet, dry_run
        self.how = spec.run
        if self.how.cluster is None:
            self.devices = resolve_all(self.how.device)
        elif self.how.jobs:
            raise UsageError("--jobs is for the devices of this machine; a cluster has as many jobs as workers")
        else:  # its workers look for their own devices
            check_cluster(self.how.cluster)
            self.devices = [self.how.device]
        self.unusable_gpu = unusable_gpu() if self.how.device == "auto" and self.devices == ["cpu"] else ""
        if self.how.in_process and (self.how.timeout or self.how.cluster):
            raise UsageError("run.in_process excludes run.timeout and --cluster: a cell is ended with its process")

    # -- what is planned ----------------------------------------------------------------------------------------

    def plan(self, draws: Plan | None = None) -> Plan:
        """Return the plan of the comparison, or of its search where it has one and no draws are given.

        Data that it needs may be downloaded meanwhile.
        """
        from milbench._utils.devices import resolve
        from milbench.data import catalog
        from milbench.engine.planning import make_plan
        from milbench.engine.tuning import search_plan, tuned_plan

        device = str(resolve(self.how.device)) if self.how.cluster else self.devices[0]
        earlier = self._earlier()
        precision = earlier.precision if earlier else ""
        with catalog.downloads(not self.dry_run):
            if draws:
                return tuned_plan(self.spec, draws, self._chosen_by(draws), device)
            return (search_plan if self.spec.tune else make_plan)(self.spec, device, precision)

    def tuned(self) -> int:
        """Search settings as the spec says, then compute the comparison with those that were chosen."""
        plan = self.plan()
        code = self.compute(plan)
        if self.dry_run or code == INTERRUPTED:
            return code
        if any(state.status not in ("done", "failed") for state in self.root.states(plan.cells).values()):
            return code  # the search was stopped: what it would have chosen is not known yet
        return self.compute(self.plan(plan))

    def _chosen_by(self, draws: Plan) -> dict[str, float]:
        """Return the metric of a search by the id of a cell, of those that have it."""
        metric = draws.search.metric if draws.search else ""
        done = [folder for folder in map(self.root.cell, (cell.id for cell in draws.cells)) if folder.is_done]
        return {folder.id: known[metric] for folder in done if metric in (known := folder.last_metrics())}

    def _earlier(self) -> Plan | None:
        """Return the plan of earlier launches of the name that this one adds to, if there are any."""
        try:
            earlier = self.root.plan(self.spec.name)
        except UsageError:
            return None
        return earlier if earlier.spec.get("origin") == self.spec.origin else None

    def _keep(self, plan: Plan) -> Plan:
        """Write the plan, with the cells of other launches that it adds to: of earlier ones, and of those beside it."""
        self.root.make()
        plan = replace(plan, command=self.command, launched=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
        with locks.lock(self.root.runs / f"{plan.name}.lock"):
            if earlier := self._earlier():
                plan = plan.joined(earlier)
            self.root.keep(plan)
        return plan

    # -- what is computed ---------------------------------------------------------------------------------------

    def compute(self, plan: Plan) -> int:
        """Print a plan and compute its missing cells: those of a search, or after it those that are compared."""
        from milbench.engine.display import Display
        from milbench.engine.run import shard, worker_count

        # By the number of all cells, not of those that are left: a resumed cell keeps its number of threads.
        workers, slots = os.cpu_count() or 1, 1
        if self.how.cluster is None:
            workers, slots = worker_count(self.devices, len(plan.cells), self.how.jobs)
        threads = self.how.threads or max(1, (os.cpu_count() or 1) // workers)
        states = self.root.states(plan.cells)
        cells = shard(plan.compared or plan.cells, self.how.shard)
        to_run = [cell for cell in cells if states[cell.id].status in RERUN[self.how.rerun]]
        display = Display(plan, states, to_run, self.root, quiet=self.quiet)
        notes = [self.unusable_gpu] if self.unusable_gpu and to_run else []
        if self.dry_run:
            from milbench.data import catalog
            from milbench.engine.estimate import outlook, published

            display.planned([*plan.notes, *published(plan)])
            with catalog.downloads(allowed=False):
                lines = outlook(plan, to_run, self.root, workers, threads, self.how.data_dir)
            for line in (*lines, *notes, "dry run: nothing was started"):
                display.over(line)
            return 0
        display.planned([*plan.notes[len(self.spec.notes) :], *notes])
        jobs = [self._job(plan, cell, slots, threads) for cell in to_run]
        with display.live() if jobs else nullcontext():
            if jobs:
                from milbench.engine.check import check_all

                for warning in check_all(jobs):
                    display.over(warning)
            return self._execute(self._keep(plan), cells, jobs, display, workers)

    def _job(self, plan: Plan, cell: Cell, slots: int, threads: int) -> Job:
        from milbench.engine.worker import Job
        from milbench.networks.registry import networks

        # Classes that no file or module holds, as those of a notebook, are sent to workers.
        named: list[tuple[str, Registry[Any], str]] = [
            ("loss", losses(), cell.loss), ("task", tasks(), cell.task), ("network", networks(), cell.network)
        ]  # fmt: skip
        local = tuple((kind, found) for kind, registry, name in named if (found := local_object(registry, name)))
        folder = self.root.cell(cell.id)
        return Job(cell, plan.label(cell), folder, self.how, threads, self.devices, slots, local)

    def _execute(self, plan: Plan, cells: list[Cell], jobs: list[Job], display: Display, workers: int) -> int:
        """Compute cells and bring MLflow up to date, which an earlier launch may have left behind; say how it ended."""
        from milbench.engine.mirror import Mirror
        from milbench.engine.run import ClusterLost, compute_all

        if self.how.rerun == "all":
            for job in jobs:
                job.folder.remove()
        mirror = Mirror(self.root, plan, log_models=self.how.log_models)
        mirror.start()
        stopped = ""
        try:
            with closing(compute_all(jobs, 0 if self.how.in_process else workers, self.how.cluster)) as ended:
                for cell_id, state in ended:
                    display.ended(cell_id, state)
        except KeyboardInterrupt:
            stopped = "interrupted"
        except ClusterLost:
            stopped = "the cluster was lost"
        if behind := mirror.finish():
            display.over(behind)
        statuses = Counter(state.status for state in self.root.states(cells).values())
        undone = len(cells) - statuses["done"]
        counted = f"{statuses['done']} of {len(cells)} cells done"
        if stopped:
            display.over(f"{stopped}: {counted}; the same command continues")
        elif jobs:
            left = f", {undone} not (milbench status {plan.name})" if undone else ""
            display.over(f"{counted}{left}; next: milbench report {plan.name}")
        else:
            display.over(f"nothing to run{self._left(statuses['running'], undone - statuses['running'])}")
        return INTERRUPTED if stopped == "interrupted" else int(bool(stopped or undone))

    def _left(self, running: int, others: int) -> str:
        """Return in words which cells are not done although there is nothing to run, "" if all are."""
        left = [f"{running} cells are being computed by another launch"] * bool(running)
        if others:
            again = "all" if self.how.rerun == "failed" else "failed"
            left.append(f"{others} {'cell is' if others == 1 else 'cells are'} not done (add --rerun {again})")
        return f", but {' and '.join(left)}" if left else ""
