"""`milbench tune`: search settings for every loss with the same budget, then compare the losses with them."""

from __future__ import annotations

from typing import Annotated

import typer

from milbench.cli import options
from milbench.cli.options import SeveralNames, names
from milbench.errors import UsageError
from milbench.launch.compute import compute
from milbench.launch.request import RunRequest, requested_spec


def tune(
    spec: Annotated[str, typer.Argument(help="A TOML file with a table [tune], or a built-in spec with one.")],
    draws: Annotated[int | None, typer.Option(min=1, help="Same as tune.draws: settings tried for every loss.")] = None,
    loss: SeveralNames = None,
    task: SeveralNames = None,
    seeds: Annotated[str | None, typer.Option(help="Of the comparison, such as 0-9.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the comparison; default: the spec's.")] = None,
    preset: Annotated[str | None, typer.Option(help="Preset of a spec that has several.")] = None,
    data_dir: options.DataDirOption = None,
    device: options.DevicesOption = "auto",
    jobs: options.JobsOption = None,
    jobs_per_device: options.JobsPerDeviceOption = None,
    threads: options.ThreadsOption = None,
    in_process: options.InProcessOption = False,
    timeout: options.TimeoutOption = None,
    rerun: options.RerunOption = "missing",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan of the search and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print failures alone.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Search settings for every loss on every task, then compare the losses with those that were chosen.

    Every loss has the same number of draws from one space. The best draw is the one with the smallest error of label
    sets on validation bags. The comparison trains it with fresh seeds. The same command continues where it was
    stopped, and with more --draws extends the search.
    """
    from milbench.engine.search_space import MOST_DRAWS

    if draws is not None and draws > MOST_DRAWS:
        raise UsageError(f"--draws {draws} is too many, expected at most {MOST_DRAWS}")
    options.refuse_timeout_in_process(timeout, in_process=in_process)
    given = {"losses": names(loss), "tasks": names(task), "seeds": seeds, "name": name}
    request = RunRequest(
        command=options.command_line(),
        spec=spec,
        preset=preset,
        values={key: value for key, value in given.items() if value is not None},
        draws=draws,
        data_dir=data_dir,
        device=device,
        jobs=jobs,
        jobs_per_device=jobs_per_device,
        threads=threads,
        rerun=rerun,
        timeout=timeout,
        in_process=in_process,
        dry_run=dry_run,
        output="quiet" if quiet else "text",
    )
    wanted = requested_spec(request)
    if wanted.tune is None:
        raise UsageError(f"spec {wanted.name} has no table [tune], which says what is searched; or use milbench run")
    return compute(request, root)
