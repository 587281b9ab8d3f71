from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from milbench.engine.planning import make_plan
from milbench.engine.runner import Launch
from milbench.engine.spec import make_spec
from milbench.launch.progress import Display, Estimate
from milbench.store.workspace import Workspace


def test_the_time_left_is_reckoned_from_the_work_of_this_launch() -> None:
    clock = [100.0]
    estimate = Estimate(["a", "b", "c"], now=lambda: clock[0])
    assert str(estimate) == ""
    estimate.update("a", 0.0)  # its data are read
    estimate.update("a", 0.5, resumed_at=0.5)  # half of it was done before
    clock[0] = 160.0
    assert estimate.seconds() is None
    estimate.update("a", 0.51, resumed_at=0.5)  # its first steps are slow, and would promise hours
    assert estimate.seconds() is None
    estimate.update("a", 0.75, resumed_at=0.5)  # a quarter of a cell in a minute leaves two and a quarter
    assert estimate.seconds() == pytest.approx(9 * 60)
    assert str(estimate) == "about 9 minutes left"
    estimate.end("a")
    estimate.end("b")
    clock[0] = 100.0 + 3 * 86400
    assert estimate.seconds() == pytest.approx(2 * 86400)
    assert str(estimate) == "about 2 days left"
    estimate.end("c")
    assert estimate.seconds() == 0


def test_errors_on_some_bags_are_shown_as_such() -> None:
    plan = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": ["synthetic-bags"], "seeds": 0}), None)
    display = Display(Console(), Launch(plan, {}, "missing"), Workspace(Path()))
    whole = {"test/posterior_error": 0.25, "test/set_error": 0.5, "interim/validation/set_error": 0.1}
    assert display._errors(plan.cells[0], whole) == "posterior error 25.00 %, set error 50.00 %"
    some = {f"interim/{name}": value for name, value in whole.items()}
    shown = display._errors(plan.cells[0], some)
    assert shown == "on some bags: posterior error 25.00 %, on some bags: set error 50.00 %"
