"""digitStruct.mat, SVHN's list of pictures with their digits: how it is read, what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from milbench.data import digit_struct
from milbench.errors import UsageError
from tests._helpers.svhn_files import write_struct

NUMBER_0 = [(10.0, 3.0, -2.0, 11.0, 20.0)]
NUMBER_109 = [(1.0, 5.0, 6.0, 7.0, 8.0), (10.0, 13.0, 6.5, 8.0, 9.0), (9.0, 22.0, 7.0, 6.0, 8.0)]
"""Label, left, top, width and height of every digit; a label of 10 is a 0."""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A digitStruct.mat with a number of two digits and one of a single digit."""
    path = tmp_path / "digitStruct.mat"
    two = [(4.0, 1.0, -2.0, 3.0, 4.0), (10.0, 5.0, 6.5, 7.0, 8.0)]
    write_struct(path, [("3.png", two), ("x.png", [(10.0, 1.0, 1.0, 1.0, 1.0)])])
    return path


def test_the_files_of_these_tests_have_the_structure_of_svhn(written: Path) -> None:
    """The file is read with h5py alone, as readers of SVHN do, not by the code under test."""
    with h5py.File(written) as file:
        names = file["digitStruct/name"]
        boxes = file["digitStruct/bbox"]
        assert names.shape == (2, 1)
        assert boxes.shape == (2, 1)
        texts = [file[reference][:, 0] for reference in names[:, 0]]
        assert ["".join(map(chr, text)) for text in texts] == ["3.png", "x.png"]
        two = file[boxes[0, 0]]
        one = file[boxes[1, 0]]
        assert [file[reference][0, 0] for reference in two["label"][:, 0]] == [4, 10]
        assert [file[reference][0, 0] for reference in two["height"][:, 0]] == [4, 8]
        # A record of a single digit has the value itself, not a reference to it.
        assert one["label"].shape == (1, 1)
        assert one["label"][0, 0] == 10
        assert one["left"].dtype == np.float64


def test_records_have_digits_and_boxes_in_the_order_of_reading(written: Path) -> None:
    first, second = digit_struct.read(written)
    assert first.name == "3.png"
    assert first.classes == (4, 0)
    assert first.boxes.tolist() == [[1, -2, 3, 4], [5, 6.5, 7, 8]]
    assert second.name == "x.png"
    assert second.classes == (0,)
    assert second.boxes.tolist() == [[1, 1, 1, 1]]


def write_with_one_top(path: Path) -> None:
    """Write a house number of three digits that has only one `top`."""
    write_struct(path, [("1.png", NUMBER_0), ("2.png", NUMBER_109)])
    with h5py.File(path, "r+") as file:
        group = file[file["digitStruct/bbox"][1, 0]]
        del group["top"]
        group["top"] = np.ones((1, 1))


def write_huge(path: Path) -> None:
    """Write a file that declares a million million names and stores no name."""
    write_struct(path, [("1.png", NUMBER_0)])
    with h5py.File(path, "r+") as file:
        kind = file["digitStruct/name"].dtype
        del file["digitStruct/name"]
        file["digitStruct"].create_dataset(
            "name", shape=(10**12, 1), dtype=kind, compression="gzip"
        )


def write_cut_short(path: Path) -> None:
    write_struct(path, [(f"{number}.png", NUMBER_109) for number in range(20)])
    path.write_bytes(path.read_bytes()[:-5000])


def writer_of(*records: tuple[str, Any]) -> Callable[[Path], None]:
    """Return a function that writes a file of these records."""
    return lambda path: write_struct(path, list(records))


def writer_of_second(*digits: tuple[float, ...]) -> Callable[[Path], None]:
    """Return a function that writes a file whose second record has these digits."""
    return writer_of(("1.png", NUMBER_0), ("2.png", list(digits)))


def write_nothing(path: Path) -> None:
    """Write no file."""


def write_older_format(path: Path) -> None:
    """Write the first bytes of a file of MATLAB 5, which is no HDF5."""
    path.write_bytes(b"MATLAB 5.0")


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        pytest.param(write_nothing, r"digitStruct.mat not found$", id="no file"),
        pytest.param(write_older_format, r"digitStruct.mat is damaged: no HDF5 file", id="no HDF5"),
        pytest.param(writer_of(), r"digitStruct.mat has no records", id="no records"),
        pytest.param(
            writer_of(("1.png", NUMBER_0), ("1.png", NUMBER_0)),
            "record 2 names 1.png a second time",
            id="a name twice",
        ),
        pytest.param(
            writer_of(("../1.png", NUMBER_0)),
            "record 1 names '../1.png', which is no plain name",
            id="another folder",
        ),
        pytest.param(
            writer_of_second(),
            r"record 2 \(2.png\) has {'label': \[\], .* for each digit",
            id="no digits",
        ),
        pytest.param(
            writer_of_second((1, float("nan"), 2, 3, 4)),
            r"record 2 \(2.png\) has .*'left': \[nan\]",
            id="nan",
        ),
        pytest.param(
            writer_of_second((11, 1, 2, 3, 4)),
            r"record 2 \(2.png\) has .*'label': \[11.0\], .* expected a label from 1 to 10",
            id="label",
        ),
        pytest.param(
            writer_of_second((1, 1, 2, 0, 4)),
            r"record 2 \(2.png\) has .*'width': \[0.0\]",
            id="no width",
        ),
        pytest.param(
            write_with_one_top,
            r"record 2 \(2.png\) has .*'top': \[1.0\], 'width': \[7.0, 8.0, 6.0\]",
            id="lengths",
        ),
        pytest.param(write_cut_short, "is damaged", id="cut short"),
        pytest.param(write_huge, "is damaged: no HDF5 file with SVHN's records", id="huge"),
    ],
)
def test_a_faulty_file_is_refused_with_its_fault(
    tmp_path: Path, write: Callable[[Path], None], complaint: str
) -> None:
    path = tmp_path / "digitStruct.mat"
    write(path)
    with pytest.raises(UsageError, match=complaint) as caught:
        digit_struct.read(path)
    assert str(caught.value).startswith(str(path))
