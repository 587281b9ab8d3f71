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
from milbench.data.bagged_rows import Bagged, group_rows, take_rows
from milbench.data.bags_store import to_single_precision
from milbench.data.image_files import decode_image
from milbench.data.in_order import read_all
from milbench.data.list_columns import with_lists_as_columns
from milbench.data.marked_rows import group_by_file, with_file_column
from milbench.data.name_lists import abbreviate
from milbench.data.pack_feature_files import feature_files
from milbench.data.table import read_table
from milbench.data.table_files import column_names, is_table
from milbench.data.table_options import FEATURE_FILES, FeatureOptions, ImageOptions, SequenceOptions
from milbench.errors import UsageError


def new_bags(
    paths: Sequence[Path], options: FeatureOptions, feature_names: Sequence[str]
) -> dict[str, BagFile]:
    """Return the bags of tables with the columns that were trained on, of files of features, and folders, by names."""
    files = _expand_folders(paths, FEATURE_FILES)
    named_bags: list[tuple[str, BagFile]] = []
    for path in files:
        if is_table(path):
            named_bags += _bags_of_table(path, options, feature_names)
    arrays = [path for path in files if not is_table(path)]
    names = [str(path) for path in arrays]
    opened = read_all(partial(open_features, key=options.key), arrays, names)
    named_bags += zip(names, opened, strict=True)
    bags: dict[str, BagFile] = {}
    count = len(feature_names)
    for name, bag in named_bags:
        if name in bags:
            raise UsageError(f"there are two bags {name!r}: predict their files one at a time")
        bags[name] = bag
        if bag.shape[1] != count:
            trained = f"the {count} that were trained on ({abbreviate(feature_names)})"
            raise UsageError(f"bag {name!r} has {bag.shape[1]} features, expected {trained}")
    return bags


def finite_features(name: str, bag: BagFile) -> NDArray[np.float32]:
    """Return the instances of a bag. Raises UsageError, which has its name, where a number is not finite."""
    features = np.array(to_single_precision(bag.read(), bag.dtype))
    is_broken = ~np.isfinite(features).all(axis=1)
    if is_broken.any():
        raise UsageError(
            f"bag {name!r}, instance {is_broken.argmax()} (from 0): a feature is not finite"
        )
    return features


def new_images(
    paths: Sequence[Path], options: ImageOptions
) -> Iterator[tuple[str, Path, NDArray[np.uint8], tuple[int, int]]]:
    """Yield name (in a table, or the path), file, pixels (channels, size, size), and the size before, of images."""
    Image.init()
    files: dict[str, Path] = {}
    for path in _expand_folders(paths, sorted(Image.EXTENSION)):
        images_here = {str(path): path}
        if is_table(path):
            names = _files_in_table(path, options, "image")
            images_here = {name: path.parent / name for name in names}
        for name in images_here:
            if name in files:
                raise UsageError(f"{path}: the image {name!r} is named twice")
        files |= images_here

    def decode(path: Path) -> tuple[NDArray[np.uint8], tuple[int, int]]:
        return decode_image(path, options.size, options.channels)

    images = read_all(decode, list(files.values()), list(files), "images")
    for (name, file), (pixels, size) in zip(files.items(), images, strict=True):
        yield name, file, pixels, size


def new_sequences(
    paths: Sequence[Path], options: SequenceOptions, kind: str
) -> Iterator[tuple[str, NDArray[np.float32], float]]:
    """Yield name, frames (T, F) and frames a second of sequences of the `kind` in training; those of tables first."""
    files = _expand_folders(paths, (".npy", *AUDIO))
    tables = [path for path in files if is_table(path)]
    sources = [(table, _files_in_table(table, options, "sequence")) for table in tables]
    sequence_files = [str(path.absolute()) for path in files if not is_table(path)]
    if sequence_files:
        sources.append((Path("the files given"), sequence_files))
    for path, names in sources:
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
    """Return paths with the files that end so in place of each folder."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        members = [file for file in path.iterdir() if file.suffix.lower() in endings]
        found = sorted(member for member in members if member.is_file())
        if not found:
            raise UsageError(f"the folder {path} has no file {', '.join(endings)}")
        files += found
    return files


def _bags_of_table(
    path: Path, options: FeatureOptions, feature_names: Sequence[str]
) -> Iterable[tuple[str, BagFile]]:
    """Return the bags of a table by their names, with the features that were trained on."""
    table = read_table(path, options.texts, options.form)
    if options.of_files:
        bags = take_rows(table, options.bag, "bag")
        names = feature_files(bags, options)
        opened = open_all(partial(open_features, key=options.key), path, names)
        return zip(bags.names, opened, strict=True)

    table = with_lists_as_columns(table, options)
    grouped = group_rows(table, options.bag)
    for name in feature_names:
        table.column(name, "a feature")
    features = _parts(table.numbers(list(feature_names)), grouped)
    files = [BagFile(of_bag.shape, "float32", of_bag.copy) for of_bag in features]
    if options.coords:
        places = table.numbers(table.matching(options.coords, "of x and y"))
        of_bags = _parts(places, grouped)
        files = [
            replace(file, named={COORDINATES: of_bag.copy})
            for file, of_bag in zip(files, of_bags, strict=True)
        ]
    return zip(grouped.names, files, strict=True)


def _parts(values: NDArray[np.float32], bags: Bagged) -> list[NDArray[np.float32]]:
    """Return the values (N, D) of the rows of each bag, in the order of the bags."""
    order = np.argsort(bags.codes, kind="stable")
    starts = np.flatnonzero(np.diff(bags.codes[order])) + 1
    return np.split(values[order], starts)
