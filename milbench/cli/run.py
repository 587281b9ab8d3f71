"""`milbench run` and `milbench reproduce`: plan the cells of a comparison and compute those that are missing."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from milbench.cli import options
from milbench.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from milbench.api.plan import Plan
    from milbench.cli.events import Events, Failures
    from milbench.cli.progress import Display
    from milbench.engine.runner import Launch
    from milbench.engine.spec import Spec
    from milbench.store.reader import StoreReader
    from milbench.store.workspace import Workspace

SeveralNames = Annotated[str | None, typer.Option(help="Names, or paths of Python files, separated by commas.")]


@dataclass(frozen=True)
class RunRequest:
    """What the user asked `milbench run` or `milbench reproduce` for."""

    spec: str | None
    preset: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    """Fields of the spec that flags replace."""
    settings: list[str] = field(default_factory=list)
    """Each a `-p` setting, such as recipe.epochs=3."""
    data_dir: Path | None = None
    device: str = "auto"
    jobs: int | None = None
    jobs_per_device: int | None = None
    threads: int | None = None
    cluster: str | None = None
    rerun: Literal["missing", "failed", "all"] = "missing"
    timeout: float | None = None
    in_process: bool = False
    log_models: bool = False
    fail_fast: bool = False
    dry_run: bool = False
    smoke: bool = False
    output: Literal["text", "quiet", "json"] = "text"
    command: str = ""
    """What the store keeps as the command; "": the command line."""
    is_companion: bool = False
    """Whether another spec asked for this one: its own companions are then left alone."""


def run(
    spec: Annotated[str | None, typer.Argument(help="A TOML file, or a built-in spec such as demo.")] = None,
    loss: SeveralNames = None,
    task: SeveralNames = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 0-9 or 0,2,5.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "-p", "--set", help="loss.KEY=V, loss.NAME.KEY=V, task.KEY=V or recipe.KEY=V; V1,V2 makes an axis."
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Preset of a spec that has several, such as paper or quick.")
    ] = None,
    supervision: Annotated[
        str | None, typer.Option(help="Kinds of supervision that are compared on purpose, such as set,position.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Same as -p recipe.epochs=N.")] = None,
    steps_per_epoch: Annotated[int | None, typer.Option(help="Same as -p recipe.steps_per_epoch=N.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the comparison; default: the spec's, or the tasks.")] = None,
    data_dir: options.DataDirOption = None,
    device: options.DevicesOption = "auto",
    jobs: options.JobsOption = None,
    jobs_per_device: options.JobsPerDeviceOption = None,
    threads: options.ThreadsOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Address of a dask scheduler, or local:N for N processes here (needs milbench[dask])."),
    ] = None,
    in_process: options.InProcessOption = False,
    timeout: options.TimeoutOption = None,
    rerun: options.RerunOption = "missing",
    log_models: Annotated[bool, typer.Option("--log-models", help="Log every network as an MLflow model too.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed cell.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Try every cell on a few bags, in a store that is thrown away.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print failures alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object an event, for scripts.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Compute the cells of a comparison that are not done yet. Exit code 1 if some fail, 130 after Ctrl-C."""
    given: dict[str, Any] = {
        "losses": names(loss), "tasks": names(task), "seeds": seeds, "name": name, "supervision": names(supervision)
    }  # fmt: skip
    shorthands = {"recipe.epochs": epochs, "recipe.steps_per_epoch": steps_per_epoch}
    if in_process and cluster is not None:
        raise UsageError("--in-process and --cluster exclude each other")
    request = RunRequest(
        spec=spec,
        preset=preset,
        values={key: value for key, value in given.items() if value is not None},
        settings=[*(setting or []), *(f"{key}={number}" for key, number in shorthands.items() if number is not None)],
        data_dir=data_dir,
        device=device,
        jobs=jobs,
        jobs_per_device=jobs_per_device,
        threads=threads,
        cluster=cluster,
        rerun=rerun,
        timeout=timeout,
        in_process=in_process,
        log_models=log_models,
        fail_fast=fail_fast,
        dry_run=dry_run,
        smoke=smoke,
        output="json" if as_json else "quiet" if quiet else "text",
    )
    return try_out(request) if smoke else compute(request, root)


