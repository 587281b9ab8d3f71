"""The parameters of tasks on users' tables: how to read a table, and split and batch its bags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from milbench.data.box_forms import BoxForm
from milbench.data.table_files import TableFormat
from milbench.errors import UsageError, unknown

Kind = Literal["features", "images", "sequences"]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
FEATURE_FILES = (".npy", ".npz", ".h5", ".hdf5", ".pt", ".pth", ".safetensors")
"""The endings of files of features."""
UNREAD_FILES = (
    ".zarr",
    ".mat",
    ".pkl",
    ".pickle",
    ".joblib",
    ".parquet",
    ".csv",
    ".feather",
    ".zip",
)
"""The endings of other files in which people keep features, which milbench does not read."""
LIST_MARK = ";"
"""What stands between the names of columns or classes that one parameter lists."""
LEFT_OUT = "!"
"""What the parameter `features` has before the name of a column to leave out."""
_CHARACTERS = {"tab": "\t", r"\t": "\t", "space": " "}
"""Word of the command line -> the character, hard to type, that it stands for."""
_DECIMALS = ("", ".", ",")
"""The values that the parameter `decimal` may have."""
_THOUSANDS = ("", ",", ".", "'", " ", "space")
"""The values that the parameter `thousands` may have."""
FORM = ("field_separator", "decimal", "thousands")
"""The parameters that become a `TableFormat`: how the fields of a text file are written."""
_AFTER_READING = {
    "table", "splits", "folds", "repeats", "test", "validation", "batch_bags", "batch_instances",
    "instances", "small_bags", "flip", "crop",
}  # fmt: skip
"""The parameters that do not change how a table is read, but what is done with its bags afterwards.

