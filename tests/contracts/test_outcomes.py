"""Outcomes of test items: what is written is what is read, and what cannot be an outcome is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milbench.contracts.outcomes import Outcomes, load_outcomes, save_outcomes
from milbench.errors import UsageError


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.npz"
    wrong, counts = np.array([0, 3, 1], np.int64), np.array([4, 5, 0], np.uint8)
    save_outcomes(
        path,
        {
            "posterior_error": Outcomes(wrong, counts, "ab"),
            "a/nll": Outcomes(np.array([0.5, -1]), np.ones(2), "cd"),
            "b/nll": Outcomes(np.array([300, 2]), np.ones(2), "cd"),
            "b/set_error": Outcomes(np.array([1, 0]), np.ones(2), "cd"),
        },
    )
    outcomes = load_outcomes(path)
    assert list(outcomes) == ["posterior_error", "a/nll", "b/nll", "b/set_error"]
    assert [outcomes[name].sums.tolist() for name in ("a/nll", "b/nll", "b/set_error")] == [
        [0.5, -1],
        [300, 2],
        [1, 0],
    ]
    assert outcomes["posterior_error"].sums.tolist() == [0, 3, 1]
    assert outcomes["posterior_error"].weights.tolist() == [4, 5, 0]
    assert outcomes["posterior_error"].items == "ab"
    assert outcomes["posterior_error"].value == pytest.approx(4 / 9)
    with np.load(path, allow_pickle=False) as stored:  # the format that other programs rely on
        assert sorted(stored.files) == [
            f"{n}/{part}" for n in range(3) for part in ("items", "names", "sum", "weight")
        ]
        assert [stored[f"{n}/names"].tolist() for n in range(3)] == [
            ["posterior_error"],
            ["a/nll", "b/nll"],
            ["b/set_error"],
        ]
        assert [stored[f"{n}/sum"].dtype for n in range(3)] == [np.uint8, np.float32, np.uint8]


@pytest.mark.parametrize(("sums", "weights", "items", "named"), [
    ([1.0, np.nan], [1, 1], "ab", "sums"),
    ([[1.0]], [[1.0]], "ab", "sums"),
    ([1, 0], [1, 1, 1], "ab", "weights"),
    ([1, 0], [1, -1], "ab", "weights"),
    ([0, 0], [0, 0], "ab", "weights"),
    ([], [], "ab", "weights"),
    ([1, 0], [1, 1], "", "items"),
])  # fmt: skip
def test_what_cannot_be_an_outcome_is_refused(
    sums: list[float], weights: list[float], items: str, named: str
) -> None:
    with pytest.raises(ValueError, match=f"not valid: {named}"):
        Outcomes(np.array(sums, np.float32), np.array(weights, np.float32), items)


def test_files_that_are_no_outcomes_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.npz"

    def write(arrays: dict[str, Any]) -> None:
        np.savez(path, **arrays)

    with pytest.raises(UsageError, match=r"outcomes\.npz cannot be read"):
        load_outcomes(path)
    save_outcomes(path, {"set_error": Outcomes(np.ones(3), np.ones(3), "ab")})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UsageError, match=r"outcomes\.npz cannot be read"):
        load_outcomes(path)
    whole = {
        "0/names": np.array(["set_error"]),
        "0/sum": np.ones((3, 1)),
        "0/weight": np.ones(2),
        "0/items": "ab",
    }
    write({name: array for name, array in whole.items() if name != "0/weight"})
    with pytest.raises(UsageError, match="0/weight"):
        load_outcomes(path)
    write(whole)
    with pytest.raises(UsageError, match="not valid: weights"):
        load_outcomes(path)
