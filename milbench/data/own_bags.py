"""Bags from a user's table: rows of features, or files of features, images or recordings, packed once and mapped."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.array_cache import (
    DeclareInputs,
    Fields,
    cache_place,
    cached_arrays,
    write_header,
)
from milbench.data.bag_files import (
    CLASSES,
    COORDINATES,
    BagFile,
    open_all,
    open_features,
    open_frames,
)
from milbench.data.bags_store import BagStore, row_parts, write_files
from milbench.data.box_forms import (
    Box,
    BoxForm,
    box_flags,
    box_remedy,
    fault_of,
    fits,
    in_pixels,
    shown_box,
)
from milbench.data.image_files import decode_image, image_size
from milbench.data.in_order import prefetched
from milbench.data.label_cells import class_name
from milbench.data.list_columns import with_lists_as_columns
from milbench.data.marked_rows import (
    MarkedRows,
    columns_in_words,
    group_by_file,
    with_columns,
)
from milbench.data.table import (
    NAMES,
    Annotation,
    Bagged,
    MarkForm,
    Marks,
    Table,
    WrongMarkError,
    group_rows,
    is_group_name,
    is_id_name,
    read_table,
    set_text,
    take_rows,
)
from milbench.data.table_files import (
    column_names,
    read_chunks,
    require_columns,
    row_name,
    shown_names,
)
from milbench.data.table_options import (
    FEATURE_FILES,
    LEFT_OUT,
    LIST_MARK,
    UNREAD_FILES,
    FeatureOptions,
    ImageOptions,
    SequenceOptions,
    TableOptions,
    listed,
)
from milbench.errors import UsageError

_BAG = "the bag that an instance belongs to"


@dataclass(frozen=True, eq=False)
class OwnBags:
    """The B bags of a table, in the order of their first rows, with their instances; None is what is not known."""

    path: Path
    bags: list[str]
    """Their names."""
    labels: NDArray[np.bool_]
    """(B, C), their label sets."""
    class_names: list[str]
    store: BagStore
    _: KW_ONLY
    groups: list[str] | None = None
    """Of the bags, such as the patient that each belongs to."""
    split: list[str] | None = None
    """Of the bags, each one of SPLITS."""
    ignored: Sequence[str] = ()
    """Columns that are not used."""
    shared_columns: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Columns that several bags share and no bag splits, with the number of each bag's value, -1 for none."""
    split_column: str = ""
    """The column that can be taken for a split, where none was named."""
    label_texts: Sequence[str] = ()
    """The different fields of the column of labels; none of lists and of columns of 0 and 1."""
    nothing: Mapping[str, int] = field(default_factory=dict)
    """The labels that mean no class, with the number of bags that have each."""
    marks: list[list[Annotation]] | None = None
    """Of images, boxes in pixels; of sequences, events as they begin."""
    bag_rows: NDArray[np.int64] | None = None
    """(B,), the first row of the table that names each bag."""
    mark_rows: list[list[int]] | None = None
    """The row of the table that each mark is in."""
    digest: str = ""
    """Of names, labels, instances and annotations, independent of the format of the files."""
    feature_names: Sequence[str] = ()
    """Of tables of features."""
    rows: NDArray[np.int64] | None = None
    """(N,) of the table, from which instances come; None: the rows are the bags."""
    instance_classes: NDArray[np.int64] | None = None
    """(N,), C for background."""
    coords: NDArray[np.float32] | None = None
    """(N, 2), x and y of each instance."""
    sizes: NDArray[np.int32] | None = None
    """(B, 2), width and height of images before they were fitted into squares."""
    kind: str = ""
    """Of all files, such as "a waveform of 16000 samples a second"."""
    frames_per_second: float = 0.0

    def __len__(self) -> int:
        return len(self.bags)

    def marked(self) -> NDArray[np.bool_]:
        """Return (B,), which bags have a mark for each class in their label set; empty label sets need none."""
        if self.marks is None:
            return np.zeros(len(self), bool)
        return np.array([len(marks) > 0 for marks in self.marks]) | ~self.labels.any(axis=1)

    def place(self, instance: int) -> str:
        """Return how a message names the row of the table that an instance comes from."""
        if self.rows is not None:
            return row_name(self.path, int(self.rows[instance]))
        bag = int(np.searchsorted(self.store.offsets, instance, side="right")) - 1
        return row_name(self.path, self.bag_row(bag))

    def bag_row(self, bag: int) -> int:
        """Return the first row of the table that names a bag."""
        # Bags that were made in another way than from a table have none.
        if self.bag_rows is None:
            return bag
        return int(self.bag_rows[bag])

    def mark_row(self, bag: int, number: int) -> int:
        """Return the row of the table that a mark of a bag is in."""
        if self.mark_rows is None:
            return self.bag_row(bag)
        return self.mark_rows[bag][number]


