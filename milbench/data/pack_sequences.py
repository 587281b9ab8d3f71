"""Read the recordings, or arrays of frames, that a table lists, with their events."""

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
    """Read the sequences that a table lists, with their events if the table has some.

    Args:
        folder: an empty folder, into which the frames are written unless all of them can stay in
            their own files.
        path: of the table.
        options: of the task; they name the columns of the table.
        declare: is told which files the frames are made from, so that a cache notices when one
            of them changes.
    """
    # `options.form` says how the fields of the table are written, and `options.texts` which
    # columns hold text. Where rows are events, columns that the user did not name are found by
    # their usual names.
    options = with_columns(options, str(path), column_names(path, options.form))
    require_columns(path, options.form, {options.file: "the paths of recordings or arrays"})
    table = read_table(path, options.texts, options.form)
    bags = bags_of_files(table, options, "sequence")
    columns_used_here = {options.file, *listed(options.times)}
    # If each row is a sequence, its events are in the column "events". The argument `form` says how
    # an event is written; it is not `options.form`.
    annotated = annotate(
        bags, options, other_columns=columns_used_here, mark_column="events", form="events"
    )
    # A file is declared before it is opened: if it changes from then on, that is noticed.
    declare(bags.names)
    open_one = partial(open_frames, options=options)
    files = open_all(open_one, path, bags.names, rows=bags.first_rows.tolist())
    # `write_files` scans all frames. It copies them into `folder`, unless all files are arrays of
    # one type that can be memory-mapped: then the frames stay in their files, and the store finds
    # these by their paths from the folder of the table.
    scanned = write_files(folder, files)
    paths = [Path(name) for name in bags.names]
    store = replace(scanned, files=paths)
    # `open_all` has checked that all files are of the same kind, and so they have the
    # same frame rate.
    return OwnBags(
        **annotated, store=store, kind=files[0].kind, frames_per_second=files[0].frames_per_second
    )
