"""Read new bags, which a trained network shall label, from tables, folders, or a file a bag."""

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
    """Return name -> bag, for the bags of features in some tables, files and folders.

    Args:
        paths: tables, which must have the columns that the network was trained on; files of
            features, one for each bag; or folders of such files.
        options: of the task that the network was trained on.
        feature_names: the features that the network was trained on.

    Raises:
        UsageError: where a file cannot be read, two bags have one name, or a bag has another
            number of features.
    """
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
    """Return the instances (K, D) of a bag in single precision.

    Raises UsageError, which names the bag, where a number is not finite.
    """
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
    """Yield the images in some tables, files and folders, read as the options of a task say.

    For each image this is its name, as a table has it or else the path of its file; the path of its
    file; its pixels (channels, size, size) in a square; and its width and height before. Raises
    UsageError where an image cannot be read or is named twice.
    """
    # This fills `Image.EXTENSION`.
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
    """Yield the sequences in some tables, files and folders, those of tables first.

    For each sequence this is its name, its frames (T, F), and the number of frames in a second.

    Args:
        paths: tables of files, files, and folders of files.
        options: of the task that the network was trained on.
        kind: what the files of the training sequences hold, see `BagFile.kind`.

    Raises:
        UsageError: where a file cannot be read, or where the files of a table are not of this kind.
    """
    files = _expand_folders(paths, (".npy", *AUDIO))
    tables = [path for path in files if is_table(path)]
    sources = [(table, _files_in_table(table, options, "sequence")) for table in tables]
    sequence_files = [str(path.absolute()) for path in files if not is_table(path)]
    if sequence_files:
        # `open_all` looks for files from the folder of a table. An absolute path stays as it is, so
        # that any name will do for the table, which stands only in messages.
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
    """Return the files that a table names, each once. It needs no columns of labels or boxes."""
    options = with_file_column(options, str(path), column_names(path, options.form))
    column = getattr(options, options.file_parameter)
    table = read_table(path, options.texts, options.form)
    if options.rows_are_marks:
        return group_by_file(table, column, kind).names
    return table.unique(column, kind)


def _expand_folders(paths: Iterable[Path], endings: Sequence[str]) -> list[Path]:
    """Return the paths, with each folder replaced by its files that have one of the endings."""
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
    """Return the name and the features of each bag of a table.

    The features are those that the network was trained on, `feature_names`.
    """
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
