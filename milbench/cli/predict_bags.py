"""`milbench predict` on tables, files of features, folders of images and sequences: a table of what is found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from milbench.cli.predict import print_lines
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    import pandas as pd

    from milbench.inference.load import Trained

SHOWN = 10  # bags that are printed; all are written
FILES = (".txt", ".json", ".jsonl", ".xls", ".xlsx", ".npy", ".npz", ".pkl", ".png", ".jpg", ".wav")
"""Endings that are meant as files, and not as the names of folders."""


def write_predicted_bags(model: Trained, paths: Sequence[Path], out: Path, *, positions: bool, calibrate: bool) -> None:
    """Write a table with a row a bag of some files, perhaps one with a row a position, and print the first rows.

    To `calibrate` is to fit a temperature on the validation bags of the task, which is prepared then.
    """
    import pandas as pd

    from milbench._utils.console import console
    from milbench.data.table_files import write_table
    from milbench.inference.evidence_maps import draw_maps
    from milbench.inference.predict import notes
    from milbench.inference.predict_bags import fit_temperature, position_table, predict_bags

    table, beside = _outputs(paths, out)
    temperature = fit_temperature(model, model.task.validation_bags()) if calibrate else 1.0
    tables, places, maps = [], [], table.with_name(f"{table.stem}-maps")
    for batch in model.task.read_bags(paths, model.network):  # all together may not fit into memory
        tables.append(predict_bags(model, [batch], temperature))
        if positions:
            places.append(position_table(model, batch, temperature))
            if {"instance", "x", "y"} <= {*batch.places}:
                draw_maps(places[-1], tables[-1], maps)
    found = pd.concat(tables, ignore_index=True) if tables else predict_bags(model, [], temperature)
    with as_usage():
        write_table(found, table)
        if places:
            write_table(pd.concat(places, ignore_index=True), beside)
    console.print(_summary(model, found), markup=False)
    lines = notes(model)
    lines.append(f"wrote {len(found):,} bags to {table}" + (f", their positions to {beside}" if positions else ""))
    if maps.is_dir():
        lines.append(f"drew where the classes are into {maps}")
    if calibrate:
        lines.append(f"temperature {temperature:.3g}, fitted on the validation bags of the run")
    print_lines(lines)


def _outputs(paths: Sequence[Path], out: Path) -> tuple[Path, Path]:
    from milbench.data.table_files import check_kind, is_table

    if out.suffix.lower() in FILES and not out.is_dir():
        raise UsageError(f"--out {out}: expected a folder, or a table that ends in .csv, .tsv, .parquet or .feather")
    table = out if is_table(out) and not out.is_dir() else out / f"{paths[0].resolve().stem}.csv"
    check_kind(table)
    both = table, table.with_stem(f"{table.stem}-positions")
    for place in both:
        if place.resolve() in {path.resolve() for path in paths}:
            raise UsageError(f"--out {out}: {place} is one of the inputs and would be overwritten")
        if place.is_dir():
            raise UsageError(f"--out {out}: {place} is a folder")
    return both


def _summary(model: Trained, found: pd.DataFrame) -> object:
    from rich.table import Table

    kind = str(found.columns[0])
    title = f"{model.name}, cell {model.cell_id}"
    table = Table(kind, "label set", "probability", title=title, title_justify="left")
    for name, labels, probability in found[[kind, "labels", "probability"]].head(SHOWN).itertuples(index=False):
        table.add_row(str(name), "{" + ", ".join(filter(None, labels.split(";"))) + "}", f"{probability:.3g}")
    if len(found) > SHOWN:
        table.caption = f"and {len(found) - SHOWN:,} more"
    return table