`table` is one of them: it says where the table is, and not how to read it.
"""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The parameters that every task on a table has.

    Raises UsageError where parameters contradict each other.

    Args:
        table: path of the table, from the current folder or the folder of the data.
        labels: the column of label sets; or columns of 0 and 1, as a pattern such as "has_*" or a
            list with ";" between names.
        classes: the classes in their order, with ";" between them; "": the classes that occur,
            sorted by name.
        separator: what stands between the classes of a label set; "" for spaces, "list" for a list
            in JSON or Python. It has no effect on lists in a Parquet file.
        field_separator: the character between the fields of a text file, or "tab" or "space"; "": a
            comma, in a file .tsv a tab.
        decimal: the decimal mark of numbers in a text file; "": a point, or a comma where points
            are between thousands.
        thousands: the mark between the thousands of numbers in a text file, or "space"; "": none.
        nothing: labels that mean no class, with ";" between them, such as "Background;No Finding".
        group: the column of groups, such as patients. All bags of a group are in one part
            of a split.
        split: the column of the part that a bag is in: train, validation (val, valid, dev) or test.
        splits: files with given splits, one for each seed; the path is from the folder of the
            table. Either CSV files with the columns train, val and test, where "*" in the path is
            the number of the fold. Or a JSON file, where "*" is the name of the table: it has a
            list of repetitions, each a list of folds, each a list of test bags or an object with a
            list for each part. One repetition of two folds is `[[["a", "b"], ["c"]]]`, and a fold
            with all parts is `{"train": ["c"], "validation": ["b"], "test": ["a"]}`.
        folds: the number of folds into which bags are put at random, so that label sets are about
            as frequent in each fold; 0: each seed makes a random split instead.
        repeats: how often the bags are put into folds.
        test: the share of the bags to test on in a random split; 0: all bags are trained on, and
            none are validated or tested on, whatever the table or `validation` says. This is for a
            network to be used: its error is not known.
        validation: the share of all bags to validate on. They are taken from those to train on, and
            only where neither the table nor `splits` says which bags to validate on.
        batch_bags: the number of bags in a training batch, at most.
    """

    kind: ClassVar[Kind]
    added: ClassVar[dict[str, Any]] = {"field_separator": "", "thousands": "", "nothing": ""}
    """Parameters that were added after cells had been stored, with the values that change nothing.

    A cell in which a parameter has this value has the id that it had before. See
    `milbench.contracts.parameters`.
    """
    table: str
    labels: str = "labels"
    classes: str = ""
    separator: str = ";"
    field_separator: str = ""
    decimal: Literal["", ".", ","] = ""
    thousands: Literal["", ",", ".", "'", " ", "space"] = ""
    nothing: str = ""
    group: str = "group"
    split: str = "split"
    splits: str = ""
    folds: CountOrNone = 0
    repeats: Count = 1
    test: Annotated[float, Field(ge=0, lt=1)] = 0.2
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    batch_bags: Count = 32

    def __post_init__(self) -> None:
        self._check_form()
        self._check_split()
        both = [name for name in listed(self.nothing) if name in listed(self.classes)]
        if both:
            raise UsageError(f"{both[0]!r} is in task.classes and in task.nothing, expected one")

    def _check_form(self) -> None:
        """Raise UsageError where the fields of a text file cannot be written as parameters say."""
        # The values of a task's parameters have been checked by their types, but the options of
        # `milbench data` have not.
        separator = self.form.separator
        # A quotation mark encloses fields, and the ends of lines separate rows.
        is_usable = len(separator) == 1 and not separator.isalnum() and separator not in '"\r\n'
        if separator and not is_usable:
            expected = "expected one character such as ';', or tab or space"
            raise UsageError(f"task.field_separator={separator!r}: {expected}")
        if self.decimal not in _DECIMALS:
            raise UsageError(f"task.decimal={self.decimal!r}: expected a point or a comma")
        if self.thousands not in _THOUSANDS:
            expected = "expected a comma, a point, an apostrophe or space"
            raise UsageError(f"task.thousands={self.thousands!r}: {expected}")
        if self.form.decimal == self.form.thousands:
            mark = self.form.decimal
            raise UsageError(f"{mark!r} is task.decimal and task.thousands, expected two marks")

    def _check_split(self) -> None:
        """Raise UsageError where the parameters of splits contradict each other."""
        folds = self.folds
        validation = self.validation
        if folds == 1:
            raise UsageError(
                "task.folds=1 leaves no bag to train on, expected 2 or more, or 0 for none"
            )
        if not self.test and (folds or self.splits):
            other = f"task.folds={folds}" if folds else f"task.splits={self.splits!r}"
            raise UsageError(
                f"{other} are tested on, and task.test=0 tests on no bag: leave one out"
            )
        if self.repeats > 1 and not folds:
            raise UsageError(
                f"task.repeats={self.repeats} needs the number of folds, such as task.folds=10"
            )
        if folds and self.splits:
            raise UsageError(
                f"task.folds={folds} would be other folds than those of task.splits={self.splits!r}"
            )
        # Files of splits say which bags are tested on, so that the share `test` does not count.
        if self.splits:
            return
        tested = 1 / folds if folds else self.test
        if tested + validation >= 1:
            said = f"task.folds={folds}" if folds else f"task.test={self.test:g}"
            raise UsageError(f"{said} and task.validation={validation:g} leave no bag to train on")

    @property
    def form(self) -> TableFormat:
        """How the fields of a text file are written."""
        return table_format(self.field_separator, self.decimal, self.thousands)

    @property
    def reading(self) -> dict[str, Any]:
        """The parameters that change how a table is read, with their values.

        `milbench.data.load_bags` keeps a cache of the bags for each set of these values.
        """
        return {name: value for name, value in vars(self).items() if name not in _AFTER_READING}


def table_format(field_separator: str = "", decimal: str = "", thousands: str = "") -> TableFormat:
    """Return how the fields of a text file are written, by the parameters of a task."""
    separator = _CHARACTERS.get(field_separator, field_separator)
    between_thousands = _CHARACTERS.get(thousands, thousands)
    usual = "," if between_thousands == "." else "."
    return TableFormat(separator=separator, decimal=decimal or usual, thousands=between_thousands)


def format_of(options: Mapping[str, str]) -> TableFormat:
    """Return how the fields of a text file are written, by the options of a command.

    Raises UsageError for an option that is not in `FORM`.
    """
    for name in options:
        if name not in FORM:
            raise unknown("option of a text file", name, FORM)
    return TableOptions(table="", **options).form  # type: ignore[arg-type]


