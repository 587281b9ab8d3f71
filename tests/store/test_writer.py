from __future__ import annotations

from pathlib import Path

import pytest

from milbench.api.plan import Plan
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.store import writer
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import TINY


def plan(name: str) -> Plan:
    return make_plan(make_spec({"name": name, "losses": ["exact"], "tasks": [TINY]}), None)


def test_a_clock_that_is_set_back_does_not_reorder_launches_or_runs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreWriter(Workspace(root))
    clock = [5_000_000]
    monkeypatch.setattr(writer, "_now", lambda: clock[0])
    first = store.launch(plan("first"), "milbench run first")
    cell = plan("first").cells[0]
    failed = store.start_cell("first", cell, first, {})
    store.end(failed, "FAILED")
    clock[0] = 1_000_000
    store.launch(plan("second"), "milbench run second")
    assert store.plan()[0].name == "second", "the comparison that was launched last"
    again = store.start_cell("first", cell, first, {})
    store.end(again, "FAILED", "for another reason")
    run = store.cell_run(cell.id)
    assert run is not None
    assert (run.run_id, run.reason) == (again, "for another reason")


def test_a_launch_that_is_killed_before_its_plan_is_stored_is_never_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreWriter(Workspace(root))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "log_text", killed)
        with pytest.raises(KeyboardInterrupt):
            store.launch(plan("mine"), "milbench run")
    assert store.search("launch") == []
    store.close_stale([])
    assert [run.status for run in store.search(writer.UNPLANNED)] == ["KILLED"]
