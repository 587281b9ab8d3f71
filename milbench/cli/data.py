"""`milbench data`: list, fetch and check data sets, and check your own table of bags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milbench.cli import options
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    from milbench.data.checks import Finding

app = typer.Typer(
    no_args_is_help=True,
    help="List, fetch and check data sets; check your own table.\n\nExample: milbench data fetch mnist",
)


@app.command("list")
def list_(data_dir: options.DataDirOption = None) -> int:
    """Check the data sets in the data folder. Exit code 1 if one is damaged.

    Example: milbench data list --data-dir ~/data
    """
    from rich.table import Table

    from milbench._utils.console import console
    from milbench.data import catalog

    with as_usage():
        root = catalog.data_dir(data_dir)
        rows = [dataset.status(root) for dataset in catalog.DATASETS.values()]
    table = Table("data", "state", "where", "digest", "note")
    for row in rows:
        table.add_row(row.dataset, row.state, str(row.path), row.digest, row.note)
    console.print(table, markup=False)
    return 1 if "damaged" in [row.state for row in rows] else 0


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A data set: see milbench data list.")],
    data_dir: options.DataDirOption = None,
) -> int:
    """Download a data set and check it; house-numbers is rendered instead, without a download.

    Example: milbench data fetch mnist
    """
    from milbench._utils.console import console
    from milbench.data import catalog

    with as_usage():
        row = catalog.fetch(name, _directory_to_fill(data_dir))
    console.print(f"{name} is {row.state} in {row.path}", soft_wrap=True, markup=False)
    return 0


@app.command()
def weights(
    network: Annotated[str, typer.Argument(help="A network of torchvision, such as resnet18.")],
    data_dir: options.DataDirOption = None,
) -> int:
    """Download the weights that torchvision publishes for a network, for the task image-bags.

    Example: milbench data weights resnet18
    """
    from milbench._utils.console import console
    from milbench.networks.backbone import fetch_weights

    root = _directory_to_fill(data_dir)
    path = fetch_weights(network, root)
    console.print(f"{network} is complete in {path}", soft_wrap=True, markup=False)
    console.print(f"use them by --network {network} -p network.weights={path.relative_to(root)}", markup=False)
    return 0


@app.command()
def check(
    table: Annotated[Path, typer.Argument(help="A table of bags, such as birds.csv.")],
    setting: Annotated[
        list[str] | None,
        typer.Option("-p", "--set", metavar="task.KEY=VALUE", help="How the task is to read it, as of milbench run."),
    ] = None,
) -> int:
    """Check a table of bags for the tasks feature-bags, image-bags and sequence-bags, and describe it.

    Exit code 2 if it cannot be used. The bags are kept in the cache of the tasks, which then start faster.

    Example: milbench data check birds.csv -p task.labels='has_*' -p task.features='f*'
    """
    from rich.table import Column, Table

    from milbench._utils.console import console
    from milbench.data.checks import fatal

    findings = _findings(table, dict(map(_parsed, setting or ())))
    report = Table(*(Column(heading, overflow="fold") for heading in ("", "what", "found")), title=str(table))
    report.title_justify = "left"
    for finding in findings:
        report.add_row("" if finding.level == "fact" else finding.level, finding.what, finding.found)
    console.print(report, markup=False)
    if problems := fatal(findings):
        raise UsageError(f"{table}: {'; '.join(problems)}")
    return 0


def _parsed(setting: str) -> tuple[str, Any]:
    from milbench.engine.spec import scalar

    key, equals, value = setting.partition("=")
    if not equals or not key.startswith("task."):
        raise UsageError(f"-p {setting}: expected task.KEY=VALUE, such as task.labels=species")
    return key.removeprefix("task."), scalar(value)


def _findings(table: Path, given: dict[str, Any]) -> list[Finding]:
    """Check the table as one of the kind whose column it has."""
    from milbench.api.parameters import check_params
    from milbench.data import own_bags
    from milbench.data.bag_files import SequenceColumns
    from milbench.data.checks import check_bags
    from milbench.data.table_files import column_names

    kinds: dict[str, type[own_bags.TableColumns]]
    kinds = {"bag": own_bags.Columns, "image": own_bags.ImageColumns, "file": SequenceColumns}
    names = column_names(table)
    columns = kinds[next((name for name in kinds if given.get(name, name) in names), "bag")]
    bags = own_bags.load_bags(table, columns(**check_params(f"{columns.kind} of {table}", columns, given)))
    return check_bags(bags, columns.kind)


def _directory_to_fill(data_dir: Path | None) -> Path:
    from milbench._utils.files import expanded
    from milbench.data import catalog

    return expanded(data_dir, "--data-dir") if data_dir else catalog.data_dir(None)
