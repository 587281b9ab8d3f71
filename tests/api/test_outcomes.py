"""Outcomes of test items: what is written is what is read, and what cannot be an outcome is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milbench.api.outcomes import Outcomes, load_outcomes, save_outcomes
from milbench.errors import UsageError


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.npz"
    wrong, counts = np.array([0, 3, 1], np.int64), np.array([4, 5, 0], np.uint8)
    save_outcomes(
        path, {"posterior_error": Outcomes(wrong, counts, "ab"), "set_error": Outcomes(np.ones(1), np.ones(1), "cd")}
    )
    found = load_outcomes(path)
    assert list(found) == ["posterior_error", "set_error"]
    assert found["posterior_error"].sums.tolist() == [0, 3, 1]
    assert found["posterior_error"].weights.tolist() == [4, 5, 0]
    assert found["posterior_error"].items == "ab"
    assert found["posterior_error"].value == pytest.approx(4 / 9)
    with np.load(path, allow_pickle=False) as stored:  # the format that other programs rely on
        assert sorted(stored.files) == [f"{m}/{t}" for m in ("posterior_error", "set_error") for t in
                                        ("items", "sum", "weight")]  # fmt: skip
        assert stored["set_error/sum"].dtype == np.float32
        assert stored["set_error/items"].shape == ()


@pytest.mark.parametrize(
    ("sums", "weights", "items", "named"),
    [
        ([1.0, np.nan], [1, 1], "ab", "sums"),
        ([[1.0]], [[1.0]], "ab", "sums"),
        ([1, 0], [1, 1, 1], "ab", "weights"),
        ([1, 0], [1, -1], "ab", "weights"),
        ([0, 0], [0, 0], "ab", "weights"),
        ([], [], "ab", "weights"),
        ([1, 0], [1, 1], "", "items"),
    ],
)
def test_what_cannot_be_an_outcome_is_refused(sums: list[float], weights: list[float], items: str, named: str) -> None:
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
    write({"set_error/sum": np.ones(3)})
    with pytest.raises(UsageError, match="set_error/weight"):
        load_outcomes(path)
    write({"set_error/sum": np.ones(3), "set_error/weight": np.ones(2), "set_error/items": "ab"})
    with pytest.raises(UsageError, match="not valid: weights"):
        load_outcomes(path)
