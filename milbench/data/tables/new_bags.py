"""Bags without labels, for a trained network: from a table or from files with the features of a bag each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.tables.bag_table import Columns, as_features
from milbench.data.tables.feature_files import FEATURE_FILES, bag_features, read_features
from milbench.data.tables.reading import column, is_table, read_table, row_name, shown, text_column
from milbench.errors import UsageError


class NewBag(NamedTuple):
    """A bag whose label set is not known, with its features (K, D) float32."""

    name: str
    features: NDArray[np.float32]


def expanded(paths: Iterable[Path], endings: Sequence[str]) -> list[Path]:
    """Return paths with each folder replaced by the files in it that have one of these endings, sorted by name.

    Raises:
        UsageError: a folder has none.
    """
    found: list[Path] = []
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix.lower() in endings and file.is_file())
        if not inside:
            raise UsageError(f"the folder {path} has no file {', '.join(endings)}")
        found += inside
    return found


def load_new_bags(paths: Sequence[Path], columns: Columns, feature_names: Sequence[str]) -> list[NewBag]:
    """Return the bags of tables, of files of features and of folders of such files.

    Args:
        paths: of them. A table has the columns of the one that was trained on, but for labels.
        columns: which hold what.
        feature_names: the features that the network reads, in its order.

    Raises:
        UsageError: a file is no use, or two bags have one name; the message names what.
    """
    files = expanded(paths, FEATURE_FILES)
    bags = [bag for path in files if is_table(path) for bag in _of_table(path, columns, feature_names)]
    bags += _of_files([path for path in files if not is_table(path)], columns.key)
    seen = set()
    for name, features in bags:
        if name in seen:
            raise UsageError(f"there are two bags {name!r}: predict their files one at a time")
        seen.add(name)
        if features.shape[1] != len(feature_names):
            raise UsageError(
                f"bag {name!r} has {features.shape[1]} features, expected the {len(feature_names)} that were trained on"
                f" ({shown(list(feature_names))})"
            )
        broken = np.flatnonzero(~np.isfinite(features).all(axis=1))
        if broken.size:
            raise UsageError(f"bag {name!r}, instance {broken[0]} (from 0): a feature is not finite")
    return bags


def _of_table(path: Path, columns: Columns, feature_names: Sequence[str]) -> list[NewBag]:
    frame = read_table(path, text=(columns.bag, columns.features.removeprefix("@")))
    names = text_column(frame, path, columns.bag, "the bag that an instance belongs to")
    if "" in names:
        raise UsageError(f"{row_name(path, names.index(''))}: the column {columns.bag!r} is empty, expected a bag")
    if columns.features.startswith("@"):
        files = text_column(frame, path, columns.features[1:], "the file of a bag's features")
        return [NewBag(*bag) for bag in zip(names, bag_features(path, files, columns.key), strict=True)]
    numbers = {name: pd.to_numeric(column(frame, path, name, "a feature"), errors="coerce") for name in feature_names}
    features = as_features(path, frame, numbers)
    codes, bags = pd.factorize(np.array(names, dtype=object))
    order = np.argsort(codes, kind="stable")
    parts = np.split(features[order], np.flatnonzero(np.diff(codes[order])) + 1)
    return [NewBag(str(bag), part) for bag, part in zip(bags, parts, strict=True)]


def _of_files(files: Sequence[Path], key: str) -> list[NewBag]:
    found, broken = [], []
    for path in files:
        try:
            found.append(NewBag(str(path), read_features(path, key)))
        except Exception as error:  # noqa: BLE001 every format has errors of its own for a damaged file
            broken.append(f"{path}: {error}")
    if broken:
        raise UsageError(f"{len(broken)} of {len(files)} files cannot be read: {shown(broken, 20)}")
    return found
