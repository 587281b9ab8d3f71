"""The command line: parse, call, print, exit code. Heavy imports wait until a command needs them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from milbench._version import __version__
from milbench.errors import RENAMED, UsageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Compare losses for multiple-instance learning from label sets.",
)
data_app = typer.Typer(no_args_is_help=True, help="The data sets: what is here, fetch one, check them.")
bench_app = typer.Typer(no_args_is_help=True, help="Speed and memory, measured side by side.")
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")

RootOption = Annotated[Path, typer.Option("--root", help="Folder with runs/ (the store) and reports/.")]
DataOption = Annotated[Path | None, typer.Option("--data-dir", envvar="MILBENCH_DATA", help="Folder of the data.")]
DecoderOption = Annotated[
    Literal["columns", "posterior", "components", "each"] | None,
    typer.Option(help="How to read the map; default: what the run has learnt, else what suits its task."),
]
ScaleOption = Annotated[str | None, typer.Option(help="Times to enlarge; auto, as predict for house numbers: any.")]
HERE = Path()
WrongWords: Any = typer.BadParameter.__base__
"""What typer's parser raises; it has no public name, and lives in click or in typer itself by version."""


def main() -> NoReturn:
    """Run the command line; every mistake of the user's ends in one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        code = _complain(str(error))
    except WrongWords as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            code = 2
        else:
            _suggest_the_name_of_today(error)
            code = _complain(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        code = 0
    except Exception as error:
        if not type(error).__module__.startswith("mlflow."):
            raise
        code = _complain(f"the store refuses: {error}")
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Compare losses for multiple-instance learning from label sets."""
    if version:
        typer.echo(f"milbench {__version__}")
        raise typer.Exit


@app.command()
def run(
    spec: Annotated[str | None, typer.Argument(help="A TOML file, or a built-in spec such as demo.")] = None,
    loss: Annotated[str | None, typer.Option(help="Names, or paths of Python files, with commas.")] = None,
    task: Annotated[str | None, typer.Option(help="Names, or paths of Python files, with commas.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 0-9 or 0,2,5.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "-p", "--set", help="loss.KEY=V, loss.NAME.KEY=V, task.KEY=V or recipe.KEY=V; V1,V2 makes an axis."
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Of a spec that has several, such as paper or quick.")] = None,
    supervision: Annotated[str | None, typer.Option(help="Kinds compared on purpose: set,position.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Same as -p recipe.epochs=N.")] = None,
    steps_per_epoch: Annotated[int | None, typer.Option(help="Same as -p recipe.steps_per_epoch=N.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the comparison; default: the spec's, or the tasks.")] = None,
    data_dir: DataOption = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at a time; default: one a core, 1 on a GPU.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads a cell; default: cores / jobs.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Address of a dask scheduler (needs milbench[dask]).")] = None,
    rerun: Annotated[Literal["missing", "failed", "all"], typer.Option(help="What to compute again.")] = "missing",
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed cell.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    root: RootOption = HERE,
) -> int:
    """Compute the cells of a comparison that are not done yet. Exit code 1 if some fail, 130 after Ctrl-C."""
    from milbench.cli import commands

    values: dict[str, Any] = {
        "losses": _names(loss), "tasks": _names(task), "seeds": seeds, "name": name, "supervision": _names(supervision)
    }  # fmt: skip
    settings = [*(setting or [])]
    settings += [f"recipe.epochs={epochs}"] if epochs is not None else []
    settings += [f"recipe.steps_per_epoch={steps_per_epoch}"] if steps_per_epoch is not None else []
    chosen = {k: v for k, v in values.items() if v is not None}
    request = commands.RunRequest(
        spec, preset, chosen, settings, data_dir, device, jobs, threads, cluster, rerun, fail_fast, dry_run
    )
    return commands.run(request, root, command=shlex.join(["milbench", *sys.argv[1:]]))


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(help="A spec with presets, such as supplementary-a.")],
    preset: Annotated[str | None, typer.Option(help="Such as paper or quick; default: the first of the spec.")] = None,
    data_dir: DataOption = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at a time; default: one a core, 1 on a GPU.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads a cell; default: cores / jobs.")] = None,
    rerun: Annotated[Literal["missing", "failed", "all"], typer.Option(help="What to compute again.")] = "missing",
    gallery: Annotated[Literal["all", "none"], typer.Option(help="Pictures of test bags, or none.")] = "all",
    root: RootOption = HERE,
) -> int:
    """Rebuild a published comparison: run what is missing of it, then write its report. Stop it and call it again."""
    from milbench.cli import commands

    request = commands.RunRequest(
        study, preset, data_dir=data_dir, device=device, jobs=jobs, threads=threads, rerun=rerun
    )
    return commands.reproduce(request, root, command=shlex.join(["milbench", *sys.argv[1:]]), gallery=gallery)


@app.command()
def report(
    name: Annotated[str | None, typer.Argument(help="The comparison; default: the one launched last.")] = None,
    gallery: Annotated[Literal["all", "none"], typer.Option(help="Pictures of test bags, or none.")] = "all",
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    root: RootOption = HERE,
) -> int:
    """Write reports/NAME: index.html, report.md, results.csv and figures."""
    from milbench.cli import commands

    return commands.report(name, root, gallery, open_it)


