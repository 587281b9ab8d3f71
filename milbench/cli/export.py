"""`milbench export`: the values of a comparison, as a table in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milbench._utils import extras
from milbench._utils.files import expanded, write_atomically
from milbench._utils.words import counted
from milbench.cli import options
from milbench.errors import UsageError, as_usage
from milbench.store.folders import Root, cell_problems

if TYPE_CHECKING:
    import pandas as pd


def export(
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")],
    name: options.ComparisonArgument = None,
    root: options.RootOption = options.HERE,
) -> int:
    """Write every value of a comparison to a table, a row for each cell, epoch and metric.

    The table is `comparison.frame` of the Python interface. A damaged cell is named and has no
    values: exit code 1.

    Example: milbench export demo --out demo.csv
    """
    from milbench.comparison import results

    out = expanded(out, "--out")
    ending = out.suffix.lower()
    if ending not in (".csv", ".parquet"):
        raise UsageError(f"--out {out}: expected a name that ends in .csv or .parquet")
    if ending == ".parquet":
        extras.load("pyarrow", "parquet", f"--out {out}")

    comparison = results(root, name)
    plan = comparison.results.plan
    frame = comparison.frame
    with as_usage():
        if ending == ".csv":
            write_atomically(out, lambda path: frame.to_csv(path, index=False))
        else:
            write_atomically(out, one_type_a_column(frame).to_parquet)

    store = Root(root)
    options.say(*store.not_plans())
    problems = cell_problems(plan, store.states(plan.cells))
    cells = counted(frame["cell"].nunique(), "cell")
    summary = f"wrote {len(frame):,} rows of {cells} to {out}"
    options.say(*problems, summary, then=("open", str(out)))
    return 1 if problems else 0


def one_type_a_column(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame that Parquet can hold: each column has values of one type.

    Columns of lists, and columns with values of several types, become text. A column has several
    types if two losses have a setting of the same name, which is a number for one loss and a word
    for the other.
    """
    columns: dict[str, pd.Series] = {}
    for name, column in frame.items():
        types = {type(value) for value in column.dropna()}
        if len(types) > 1 or list in types:
            columns[str(name)] = column.map(str, na_action="ignore")
    return frame.assign(**columns)