def leave_out_flag(features: str, names: Sequence[str], every: Sequence[str]) -> str:
    """Return the option that leaves columns out of the features.

    The result is "" where no feature would be left, or where the option cannot name the columns:
    their names have a ";" in them, or are patterns that other features match.

    Args:
        features: the value of the parameter that chose the features.
        names: the columns to leave out.
        every: all features.
    """
    others = [name for name in every if name not in names]
    for name in names:
        if LIST_MARK in name or any(fnmatchcase(other, name) for other in others):
            return ""
    if not others:
        return ""
    parts = [features] if features else []
    parts += [f"{LEFT_OUT}{name}" for name in names]
    return f"-p task.features={quote(LIST_MARK.join(parts))}"


def chosen_and_left_out(features: str) -> tuple[list[str], list[str]]:
    """Return the names and patterns of columns that `features` chooses, and those it leaves out.

    `features` is the value of this parameter.
    """
    chosen = []
    left_out = []
    for part in listed(features):
        if part.startswith(LEFT_OUT):
            left_out.append(part.removeprefix(LEFT_OUT))
        else:
            chosen.append(part)
    return chosen, left_out


def listed(text: str) -> list[str]:
    """Return the names in a parameter that lists columns or classes."""
    names = [part.strip() for part in text.split(LIST_MARK)]
    return [name for name in names if name]


@dataclass(frozen=True, kw_only=True)
class FeatureOptions(TableOptions):
    """The parameters of feature-bags.

    Args:
        bag: the column of the names of bags.
        features: the columns of features, as a pattern or a list; "": all other columns that hold
            numbers, or lists of numbers of one length. "!when" leaves the column `when` out. Or
            files of features, from the folder of the table: "@file" if the column `file` has their
            paths, "h5_files/*.h5" if "*" is the name of the bag.
        key: the name of the array of features in files that hold several arrays; "": `features`, or
            the only array that may hold features.
        coords: two columns, "x;y", that say where instances are in the plane; "": none, or the
            array `coords` in files that have it.
        batch_instances: the most instances in a batch to train or evaluate on, with the padding of
            smaller bags. A training batch has as many bags as would fit if all were as large
            as the largest training bag, and at least one.
        instances: the most instances of a bag to train on: a random sample in every epoch; 0: all
            instances. The label set stays that of the whole bag, though the sample may lack some of
            its classes. Evaluation is always on all instances.
        small_bags: what to do with bags that have more classes than instances, which no
            labelling of instances explains: `refuse` the table, or `leave-out` these bags from
            training and evaluation.
    """

    kind: ClassVar[Kind] = "features"
    bag: str = "bag"
    features: str = ""
    key: str = ""
    coords: str = ""
    batch_bags: Count = 8
    batch_instances: Count = 65_536
    instances: CountOrNone = 0
    small_bags: Literal["refuse", "leave-out"] = "refuse"

    @property
    def of_files(self) -> bool:
        """Whether the features of each bag are in a file of its own."""
        is_pattern = "*" in self.features and Path(self.features).suffix.lower() in FEATURE_FILES
        return is_pattern or self.features.startswith("@")

    @property
    def texts(self) -> set[str]:
        """The columns that hold text, even if it looks like numbers."""
        names = {self.bag, self.labels, self.group, self.split}
        if self.features.startswith("@"):
            names.add(self.features.removeprefix("@"))
        return names