def load_bags(path: Path, options: TableOptions) -> OwnBags:
    """Return the bags of a table, packed into a cache if they are not yet. Raises UsageError, which names the row."""
    key = hashlib.sha256(json.dumps([options.kind, options.reading]).encode()).hexdigest()[:12]

    def write(folder: Path, declare: DeclareInputs) -> Fields:
        declare([path.name])
        return _record(_PACKERS[options.kind](folder, path, options, declare))

    place = cache_place(path, "bags") / f"{path.name}-{key}"
    return _from_record(path, cached_arrays(place, path.parent, write))


def _record(bags: OwnBags) -> Fields:
    """Return bags as the fields of a cache."""
    record = {**vars(bags.store), **vars(bags)}
    record["digest"] = _digest(bags)
    record["files"] = [str(file) for file in bags.store.files]
    # The path may be another one when the cache is read, and the packed instances are a file of the cache.
    for name in ("path", "store", "packed"):
        del record[name]
    return record


def _from_record(path: Path, record: Fields) -> OwnBags:
    """Return the bags of a table from the fields of a cache."""
    fields = dict(record)
    store = BagStore(
        offsets=np.asarray(fields.pop("offsets")),
        means=np.asarray(fields.pop("means")),
        squares=np.asarray(fields.pop("squares")),
        digests=np.asarray(fields.pop("digests")),
        packed=fields.pop("instances", None),
        files=[path.parent / name for name in fields.pop("files")],
        dtype=fields.pop("dtype"),
    )
    fields["labels"] = np.array(fields["labels"])
    if fields["marks"] is not None:
        fields["marks"] = [_as_annotations(marks) for marks in fields["marks"]]
    # What is left are the fields of OwnBags.
    return OwnBags(path=path, store=store, **fields)


def _as_annotations(marks: Sequence[Any]) -> list[Annotation]:
    """Return the marks of a bag as they were before they became JSON."""
    return [Annotation(cls, tuple(place)) for cls, place in marks]


def _pack_images(
    folder: Path, path: Path, options: ImageOptions, declare: DeclareInputs
) -> OwnBags:
    options = with_columns(options, str(path), column_names(path, options.form))
    require_columns(path, options.form, {options.image: "the paths of images"})
    table = read_table(path, options.texts, options.form)
    bags = _bags_of_files(table, options, "image")
    declare(bags.names)
    sizes = np.zeros((len(bags.names), 2), np.int32)

    def read(bag: int) -> NDArray[np.uint8]:
        pixels, sizes[bag] = decode_image(
            path.parent / bags.names[bag], options.size, options.channels
        )
        return pixels[None]

    shape = (1, options.channels, options.size, options.size)
    other_columns = {options.image, *listed(options.sides)}
    try:
        annotated = _annotations(bags, options, other_columns, "boxes", options.boxes)
    except WrongMarkError as error:
        # The numbers of a box are none by this form; all boxes may be by another one.
        remedy = _remedy_of_all(bags, options)
        raise UsageError(f"{error}{remedy}") from None
    files = [
        BagFile(shape, "uint8", partial(read, bag), name=table.place(int(row)))
        for bag, row in enumerate(bags.first)
    ]
    store = write_files(folder, files, "images")
    if annotated["marks"] is not None:
        annotated["marks"] = _boxes_in_pixels(table, annotated, options, sizes)
    return OwnBags(**annotated, store=store, sizes=sizes)


def _boxes_in_pixels(
    table: Table, annotated: Mapping[str, Any], options: ImageOptions, sizes: NDArray[np.int32]
) -> Marks:
    """Return the boxes of all images in pixels. Raises UsageError for one below a pixel, or outside its image."""
    marks = []
    for bag, boxes in enumerate(annotated["marks"]):
        width, height = sizes[bag].tolist()
        marks_of_bag = []
        for number, (cls, box) in enumerate(boxes):
            corners = in_pixels(box, options.boxes, width, height)
            fault = fault_of(corners, width, height)
            if fault:
                place = table.place(annotated["mark_rows"][bag][number])
                name = annotated["class_names"][cls]
                image = annotated["bags"][bag]
                remedy = box_remedy(_sized_boxes(annotated["marks"], sizes), options.boxes)
                raise UsageError(
                    f"{place}: the box {shown_box(box)} of {name!r} in {image!r} {fault} "
                    f"(task.boxes={options.boxes}){remedy}"
                )
            marks_of_bag.append(Annotation(cls, corners))
        marks.append(marks_of_bag)
    return marks


