"""`milbench data`: list, fetch and check data sets, and check your own table of bags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milbench._utils.files import expanded
from milbench.cli import fetching, options
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    from rich.table import Table

    from milbench.data.findings import Finding
    from milbench.data.table_files import TableFormat
    from milbench.data.table_options import ImageOptions, SequenceOptions, TableOptions

app = typer.Typer(
    no_args_is_help=True,
    help="List, fetch and check data sets; check your own table.",
    epilog="Example: milbench data fetch mnist",
)


@app.command("list")
def list_(data_dir: options.DataDirOption = None) -> int:
    """Check the data sets in the data folder. Exit code 1 if one is damaged.

    Example: milbench data list --data-dir ~/data
    """
    from milbench._utils.console import console, table_of
    from milbench.data import catalog

    with as_usage():
        root = catalog.data_dir(data_dir)
        states = [dataset.status(root) for dataset in catalog.DATASETS.values()]
    rows = [
        (status.dataset, status.state, str(status.path), status.digest, status.note)
        for status in states
    ]
    console.print(table_of("", ("data", "state", "path", "digest", "note"), rows), markup=False)
    options.say(then=("milbench", "data", "fetch", "NAME"), data=data_dir)
    has_damage = any(status.state == "damaged" for status in states)
    return 1 if has_damage else 0


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A data set: see milbench data list.")],
    data_dir: options.DataDirOption = None,
) -> int:
    """Download a data set and check it.

    Example: milbench data fetch mnist
    """
    from milbench.data import catalog

    with as_usage():
        root = expanded(data_dir or catalog.data_dir(None), "--data-dir")
    fetching.fetch_and_report(name, root)
    options.say(then=("milbench", "list", "tasks"))
    return 0


@app.command()
def weights(
    network: Annotated[str, typer.Argument(help="A network of torchvision, such as resnet18.")],
    data_dir: options.DataDirOption = None,
) -> int:
    """Download the weights that torchvision publishes for a network, for the task image-bags.

    Example: milbench data weights resnet18
    """
    from milbench.data import catalog
    from milbench.networks.backbone import fetch_weights

    root = expanded(data_dir or catalog.data_dir(None), "--data-dir")
    file = fetch_weights(network, root).relative_to(root)
    step = ["milbench", "run", "--loss", "exact", "--task", "image-bags", "-p", "task.table=TABLE"]
    step += ["--network", network, "-p", f"network.weights={file}"]
    options.say(f"{network} is complete in {root / file}", then=step, data=data_dir)
    return 0


@app.command("table")
def table_(
    folder: Annotated[
        Path, typer.Argument(help="A folder with a folder for each class, or with files and a CSV.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The table to write; default: FOLDER.csv.")
    ] = None,
    labels: Annotated[
        str, typer.Option("--labels", metavar="COLUMN", help="Column of labels in the CSV file.")
    ] = "",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--set",
            metavar="task.KEY=VALUE",
            help="How the CSV file is written, such as task.field_separator=';'.",
        ),
    ] = None,
) -> int:
    """Write a table of the images, recordings or feature files in a folder.

    It says where the labels in the table come from.

    Example: milbench data table pictures
    """
    from milbench.data.folder_tables import table_of_folder
    from milbench.data.table_options import format_of

    form = format_of(_task_settings(setting or ()))
    if out is None:
        # "." and "/" have no name after which a table could be named.
        if not folder.name:
            name = folder.resolve().name or "bags"
            raise UsageError(
                f"{folder}: the table needs a name: milbench data table {folder} --out {name}.csv"
            )
        out = folder.with_name(f"{folder.resolve().name}.csv")
    with as_usage():
        summary, check = table_of_folder(folder, out, labels, form)
    options.say(summary, then=check)
    return 0


@app.command()
def sample(
    table: Annotated[Path, typer.Argument(help="The table to write, such as birds.csv.")],
) -> int:
    """Write a small made-up table of bags, to try the commands for your own data.

    Example: milbench data sample birds.csv
    """
    from milbench.data.sample import sample_table
    from milbench.data.table_files import check_kind, write_table
    from milbench.experiment.questions import COMPARISON_NAME

    if table.exists():
        raise UsageError(f"{table} is there already, and is not overwritten: give another name")
    check_kind(table)
    frame = sample_table()
    with as_usage():
        write_table(frame, table)
    # Not every name of a file may be the name of a comparison.
    name = table.stem if re.fullmatch(COMPARISON_NAME, table.stem) else "my-birds"
    compare = ["milbench", "run", "--loss", "exact,noisy-or", "-p", "loss.noisy-or.head=softmax"]
    compare += ["--task", "feature-bags", "-p", f"task.table={table}", "-p", "task.folds=10"]
    compare += ["--name", name]
    bags = frame["bag"].nunique()
    options.say(
        f"{table}: {bags} made-up recordings with {len(frame)} sounds of birds and background",
        "to compare two losses on it, in a minute or two:",
        f"  {shlex.join(compare)}",
        f"  {shlex.join(['milbench', 'report', name])}",
        then=("milbench", "data", "check", str(table)),
    )
    return 0


@app.command()
def check(
    table: Annotated[
        Path | None, typer.Argument(help="A table of bags, such as birds.csv.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--set",
            metavar="task.KEY=VALUE",
            help="How the task reads it, as in milbench run.",
        ),
    ] = None,
) -> int:
    """Check a table of bags for the tasks feature-bags, image-bags and sequence-bags.

    Exit code 2: the table cannot be used.

    Example: milbench data check birds.csv -p task.labels='has_*' -p task.features='f*'
    """
    from milbench._utils.console import console
    from milbench.data.bag_checks import check_bags
    from milbench.data.findings import fatal
    from milbench.data.load_bags import load_bags
    from milbench.data.split_checks import checked_splits
    from milbench.data.table_files import USUAL

    task_options = _task_options(table, setting or ())
    path = Path(task_options.table)
    bags = load_bags(path, task_options)
    splits = checked_splits(bags, task_options)
    findings = check_bags(bags, task_options, splits=splits)
    if task_options.form != USUAL:
        findings.insert(0, _finding_about_form(task_options.form, path))
    console.print(_report_of(findings, path), markup=False)
    problems = fatal(findings)
    if problems:
        raise UsageError(f"{path}: {'; '.join(problems)}")

    task = f"{task_options.kind.removesuffix('s')}-bags"
    step = ["milbench", "run", "--loss", "exact,noisy-or", "--task", task]
    step += ["-p", "loss.noisy-or.head=softmax,sigmoid"]
    # If the argument is missing, the table is named by a setting.
    if table is not None:
        step += ["-p", f"task.table={path}"]
    for text in setting or ():
        step += ["-p", text]
    suggested = [finding.setting for finding in findings if finding.setting]
    if suggested:
        step += ["-p", suggested[0]]
    options.say(then=step)
    return 0


def _finding_about_form(form: TableFormat, path: Path) -> Finding:
    """Return a finding that says how the fields of a table are written."""
    from milbench.data.findings import Finding

    numbers = f"decimals behind {form.decimal!r}"
    if form.thousands:
        numbers += f", thousands apart by {form.thousands!r}"
    return Finding("fact", "fields", f"separated by {form.marks(path)}, {numbers}")


def _report_of(findings: Sequence[Finding], path: Path) -> Table:
    """Return what was found in a table of bags, as a table for the terminal."""
    from rich.table import Column, Table

    columns = [Column(heading, overflow="fold") for heading in ("", "what", "found")]
    report = Table(*columns, title=str(path), title_justify="left")
    for finding in findings:
        level = "" if finding.level == "fact" else finding.level
        report.add_row(level, finding.what, finding.detail)
    return report


def _task_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return parameter -> text, for the parameters of the task among the settings of a run.

    Settings of a loss, a recipe and so on are ignored, so that a user may copy all settings from
    `milbench run`. Raises UsageError if a setting is malformed.
    """
    from milbench.experiment.flags import SETTABLE

    texts: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        section, *names = key.strip().split(".")
        is_no_task = section in ("recipe", "loss", "network", "run", "tune") or key in SETTABLE
        if equals and is_no_task:
            continue
        if not equals or section != "task" or not names:
            raise UsageError(f"-p {setting}: expected task.KEY=VALUE, such as task.labels=species")
        # The value may be a tab or a space, such as a separator.
        texts[names[-1]] = value.strip() or value
    return texts


