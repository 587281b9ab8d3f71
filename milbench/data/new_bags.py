"""Bags without labels, for a trained network: from tables, from folders, or files with a bag each."""

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
    BagFile,
    open_all,
    open_features,
    open_frames,
)
from milbench.data.bags_store import single
from milbench.data.image_files import decode_image
from milbench.data.in_order import read_all
from milbench.data.list_columns import with_lists_as_columns
from milbench.data.marked_rows import group_by_file, with_file_column
from milbench.data.own_bags import feature_files
from milbench.data.table import abbreviate, group_rows, read_table, take_rows
from milbench.data.table_files import column_names, is_table
from milbench.data.table_options import FEATURE_FILES, FeatureOptions, ImageOptions, SequenceOptions
from milbench.errors import UsageError


def new_bags(
    paths: Sequence[Path], options: FeatureOptions, feature_names: Sequence[str]
) -> dict[str, BagFile]:
    """Return the bags of tables with the columns that were trained on, of files of features, and folders, by names."""
    files = _expand_folders(paths, FEATURE_FILES)
    named_bags = [
        bag
        for path in files
        if is_table(path)
        for bag in _bags_of_table(path, options, feature_names)
    ]
    arrays = [str(path) for path in files if not is_table(path)]
    named_bags += zip(
        arrays,
        read_all(partial(open_features, key=options.key), [*map(Path, arrays)], arrays),
        strict=True,
    )
    bags: dict[str, BagFile] = {}
    for name, bag in named_bags:
        if name in bags:
            raise UsageError(f"there are two bags {name!r}: predict their files one at a time")
        bags[name] = bag
        if bag.shape[1] != (count := len(feature_names)):
            trained = f"the {count} that were trained on ({abbreviate(feature_names)})"
            raise UsageError(f"bag {name!r} has {bag.shape[1]} features, expected {trained}")
    return bags


def finite_features(name: str, bag: BagFile) -> NDArray[np.float32]:
    """Return the instances of a bag. Raises UsageError, which has its name, where a number is not finite."""
    features = np.array(single(bag.read(), bag.dtype))
    if (broken := np.flatnonzero(~np.isfinite(features).all(axis=1))).size:
        raise UsageError(f"bag {name!r}, instance {broken[0]} (from 0): a feature is not finite")
    return features


def new_images(
    paths: Sequence[Path], options: ImageOptions
) -> Iterator[tuple[str, Path, NDArray[np.uint8], tuple[int, int]]]:
    """Yield name (in a table, or the path), file, pixels (channels, size, size), and the size before, of images."""
    Image.init()
    files: dict[str, Path] = {}
    for path in _expand_folders(paths, sorted(Image.EXTENSION)):
        names = _files_in_table(path, options, "image") if is_table(path) else [str(path)]
        if twice := [name for name in names if name in files]:
            raise UsageError(f"{path}: the image {twice[0]!r} is named twice")
        files |= {name: path.parent / name if is_table(path) else path for name in names}
    images = read_all(
        lambda path: decode_image(path, options.size, options.channels),
        [*files.values()],
        [*files],
        "images",
    )
    for (name, file), (pixels, size) in zip(files.items(), images, strict=True):
        yield name, file, pixels, size


def new_sequences(
    paths: Sequence[Path], options: SequenceOptions, kind: str
) -> Iterator[tuple[str, NDArray[np.float32], float]]:
    """Yield name, frames (T, F) and frames a second of sequences of the `kind` in training; those of tables first."""
    files = _expand_folders(paths, (".npy", *AUDIO))
    sequence_files = [str(path.absolute()) for path in files if not is_table(path)]
    sources = [
        (path, _files_in_table(path, options, "sequence")) for path in files if is_table(path)
    ]
    for path, names in [
        *sources,
        *([(Path("the files given"), sequence_files)] if sequence_files else []),
    ]:
        opened = open_all(partial(open_frames, options=options), path, names)
        if opened[0].kind != kind:
            raise UsageError(
                f"{path}: its sequences have {opened[0].kind}, expected {kind} as in training"
            )
        for name, file in zip(names, opened, strict=True):
            yield name, finite_features(name, file), file.frames_per_second


def _files_in_table(path: Path, options: ImageOptions | SequenceOptions, kind: str) -> list[str]:
    """Return the files that a table names, each once. Its labels and places are not needed."""
    options = with_file_column(options, str(path), column_names(path, options.form))
    column = getattr(options, options.file_parameter)
    table = read_table(path, options.texts, options.form)
    if options.rows_are_marks:
        return group_by_file(table, column, kind).names
    return table.unique(column, kind)


def _expand_folders(paths: Iterable[Path], endings: Sequence[str]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            members = sorted(
                file for file in path.iterdir() if file.suffix.lower() in endings and file.is_file()
            )
            files += members
            if not members:
                raise UsageError(f"the folder {path} has no file {', '.join(endings)}")
        else:
            files.append(path)
    return files


def _bags_of_table(
    path: Path, options: FeatureOptions, feature_names: Sequence[str]
) -> Iterable[tuple[str, BagFile]]:
    table = read_table(path, options.texts, options.form)
    if options.of_files:
        bags = take_rows(table, options.bag, "bag")
        opened = open_all(
            partial(open_features, key=options.key), path, feature_files(bags, options)
        )
        return zip(bags.names, opened, strict=True)
    table = with_lists_as_columns(table, options)
    bags = group_rows(table, options.bag)
    for name in feature_names:
        table.column(name, "a feature")
    order = np.argsort(bags.codes, kind="stable")
    cuts = np.flatnonzero(np.diff(bags.codes[order])) + 1
    parts = np.split(table.numbers(list(feature_names))[order], cuts)
    files = [BagFile(part.shape, "float32", part.copy) for part in parts]
    if options.coords:
        places = np.split(table.numbers(table.matching(options.coords, "of x and y"))[order], cuts)
        files = [
            replace(file, named={COORDINATES: place.copy})
            for file, place in zip(files, places, strict=True)
        ]
    return zip(bags.names, files, strict=True)