def _sized_boxes(marks: Marks, sizes: NDArray[np.int32]) -> list[tuple[Box, tuple[int, int]]]:
    """Return every box of a table with width and height of its image."""
    sized = []
    for boxes, (width, height) in zip(marks, sizes.tolist(), strict=True):
        for _, box in boxes:
            sized.append((box, (int(width), int(height))))
    return sized


def _remedy_of_all(bags: Bagged, options: ImageOptions) -> str:
    """Return the end of a message with the forms by which all boxes of a table fit their images, "" for none.

    Images need not have been read before.
    """
    fitting = []
    for form in get_args(BoxForm):
        other = replace(options, boxes=form)
        try:
            annotated = _annotations(bags, other, set(), "boxes", form)
            sizes = [image_size(bags.table.path.parent / name) for name in bags.names]
        except UsageError:
            continue
        boxes = _sized_boxes(annotated["marks"], np.array(sizes, np.int32))
        if all(fits(box, form, size) for box, size in boxes):
            fitting.append(form)
    return box_flags(fitting)


def _pack_sequences(
    folder: Path, path: Path, options: SequenceOptions, declare: DeclareInputs
) -> OwnBags:
    options = with_columns(options, str(path), column_names(path, options.form))
    require_columns(path, options.form, {options.file: "the paths of recordings or arrays"})
    table = read_table(path, options.texts, options.form)
    bags = _bags_of_files(table, options, "sequence")
    other_columns = {options.file, *listed(options.times)}
    annotated = _annotations(bags, options, other_columns, "events", "events")
    declare(bags.names)
    files = open_all(partial(open_frames, options=options), path, bags.names, bags.first.tolist())
    store = replace(write_files(folder, files), files=[*map(Path, bags.names)])
    return OwnBags(
        **annotated, store=store, kind=files[0].kind, frames_per_second=files[0].frames_per_second
    )


def _bags_of_files(table: Table, options: ImageOptions | SequenceOptions, kind: str) -> Bagged:
    """Return the rows of a table in bags, each of which is a file.

    Raises UsageError for a file in two rows, unless rows are events or boxes. The message names the option that reads
    them so where the table has the columns.
    """
    column = getattr(options, options.file_parameter)
    if options.rows_are_marks:
        return group_by_file(table, column, kind)
    try:
        return take_rows(table, column, kind)
    except UsageError as error:
        rows = "boxes" if isinstance(options, ImageOptions) else "events"
        changed: dict[str, Any] = {"rows": rows}
        found = columns_in_words(replace(options, **changed), table.columns)
        if not found:
            raise
        raise UsageError(f"{error}; -p task.rows={rows} groups rows, by {found}") from None


def _annotations(
    bags: Bagged,
    options: TableOptions,
    other_columns: set[str],
    column: str = "",
    form: MarkForm = "events",
) -> dict[str, Any]:
    """Return what columns say of bags.

    `other_columns` have another use. Where rows are bags, `column` has boxes or events of a form as JSON.
    """
    labels = bags.labels(options)
    groups = bags.values(options.group, "group")
    split = bags.split(options.split)
    used = {*labels.columns, *NAMES, options.labels, options.group, options.split, column}
    others = [name for name in bags.table.columns if name not in used]
    annotated: dict[str, Any] = {
        "path": bags.table.path,
        "bags": bags.names,
        "labels": labels.sets,
        "class_names": labels.names,
        "groups": groups,
        "split": split,
        "ignored": [name for name in others if name not in other_columns],
        "label_texts": labels.texts,
        "nothing": {label: int(has.sum()) for label, has in labels.nothing.items()},
        "marks": None,
        "bag_rows": bags.first,
        "mark_rows": None,
    }
    if groups is None:
        annotated["shared_columns"] = bags.shared_columns(others)
    if split is None:
        annotated["split_column"] = bags.split_column(others)
    if isinstance(bags, MarkedRows) and isinstance(options, ImageOptions | SequenceOptions):
        annotated["marks"], annotated["mark_rows"] = bags.marks_of_rows(options, form)
    elif column:
        marks = bags.marks(column, labels, form)
        annotated["marks"] = marks
        annotated["mark_rows"] = None if marks is None else bags.mark_rows(marks)
    return annotated