def _first_value(text: str) -> str:
    """Return the first of several values between commas, which `milbench run` would compare."""
    # The value itself may be a comma, such as a separator.
    if not text.strip(", \t"):
        return text
    first, _, _ = text.partition(",")
    return first


def _task_options(table: Path | None, settings: Sequence[str]) -> TableOptions:
    """Return the options of the task that reads a table, given by the settings of a run."""
    from milbench.contracts.parameters import check_params, constructor_parameters, parsed, type_of

    texts = {name: _first_value(text) for name, text in _task_settings(settings).items()}
    path = table or Path(texts.get("table", ""))
    if path == Path():
        raise UsageError("no table given: milbench data check TABLE, such as birds.csv")
    options_type = _options_type(path, texts)
    parameters = constructor_parameters(options_type)
    values: dict[str, Any] = {"table": str(path)}
    for name, text in texts.items():
        is_known = name in parameters
        values[name] = parsed(text, type_of(parameters[name])) if is_known else text
    subject = f"{options_type.kind} of {path}"
    return options_type(**check_params(subject, options_type, values))


def _options_type(path: Path, texts: dict[str, str]) -> type[TableOptions]:
    """Return the class of the options of the task that reads a table.

    The setting `rows` decides, or else a column that the settings name, or else a column of the
    table. A table with none of these is taken for a table of feature bags. Raises UsageError if
    another setting would make the table readable.
    """
    from milbench.data import table_options
    from milbench.data.table_files import column_names, shown_names

    form_texts = {name: text for name, text in texts.items() if name in table_options.FORM}
    form = table_options.format_of(form_texts)
    kinds_by_rows = _kinds_by_rows()
    if texts.get("rows") in kinds_by_rows:
        return kinds_by_rows[texts["rows"]]

    kinds_by_column = _kinds_by_column()
    columns = column_names(path, form)
    for known in (texts, columns):
        for name, kind in kinds_by_column.items():
            if name in known:
                return kind

    remedy = _rows_remedy(columns) or _separator_remedy(path, form)
    if remedy:
        raise UsageError(
            f"{path} has the columns {shown_names(columns)}, "
            f"expected a column bag, image or file{remedy}"
        )
    return kinds_by_column["bag"]


