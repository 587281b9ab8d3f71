"""Read the bags of a table with a row for each instance, whose features are columns."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from milbench.data.annotate_bags import annotate
from milbench.data.array_cache import DeclareInputs, write_header
from milbench.data.bagged_rows import group_rows
from milbench.data.bags_store import row_parts, write_files
from milbench.data.column_words import is_group_name, is_id_name
from milbench.data.feature_columns import check_columns, feature_names
from milbench.data.in_order import prefetched
from milbench.data.list_columns import with_lists_as_columns
from milbench.data.own_bags import OwnBags
from milbench.data.pack_feature_files import pack_feature_files
from milbench.data.table import TEXT_COLUMNS, Table, read_table
from milbench.data.table_files import read_chunks
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError


def pack_features(
    folder: Path, path: Path, options: FeatureOptions, declare: DeclareInputs
) -> OwnBags:
    """Read the bags of a table of features, and pack the features into one array.

    The table has a row for each instance, or a row for each bag and a file of its features.

    Args:
        folder: an empty folder, into which the instances are written.
        path: of the table.
        options: of the task.
        declare: is told which files besides the table the bags are made from, so that a cache
            notices when one of them changes.
    """
    check_columns(path, options)
    if options.of_files:
        table = read_table(path, options.texts, options.form)
        return pack_feature_files(folder, table, options, declare)
    rows_file = folder / "rows_of_table.npy"
    names, table = _write_rows(rows_file, path, options)
    features = np.load(rows_file, mmap_mode="r", allow_pickle=False)
    bags = group_rows(table, options.bag)
    coords = table.matching(options.coords, "of x and y")
    annotated = annotate(bags, options, {options.bag, *coords, *names})
    order = np.argsort(bags.codes, kind="stable")
    classes = bags.instance_classes(
        annotated["labels"], annotated["class_names"], annotated["nothing"]
    )
    offsets = np.searchsorted(bags.codes[order], np.arange(len(bags.names) + 1))
    parts = row_parts(features, order, offsets, str(path))
    store = write_files(folder, parts, "parts")
    # The parts stay mapped if the rows of the table are already in the order of the bags. Then
    # `write_files` has not written them again.
    if parts[0].mapped:
        rows_file.replace(folder / "instances.npy")
    else:
        rows_file.unlink()
    return OwnBags(
        **annotated,
        store=store,
        feature_names=names,
        rows=order,
        instance_classes=None if classes is None else classes[order],
        coords=table.numbers(coords)[order] if coords else None,
    )


def _write_rows(rows_file: Path, path: Path, options: FeatureOptions) -> tuple[list[str], Table]:
    """Write the features of all rows of a table to a file .npy; return their names, and a table.

    The table that is returned has the other columns. It also has the features that are named like
    ids or groups, since these may say which bags belong together.

    The table is read in chunks of rows. The first chunk decides which columns are features.
    """
    names: list[str] = []
    features_alone: list[str] = []
    others: list[pd.DataFrame] = []
    text_columns = {*TEXT_COLUMNS, *options.texts}
    with rows_file.open("wb") as out:
        for frame in prefetched(read_chunks(path, text_columns, options.form)):
            chunk = with_lists_as_columns(Table(path, frame, options.form), options)
            if not others:
                names = feature_names(chunk, options)
                features_alone = [
                    name for name in names if not is_group_name(name) and not is_id_name(name)
                ]
                # The number of rows is not known yet. The header is written again at the end.
                write_header(out, np.dtype(np.float32), (0, len(names)))
            _check_lists(chunk, names)
            out.write(chunk.numbers(names, options.features).data)
            others.append(chunk.frame.drop(columns=features_alone))
        table = Table(path, pd.concat(others), options.form)
        out.seek(0)
        write_header(out, np.dtype(np.float32), (len(table.frame), len(names)))
    return names, table


def _check_lists(chunk: Table, names: Sequence[str]) -> None:
    """Raise UsageError where lists of numbers are shorter than the lists in the chunks before."""
    for name in names:
        if name not in chunk.frame:
            column = name.rpartition("[")[0]
            raise UsageError(
                f"{chunk.place(0)}: column {column!r} has not the length of the lists in the rows "
                "before"
            )