def reproduce(
    study: Annotated[str, typer.Argument(help="A spec with presets, such as supplementary-a.")],
    preset: Annotated[
        str | None, typer.Option(help="Such as paper or quick; default: the first preset of the spec.")
    ] = None,
    loss: SeveralNames = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 0-9 or 0,2,5.")] = None,
    data_dir: options.DataDirOption = None,
    device: options.DevicesOption = "auto",
    jobs: options.JobsOption = None,
    jobs_per_device: options.JobsPerDeviceOption = None,
    threads: options.ThreadsOption = None,
    rerun: options.RerunOption = "missing",
    gallery: options.GalleryOption = "all",
    root: options.RootOption = options.HERE,
) -> int:
    """Rebuild a published comparison and its report.

    Its missing cells are computed, those of some losses and seeds where these are given, then the report is written.
    The same command continues where it was stopped.
    """
    from milbench.cli.report import write_report
    from milbench.engine.spec import read_spec

    comparison = read_spec(study, preset).name
    given = {"losses": names(loss), "seeds": seeds}
    request = RunRequest(
        spec=study,
        preset=preset,
        values={key: value for key, value in given.items() if value is not None},
        data_dir=data_dir,
        device=device,
        jobs=jobs,
        jobs_per_device=jobs_per_device,
        threads=threads,
        rerun=rerun,
    )
    code = compute(request, root)
    if code != INTERRUPTED:  # a report is useful as well where some cells failed
        write_report(comparison, root, gallery=gallery)
    return code


def try_out(request: RunRequest) -> int:
    """Compute every cell of a comparison in small, in a store that is thrown away; return the exit code."""
    # Not on the server that the environment may name: these numbers mean nothing.
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with tempfile.TemporaryDirectory(prefix="milbench-smoke-", ignore_cleanup_errors=True) as folder:
        return compute(request, Path(folder))


INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def compute(request: RunRequest, root: Path) -> int:
    """Print the plan of a comparison and compute its missing cells.

    Returns:
        The exit code: 0 if every cell is done (or nothing was to be computed), 1 if some are not, 130 after Ctrl-C.

    Raises:
        UsageError: The request is wrong. Nothing was written then.
    """
    return compute_spec(requested_spec(request), request, root)


def compute_spec(spec: Spec, request: RunRequest, root: Path) -> int:
    """Compute what a spec says, which has the flags of the request in it already, and its companions; see `compute`."""
    from milbench.engine.planning import make_plan
    from milbench.store.spool import patience

    patience()  # a mistake in it is found before a cell needs it
    others = companions(spec, request)
    if spec.tune is not None and not request.smoke:  # a smoke run tries losses and tasks, whatever their settings
        code = compute_tuned(spec, request, root)
    else:
        code = compute_plan(lambda: make_plan(spec, request.data_dir), request, root)
    for other in others:
        if code != INTERRUPTED:
            code = compute(other, root) or code
    return code


def companions(spec: Spec, request: RunRequest) -> list[RunRequest]:
    """Return the requests by which losses from files take the companions of a spec as well.

    A loss of one's own is seen in all reports by one command then. Who chooses tasks or seeds asks for less than that.

    Raises:
        UsageError: there is no spec of that name, or it is wrong; found before the first cell is computed.
    """
    own = [loss for loss in request.values.get("losses", []) if loss.endswith(".py")]
    if not own or request.settings or set(request.values) != {"losses"} or request.is_companion:
        return []
    found = [
        replace(request, spec=name, preset=None, values={"losses": own}, is_companion=True) for name in spec.companions
    ]
    for other in found:
        requested_spec(other)
    return found


def compute_tuned(spec: Spec, request: RunRequest, root: Path) -> int:
    """Search settings as a spec says, then compute the comparison with those that were chosen; see `compute`."""
    from milbench.engine.tuning import search_plan, tuned_plan
    from milbench.store.collect import last_values
    from milbench.store.reader import StoreReader
    from milbench.store.workspace import Workspace

    searched: list[Plan] = []

    def first_stage() -> Plan:
        searched.append(search_plan(spec, request.data_dir))
        return searched[0]

    code = compute_plan(first_stage, request, root)
    if request.dry_run or code == INTERRUPTED:
        return code
    (plan,) = searched
    store = StoreReader(Workspace(Path(root)))
    runs = store.cell_runs()
    if any(cell.id not in runs or runs[cell.id].status not in ("done", "failed") for cell in plan.cells):
        return code  # the search was stopped: what it would have chosen is not known yet
    values = last_values(store, plan, plan.search.metric if plan.search else "")
    return compute_plan(lambda: tuned_plan(spec, plan, values, request.data_dir), request, root)


