from __future__ import annotations

import json
from pathlib import Path

from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import PLUGINS, TINY, Milbench

BREAKING = str(PLUGINS / "breaking_loss.py")
WORDS = ("run", "--loss", f"exact,{BREAKING}", "--task", TINY)


def test_json_is_one_object_an_event(milbench: Milbench, root: Path) -> None:
    ran = milbench(*WORDS, "--json")
    assert (ran.code, ran.err) == (1, "")
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert [event["event"] for event in events] == ["planned", "ended", "ended", "over"]
    assert (events[0]["name"], events[0]["cells"], events[0]["to_run"]) == ("tiny_task", 2, 2)
    done, failed = events[1:3]
    runs = StoreReader(Workspace(root)).cell_runs()
    assert (done["status"], done["loss"], done["seed"], done["run"]) == (
        "done", "exact", 0, runs[done["cell"]].run_id)  # fmt: skip
    assert 0 <= done["metrics"]["test/instance_error"] <= 1
    assert (failed["status"], failed["reason"]) == ("failed", runs[failed["cell"]].reason)
    again = [json.loads(line) for line in milbench(*WORDS, "--json").out.splitlines()]
    assert [event["event"] for event in again] == ["planned", "over"]


def test_quiet_prints_failures_alone(milbench: Milbench) -> None:
    ran = milbench(*WORDS, "--quiet")
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("failed  tiny, breaking, seed 0: RuntimeError: the loss | broke")
    assert milbench("run", "--loss", "noisy-or", "--task", TINY, "--quiet").out == ""


def test_a_launch_that_goes_on_counts_all_cells(milbench: Milbench) -> None:
    milbench("run", "--loss", "exact", "--task", TINY, "--seeds", "0-2")
    ran = milbench("run", "--loss", "exact", "--task", TINY, "--seeds", "0-4")
    assert "        4 of 5 cells, about" in ran.out
    assert "5 of 5 cells done" in ran.out