@dataclass(frozen=True, kw_only=True)
class ImageOptions(TableOptions):
    """The parameters of image-bags.

    Args:
        image: the column of the paths of images.
        size: the side of the square that an image is fitted into, in pixels. The rest of the square
            has the mean colour of the image.
        channels: 3 for colours, 1 for grey.
        flip: whether training images are mirrored at random, left and right swapped.
        crop: by how many pixels, at most, training images are shifted at random.
        rows: what a row is. `images`: each row is an image. `boxes`: each row is a box of one
            class; the classes of all boxes of an image are its label set, and an image without
            boxes has one row with an empty label.
        boxes: the numbers of a box: `pixels` (left, top, right, bottom), `relative` (the same as
            shares of width and height, 0 to 1), `coco` (left, top, width, height in pixels) or
            `yolo` (centre x, centre y, width, height as shares).
        sides: where rows are boxes, the columns of these four numbers, such as "x0;y0;x1;y1"; "":
            the columns with known names.
    """

    kind: ClassVar[Kind] = "images"
    file_parameter: ClassVar[str] = "image"
    added: ClassVar[dict[str, Any]] = {
        **TableOptions.added,
        "rows": "images",
        "boxes": "pixels",
        "sides": "",
    }
    image: str = "image"
    size: Annotated[int, Field(ge=16, le=1024)] = 64
    channels: Literal[1, 3] = 3
    flip: bool = False
    crop: CountOrNone = 0
    rows: Literal["images", "boxes"] = "images"
    boxes: BoxForm = "pixels"
    sides: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_pattern("image", self.image)
        if self.sides and not self.rows_are_marks:
            raise UsageError(f"task.sides={self.sides!r} needs task.rows=boxes")
        if self.crop >= self.size:
            raise UsageError(
                f"task.crop={self.crop} may leave nothing of an image of task.size={self.size}"
            )

    @property
    def texts(self) -> set[str]:
        """The columns that hold text, even if it looks like numbers."""
        # The column "boxes" has the boxes of an image in JSON, where a row is an image.
        return {self.image, self.labels, self.group, self.split, "boxes"}

    @property
    def rows_are_marks(self) -> bool:
        """Whether a row is a box. A mark is a box, or in sequences an event."""
        return self.rows == "boxes"

    @property
    def mark_columns(self) -> str:
        """The four columns of a box, with ";" between them; "": those with known names."""
        return self.sides


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(TableOptions):
    """The parameters of sequence-bags.

    Args:
        file: the column of the paths of files.
        frames_per_second: how many frames of an array are a second; for a waveform, about how many
            log-mel frames are made of a second.
        bands: the number of log-mel bands that are made of a waveform.
        sample_rate: the samples a second of waveforms in .npy files; audio files say theirs.
        batch_instances: the most frames in a batch to train or evaluate on, with the padding of
            shorter sequences. A batch has as many sequences as fit if all were as long as the
            longest of them, and at least one.
        rows: what a row is. `files`: each row is a file. `events`: each row is an event of one
            class; the classes of all events of a file are its label set, and a file without events
            has one row with an empty label.
        times: where rows are events, the columns of start and end in seconds, such as "from;to";
            "": the columns with known names.
    """

    kind: ClassVar[Kind] = "sequences"
    file_parameter: ClassVar[str] = "file"
    added: ClassVar[dict[str, Any]] = {**TableOptions.added, "rows": "files", "times": ""}
    file: str = "file"
    frames_per_second: Annotated[float, Field(gt=0, le=100_000)] = 62.5
    bands: Annotated[int, Field(ge=1, le=512)] = 32
    sample_rate: Annotated[int, Field(ge=100)] | None = None
    batch_instances: Count = 1 << 21
    rows: Literal["files", "events"] = "files"
    times: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_pattern("file", self.file)
        if self.times and not self.rows_are_marks:
            raise UsageError(f"task.times={self.times!r} needs task.rows=events")

    @property
    def texts(self) -> set[str]:
        """The columns that hold text, even if it looks like numbers."""
        # The column "events" has the events of a file in JSON, where a row is a file.
        return {self.file, self.labels, self.group, self.split, "events"}

    @property
    def rows_are_marks(self) -> bool:
        """Whether a row is an event. A mark is an event, or in images a box."""
        return self.rows == "events"

    @property
    def mark_columns(self) -> str:
        """The columns of start and end, with ";" between them; "": those with known names."""
        return self.times


def _refuse_pattern(parameter: str, name: str) -> None:
    """Raise UsageError where a parameter is a pattern of files in place of a column's name."""
    if "*" in name:
        remedy = "`milbench data table FOLDER` writes a table of the files in a folder"
        raise UsageError(
            f"task.{parameter}={name!r} is a pattern of files, expected the name of the column of "
            f"their paths; {remedy}"
        )