def compute_plan(make: Callable[[], Plan], request: RunRequest, root: Path) -> int:
    """Print a plan and compute its missing cells.

    Args:
        make: returns the plan; data that it needs may be downloaded meanwhile.
        request: how cells are computed.
        root: the folder of the workspace.

    Returns:
        The exit code, as `compute` does.
    """
    from milbench.data import catalog
    from milbench.engine.precision import check_precision
    from milbench.engine.runner import Launch, worker_devices
    from milbench.store.reader import StoreReader
    from milbench.store.workspace import Workspace

    devices = _devices(request)
    with catalog.downloads(not request.dry_run):
        plan = make()
        if request.smoke:
            from milbench.engine.smoke_test import shrink

            plan = shrink(plan)
        check_precision(plan.cells, devices)
        if request.log_models:
            _check_models(plan)
        # By the number of all cells, not of those that are left: a resumed cell keeps its number of threads.
        devices = worker_devices(devices, len(plan.cells), request.jobs, request.jobs_per_device)
        workspace = Workspace(root) if request.dry_run else Workspace(root).make()
        if not request.dry_run:
            options.deliver(workspace)
        plan = _with_precision(plan, devices, request, workspace)
    reader = StoreReader(workspace) if options.has_store(workspace) else None
    launch = Launch(plan, reader.cell_runs() if reader else {}, request.rerun)
    display = _display(launch, workspace, request.output)
    display.planned()
    if reader and not reader.joins(plan):
        _say_apart(plan, request)
    if request.dry_run:
        display.over("dry run: nothing was started")
        return 0
    if not launch.to_run:
        return _nothing_to_run(launch, workspace, display, request.command or options.command_line())
    return _execute(launch, workspace, request, devices, display)


def _say_apart(plan: Plan, request: RunRequest) -> None:
    """Print that a launch of a part of a spec stands alone: a report would lack the other losses without a word."""
    from milbench.cli.console import console

    if request.output == "text":
        console.print(
            f"{plan.name}: the earlier launches of that name had other settings or another preset, and the report of "
            "this one is without them; the same --preset and -p would join them, --name keeps them apart",
            markup=False,
            soft_wrap=True,
        )


def _earlier(name: str, workspace: Workspace) -> Plan | None:
    """Return the plan that a comparison has so far, None where there is none."""
    from milbench.store.reader import StoreReader

    try:
        return StoreReader(workspace).plan(name)[0] if options.has_store(workspace) else None
    except UsageError:
        return None


def _check_models(plan: Plan) -> None:
    """Raise UsageError where a network could be loaded with its data alone: it would be no model that can be moved."""
    from milbench.api.registry import tasks
    from milbench.api.task import Task

    for name in dict.fromkeys(cell.task_file or cell.task for cell in plan.cells):
        kind = tasks().cls(name)
        if kind.network_needs_data and kind.memory is Task.memory:
            raise UsageError(
                f"--log-models: the network of {kind.name} needs its data, and it has no Task.memory of them"
            )


def _devices(request: RunRequest) -> list[str]:
    """Return the devices that cells are dealt to; the workers of a cluster have their own, and do not share this one's.

    Raises:
        UsageError: the device is not there, or an option has no meaning.
    """
    from milbench._utils.devices import resolve, resolve_all

    if request.cluster is None:
        return resolve_all(request.device)
    if request.jobs_per_device is not None:
        raise UsageError("--jobs-per-device is for the GPUs of this machine; a cluster has as many jobs as workers")
    return [str(resolve(request.device))]


def _with_precision(plan: Plan, devices: list[str], request: RunRequest, workspace: Workspace) -> Plan:
    """Return the plan with a precision for the cells whose recipe leaves it to a measurement, and print the choice.

    A dry run measures nothing: cells whose precision was not chosen before are left as they are.
    """
    if not any(cell.recipe["precision"] == "auto" for cell in plan.cells):
        return plan
    import torch

    from milbench.cli.console import console
    from milbench.engine.auto_precision import choose, recall

    device, kept, earlier = torch.device(devices[0]), workspace.precision, _earlier(plan.name, workspace)
    if request.dry_run:
        chosen = recall(plan, device, kept, earlier)
    else:
        chosen = choose(plan, device, _threads(request, devices), request.data_dir, kept, earlier)
    if request.output == "text":
        for note in chosen.notes[len(plan.notes) :]:
            console.print(note, markup=False, soft_wrap=True)
    return chosen


