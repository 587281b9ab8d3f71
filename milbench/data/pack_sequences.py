"""Recordings and arrays of frames that a table names, packed as frames, with their events."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from milbench.data.annotate_bags import annotate, bags_of_files
from milbench.data.array_cache import DeclareInputs
from milbench.data.bag_files import open_all, open_frames
from milbench.data.bags_store import write_files
from milbench.data.marked_rows import with_columns
from milbench.data.own_bags import OwnBags
from milbench.data.table import read_table
from milbench.data.table_files import column_names, require_columns
from milbench.data.table_options import SequenceOptions, listed


def pack_sequences(
    folder: Path, path: Path, options: SequenceOptions, declare: DeclareInputs
) -> OwnBags:
    """Pack the sequences that a table names, with their events if it has some."""
    options = with_columns(options, str(path), column_names(path, options.form))
    require_columns(path, options.form, {options.file: "the paths of recordings or arrays"})
    table = read_table(path, options.texts, options.form)
    bags = bags_of_files(table, options, "sequence")
    other_columns = {options.file, *listed(options.times)}
    annotated = annotate(bags, options, other_columns, "events", "events")
    declare(bags.names)
    files = open_all(
        partial(open_frames, options=options), path, bags.names, bags.first_rows.tolist()
    )
    store = replace(write_files(folder, files), files=[Path(name) for name in bags.names])
    return OwnBags(
        **annotated, store=store, kind=files[0].kind, frames_per_second=files[0].frames_per_second
    )
