"""Load the bags of a user's table: they are packed once into a cache, and mapped from there."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from milbench.data.annotations import Annotation
from milbench.data.array_cache import DeclareInputs, Fields, cache_place, cached_arrays
from milbench.data.bags_store import BagStore
from milbench.data.own_bags import OwnBags
from milbench.data.pack_features import pack_features
from milbench.data.pack_images import pack_images
from milbench.data.pack_sequences import pack_sequences
from milbench.data.table_options import TableOptions

_PACKERS: dict[str, Any] = {
    "features": pack_features,
    "images": pack_images,
    "sequences": pack_sequences,
}
"""Kind of a task's options -> the function that packs the bags of a table."""


def load_bags(path: Path, options: TableOptions) -> OwnBags:
    """Return the bags of a table.

    The first time they are read and packed into a cache. UsageError is raised where the table or a
    file of it cannot be read; its message names the row.
    """
    # The same table read with other parameters has another cache, in the same folder.
    key = hashlib.sha256(json.dumps([options.kind, options.reading]).encode()).hexdigest()[:12]

    def write(folder: Path, declare: DeclareInputs) -> Fields:
        declare([path.name])
        return _record(_PACKERS[options.kind](folder, path, options, declare))

    place = cache_place(path, "bags") / f"{path.name}-{key}"
    return _from_record(path, cached_arrays(place, path.parent, write))


def _record(bags: OwnBags) -> Fields:
    """Return what a cache keeps of bags, by name: the fields of `OwnBags` and of its store."""
    record = {**vars(bags.store), **vars(bags)}
    record["digest"] = _digest(bags)
    record["files"] = [str(file) for file in bags.store.files]
    # The folder of the table may be moved, with the cache in it: then the path changes. The fields
    # of the store are in the record themselves, and the packed instances are a file of the cache.
    for name in ("path", "store", "packed"):
        del record[name]
    return record


def _from_record(path: Path, record: Fields) -> OwnBags:
    """Return the bags of a table from what a cache keeps of them."""
    fields = dict(record)
    store = BagStore(
        offsets=np.asarray(fields.pop("offsets")),
        means=np.asarray(fields.pop("means")),
        squares=np.asarray(fields.pop("squares")),
        digests=np.asarray(fields.pop("digests")),
        # The cache has this array, unless all instances stay in the user's files.
        packed=fields.pop("instances", None),
        files=[path.parent / name for name in fields.pop("files")],
        dtype=fields.pop("dtype"),
    )
    fields["labels"] = np.array(fields["labels"])
    if fields["marks"] is not None:
        fields["marks"] = [_as_annotations(marks) for marks in fields["marks"]]
    # The other fields are those of OwnBags.
    return OwnBags(path=path, store=store, **fields)


def _as_annotations(marks: Sequence[Any]) -> list[Annotation]:
    """Return the annotations of a bag from lists of JSON."""
    return [Annotation(cls, tuple(place)) for cls, place in marks]


def _digest(bags: OwnBags) -> str:
    """Return the digest of the content of bags, see `OwnBags.digest`."""
    texts = [
        bags.bags,
        bags.feature_names or None,
        bags.class_names,
        bags.groups,
        bags.split,
        bags.marks,
        bags.kind or None,
    ]
    digest = hashlib.sha256(json.dumps(texts).encode())
    arrays = (
        bags.store.offsets,
        bags.store.digests,
        bags.labels,
        bags.instance_classes,
        bags.sizes,
    )
    for values in arrays:
        if values is not None:
            digest.update(values.tobytes())
    return digest.hexdigest()