def _threads(request: RunRequest, devices: list[str]) -> int:
    """Return the number of threads of each cell."""
    return request.threads or max(1, (os.cpu_count() or 1) // len(devices))


def _display(
    launch: Launch, workspace: Workspace, output: Literal["text", "quiet", "json"]
) -> Display | Events | Failures:
    from milbench.cli.console import console
    from milbench.cli.events import Events, Failures
    from milbench.cli.progress import Display

    if output == "text":
        return Display(console, launch, workspace)
    return Events(launch) if output == "json" else Failures(launch)


def _execute(
    launch: Launch, workspace: Workspace, request: RunRequest, devices: list[str], display: Display | Events | Failures
) -> int:
    from milbench.engine.pools import ClusterLost
    from milbench.engine.runner import Interrupted, Options, execute
    from milbench.store.writer import StoreWriter

    how = Options(
        devices=devices,
        threads=_threads(request, devices),
        data_dir=request.data_dir,
        fail_fast=request.fail_fast,
        cluster=request.cluster,
        in_process=request.in_process,
        timeout=request.timeout,
        log_models=request.log_models,
    )
    store = StoreWriter(workspace)
    stopped, failed, problems = "", 0, []
    try:
        with display.live():
            try:
                failed = execute(launch, store, workspace, how, request.command or options.command_line(), display)
            except Interrupted:
                stopped = "interrupted"
            except ClusterLost:
                stopped = "the cluster was lost"
        code = _outcome(launch.plan, store, display, request, stopped) or int(failed > 0)
    except StoreError as error:
        code = INTERRUPTED if stopped == "interrupted" else 1
        problems = [str(error), "the same command continues"]
    if waiting := store.waiting():
        kept = f"what {len(waiting)} runs wrote is kept in {workspace.spool}"
        problems.append(f"{kept}, and the next milbench run or milbench status delivers it")
    if problems:
        typer.echo(f"milbench: {'; '.join(problems)}", err=True)
    return code or int(bool(problems))


def _outcome(
    plan: Plan, store: StoreReader, display: Display | Events | Failures, request: RunRequest, stopped: str
) -> int:
    """Print how many cells of a plan are done, and what stopped the launch, if anything; return the exit code."""
    done, cells = _done(plan, store), len(plan.cells)
    if stopped:
        what = "computes all of them again" if request.rerun == "all" else "continues"
        display.over(f"{stopped}: {done} of {cells} cells done; the same command {what}")
        return INTERRUPTED if stopped == "interrupted" else 1
    if request.smoke:
        display.over(f"smoke run: {done} of {cells} cells run from end to end; nothing was kept")
    else:
        left = f", {cells - done} not (milbench status {plan.name})" if done < cells else ""
        display.over(f"{done} of {cells} cells done{left}; next: milbench report {plan.name}")
    return 0 if done == cells else 1


def _nothing_to_run(launch: Launch, workspace: Workspace, display: Display | Events | Failures, command: str) -> int:
    """Record the launch, unless the last one was the same, and print how many cells are not done."""
    from milbench.store.reader import StoreReader

    undone = sum(launch.status(cell) != "done" for cell in launch.plan.cells)
    display.over("nothing to run" + (f", but {undone} cells are not done (see --rerun)" if undone else ""))
    reader = StoreReader(workspace)
    is_new = not reader.was_launched_last(launch.plan)
    if is_new or reader.has_stale_launches():
        from milbench.store.writer import StoreWriter

        store = StoreWriter(workspace)
        store.close_stale([])
    if is_new:
        store.end(store.launch(launch.plan, command), "FINISHED")
    return 1 if undone else 0


def _done(plan: Plan, store: StoreReader) -> int:
    """Return how many cells of a plan are done."""
    runs = store.cell_runs()
    return sum(cell.id in runs and runs[cell.id].status == "done" for cell in plan.cells)


def requested_spec(request: RunRequest) -> Spec:
    """Return the spec with the flags in it: where both give a value, the flag's is taken."""
    from milbench.engine.marks import with_tasks
    from milbench.engine.planning import check_contrasts
    from milbench.engine.spec import CHANGED, make_spec, parse_setting, read_spec

    if request.spec:
        written = read_spec(request.spec, request.preset)
        check_contrasts(written)
        values = {**written.model_dump(), "marks": with_tasks(written.marks, written.tasks), **request.values}
    elif request.preset is not None:
        raise UsageError(f"--preset {request.preset} needs a spec to take it from")
    else:
        missing = [flag for flag, key in (("--loss", "losses"), ("--task", "tasks")) if key not in request.values]
        if missing:
            raise UsageError(
                f"give a spec, or --loss and --task ({' and '.join(missing)} missing); "
                "milbench list losses|tasks|specs shows what there is"
            )
        values = {"name": "+".join(Path(task).stem for task in request.values["tasks"]), **request.values}
    for setting in request.settings:
        parse_setting(values, setting)
    changed = request.settings or set(request.values) - {"name"}
    if request.spec and changed:
        values["source"] += CHANGED
        values["part"] = bool({"losses", "tasks"} & {*request.values})
    return make_spec(values)


def names(text: str | None) -> list[str] | None:
    """Split a list with commas; an empty text stays one empty name, which is then refused as unknown."""
    if text is None:
        return None
    names = [part.strip() for part in text.split(",") if part.strip()]
    return names or [""]
