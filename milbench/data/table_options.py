"""The parameters of tasks on one's own tables: how a table is read, how its bags are split and batched."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from milbench.errors import UsageError

Kind = Literal["features", "images", "sequences"]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
FEATURE_FILES = (".npy", ".npz", ".h5", ".hdf5", ".pt", ".pth", ".safetensors")  # their endings
_LATER = {  # parameters that do not change what is read
    "table", "splits", "folds", "repeats", "test", "validation", "batch_bags", "batch_instances", "instances",
    "small_bags", "flip", "crop",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The parameters of every task on a table. Raises UsageError where a split leaves no bag to train on.

    Args:
        table: path of the table, from the current folder or the folder of the data.
        labels: the column of label sets; or a pattern such as "has_*", or a list with ";", of columns with 0 and 1.
        classes: the classes in their order, with ";" between them; "": those that occur, sorted.
        separator: what stands between the classes of a label set; "" for spaces, "list" for ['a', 'b'].
        decimal: the mark before the decimals of numbers in a text file; "": a comma where that is certain.
        group: the column of what bags share, such as a patient, who is then in one part of a split.
        split: the column of the part that a bag is in: train, validation (val, valid, dev) or test.
        splits: the splits of others, one a seed, from the folder of the table: CSV files with the columns train, val
            and test, "*" is the number of the fold; or a JSON file, "*" is the name of the table: repetitions, each a
            list of folds, each a list of test bags or an object with a list for each part.
        folds: the number of folds that bags are put into, stratified by label set; 0: a seed draws a split instead.
        repeats: how often the bags are put into folds.
        test: the share of the bags to test on, where a seed draws the split; 0: all bags are trained on, whatever the
            table says of a split: a network for use, of which no error is known.
        validation: the share of all bags to validate on, taken from those to train on where the table or `splits` says
            nothing of validation.
        batch_bags: the number of bags in a training batch, at most.
    """

    kind: ClassVar[Kind]
    table: str
    labels: str = "labels"
    classes: str = ""
    separator: str = ";"
    decimal: Literal["", ".", ","] = ""
    group: str = "group"
    split: str = "split"
    splits: str = ""
    folds: CountOrNone = 0
    repeats: Count = 1
    test: Annotated[float, Field(ge=0, lt=1)] = 0.2
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    batch_bags: Count = 32

    def __post_init__(self) -> None:
        folds, validation = self.folds, self.validation
        if folds == 1:
            raise UsageError(
                "folds = 1 leaves no bag to train on, expected 2 or more, or 0 for none"
            )
        if not self.test and (folds or self.splits):
            other = f"folds = {folds}" if folds else f"splits = {self.splits!r}"
            raise UsageError(f"{other} are tested on, and test = 0 tests on no bag: leave one out")
        if self.repeats > 1 and not folds:
            raise UsageError(
                f"repeats = {self.repeats} needs the number of folds, such as folds = 10"
            )
        if folds and self.splits:
            raise UsageError(
                f"folds = {folds} would be other folds than those of splits = {self.splits!r}"
            )
        if (1 / folds if folds else self.test) + validation >= 1:
            tested = f"folds = {folds}" if folds else f"test = {self.test:g}"
            raise UsageError(f"{tested} and validation = {validation:g} leave no bag to train on")

    @property
    def reading(self) -> dict[str, Any]:
        """The parameters that change what is read."""
        return {name: value for name, value in vars(self).items() if name not in _LATER}


@dataclass(frozen=True, kw_only=True)
class FeatureOptions(TableOptions):
    """The parameters of feature-bags.

    Args:
        bag: the column of the names of bags.
        features: the columns of features as a pattern or list; "": all other columns that hold numbers. Or files, from
            the folder of the table: "@file", the column `file` has their paths; "h5_files/*.h5", "*" is the bag's name.
        key: of the features in files that hold several arrays; "": the only one, or `features`.
        coords: two columns, "x;y", of where instances are in the plane; "": none, or `coords` in files that have it.
        batch_instances: the number of instances in a batch to train or evaluate on, at most, the padding of smaller
            bags counted; a training batch has as many bags as fit at the size of the largest, and one at least.
        instances: at most so many instances of a bag, drawn anew in every epoch, are trained on; 0: all. The label set
            is that of the bag, whose classes need not all be in the sample. All instances are evaluated.
        small_bags: bags with more classes than instances, which no labelling of instances explains: `refuse` the table,
            or `leave-out` these bags, of training and of evaluation.
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
        pattern = "*" in self.features and Path(self.features).suffix.lower() in FEATURE_FILES
        return pattern or self.features.startswith("@")


@dataclass(frozen=True, kw_only=True)
class ImageOptions(TableOptions):
    """The parameters of image-bags.

    Args:
        image: the column of the paths of images.
        size: the side of the square that an image is fitted into, in pixels; what is left free has its mean colour.
        channels: 3 for colours, 1 for grey.
        flip: whether training images are mirrored at random, left and right swapped.
        crop: training images are shifted by up to so many pixels, at random.
    """

    kind: ClassVar[Kind] = "images"
    image: str = "image"
    size: Annotated[int, Field(ge=16, le=1024)] = 64
    channels: Literal[1, 3] = 3
    flip: bool = False
    crop: CountOrNone = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop >= self.size:
            raise UsageError(
                f"crop = {self.crop} may leave nothing of an image of size = {self.size}"
            )


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(TableOptions):
    """The parameters of sequence-bags.

    Args:
        file: the column of the paths of files.
        frames_per_second: how many frames of an array make a second, or about how many are made of one of a waveform.
        bands: log-mel bands, for waveforms.
        sample_rate: samples a second of waveforms in .npy files; audio files say theirs.
        batch_instances: the number of frames in a batch to train or evaluate on, at most, the padding of shorter
            sequences counted; a batch has as many sequences as fit at the length of the longest, and one at least.
    """

    kind: ClassVar[Kind] = "sequences"
    file: str = "file"
    frames_per_second: Annotated[float, Field(gt=0, le=100_000)] = 62.5
    bands: Annotated[int, Field(ge=1, le=512)] = 32
    sample_rate: Annotated[int, Field(ge=100)] | None = None
    batch_instances: Count = 1 << 21
