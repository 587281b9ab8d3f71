"""The predictions of a trained network for the bags that it is evaluated on, and their file.

All metrics of a cell are computed from its predictions, and a user can compute other metrics from
them: with another threshold, for single classes, for an ensemble. The file, `predictions.npz`,
holds plain NumPy arrays: nothing is unpickled when it is read, and torch is not needed.

Most arrays are named EPOCH/SPLIT/FIELD:

- EPOCH is `last` or `best`. The best epoch has the smallest set error of validation bags; it is
  stored where it is not the last one.
- SPLIT is `validation`, `test`, `validation_single` and `test_single` (bags that hold one instance
  each), or `calibration` (training bags, or bags made of the same images, on which thresholds are
  chosen where a task has no validation bags).
- FIELD is a field of `SplitPredictions`. Its fields `ratios` and `reading` have several arrays,
  such as `last/test/reading/true`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import stored_arrays
from milbench.errors import UsageError

Floats = NDArray[np.float32]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]
Epoch = Literal["last", "best"]

PREDICTIONS_FILE = "predictions.npz"
FORMAT = 1
"""The number of the format, which the file holds. A file with another number is refused."""
SINGLE = "_single"
"""The suffix of a split's name that names its bags of one instance: `test_single` for `test`."""


@dataclass(frozen=True, eq=False)
class Ratio:
    """A metric that a task defines itself: the ratio of two sums over the n bags of a split."""

    sums: Floats
    """(n,), what each bag adds to the numerator."""
    weights: Floats
    """(n,), what each bag adds to the denominator."""


@dataclass(frozen=True, eq=False)
class Reading:
    """The strings that decoders read in n images, and the boxes that they found.

    A string is a row of class numbers. Shorter strings than the longest are padded with -1.
    """

    true: Ints
    """(n, longest), the true strings."""
    columns: Ints
    """(n, longest), what the decoder `columns` reads."""
    strongest: Ints
    """(n, longest), what the decoder `strongest` reads."""
    components: Ints
    """(n, longest), what the decoder `components` reads."""
    pattern: Ints
    """(n,), the kind of error that the chosen decoder makes; -1 where it reads correctly.

    It is an index in `milbench.contracts.decoder.PATTERNS`.
    """
    detection_image: Ints
    """(D,), the image in which each of D detections is, from 0 to n - 1.

    A detection is a box with a class that was found in an image.
    """
    detection_class: Ints
    """(D,), the class of each detection."""
    detection_mass: NDArray[np.float64]
    """(D,), the expected number of positions of the class, by which detections are ranked."""
    detection_right: Bools
    """(D,), whether each detection is right, as the metric `box_average_precision` defines it."""