@app.command()
def export(
    out: Annotated[Path, typer.Option(help="The file to write, a zip.")],
    name: Annotated[str | None, typer.Argument(help="The comparison; default: the one launched last.")] = None,
    no_weights: Annotated[bool, typer.Option("--no-weights", help="Leave the trained networks out.")] = False,
    no_gallery: Annotated[bool, typer.Option("--no-gallery", help="Leave pictures of test bags out.")] = False,
    root: RootOption = HERE,
) -> int:
    """Write what is done or failed of a comparison to one file, for `milbench import` on another machine."""
    from milbench.cli import commands

    return commands.export(name, out, root, weights=not no_weights, gallery=not no_gallery)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="What `milbench export` wrote.")],
    root: RootOption = HERE,
) -> int:
    """Take the runs of an export into the store: all of them, or none and one line that says why."""
    from milbench.cli import commands

    return commands.import_(file, root)


@app.command("list")
def list_(
    what: Annotated[Literal["losses", "tasks", "specs", "runs"], typer.Argument(help="What to list.")],
    root: RootOption = HERE,
) -> int:
    """List losses, tasks, built-in specs, or the comparisons in the store."""
    from milbench.cli import commands

    return commands.list_(what, root)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="The comparison; default: the one launched last.")] = None,
    root: RootOption = HERE,
) -> int:
    """Show every cell of a comparison and what became of it. Exit code 1 unless all are done."""
    from milbench.cli import commands

    return commands.status(name, root)


@app.command()
def ui(port: Annotated[int, typer.Option(min=1, max=65535)] = 5000, root: RootOption = HERE) -> int:
    """Serve MLflow's own pages on the store."""
    from milbench.cli import commands

    return commands.ui(port, root)


@app.command()
def predict(
    images: Annotated[list[Path], typer.Argument(help="Picture files, of any size and any format.")],
    run: Annotated[str, typer.Option("--run", help="Run id or cell id of milbench status, or how it begins.")],
    out: Annotated[Path, typer.Option(help="Folder to write NAME.png and NAME.json to.")] = Path("predictions"),
    decoder: DecoderOption = None,
    scale: ScaleOption = None,
    truth: Annotated[Path | None, typer.Option(help="Their digitStruct.mat: counts what is right.")] = None,
    positions: Annotated[bool, typer.Option("--positions", help="Put P of every position into NAME.json.")] = False,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Write NAME-sensitivity.png as well.")] = False,
    invert: Annotated[bool, typer.Option("--invert", help="For dark digits and a task with light ones.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    data_dir: DataOption = None,
    root: RootOption = HERE,
) -> int:
    """Show what a trained network reads in pictures, and where. More than 1,000,000 pixels are shrunk to that."""
    from milbench.cli.predict import PredictRequest, predict

    return predict(
        PredictRequest(images, run, out, device, decoder, scale, truth, positions, sensitivity, invert, data_dir), root
    )


@app.command()
def figure(
    number: Annotated[
        Literal["1", "2", "4"],
        typer.Argument(help="1: crops of house numbers and their maps; 2: scattered digits; 4: whole house pictures."),
    ],
    run: Annotated[str, typer.Option("--run", help="Run id or cell id of milbench status, or how it begins.")],
    out: Annotated[Path, typer.Option(help="The PNG file to write.")],
    seed: Annotated[int, typer.Option(min=0, help="Other seeds draw other test pictures.")] = 0,
    decoder: DecoderOption = None,
    scale: ScaleOption = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    data_dir: DataOption = None,
    root: RootOption = HERE,
) -> int:
    """Draw a figure of arXiv:1811.12346 again, from a run and its task's test data."""
    from milbench.cli import predict

    return predict.figure(number, run, out, seed, root, device, data_dir, decoder, scale)


@data_app.command("list")
def data_list(data_dir: DataOption = None) -> int:
    """Show which data sets are here."""
    from milbench.cli import data

    return data.status(data_dir, strict=False)


@data_app.command("verify")
def data_verify(data_dir: DataOption = None) -> int:
    """Check every data set that is here; exit code 1 if one is damaged."""
    from milbench.cli import data

    return data.status(data_dir, strict=True)


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="Such as mnist.")], data_dir: DataOption = None) -> int:
    """Download a data set and check it."""
    from milbench.cli import data

    return data.fetch(name, data_dir)


@data_app.command("make")
def data_make(
    name: Annotated[Literal["house-numbers"], typer.Argument(help="house-numbers.")],
    data_dir: DataOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Other seeds draw other pictures.")] = 0,
    train: Annotated[int, typer.Option(min=1, help="Pictures to train on.")] = 4000,
    test: Annotated[int, typer.Option(min=1, help="Pictures to test on.")] = 1000,
) -> int:
    """Render a data set of street numbers, in SVHN's format, without a download."""
    from milbench.cli import data

    return data.make(name, data_dir, seed, train, test)


@bench_app.command("losses")
def bench_losses(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
) -> int:
    """Print bags per second and peak memory of the exact likelihood, against plain loops and cross-entropy."""
    from milbench.cli import commands

    return commands.bench_losses(device, quick)


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [part.strip() for part in text.split(",") if part.strip()]
    return names or [""]


def _suggest_the_name_of_today(error: Any) -> None:
    """Let the message about an unknown option name the one that has taken its place."""
    today = RENAMED.get(str(getattr(error, "option_name", "")).removeprefix("--"))
    if today:
        error.possibilities = [f"--{today}"]


def _complain(message: str) -> int:
    typer.echo(f"milbench: {' '.join(message.split())}", err=True)
    return 2
