"""`milbench run` and `milbench reproduce`: plan the cells of a comparison and compute those that are missing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from milbench._utils.interrupts import INTERRUPTED
from milbench.cli import options
from milbench.cli.options import SeveralNames, names
from milbench.errors import UsageError
from milbench.launch.compute import compute
from milbench.launch.request import RunRequest


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
    options.refuse_timeout_in_process(timeout, in_process=in_process)
    if as_json and quiet:
        raise UsageError("--json and --quiet exclude each other")
    request = RunRequest(
        command=options.command_line(),
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
    return _try_out(request) if smoke else compute(request, root)


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
    gallery: options.GalleryOption = True,
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
        command=options.command_line(),
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


def _try_out(request: RunRequest) -> int:
    """Compute every cell of a comparison in small, in a store that is thrown away; return the exit code."""
    # Not on the server that the environment may name: these numbers mean nothing.
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with tempfile.TemporaryDirectory(prefix="milbench-smoke-", ignore_cleanup_errors=True) as folder:
        return compute(request, Path(folder))