@dataclass(frozen=True, eq=False)
class SplitPredictions:
    """The predictions for the n bags of a split with C classes.

    A field is None where its value is not known. What a network says about single positions is too
    large to keep. Three fields hold what metrics need of it: `hits`, `wrong` and `sizes`.
    """

    labels: Bools
    """(n, C), the true label sets."""
    presence: Floats
    """(n, C), `milbench.Scores.presence`, by which label sets are predicted."""
    bag: Ints
    """(n,), the number of each bag, see `milbench.Origin`."""
    digest: str
    """A digest of the shapes, label sets, masks and truth of the bags.

    Cells with different digests were evaluated on different bags.
    """
    classes: Floats | None = None
    """(n, C), `milbench.Scores.classes`, by which the class of a one-instance bag is predicted."""
    presence_is_log_odds: bool = False
    """Whether `presence` is the log-odds that the class occurs."""
    is_single_instance: bool = False
    """Whether each of the bags holds one instance."""
    log_prob: Floats | None = None
    """(n,), the log-probability of the true label set."""
    even_odds_log_prob: Floats | None = None
    """(n,), the log-probability of the label set that the loss predicts at even odds.

    It is the set of all classes whose presence is 0 or more: where presence is log-odds, 0 stands
    for the probability 1/2. The metric `set_ece` compares these probabilities with how often the
    sets are right.
    """
    hits: Bools | None = None
    """(n, C), whether the strongest evidence for a class is on one of its instances."""
    wrong: Ints | None = None
    """(n,), how many instances of each bag are given a wrong class."""
    sizes: Ints | None = None
    """(n,), how many instances each bag has."""
    instance_classes: Ints | None = None
    """(C+1,), how many instances of each class the split has, background last."""
    group: Ints | None = None
    """(n,), the number of the group of each bag, see `milbench.Origin`."""
    items: Ints | None = None
    """(n, M), the numbers of the items in each bag, see `milbench.Origin`."""
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    """The metrics that the task defines itself, by name."""
    reading: Reading | None = None
    """What was read in images of digits."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def log_odds(self) -> Floats | None:
        """The log-odds that each class occurs in each bag, (n, C); None where the loss has none."""
        if self.presence_is_log_odds:
            return self.presence
        return None


@dataclass(frozen=True, eq=False)
class TrainingLabels:
    """What the label sets of training bags say about the best constant answer."""

    most_common_set: Bools
    """(C,), the most common label set."""
    class_shares: NDArray[np.float64]
    """(C,), the share of the bags that have each class."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of a network after one epoch for all bags that it is evaluated on.

    Examples:
        The macro average precision of a finished cell, over the classes that are in some bags and
        not in others:

            test = comparison.predictions("extended-digits")["exact", 0]["test"]
            occurs = test.labels.any(axis=0) & ~test.labels.all(axis=0)
            labels = test.labels[:, occurs]
            presence = test.presence[:, occurs]
            sklearn.metrics.average_precision_score(labels, presence)
    """

    splits: Mapping[str, SplitPredictions]
    class_names: Sequence[str] = ()
    training: TrainingLabels | None = None
    known: Mapping[str, float] = field(default_factory=dict)
    """Metrics that depend on the bags alone, such as the error of the optimal decision.

    The keys are SPLIT/METRIC.
    """

    def __getitem__(self, split: str) -> SplitPredictions:
        return self.splits[split]

    def __contains__(self, split: object) -> bool:
        return split in self.splits

    def single(self, split: str) -> SplitPredictions | None:
        """Return the predictions for the one-instance bags of a split, None where it has none."""
        if split in self.splits and self.splits[split].is_single_instance:
            return self.splits[split]
        return self.splits.get(split + SINGLE)

    @property
    def reported_splits(self) -> list[str]:
        """The splits whose metrics are reported: those of `validation` and `test` that exist."""
        return [name for name in ("validation", "test") if name in self.splits]

    @property
    def choosing_split(self) -> str:
        """The split by which thresholds and decoders are chosen."""
        return "calibration" if "calibration" in self.splits else "validation"


def save_predictions(
    file: Path | BinaryIO,
    by_epoch: Mapping[Epoch, tuple[int, Predictions]],
    *,
    compressed: bool = True,
) -> None:
    """Write the predictions of a cell after its last epoch, and after its best epoch if given.

    Each comes with the number of its epoch, from 1.
    """
    arrays: dict[str, Any] = {"format": np.int64(FORMAT)}
    for name, (epoch, predictions) in by_epoch.items():
        arrays[f"{name}/epoch"] = np.int64(epoch)
        arrays |= {f"{name}/{key}": value for key, value in _arrays_of(predictions)}
    save = np.savez_compressed if compressed else np.savez
    if isinstance(file, Path):
        # NumPy adds .npz to a path that lacks it, but not to an open file.
        with file.open("wb") as opened:
            save(opened, **arrays)
    else:
        save(file, **arrays)


def _arrays_of(predictions: Predictions) -> Iterator[tuple[str, Any]]:
    """Yield the end of the name of every array, after EPOCH/, and the array."""
    yield "class_names", np.array(predictions.class_names, dtype=str)
    for split, of_split in predictions.splits.items():
        for name, value in _split_arrays(of_split):
            yield f"{split}/{name}", value
    if predictions.training is not None:
        for name, value in vars(predictions.training).items():
            yield f"training/{name}", value
    for metric, value in predictions.known.items():
        yield f"known/{metric}", np.float64(value)


def _split_arrays(split: SplitPredictions) -> Iterator[tuple[str, Any]]:
    """Yield the end of the name of every array of a split, after EPOCH/SPLIT/, and the array."""
    for member in fields(SplitPredictions):
        # These two fields hold several arrays each, which follow below.
        if member.name in ("ratios", "reading"):
            continue
        value = getattr(split, member.name)
        if value is not None:
            yield member.name, np.asarray(value)
    for metric, ratio in split.ratios.items():
        yield f"ratios/{metric}/sums", ratio.sums
        yield f"ratios/{metric}/weights", ratio.weights
    if split.reading is not None:
        for name, value in vars(split.reading).items():
            yield f"reading/{name}", value


def load_predictions(path: Path) -> dict[Epoch, tuple[int, Predictions]]:
    """Read what `save_predictions` wrote: epoch -> its number and its predictions.

    Raises UsageError if the file is missing, damaged or of another format.
    """
    with stored_arrays("predictions", path) as stored:
        if int(stored["format"]) != FORMAT:
            raise UsageError(
                f"predictions {path}: expected format {FORMAT}, got {int(stored['format'])}"
            )
        tree = _tree(stored)
        del tree["format"]
        return {epoch: _predictions(arrays) for epoch, arrays in tree.items()}  # type: ignore[misc]


def _tree(stored: Any) -> dict[str, Any]:
    """Return the arrays of a file as nested dicts, by the parts of their names.

    The array "last/test/labels" is tree["last"]["test"]["labels"].
    """
    tree: dict[str, Any] = {}
    for name in stored.files:
        *folders, array = name.split("/")
        branch = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[array] = stored[name]
    return tree


def _predictions(arrays: dict[str, Any]) -> tuple[int, Predictions]:
    """Return the number of an epoch and its predictions from the arrays of that epoch."""
    epoch = int(arrays.pop("epoch"))
    class_names = arrays.pop("class_names").tolist()
    training_arrays = arrays.pop("training", None)
    training = None
    if training_arrays is not None:
        training = TrainingLabels(**_fields_of(TrainingLabels, training_arrays))
    known = {}
    for split, metrics in arrays.pop("known", {}).items():
        for metric, value in metrics.items():
            known[f"{split}/{metric}"] = float(value)
    # All other arrays were taken out above. What is left are the splits.
    predictions = Predictions(
        splits={split: _split(of_split) for split, of_split in arrays.items()},
        class_names=class_names,
        training=training,
        known=known,
    )
    return epoch, predictions


def _split(arrays: dict[str, Any]) -> SplitPredictions:
    """Return the predictions for a split from its arrays."""
    values = _fields_of(SplitPredictions, arrays)
    # These fields hold a plain text or bool, which NumPy has stored as an array without dimensions.
    values["digest"] = str(values["digest"])
    for name in ("presence_is_log_odds", "is_single_instance"):
        values[name] = bool(values[name])
    ratios = arrays.get("ratios", {})
    values["ratios"] = {
        metric: Ratio(**_fields_of(Ratio, ratio)) for metric, ratio in ratios.items()
    }
    if "reading" in arrays:
        values["reading"] = Reading(**_fields_of(Reading, arrays["reading"]))
    return SplitPredictions(**values)


def _fields_of(kind: type[Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays that are named like fields of a dataclass.

    Arrays of other names are ignored, so that files of later versions of milbench can be read.
    """
    return {member.name: arrays[member.name] for member in fields(kind) if member.name in arrays}
