"""Outcomes of test items: writing and reading their file, its format, and messages.

The outcomes of a metric have a term of its numerator and a weight for each test item.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milbench.contracts.outcomes import Outcomes, load_outcomes, save_outcomes
from milbench.errors import UsageError

COUNTED = Outcomes(np.array([0, 3, 1], np.int64), np.array([4, 5, 0], np.uint8), "ab")
"""Whole numbers, each with a weight of its own."""

ONES = np.ones(2)
# The cells a and b have the same test items, whose digest is "cd".
OUTCOMES = {
    "posterior_error": COUNTED,
    # Fractions and a negative number, which only floats can hold.
    "a/nll": Outcomes(np.array([0.5, -1]), ONES, "cd"),
    # A number too large for a byte, in a file that stores other numbers in bytes.
    "b/nll": Outcomes(np.array([300, 2]), ONES, "cd"),
    "b/set_error": Outcomes(np.array([1, 0]), ONES, "cd"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outcomes.npz"


@pytest.fixture
def written(path: Path) -> Path:
    save_outcomes(path, OUTCOMES)
    return path


def test_names_are_read_in_the_order_of_writing(written: Path) -> None:
    assert list(load_outcomes(written)) == ["posterior_error", "a/nll", "b/nll", "b/set_error"]


@pytest.mark.parametrize("name", OUTCOMES)
def test_what_was_written_is_read(written: Path, name: str) -> None:
    read = load_outcomes(written)[name]
    assert read.sums.tolist() == OUTCOMES[name].sums.tolist()
    assert read.weights.tolist() == OUTCOMES[name].weights.tolist()
    assert read.items == OUTCOMES[name].items


def test_the_value_is_the_sum_over_the_sum_of_weights() -> None:
    # (0 + 3 + 1) / (4 + 5 + 0)
    assert COUNTED.value == pytest.approx(4 / 9)


# The next three tests fix the format of the file, since other programs read it.


def test_a_metric_on_the_same_items_is_stored_together(written: Path) -> None:
    # Cells a and b have the metric nll on the same items, so they share a group. Another metric has
    # a group of its own, though its items are the same.
    with np.load(written, allow_pickle=False) as stored:
        names = [stored[f"{group}/names"].tolist() for group in range(3)]
    assert names == [["posterior_error"], ["a/nll", "b/nll"], ["b/set_error"]]


def test_a_group_is_stored_in_four_arrays(written: Path) -> None:
    with np.load(written, allow_pickle=False) as stored:
        names = stored.files
    of_first_group = [name for name in names if name.startswith("0/")]
    groups, arrays = 3, 4
    assert len(names) == groups * arrays
    assert sorted(of_first_group) == ["0/items", "0/names", "0/sum", "0/weight"]


def test_sums_are_stored_in_the_smallest_type_that_holds_them(written: Path) -> None:
    with np.load(written, allow_pickle=False) as stored:
        types = [stored[f"{group}/sum"].dtype for group in range(3)]
    assert types == [np.uint8, np.float32, np.uint8]


@pytest.mark.parametrize(
    ("sums", "weights", "items", "named"),
    [
        pytest.param([1.0, np.nan], [1, 1], "ab", "sums", id="a sum that is NaN"),
        pytest.param([[1.0]], [[1.0]], "ab", "sums", id="a matrix"),
        pytest.param([1, 0], [1, 1, 1], "ab", "weights", id="a weight too many"),
        pytest.param([1, 0], [1, -1], "ab", "weights", id="a negative weight"),
        pytest.param([0, 0], [0, 0], "ab", "weights", id="weights of zero"),
        pytest.param([], [], "ab", "weights", id="no items"),
        pytest.param([1, 0], [1, 1], "", "items", id="items without a digest"),
    ],
)
def test_what_cannot_be_an_outcome_is_refused(
    sums: list[float], weights: list[float], items: str, named: str
) -> None:
    with pytest.raises(ValueError, match=f"not valid: {named}"):
        Outcomes(np.array(sums, np.float32), np.array(weights, np.float32), items)


def test_a_missing_file_is_reported_in_one_line(path: Path) -> None:
    with pytest.raises(UsageError, match=r"outcomes\.npz cannot be read"):
        load_outcomes(path)


def test_a_file_that_is_cut_off_is_reported_in_one_line(written: Path) -> None:
    written.write_bytes(written.read_bytes()[:200])
    with pytest.raises(UsageError, match=r"outcomes\.npz cannot be read"):
        load_outcomes(written)


def stored_arrays() -> dict[str, Any]:
    """Return the arrays of a file of three items, each with its weight."""
    return {
        "0/names": np.array(["set_error"]),
        "0/sum": np.ones((3, 1)),
        "0/weight": np.ones(3),
        "0/items": "ab",
    }


def test_a_file_without_weights_is_reported_in_one_line_that_names_them(path: Path) -> None:
    arrays = stored_arrays()
    del arrays["0/weight"]
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match="0/weight"):
        load_outcomes(path)


def test_a_file_with_a_weight_too_few_is_reported_in_one_line(path: Path) -> None:
    np.savez(path, **(stored_arrays() | {"0/weight": np.ones(2)}))
    with pytest.raises(UsageError, match="not valid: weights"):
        load_outcomes(path)
