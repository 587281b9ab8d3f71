"""The bags of a user's table."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milbench.data.annotations import Annotation
from milbench.data.bags_store import BagStore
from milbench.data.table_files import row_name


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
        # Marks are refused unless each class of the label set has one: one mark says that all are there.
        has_marks = np.array([len(marks) > 0 for marks in self.marks])
        has_no_class = ~self.labels.any(axis=1)
        return has_marks | has_no_class

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