def _kinds_by_column() -> dict[str, type[TableOptions]]:
    """Return the column that names bags -> the options of the task with such a column."""
    from milbench.data import table_options

    return {
        "bag": table_options.FeatureOptions,
        "image": table_options.ImageOptions,
        "file": table_options.SequenceOptions,
    }


def _kinds_by_rows() -> dict[str, type[ImageOptions | SequenceOptions]]:
    """Return the value of `task.rows` -> the options of the task that reads such rows.

    In these tables a bag has several rows.
    """
    from milbench.data import table_options

    return {"boxes": table_options.ImageOptions, "events": table_options.SequenceOptions}


def _rows_remedy(columns: Sequence[str]) -> str:
    """Return the end of a message: the `task.rows` that reads a table with these columns.

    It is "" if there is none.
    """
    from milbench.data.marked_rows import columns_in_words

    for rows, kind in _kinds_by_rows().items():
        found = columns_in_words(kind(table="", rows=rows), columns)  # type: ignore[arg-type]
        if found:
            return f"; -p task.rows={rows} groups rows, by {found}"
    return ""


def _separator_remedy(path: Path, form: TableFormat) -> str:
    """Return the end of a message: the separator with which the table has an expected column.

    It is "" if there is none.
    """
    from milbench.data.table_files import separator_remedy

    for name in _kinds_by_column():
        remedy = separator_remedy(path, form, name)
        if remedy:
            return remedy
    return ""