def _pack_features(
    folder: Path, path: Path, options: FeatureOptions, declare: DeclareInputs
) -> OwnBags:
    """Pack the bags of a table with a row an instance, or with a row a bag and a file of features for each."""
    _check_columns(path, options)
    if options.of_files:
        table = read_table(path, options.texts, options.form)
        return _pack_feature_files(folder, table, options, declare)
    in_rows = folder / "rows_of_table.npy"
    names, table = _write_rows(in_rows, path, options)
    features = np.load(in_rows, mmap_mode="r", allow_pickle=False)
    bags = group_rows(table, options.bag)
    coords = table.matching(options.coords, "of x and y")
    annotated = _annotations(bags, options, {options.bag, *coords, *names})
    order = np.argsort(bags.codes, kind="stable")
    classes = bags.instance_classes(
        annotated["labels"], annotated["class_names"], annotated["nothing"]
    )
    offsets = np.searchsorted(bags.codes[order], np.arange(len(bags.names) + 1))
    parts = row_parts(features, order, offsets, str(path))
    store = write_files(folder, parts, "parts")
    if parts[0].mapped:
        # Bag follows bag in the table.
        in_rows.replace(folder / "instances.npy")
    else:
        in_rows.unlink()
    return OwnBags(
        **annotated,
        store=store,
        feature_names=names,
        rows=order,
        instance_classes=None if classes is None else classes[order],
        coords=table.numbers(coords)[order] if coords else None,
    )


def _write_rows(in_rows: Path, path: Path, options: FeatureOptions) -> tuple[list[str], Table]:
    """Write the features of the rows of a table; return their names, and the other columns.

    It is read in chunks of rows, of which the first one says what is a feature. Features that are named like ids or
    groups are kept as columns, too: they may say which bags belong together.
    """
    names: list[str] = []
    features_alone: list[str] = []
    others: list[pd.DataFrame] = []
    text = {*NAMES, *options.texts}
    with in_rows.open("wb") as out:
        for frame in prefetched(read_chunks(path, text, options.form)):
            chunk = with_lists_as_columns(Table(path, frame, options.form), options)
            if not others:
                names = _feature_names(chunk, options)
                features_alone = [
                    name for name in names if not is_group_name(name) and not is_id_name(name)
                ]
                write_header(out, np.dtype(np.float32), (0, len(names)))
            _check_lists(chunk, names)
            out.write(chunk.numbers(names, options.features).data)
            others.append(chunk.frame.drop(columns=features_alone))
        table = Table(path, pd.concat(others), options.form)
        out.seek(0)
        write_header(out, np.dtype(np.float32), (len(table.frame), len(names)))
    return names, table


def _check_columns(path: Path, options: FeatureOptions) -> None:
    """Raise UsageError where a table has not the columns that are needed, or `features` names what is not read."""
    require_columns(path, options.form, {options.bag: _BAG})
    pattern = options.features
    ending = Path(pattern).suffix.lower()
    if options.of_files or pattern in column_names(path, options.form):
        return
    if ending in FEATURE_FILES:
        expected = f"such as task.features='features/*{ending}', where * is the name of the bag"
        raise UsageError(
            f"task.features={pattern!r} is one file, expected a file for each bag, {expected}"
        )
    if ending in UNREAD_FILES:
        raise UsageError(
            f"task.features={pattern!r}: files {ending} are not read, expected {', '.join(FEATURE_FILES)}"
        )


def _check_lists(chunk: Table, names: Sequence[str]) -> None:
    """Raise UsageError where lists of numbers are shorter than those in the rows before."""
    for name in names:
        if name not in chunk.frame:
            column = name.rpartition("[")[0]
            raise UsageError(
                f"{chunk.place(0)}: column {column!r} has not the length of the lists in the rows before"
            )


