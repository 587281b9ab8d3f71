"""What a launch shows of its cells: the bars on a narrow terminal, and the time that is left."""

import io
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.running.display import Display
from milbench.store.cell_folder import State
from milbench.store.folders import Root
from tests._helpers.command_line import TINY

EPOCHS = 100


@pytest.fixture
def display(root: Path, monkeypatch: pytest.MonkeyPatch) -> Display:
    """The display of a launch of four cells, on a terminal of 80 columns."""
    terminal = Console(width=80, force_terminal=True, file=io.StringIO(), color_system=None)
    monkeypatch.setattr("milbench.running.display.console", terminal)
    values = {"name": "mine", "losses": ["exact"], "tasks": [TINY], "seeds": "0-3"}
    plan = make_plan(make_spec(values))
    states = {cell.id: State("missing") for cell in plan.cells}
    return Display(plan, states, plan.cells, Root(root))


def progress(epochs: int, seconds: float, at: float = 0.0) -> dict[str, Any]:
    """Return the progress of a cell that is being trained.

    Args:
        epochs: how many epochs it has finished.
        seconds: for how long it has been trained in this launch.
        at: the share of the cell that was done before this launch.
    """
    return {
        "doing": "training",
        "epoch": epochs + 1,
        "epochs": EPOCHS,
        "step": 0,
        "steps": 10,
        "loss": 1.0,
        "begun": time.time() - seconds,
        "at": at,
    }


def estimate(display: Display, *running: dict[str, Any]) -> str:
    """Return the time that is left, while the first cells have this progress."""
    by_cell = dict(zip(display.to_run, running, strict=False))
    display.observe(by_cell)
    return display.time_left(by_cell)


def test_there_is_no_estimate_after_a_few_steps(display: Display) -> None:
    assert estimate(display, progress(3, 35.0)) == ""


def test_there_is_no_estimate_while_data_are_read(display: Display) -> None:
    assert estimate(display, {"doing": "reading data", "epochs": EPOCHS}) == ""


def test_a_quarter_of_a_cell_tells_how_long_all_take(display: Display) -> None:
    # A cell takes 400 seconds, and 3.75 of four cells are left: 1,500 seconds.
    assert estimate(display, progress(25, 100.0)) == "about 25 minutes left"


def test_two_cells_at_a_time_take_half_as_long(display: Display) -> None:
    # A cell takes 400 seconds, and 3.5 of four cells are left, two at a time: 700 seconds.
    assert estimate(display, progress(25, 100.0), progress(25, 100.0)) == "about 12 minutes left"


def test_a_slow_cell_is_estimated_after_minutes(display: Display) -> None:
    # A cell takes 10,000 seconds, and 3.95 of four cells are left: 39,500 seconds.
    assert estimate(display, progress(5, 500.0)) == "about 11 hours left"


def test_a_resumed_cell_counts_only_what_this_launch_did(display: Display) -> None:
    # The part from 50 % to 75 % took 100 seconds. 3.25 of four cells are left: 1,300 seconds.
    assert estimate(display, progress(75, 100.0, at=0.5)) == "about 22 minutes left"


def test_a_failed_cell_tells_nothing_of_the_time(display: Display) -> None:
    with display.live():
        display.print_end(next(iter(display.to_run)), State("failed", "it broke"))
        assert estimate(display) == ""


def test_bars_and_times_are_whole_at_80_columns(display: Display) -> None:
    state = (
        "epoch 38 of 50, 120 of 938 steps, loss 0.1234, set error 12.30 %, one-instance error 1 %"
    )
    display.progress.add_task("cells", total=4, completed=4, state="about 14 minutes left")
    display.progress.add_task(
        "a-long-task, a-long-loss head=softmax, seed 3", total=1, completed=1, state=state
    )
    display.console.print(display.progress.get_renderable())
    printed = display.console.file
    assert isinstance(printed, io.StringIO)
    cells, bar = [line for line in printed.getvalue().splitlines() if line.strip()]
    for line in (cells, bar):
        assert len(line.rstrip()) <= 80
        assert line.count("━") == 15
        assert line.rstrip().endswith("0:00:00") or line.rstrip().endswith("-:--:--")
    assert "about 14 minutes left" in cells
    assert "epoch 38 of 50" in bar
