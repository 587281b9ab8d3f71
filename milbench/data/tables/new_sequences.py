"""Sequences without labels, for a trained network: from a table, from a folder, or files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from milbench.data.tables.new_bags import expanded
from milbench.data.tables.reading import file_column, is_table, read_table
from milbench.data.tables.sequence_files import AUDIO, FrameSettings, LoadedFrames, load_frames
from milbench.errors import UsageError


def new_sequences(
    paths: Sequence[Path], column: str, settings: FrameSettings, kind: str
) -> Iterator[tuple[list[str], LoadedFrames]]:
    """Yield the names and frames of sequences: those of each table, then those of all files that are given.

    Args:
        paths: tables, files, and folders of files.
        column: of the paths of files in a table, relative to its folder.
        settings: how files become frames.
        kind: what the files were that the network was trained on, see `LoadedFrames.kind`.

    Raises:
        UsageError: a table or files are no use, or files are of another kind.
    """
    files = expanded(paths, (".npy", *AUDIO))
    sources = [
        (path, file_column(read_table(path, text=(column,)), path, column, "sequence"))
        for path in files
        if is_table(path)
    ]
    lone = [str(path.absolute()) for path in files if not is_table(path)]
    if lone:
        sources.append((Path("the files given"), lone))
    for path, names in sources:
        loaded = load_frames(path, names, settings)
        if loaded.kind != kind:
            raise UsageError(f"{path}: its sequences have {loaded.kind}, expected {kind} as in training")
        yield names, loaded