def _feature_names(table: Table, options: FeatureOptions) -> list[str]:
    """Return the columns that are features. Raises UsageError where there is none, or where one is no feature."""
    coords = table.matching(options.coords, "of x and y")
    if len(coords) not in (0, 2):
        columns = "1 column" if len(coords) == 1 else f"{len(coords)} columns"
        raise UsageError(
            f"{table.path}: task.coords={options.coords!r} names {columns}, expected x and y"
        )
    label_columns = table.label_columns(options.labels)
    reserved = {*label_columns, *NAMES, options.bag, options.group, options.split}
    parts = listed(options.features)
    wanted = [part for part in parts if not part.startswith(LEFT_OUT)]
    unwanted = [part.removeprefix(LEFT_OUT) for part in parts if part.startswith(LEFT_OUT)]
    left_out = set(table.matching(LIST_MARK.join(unwanted), "to leave out of the features"))
    candidates = [name for name in table.columns if name not in left_out]
    if wanted:
        names = _wanted_features(table, options, wanted, reserved)
        names = [name for name in names if name not in left_out]
    else:
        names = table.holds_numbers(
            [name for name in candidates if name not in reserved and name not in coords]
        )
    if not names:
        raise UsageError(
            f"{table.path} has no column of numbers for features (it has: {shown_names(table.columns)})"
        )
    return names


def _wanted_features(
    table: Table, options: FeatureOptions, wanted: list[str], reserved: set[str]
) -> list[str]:
    """Return the columns that `features` names; a pattern skips columns of names and labels, which may not be named."""
    # These columns are names in other tables alone.
    names_or_labels = reserved - {"features", "image", "boxes"}
    for name in table.columns:
        if name in wanted and name in names_or_labels:
            named = f"the features {options.features!r} name the column {name!r}"
            raise UsageError(f"{table.path}: {named}, which holds names or labels")
    names = table.matching(LIST_MARK.join(wanted), "of features")
    return [name for name in names if name in wanted or name not in reserved]


def feature_files(bags: Bagged, options: FeatureOptions) -> list[str]:
    """Return the path of the file of every bag, from the folder of the table."""
    if options.features.startswith("@"):
        return bags.table.texts(options.features[1:], "the file of a bag's features").tolist()
    return [options.features.replace("*", name) for name in bags.names]


def _pack_feature_files(
    folder: Path, table: Table, options: FeatureOptions, declare: DeclareInputs
) -> OwnBags:
    bags = take_rows(table, options.bag, "bag")
    annotated = _annotations(bags, options, {options.bag, options.features.removeprefix("@")})
    names = feature_files(bags, options)
    declare(names)
    files = open_all(partial(open_features, key=options.key), table.path, names)
    store = replace(write_files(folder, files), files=[*map(Path, names)])
    return OwnBags(
        **annotated,
        store=store,
        feature_names=[f"f{number}" for number in range(files[0].shape[1])],
        instance_classes=_classes_in_files(files, annotated),
        coords=_coords_in_files(files),
    )


def _coords_in_files(files: Sequence[BagFile]) -> NDArray[np.float32] | None:
    """Return x and y of all instances, None unless every file has a pair for each of its instances."""
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
    """Return the classes of all instances, None unless every file has them."""
    if any(CLASSES not in file.named for file in files):
        return None
    # Every bag may hold background, which is the last.
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
    """Return the classes (K,) of the instances in a file, by names or numbers there; "" and -1 are background."""
    classes = file.named[CLASSES]()
    count = len(class_names)
    if classes.dtype.kind not in "iu":
        number_of = {name: number for number, name in enumerate(class_names)}
        number_of |= dict.fromkeys(["", *nothing], -1)
        stranger = count + 1
        numbers = []
        for value in classes.ravel().tolist():
            text = value.decode() if isinstance(value, bytes) else str(value)
            numbers.append(number_of.get(class_name(text), stranger))
        classes = np.array(numbers)
    classes = np.where(classes == -1, count, classes.astype(np.int64).ravel())
    is_one_each = classes.shape == file.shape[:1]
    if not is_one_each or classes.min() < 0 or classes.max() > count or not has[classes].all():
        expected = f"one of the bag's {set_text(class_names)} or background an instance"
        raise UsageError(f"{file.name}: {CLASSES} are not {expected}")
    return classes


def _digest(bags: OwnBags) -> str:
    """Return a digest of what bags hold, see `OwnBags.digest`."""
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
    for values in (
        bags.store.offsets,
        bags.store.digests,
        bags.labels,
        bags.instance_classes,
        bags.sizes,
    ):
        if values is not None:
            digest.update(values.tobytes())
    return digest.hexdigest()


_PACKERS: dict[str, Any] = {
    "features": _pack_features,
    "images": _pack_images,
    "sequences": _pack_sequences,
}
"""What packs the bags of a table, by the kind of its options."""
