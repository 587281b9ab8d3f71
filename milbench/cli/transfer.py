"""`milbench export`, `import` and `sync`: move a comparison from one store to another as a file, and to MLflow."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from milbench._utils.files import expanded, write_atomically
from milbench.cli import options
from milbench.engine.folders import Root, damaged
from milbench.errors import UsageError, as_usage


def export(
    out: Annotated[
        Path,
        typer.Option(help="File to write: .zip for milbench import, .csv or .json for a table."),
    ],
    name: options.ComparisonArgument = None,
    no_weights: Annotated[
        bool, typer.Option("--no-weights", help="Leave out the trained networks.")
    ] = False,
    no_gallery: Annotated[
        bool, typer.Option("--no-gallery", help="Leave out the galleries of test bags.")
    ] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Write a comparison to a .zip file, for milbench import, or its metrics to a table.

    A cell that was stopped can be continued on the other machine. A damaged cell is left out and named: exit code 1.

    Example: milbench export demo --out demo.zip
    """
    from milbench.comparison import results
    from milbench.engine import archive

    out = expanded(out, "--out")
    suffix = out.suffix.lower()
    if suffix in (".csv", ".json"):
        if no_weights or no_gallery:
            raise UsageError(
                "--no-weights and --no-gallery are for a .zip file, and not for a table"
            )
        comparison = results(root, name)
        plan, frame = comparison.results.plan, comparison.frame
        problems = damaged(plan, Root(root).states(plan.cells))
        csv, json = (
            partial(frame.to_csv, index=False),
            partial(frame.to_json, orient="records", lines=True),
        )
        with as_usage():
            write_atomically(out, csv if suffix == ".csv" else json)
        wrote = f"wrote {len(frame):,} rows of {frame['cell'].nunique():,} cells to {out}"
        options.say(*problems, wrote, then=("open", str(out)))
        return int(bool(problems))
    if suffix != ".zip" and not out.is_dir():
        raise UsageError(f"--out {out}: expected a name that ends in .zip, .csv or .json")
    left_out = ["weights.safetensors"] * no_weights + ["gallery.npz"] * no_gallery
    summary, problems = archive.export(Root(root), name, out, left_out)
    options.say(*problems, f"{summary}; on another machine:", then=("milbench", "import", out.name))
    return int(bool(problems))


def import_(
    file: Annotated[Path, typer.Argument(help="A .zip file that milbench export wrote.")],
    root: options.RootOption = options.HERE,
) -> int:
    """Add the cells of an export to the store, all of them, or none if the file is damaged. Done cells stay.

    Example: milbench import demo.zip
    """
    from milbench.engine import archive

    plan, summary = archive.import_(file, Root(root))
    options.say(summary, then=options.step_after(plan), root=root)
    return 0


def sync(
    name: options.ComparisonArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Copy every comparison of the store.")
    ] = False,
    log_models: Annotated[
        bool, typer.Option("--log-models", help="Log every network as an MLflow model.")
    ] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Copy to MLflow the results of a comparison that it lacks. Exit code 1 if something could not be copied.

    Example: milbench sync demo
    """
    from milbench.engine.mirror import synchronise, without_password

    place = Root(root)
    if everything and name is not None:
        raise UsageError(f"--all and {name} exclude each other: every comparison, or one")
    names = (everything and place.names()) or [place.plan(name).name]
    server = without_password(os.environ.get("MLFLOW_TRACKING_URI", ""))
    problems = synchronise(place, names, log_models=log_models)
    summary = f"MLflow is up to date: {', '.join(names)} ({server or place.database.relative_to(place.path)})"
    step = ["open", server] if server.startswith("http") else ["milbench", "ui"]
    if problems:
        step = [
            "milbench",
            "sync",
            *(["--all"] if everything else names),
            *["--log-models"] * log_models,
        ]
    options.say(
        *(problems or [summary]), then=step, root=options.HERE if step[0] == "open" else root
    )
    return int(bool(problems))
