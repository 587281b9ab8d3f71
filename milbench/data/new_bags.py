"""Bags without labels, for a trained network: from tables, from folders, or files with a bag each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from milbench.data.bag_files import (
    AUDIO,
    COORDINATES,
    FEATURE_FILES,
    BagFile,
    SequenceColumns,
    open_all,
    open_features,
    open_frames,
    usual_kind,
)
from milbench.data.bags_store import single
from milbench.data.image_files import decoded
from milbench.data.in_order import read_all
from milbench.data.own_bags import Columns
from milbench.data.table import abbreviate, bagged, bagged_alone, read_table
from milbench.data.table_files import is_table
from milbench.errors import UsageError


def new_bags(paths: Sequence[Path], columns: Columns, feature_names: Sequence[str]) -> dict[str, BagFile]:
    """Return the bags of tables, of files of features and of folders of such files, by their names.

    A table has the columns of the one that was trained on, but for labels. Raises UsageError where two bags have one
    name.
    """
    files = _expanded(paths, FEATURE_FILES)
    named = [bag for path in files if is_table(path) for bag in _of_table(path, columns, feature_names)]
    lone = [str(path) for path in files if not is_table(path)]
    named += zip(lone, read_all(partial(open_features, key=columns.key), [*map(Path, lone)], lone), strict=True)
    bags: dict[str, BagFile] = {}
    for name, bag in named:
        if name in bags:
            raise UsageError(f"there are two bags {name!r}: predict their files one at a time")
        bags[name] = bag
        if bag.shape[1] != len(feature_names):
            raise UsageError(
                f"bag {name!r} has {bag.shape[1]} features, expected the {len(feature_names)} that were trained on"
                f" ({abbreviate(feature_names)})"
            )
    return bags


def finite(name: str, bag: BagFile) -> NDArray[np.float32]:
    """Return the instances of a bag. Raises UsageError, which has its name, where a number is not finite."""
    features = np.array(single(bag.read(), bag.dtype))
    if (broken := np.flatnonzero(~np.isfinite(features).all(axis=1))).size:
        raise UsageError(f"bag {name!r}, instance {broken[0]} (from 0): a feature is not finite")
    return features


def new_images(paths: Sequence[Path], column: str) -> dict[str, Path]:
    """Return the files of images by their names: as the column of a table has them, or the paths. Raises UsageError."""
    Image.init()
    files: dict[str, Path] = {}
    for path in _expanded(paths, sorted(Image.EXTENSION)):
        named_files = [(str(path), path)]
        if is_table(path):
            named_files = [(name, path.parent / name) for name in read_table(path, (column,)).unique(column, "image")]
        for name, file in named_files:
            if name in files:
                raise UsageError(f"{path}: the image {name!r} is named twice")
            files[name] = file
    return files


def decode_all(files: Sequence[Path], size: int, channels: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return images (B, channels, size, size), fitted into squares, and their sizes (B, 2). Raises UsageError."""
    named = [f"image {n}" for n in range(1, len(files) + 1)]
    images = read_all(lambda path: decoded(path, size, channels), files, named, "images")
    pixels, sizes = zip(*images, strict=True)
    return np.stack(pixels), np.array(sizes, np.int32)


def new_sequences(
    paths: Sequence[Path], columns: SequenceColumns, kind: str
) -> Iterator[tuple[str, NDArray[np.float32], float]]:
    """Yield name, frames (T, F) and frames a second of sequences: those of each table, then those of all lone files.

    Raises UsageError for an unusable table or file, or for files of another kind than in training.
    """
    files = _expanded(paths, (".npy", *AUDIO))
    lone = [str(path.absolute()) for path in files if not is_table(path)]
    sources = [
        (path, read_table(path, (columns.file,)).unique(columns.file, "sequence")) for path in files if is_table(path)
    ]
    for path, names in [*sources, *([(Path("the files given"), lone)] if lone else [])]:
        opened = open_all(partial(open_frames, columns=columns), path, names)
        if (file_kind := usual_kind(opened)) != kind:
            raise UsageError(f"{path}: its sequences have {file_kind}, expected {kind} as in training")
        for name, file in zip(names, opened, strict=True):
            yield name, finite(name, file), file.frames_per_second


def _expanded(paths: Iterable[Path], endings: Sequence[str]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        contents = [path]
        if path.is_dir():
            contents = sorted(file for file in path.iterdir() if file.suffix.lower() in endings and file.is_file())
        if not contents:
            raise UsageError(f"the folder {path} has no file {', '.join(endings)}")
        files += contents
    return files


def _of_table(path: Path, columns: Columns, feature_names: Sequence[str]) -> Iterable[tuple[str, BagFile]]:
    table = read_table(path, (columns.bag, columns.features.removeprefix("@")))
    if columns.of_files:
        bags = bagged_alone(table, columns.bag, "bag")
        opened = open_all(partial(open_features, key=columns.key), path, columns.files(table, bags.names))
        return zip(bags.names, opened, strict=True)
    bags = bagged(table, columns.bag)
    for name in feature_names:
        table.column(name, "a feature")
    order = np.argsort(bags.codes, kind="stable")
    cuts = np.flatnonzero(np.diff(bags.codes[order])) + 1
    parts = np.split(table.numbers(list(feature_names))[order], cuts)
    files = [BagFile(part.shape, "float32", part.copy) for part in parts]
    if columns.coords:
        places = np.split(table.numbers(table.matching(columns.coords, "of x and y"))[order], cuts)
        files = [replace(file, named={COORDINATES: at.copy}) for file, at in zip(files, places, strict=True)]
    return zip(bags.names, files, strict=True)
