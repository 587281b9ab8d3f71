"""Read the bags of a table with a row for each bag, and a file of features for each bag."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.data.annotate_bags import annotate
from milbench.data.array_cache import DeclareInputs
from milbench.data.bag_files import CLASSES, COORDINATES, BagFile, open_all, open_features
from milbench.data.bagged_rows import Bagged, take_rows
from milbench.data.bags_store import write_files
from milbench.data.label_cells import class_name
from milbench.data.name_lists import set_text
from milbench.data.own_bags import OwnBags
from milbench.data.table import Table
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError


def feature_files(bags: Bagged, options: FeatureOptions) -> list[str]:
    """Return the path of every bag's file of features, from the folder of the table."""
    if options.features.startswith("@"):
        return bags.table.texts(options.features[1:], "the file of a bag's features").tolist()
    return [options.features.replace("*", name) for name in bags.names]


def pack_feature_files(
    folder: Path, table: Table, options: FeatureOptions, declare: DeclareInputs
) -> OwnBags:
    """Read the bags of a table with a row for each bag, whose features are in a file of their own.

    Args:
        folder: an empty folder, into which the instances are written if they cannot stay
            in their files.
        table: the table.
        options: of the task.
        declare: is told which files the bags are made from, so that a cache notices when one
            of them changes.
    """
    bags = take_rows(table, options.bag, "bag")
    annotated = annotate(bags, options, {options.bag, options.features.removeprefix("@")})
    names = feature_files(bags, options)
    declare(names)
    files = open_all(partial(open_features, key=options.key), table.path, names)
    store = replace(write_files(folder, files), files=[Path(name) for name in names])
    return OwnBags(
        **annotated,
        store=store,
        feature_names=[f"f{number}" for number in range(files[0].shape[1])],
        instance_classes=_classes_in_files(files, annotated),
        coords=_coords_in_files(files),
    )


def _coords_in_files(files: Sequence[BagFile]) -> NDArray[np.float32] | None:
    """Return x and y of all instances (N, 2), None unless every file has them for each instance."""
    of_files = []
    for file in files:
        if COORDINATES not in file.named:
            return None
        coords = file.named[COORDINATES]()
        if coords.shape != (file.shape[0], 2):
            return None
        of_files.append(coords)
    return np.concatenate(of_files).astype(np.float32)


def _classes_in_files(
    files: Sequence[BagFile], annotated: Mapping[str, Any]
) -> NDArray[np.int64] | None:
    """Return the classes (N,) of all instances, None unless every file has them."""
    if any(CLASSES not in file.named for file in files):
        return None
    # Every bag may hold background: a column of True after those of the classes.
    allowed = np.pad(annotated["labels"], ((0, 0), (0, 1)), constant_values=True)
    names = annotated["class_names"]
    nothing = annotated["nothing"]
    classes = [
        _classes_in(file, names, nothing, has) for file, has in zip(files, allowed, strict=True)
    ]
    return np.concatenate(classes)


def _classes_in(
    file: BagFile, class_names: list[str], nothing: Collection[str], has: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the classes (K,) of the instances in a file, which has names or numbers of classes.

    The name "", the number -1 and the labels `nothing`, which mean no class, are background.
    Raises UsageError unless each instance has a class that is in the label set of the bag,
    or is background.

    Args:
        file: the file.
        class_names: the names of the C classes.
        nothing: the labels that mean no class.
        has: (C + 1,), whether the bag may have an instance of each class, or of background.
    """
    values = file.named[CLASSES]()
    background = len(class_names)
    if values.dtype.kind not in "iu":
        values = _numbers_of_names(values, class_names, nothing)
    classes = np.where(values == -1, background, values.astype(np.int64).ravel())
    has_one_each = classes.shape == file.shape[:1]
    are_known = has_one_each and classes.min() >= 0 and classes.max() <= background
    if not are_known or not has[classes].all():
        expected = f"one of the bag's {set_text(class_names)} or background an instance"
        raise UsageError(f"{file.name}: {CLASSES} are not {expected}")
    return classes


def _numbers_of_names(
    values: NDArray[Any], class_names: list[str], nothing: Collection[str]
) -> NDArray[np.int64]:
    """Return the numbers (K,) of classes by their names.

    They are -1 for background, and C + 1 for an unknown name, which is no number of a class.
    """
    unknown = len(class_names) + 1
    number_of = {name: number for number, name in enumerate(class_names)}
    number_of |= dict.fromkeys(["", *nothing], -1)
    numbers = []
    for value in values.ravel().tolist():
        text = value.decode() if isinstance(value, bytes) else str(value)
        numbers.append(number_of.get(class_name(text), unknown))
    return np.array(numbers)
