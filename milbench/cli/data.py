"""`milbench data`: which data sets are here, fetch one, check them or one's own table of bags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

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
    """Show which data sets are here.

    Example: milbench data list --data-dir ~/data
    """
    _print_states(data_dir)
    return 0


@app.command()
def verify(data_dir: options.DataDirOption = None) -> int:
    """Check every data set that is here. Exit code 1 if one is damaged.

    Example: milbench data verify
    """
    return 1 if "damaged" in _print_states(data_dir) else 0


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
    console.print(f"use them by -p task.network={network} -p task.weights={path.relative_to(root)}", markup=False)
    return 0


@app.command()
def check(
    table: Annotated[Path, typer.Argument(help="A table of bags, such as birds.csv.")],
    bag: Annotated[str, typer.Option(help="Column of the names of bags.")] = "bag",
    labels: Annotated[
        str, typer.Option(help="Column of label sets, or columns of 0 and 1: 'has_*', 'a;b'.")
    ] = "labels",
    features: Annotated[str, typer.Option(help="Columns, 'f*' or 'a;b', or files: '@COLUMN', 'features/*.h5'.")] = "",
    classes: Annotated[str, typer.Option(help="Classes in their order: 'cat;dog'.")] = "",
    key: Annotated[str, typer.Option(help="Name of the features in files of several arrays.")] = "",
    coords: Annotated[str, typer.Option(help="Two columns of the places of instances: 'x;y'.")] = "",
    image: Annotated[str, typer.Option(help="Column of images, in a table without bags.")] = "image",
    file: Annotated[str, typer.Option(help="Column of sequences, in a table without either.")] = "file",
    stride: Annotated[int | None, typer.Option(min=1, help="Sequences: frames per position.")] = None,
    frames_per_second: Annotated[float | None, typer.Option(min=1e-3, help="Sequences: frames per second.")] = None,
    bands: Annotated[int | None, typer.Option(min=1, max=512, help="Waveforms: log-mel bands.")] = None,
    sample_rate: Annotated[int | None, typer.Option(min=100, help="Waveforms in .npy files: Hz.")] = None,
) -> int:
    """Check a table of bags for the tasks feature-bags, image-bags and sequence-bags, and show what is in it.

    Exit code 2 if it cannot be used. The bags are kept in the cache of the tasks, which then start faster.

    Example: milbench data check birds.csv --labels 'has_*' --features 'f*'
    """
    from rich.table import Column, Table

    from milbench._utils.console import console
    from milbench.data.checks import check_bags, fatal
    from milbench.data.own_bags import Columns, load_features, load_images
    from milbench.data.table_files import column_names

    of_bags: dict[str, object] = {"--features": features, "--key": key, "--coords": coords}
    of_sequences: dict[str, object] = {
        "--stride": stride, "--frames-per-second": frames_per_second, "--bands": bands, "--sample-rate": sample_rate
    }  # fmt: skip
    names = column_names(table)
    if bag not in names and image in names:
        _refuse(table, "images", of_bags | of_sequences)
        found = check_bags(load_images(table, image, labels, classes), "images")
    elif bag not in names and file in names:
        _refuse(table, "sequences", of_bags)
        settings = {"frames_per_second": frames_per_second, "bands": bands, "sample_rate": sample_rate}
        found = _check_sequences(table, (file, labels, classes), stride, settings)
    else:
        _refuse(table, "bags of features", of_sequences)
        columns = Columns(bag, labels, features, classes, key, coords)
        found = check_bags(load_features(table, columns), "features")
    shown = Table(*(Column(heading, overflow="fold") for heading in ("", "what", "found")), title=str(table))
    shown.title_justify = "left"
    for finding in found:
        shown.add_row("" if finding.level == "fact" else finding.level, finding.what, finding.found)
    console.print(shown, markup=False)
    if problems := fatal(found):
        raise UsageError(f"{table}: {'; '.join(problems)}")
    return 0


def _refuse(table: Path, kind: str, options: Mapping[str, object]) -> None:
    if given := [option for option, value in options.items() if value]:
        raise UsageError(f"{given[0]} has no meaning for {table}, a table of {kind}")


def _check_sequences(
    table: Path, columns: tuple[str, str, str], stride: int | None, settings: dict[str, Any]
) -> list[Finding]:
    from milbench.data.bag_files import STRIDE, FrameSettings, Stride
    from milbench.data.checks import check_bags
    from milbench.data.own_bags import load_sequences

    if stride is not None and stride not in get_args(Stride):
        raise UsageError(f"--stride {stride}: expected {', '.join(map(str, get_args(Stride)))}")
    given = {name: value for name, value in settings.items() if value is not None}
    bags = load_sequences(table, *columns, FrameSettings(**given))
    return check_bags(bags, "sequences", positions=-(-bags.store.sizes // (stride or STRIDE)))


def _directory_to_fill(data_dir: Path | None) -> Path:
    from milbench._utils.files import expanded
    from milbench.data import catalog

    return expanded(data_dir, "--data-dir") if data_dir else catalog.data_dir(None)


def _print_states(data_dir: Path | None) -> list[str]:
    from rich.table import Table

    from milbench._utils.console import console
    from milbench.data import catalog

    with as_usage():
        rows = catalog.status(catalog.data_dir(data_dir))
    table = Table("data", "state", "where", "digest", "note")
    for row in rows:
        table.add_row(row.dataset, row.state, str(row.path), row.digest, row.note)
    console.print(table, markup=False)
    return [row.state for row in rows]
