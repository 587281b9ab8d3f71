"""Two files of measurements side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests._helpers.command_line import Milbench

TRAINING = '{"format": "milbench-bench/1", "kind": "training"'


def seconds(median: float, spread: float | None) -> dict[str, Any]:
    return {"median": median, "least": median, "spread": spread}


def write(path: Path, step: float, memory: float, name: str = "a task, a loss", **changes: Any) -> str:
    row = {
        "name": name, "seconds": {"step": seconds(step, 0.1), "evaluation": seconds(2 * step, None)},
        "bytes": {"step": memory}, "numbers": {"bags/s": 500 / step, "data share": 0.0},
    }  # fmt: skip
    machine = {"processor": "one", "threads": 1, "load": 0.1}
    content = {"format": "milbench-bench/1", "kind": "training", "machine": machine, "rows": [row]}
    path.write_text(json.dumps(content | changes))
    return str(path)


def lines(out: str) -> dict[str, list[str]]:
    """Return the cells of a table by the second one, what is measured."""
    found = [[cell.strip() for cell in line.strip().strip("│").split("│")] for line in out.splitlines() if "│" in line]
    return {cells[1]: cells for cells in found}


def test_ratios_are_those_of_the_medians_and_a_difference_within_the_spread_is_called_so(
    milbench: Milbench, tmp_path: Path
) -> None:
    before, after = write(tmp_path / "a", 2.0, 2**20), write(tmp_path / "b", 1.0, 3 * 2**20)
    table = lines(milbench("bench", "compare", before, after).out)
    assert table["step"][2:] == ["2 s", "1 s", "0.500", ""]
    assert table["evaluation"][2:] == ["4 s", "2 s", "0.500", "measured once: no spread"]
    assert table["memory, step"][2:] == ["1.0 MiB", "3.0 MiB", "3.000", ""]
    assert table["bags/s"][2:] == ["250", "500", "2.000", "its spread is not kept"]
    assert table["data share"][2:5] == ["0", "0", ""]
    near = lines(milbench("bench", "compare", before, write(tmp_path / "c", 2.19, 2**20)).out)
    assert near["step"][4:] == ["1.095", "not told apart by the spread"]
    far = lines(milbench("bench", "compare", before, write(tmp_path / "d", 2.21, 2**20)).out)
    assert far["step"][4:] == ["1.105", ""]


def test_what_differs_between_the_machines_and_between_the_rows_is_named(milbench: Milbench, tmp_path: Path) -> None:
    first = json.loads(Path(write(tmp_path / "a", 2.0, 1)).read_text())
    other = {"name": "gone", "seconds": {}, "bytes": {}, "numbers": {}}
    before = write(tmp_path / "b", 2.0, 1, rows=[*first["rows"], other])
    after = write(tmp_path / "c", 2.0, 1, machine={"processor": "two", "threads": 1, "load": 0.3, "torch": "2.9"})
    out = milbench("bench", "compare", before, after).out
    assert "the measurements differ in processor: one and two" in out
    assert "the measurements differ in torch: None and 2.9" in out
    assert "threads" not in out
    assert "load" not in out
    assert "only in the first: gone" in out
    busy = write(tmp_path / "d", 2.0, 1, machine={"processor": "one", "threads": 1, "load": 1.1})
    assert "differ in load: 0.1 and 1.1" in milbench("bench", "compare", before, busy).out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read"),
        ("{", "is no JSON"),
        ("[]", "has no format"),
        ('{"format": "milbench-bench/9"}', "has no format"),
        (TRAINING + ', "machine": {}}', "is damaged (rows: Field required"),
        (TRAINING + ', "machine": {}, "rows": [3]}', "is damaged (rows.0: "),
        (TRAINING + ', "machine": {}, "rows": {}}', "is damaged (rows: "),
        (TRAINING + ', "machine": [], "rows": []}', "is damaged (machine: "),
        ('{"format": "milbench-bench/1", "kind": "shoes", "machine": {}, "rows": []}', "is damaged (kind: "),
        (
            TRAINING + ', "machine": {"load": "x"}, "rows": []}',
            "is damaged (machine.load: 'x' is no number)",
        ),
        (TRAINING + ', "machine": {}, "rows": [{"name": "", "bytes": {"b": "3"}}]}', "is damaged (rows.0.bytes.b: "),
        ('{"format": "milbench-bench/1", "kind": "losses", "machine": {}, "rows": []}', "training and losses"),
        (TRAINING + ', "machine": {}, "rows": []}', "no row in common"),
    ],
)
def test_a_bad_file_is_one_line(milbench: Milbench, tmp_path: Path, content: str | None, says: str) -> None:
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content)
    assert says in milbench("bench", "compare", write(tmp_path / "a", 2.0, 1), str(bad)).complaint()


def test_files_of_the_other_benchmarks_are_compared_too(
    milbench: Milbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milbench.bench import likelihood, runner

    monkeypatch.setattr(likelihood, "CONFIGS", (likelihood.Config(4, 3, 5, (1, 2), 0.0),))
    rows = [{"cells": 12, "run s": 6.0, "s a cell": 0.5, "status s": 1.5, "status MiB": 64.0}]
    monkeypatch.setattr(runner, "measure", lambda jobs, *, quick: rows)
    for name, what, printed in (("losses", "both", None), ("runner", "status", ["1.5 s", "1.5 s", "1.000"])):
        file = str(tmp_path / name)
        ran = milbench("bench", name, "--quick", "--json", file)
        assert ran.code == 0, ran
        found = lines(milbench("bench", "compare", file, file).out)[what]
        assert found[4] == "1.000"
        assert printed in (None, found[2:5])
