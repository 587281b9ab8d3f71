"""`milbench run`, `tune` and `reproduce`: compute the cells of a comparison that are missing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from milbench.cli import options
from milbench.cli.options import SeveralNames, names
from milbench.engine.launch import launch
from milbench.engine.spec import requested_spec
from milbench.errors import INTERRUPTED, UsageError


def run(
    spec: Annotated[
        str | None, typer.Argument(help="A TOML file, or a built-in spec: see milbench list specs.")
    ] = None,
    loss: SeveralNames = None,
    task: SeveralNames = None,
    seeds: options.SeedsOption = None,
    setting: options.SettingOption = None,
    preset: options.PresetOption = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name the comparison; default: spec or tasks.")
    ] = None,
    data_dir: options.DataDirOption = None,
    device: options.DevicesOption = None,
    jobs: options.JobsOption = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The address of a dask scheduler, or local:N.")
    ] = None,
    shard: Annotated[str | None, typer.Option(metavar="i/n", help="Compute every n-th cell, from the i-th on.")] = None,
    rerun: options.RerunOption = None,
    log_models: Annotated[bool, typer.Option("--log-models", help="Log every network as an MLflow model.")] = False,
    dry_run: options.DryRunOption = False,
    quiet: options.QuietOption = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Train every loss on every task with every seed, where that is not done yet.

    One such training is a cell. The same command continues after Ctrl-C (exit code 130) and does not repeat what is
    done. Exit code 1 if a cell fails.

    Example: milbench run --loss exact,noisy-or --task extended-digits --seeds 0-2
    """
    given: dict[str, Any] = {"losses": names(loss), "tasks": names(task), "seeds": seeds, "name": name}
    given["run"] = {
        "data_dir": data_dir, "device": device, "jobs": jobs, "rerun": rerun, "cluster": cluster, "shard": shard,
        "log_models": log_models or None,
    }  # fmt: skip
    wanted = requested_spec(spec, preset, given, setting or [])
    return launch(wanted, root, options.command_line(), quiet=quiet, dry_run=dry_run)


def tune(
    spec: Annotated[str, typer.Argument(help="A TOML file or a built-in spec that has a table [tune].")],
    draws: Annotated[int | None, typer.Option(metavar="N", min=1, help="Settings to try for every loss.")] = None,
    loss: SeveralNames = None,
    task: SeveralNames = None,
    seeds: options.SeedsOption = None,
    setting: options.SettingOption = None,
    preset: options.PresetOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name the comparison; default: as the spec.")] = None,
    data_dir: options.DataDirOption = None,
    device: options.DevicesOption = None,
    jobs: options.JobsOption = None,
    rerun: options.RerunOption = None,
    dry_run: options.DryRunOption = False,
    quiet: options.QuietOption = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Search settings for every loss, then compare the losses with the best ones.

    Every loss gets on every task the same number of draws from the same space. The best draw has the smallest set
    error on validation bags; the comparison trains it with new seeds. The same command continues, and more --draws
    extend the search.

    Example: milbench tune joint-or-marginal --draws 4
    """
    given: dict[str, Any] = {"losses": names(loss), "tasks": names(task), "seeds": seeds, "name": name}
    given["run"] = {"data_dir": data_dir, "device": device, "jobs": jobs, "rerun": rerun}
    budget = [] if draws is None else [f"tune.draws={draws}"]
    wanted = requested_spec(spec, preset, given, [*(setting or []), *budget])
    if wanted.tune is None:
        raise UsageError(f"spec {wanted.name} has no table [tune], which says what is searched; or use milbench run")
    return launch(wanted, root, options.command_line(), quiet=quiet, dry_run=dry_run)


def reproduce(
    study: Annotated[str, typer.Argument(help="A spec with presets, such as supplementary-a.")],
    preset: options.PresetOption = None,
    loss: SeveralNames = None,
    seeds: options.SeedsOption = None,
    data_dir: options.DataDirOption = None,
    device: options.DevicesOption = None,
    jobs: options.JobsOption = None,
    rerun: options.RerunOption = None,
    dry_run: options.DryRunOption = False,
    gallery: options.GalleryOption = True,
    root: options.RootOption = options.HERE,
) -> int:
    """Compute a published comparison again and write its report.

    The same command continues where it was stopped.

    Example: milbench reproduce supplementary-a --preset quick
    """
    from milbench.cli.report import write_report

    given: dict[str, Any] = {"losses": names(loss), "seeds": seeds}
    given["run"] = {"data_dir": data_dir, "device": device, "jobs": jobs, "rerun": rerun}
    wanted = requested_spec(study, preset, given)
    code = launch(wanted, root, options.command_line(), dry_run=dry_run)
    if code != INTERRUPTED and not dry_run:  # a report is useful as well where some cells failed
        write_report(wanted.name, root, gallery=gallery)
    return code
