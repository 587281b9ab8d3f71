"""`milbench run` and `reproduce`: run the missing cells of a comparison."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from milbench.cli import options
from milbench.cli.fetching import fetch_missing
from milbench.cli.options import SeveralNames, names
from milbench.cli.report import write_report
from milbench.errors import INTERRUPTED
from milbench.experiment.flags import Flags, spec_and_launch
from milbench.experiment.spec_files import presets
from milbench.running.launch import run_comparison
from milbench.store.folders import Root


def run(
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="SPEC",
            help="A TOML file, a built-in spec (milbench list specs) or a comparison.",
        ),
    ] = None,
    loss: SeveralNames = None,
    task: SeveralNames = None,
    network: SeveralNames = None,
    seeds: options.SeedsOption = None,
    setting: options.SettingOption = None,
    preset: options.PresetOption = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name the comparison; default: spec or tasks."),
    ] = None,
    data_dir: options.DataDirOption = None,
    download: options.DownloadOption = None,
    device: options.DevicesOption = None,
    jobs: options.JobsOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address of a dask scheduler, or local:N."),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="i/n", help="Run every n-th cell, from the i-th on.")
    ] = None,
    rerun: options.RerunOption = None,
    log_models: Annotated[
        bool, typer.Option("--log-models", help="Log every network as an MLflow model.")
    ] = False,
    dry_run: options.DryRunOption = False,
    quiet: options.QuietOption = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Train each loss on each task and seed, skipping finished cells.

    One such training is a cell. The same command continues after Ctrl-C (exit code 130). Exit code
    1 if a cell fails. If the spec has a table [tune], settings are searched for each loss first.

    Example: milbench run --loss exact,noisy-or --task extended-digits --seeds 0-2
    """
    flags = Flags(
        losses=names(loss),
        tasks=names(task),
        networks=names(network),
        seeds=seeds,
        name=name,
        assignments=setting or [],
        execution={
            "data_dir": data_dir,
            "device": device,
            "jobs": jobs,
            "rerun": rerun,
            "cluster": cluster,
            "shard": shard,
            # None: the flag is not given, and the spec decides.
            "log_models": log_models or None,
        },
    )
    # SPEC may be the name of a comparison in the folder `root`.
    spec, launch = spec_and_launch(flags, reference, preset, store=Root(root))
    # The launch has the settings of spec and flags for where and how cells run. Its other fields
    # belong to this command.
    launch = replace(
        launch, root=root, command=options.command_line(), quiet=quiet, dry_run=dry_run
    )
    fetch_missing(spec, launch, download=download)
    code = run_comparison(spec, launch)
    # A launch with failed cells, whose code is 1, has ended too.
    has_ended = code != INTERRUPTED and not dry_run
    if has_ended and not quiet:
        _say_outcome(spec.name, root, has_failures=code != 0)
    return code


def _say_outcome(name: str, root: Path, *, has_failures: bool) -> None:
    """Print which losses the results exclude, in a sentence, and the command to run next."""
    from milbench.report.render import sentence
    from milbench.store.folders import results

    comparison = results(root, name)
    if has_failures:
        step: Sequence[str] = ("milbench", "status", name)
    else:
        step = options.step_after(comparison.plan)
    options.say(sentence(comparison), style="bold", then=step, root=root)


def reproduce(
    reference: Annotated[
        str,
        typer.Argument(metavar="STUDY", help="A spec with presets, such as supplementary-a."),
    ],
    preset: options.PresetOption = None,
    loss: SeveralNames = None,
    seeds: options.SeedsOption = None,
    setting: options.SettingOption = None,
    data_dir: options.DataDirOption = None,
    download: options.DownloadOption = None,
    device: options.DevicesOption = None,
    jobs: options.JobsOption = None,
    rerun: options.RerunOption = None,
    dry_run: options.DryRunOption = False,
    gallery: options.GalleryOption = True,
    root: options.RootOption = options.HERE,
) -> int:
    """Repeat a published comparison and write its report, beside the published figures.

    The default is the first preset, which runs on two cores. The same command continues after an
    interruption.

    Example: milbench reproduce supplementary-a --dry-run
    """
    from milbench._utils.console import console, table_of

    flags = Flags(
        losses=names(loss),
        seeds=seeds,
        assignments=setting or [],
        execution={"data_dir": data_dir, "device": device, "jobs": jobs, "rerun": rerun},
    )
    # A preset is a named set of changes to a spec. It may make the comparison small enough for two
    # cores, for example. No `store` is given, so that the reference is never taken for the name of
    # a comparison in the store.
    spec, launch = spec_and_launch(flags, reference, preset)
    launch = replace(launch, root=root, command=options.command_line(), dry_run=dry_run)
    fetch_missing(spec, launch, download=download)
    summaries = presets(reference)
    if dry_run and summaries:
        rows = []
        for name, summary in summaries.items():
            remark = "shown below" if name == spec.preset else ""
            rows.append((name, summary, remark))
        console.print(table_of("", ("--preset", "summary", ""), rows), markup=False)
    code = run_comparison(spec, launch)
    # The report is written even if some cells have failed.
    if code != INTERRUPTED and not dry_run:
        options.say(*_beside_published(spec.name, root))
        write_report([spec.name], root, gallery=gallery)
    return code


def _beside_published(name: str, root: Path) -> list[str]:
    """Return the results of a comparison beside the published numbers, a line for each loss."""
    from milbench.report.literature import outcome_lines
    from milbench.report.study import Study
    from milbench.store.folders import results

    # `Study` is a view on the results of a comparison. It has nothing to do with the argument STUDY
    # of `reproduce`, which is a spec.
    return outcome_lines(Study(results(root, name)))
