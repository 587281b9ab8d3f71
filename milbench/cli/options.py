"""Options that several commands share."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from milbench.experiment.plan import Plan

SeveralNames = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Names, files or MODULE:CLASS, with commas.")
]
RootOption = Annotated[
    Path, typer.Option("--root", metavar="FOLDER", help="Folder of runs/ and reports/.")
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="FOLDER", envvar="MILBENCH_DATA", help="Folder of the data sets."
    ),
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N.")
]
DevicesOption = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda (every GPU) or cuda:N."),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        max=1024,
        help="Cells at a time; default: one per core or GPU.",
    ),
]
# Several values of a setting with a prefix, such as loss.KEY=V1,V2, are compared: each has cells of
# its own. `supervision` has no prefix. It is for the comparison as a whole, and lists the kinds of
# supervision that its losses may have, so that both values hold at once.
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--set",
        metavar="KEY=VALUE",
        help="Set recipe.KEY, run.KEY, loss.KEY, task.KEY, network.KEY; loss.NAME.KEY for one. "
        "V1,V2 compares both. supervision=V1,V2 admits losses of either kind. "
        "Keys: milbench list settings.",
    ),
]
RerunOption = Annotated[
    Literal["missing", "failed", "all"] | None,
    typer.Option("--rerun", help="Cells to run; default: missing."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print only failures.")]
SeedsOption = Annotated[
    str | None, typer.Option(metavar="SEEDS", help="Such as 0-9 or 0,2; default: 0, or all folds.")
]
PresetOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="A preset of the spec; default: its first.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show plan, recipes and time; run nothing.")
]
DownloadOption = Annotated[
    bool | None,
    typer.Option(
        "--download/--no-download",
        help="Fetch missing data; default: on a terminal.",
        show_default=False,
    ),
]
GalleryOption = Annotated[
    bool, typer.Option("--gallery/--no-gallery", help="Show pictures of test bags.")
]
ComparisonArgument = Annotated[
    str | None, typer.Argument(help="A comparison; default: the one launched last.")
]

HERE = Path()
"""The default of `--root`: the current folder."""


def command_line() -> str:
    """Return the command as the user typed it, quoted for a shell, without `--root`.

    Published reports show the command. `--root`, the folder of results on one machine, is of no use
    to readers on other machines.
    """
    words = ["milbench"]
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument == "--root":
            # Its value is the next word.
            next(arguments, None)
        elif not argument.startswith("--root="):
            words.append(argument)
    return shlex.join(words)


def names(text: str | None) -> list[str] | None:
    """Split a text of names at its commas.

    A text without a name, such as "," gives a single empty name, which is later refused as unknown.
    None, for an option that was not given, stays None.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    return [part for part in parts if part] or [""]


def say(
    *lines: str,
    style: str = "",
    then: Sequence[str] = (),
    root: Path = HERE,
    data: Path | None = None,
) -> None:
    """Print lines, which are not wrapped, and a suggestion for the next command.

    `then` are the words of that command. It gets `--root` and `--data-dir` if the present command
    has them: `root` and `data`.
    """
    for line in lines:
        _print(line, style)
    if then:
        words = list(then)
        if root != HERE:
            words += ["--root", str(root)]
        if data is not None:
            words += ["--data-dir", str(data)]
        _print(f"next: {shlex.join(words)}")


def _print(line: str, style: str = "") -> None:
    from milbench._utils.console import console

    console.print(line, style=style, soft_wrap=True, highlight=False, markup=False)


def step_after(plan: Plan) -> Sequence[str]:
    """Return the words of the command to suggest when cells are done.

    The command runs the rest of a search for settings, or writes the report. If there are no test
    bags, there is no report, and the command predicts with the trained networks.
    """
    if plan.is_searching:
        return "milbench", "run", plan.name
    if any(info.is_tested for info in plan.tasks.values()):
        return "milbench", "report", plan.name
    # All seeds of the first variant, since `milbench predict` averages over seeds.
    variant = plan.cells[0].variant_key
    ids = [cell.id for cell in plan.cells if cell.variant_key == variant]
    return "milbench", "predict", "FILES", "--cell", ",".join(ids)
