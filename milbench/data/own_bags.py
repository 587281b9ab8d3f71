"""The bags of a user's table: what checks, splits and tasks work with."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milbench.data.annotations import Annotation
from milbench.data.bags_store import BagStore
from milbench.data.table_files import row_name, short_row_name


@dataclass(frozen=True, eq=False)
class OwnBags:
    """The B bags of a table, in the order of their first rows, with their N instances.

    A field that is None is not known, unless the field says what None means.
    """

    path: Path
    bags: list[str]
    """The names of the bags."""
    labels: NDArray[np.bool_]
    """(B, C), the label sets."""
    class_names: list[str]
    store: BagStore
    _: KW_ONLY
    groups: list[str] | None = None
    """The group of each bag, such as its patient."""
    split: list[str] | None = None
    """The part of the split that each bag is in: train, validation or test."""
    ignored: Sequence[str] = ()
    """Columns that are not used."""
    shared_columns: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Columns that may say which bags belong together, such as `patient`.

    Each has a number for every bag: bags with equal numbers share a value, and -1 is an empty
    field. In `{"patient": [0, 0, 1, -1]}` the first two of four bags are of one patient.
    """
    split_column: str = ""
    """A column that reads like a split, though no option names it; "" for none."""
    label_texts: Sequence[str] = ()
    """The different texts in the column of labels; () for lists, and for columns of 0 and 1."""
    nothing: Mapping[str, int] = field(default_factory=dict)
    """Label that the parameter `nothing` says means "no class" -> how many bags have it."""
    marks: list[list[Annotation]] | None = None
    """The annotations of each bag, which say where its classes are.

    They are boxes of images, in pixels, or events of sequences in the order of their starts. They
    are not the marks of a report, which are bounds stated in advance.
    """
    bag_rows: NDArray[np.int64] | None = None
    """(B,), the first row of the table that names each bag."""
    mark_rows: list[list[int]] | None = None
    """The row of the table that each annotation is in."""
    digest: str = ""
    """SHA-256 of names, labels, instances and annotations, whatever the format of the files."""
    feature_names: Sequence[str] = ()
    """The names of the features, none for images and sequences."""
    rows: NDArray[np.int64] | None = None
    """(N,), the row of the table that each instance comes from.

    None means that each row is a bag, and all instances of the bag come from this row.
    """
    instance_classes: NDArray[np.int64] | None = None
    """(N,), the class of each instance, C for background."""
    coords: NDArray[np.float32] | None = None
    """(N, 2), x and y of each instance."""
    sizes: NDArray[np.int32] | None = None
    """(B, 2), width and height of each image before it was fitted into a square."""
    kind: str = ""
    """What the file of each sequence holds, such as "a waveform of 16000 samples a second"."""
    frames_per_second: float = 0.0
    """0 where bags are no sequences."""

    def __len__(self) -> int:
        return len(self.bags)

    def marked(self) -> NDArray[np.bool_]:
        """Return (B,), which bags have an annotation of each class in their label set.

        A bag with an empty label set needs none.
        """
        if self.marks is None:
            return np.zeros(len(self), bool)
        # When a table is read, bags are refused in which only some of the classes are annotated.
        has_marks = np.array([len(marks) > 0 for marks in self.marks])
        has_no_class = ~self.labels.any(axis=1)
        return has_marks | has_no_class

    def place(self, instance: int) -> str:
        """Return how a message names the row of an instance, such as "bags.csv, row 7".

        This is the row of the table that the instance comes from.
        """
        return row_name(self.path, self._row_of(instance))

    def short_place(self, instance: int) -> str:
        """Return the row of an instance for a message that has named the table, such as "row 7"."""
        return short_row_name(self.path, self._row_of(instance))

    def _row_of(self, instance: int) -> int:
        """Return the row of the table that an instance comes from."""
        if self.rows is not None:
            return int(self.rows[instance])
        bag = int(np.searchsorted(self.store.offsets, instance, side="right")) - 1
        return self.bag_row(bag)

    def bag_row(self, bag: int) -> int:
        """Return the first row of the table that names a bag."""
        # Bags that were not read from a table have no rows: each counts as one row.
        if self.bag_rows is None:
            return bag
        return int(self.bag_rows[bag])

    def mark_row(self, bag: int, number: int) -> int:
        """Return the row of the table that an annotation of a bag is in.

        `number` counts the annotations of the bag from 0.
        """
        if self.mark_rows is None:
            return self.bag_row(bag)
        return self.mark_rows[bag][number]
