"""The scripts of benchmarks/ run on the smallest sizes, and measure what they say.

The modules `data`, `likelihood`, `rendering`, `training` and `_measuring` are from the folder
benchmarks/, which pyproject.toml puts on the path of the tests.
"""

import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import data
import likelihood
import numpy as np
import pytest
import rendering
import torch
import training
from _measuring import Timing, paired_timings, peak_bytes

from milbench import Bags
from milbench.likelihood import bag_log_prob
from milbench.report import published_reports
from milbench.training.training_setup import Setup, setup_for_cell
from tests._helpers.command_line import REPOSITORY, TINY
from tests._helpers.report_data import make_results

SCRIPTS = sorted(path.name for path in (REPOSITORY / "benchmarks").glob("[a-z]*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_says_how_it_is_called(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [script, "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(REPOSITORY / "benchmarks" / script), run_name="__main__")
    assert f"Example: python benchmarks/{script}" in capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_page_on_performance_names_every_script(script: str) -> None:
    page = (REPOSITORY / "docs" / "performance.md").read_text("utf-8")
    assert f"python benchmarks/{script}" in page


def test_training_prints_a_row_for_each_loss(capsys: pytest.CaptureFixture[str]) -> None:
    training.main(
        loss="noisy-or,position",
        task=TINY,
        setting=["recipe.optimizer=psgd"],
        device="cpu",
        quick=True,
    )
    said = capsys.readouterr().out
    assert "tiny, noisy-or" in said
    assert "tiny, position" in said


@pytest.fixture
def setup_in_fours(monkeypatch: pytest.MonkeyPatch) -> Setup:
    """A setup whose twelve batches are made four at a time.

    Four batches take four seconds of a clock that is set by hand.
    """
    (cell,) = training.plan(["noisy-or"], [TINY], ["task.batches=12"]).cells
    setup = setup_for_cell(cell, torch.device("cpu"), None)
    made_one_by_one = setup.problem.train_batches
    now = 0.0

    def in_fours(epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        nonlocal now
        for number, bags in enumerate(made_one_by_one(epoch, rng)):
            is_first_of_four = number % 4 == 0
            if is_first_of_four:
                now += 4
            yield bags

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(setup.problem, "train_batches", in_fours)
    return setup


def test_batches_made_together_are_charged_to_all_steps(setup_in_fours: Setup) -> None:
    assert training.seconds_of_data(setup_in_fours, limit=100) == 1


def test_making_batches_ends_after_the_time_limit(setup_in_fours: Setup) -> None:
    # The first batch takes all the four seconds, and no other is made.
    assert training.seconds_of_data(setup_in_fours, limit=1) == 4


def test_the_plain_loop_computes_the_likelihood_that_it_is_compared_with() -> None:
    config = likelihood.Config(bags=6, classes=5, positions=7, sizes=(0, 1, 3), background=1.0)
    logits, labels = config.sample("cpu")
    assert logits.shape == (6, 6, 7)
    assert labels.sum(dim=1).tolist() == [0, 1, 3, 0, 1, 3]
    plain = likelihood.plain_loop(logits, labels)
    expected = bag_log_prob(logits.log_softmax(dim=1), labels)
    torch.testing.assert_close(plain, expected, rtol=1e-9, atol=0)


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make slides and tables small, and start only two commands of the benchmark of data.

    Of all other commands only the name is printed.
    """
    monkeypatch.setattr(data, "QUICK_SLIDES", 10)
    monkeypatch.setattr(data, "QUICK_PATCHES", (30, 50))
    monkeypatch.setattr(data, "TABLES", {"long": (600, 64), "wide": (30, 1_280)})
    timed = data.timed

    def timed_if_tested(name: str, command: Sequence[Any], at_once: int = 1) -> dict[str, Any]:
        if name in (FIRST_LAUNCH, CHECK_OF_SLIDES):
            return timed(name, command, at_once)
        return {"": name}

    monkeypatch.setattr(data, "timed", timed_if_tested)


FIRST_LAUNCH = "slides, milbench, first launch"
CHECK_OF_SLIDES = "check of 10 slides"


def numbers_of(name: str, printed: str) -> list[float]:
    """Return the numbers in the first printed row with a name."""
    rows = [line.strip() for line in printed.splitlines()]
    row = next(row for row in rows if row.startswith(name))
    words = row.removeprefix(name).split()
    return [float(word.replace(",", "")) for word in words]


@pytest.mark.usefixtures("small_data")
def test_slides_are_trained_on_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    data.main(quick=True)
    printed = capsys.readouterr().out
    first_step, first_epoch, _, memory = numbers_of(FIRST_LAUNCH, printed)
    assert 0 < first_step <= first_epoch
    # The memory is in MiB; torch alone takes more than this.
    assert memory > 50
    # The numbers are seconds in all, and MiB.
    assert len(numbers_of(CHECK_OF_SLIDES, printed)) == 2
    names = [line.strip() for line in printed.splitlines()]
    assert [name for name in names if name.startswith("wide table, check")]


def test_a_slide_may_have_the_largest_number_of_patches(tmp_path: Path) -> None:
    data.write_slides(tmp_path / "slides", count=10, patches=(20, 21))
    sizes = {len(np.load(file)) for file in (tmp_path / "slides" / "features").iterdir()}
    assert sizes == {20, 21}


def test_peak_bytes_counts_the_tensors_that_exist_at_the_same_time() -> None:
    # A thousand numbers of 8 bytes. A view and a change in place need no memory of their own.
    x = torch.zeros(1000, dtype=torch.float64)
    assert peak_bytes(lambda: x + 1) == 8000
    assert peak_bytes(lambda: (x + 1) + 1) == 16000
    assert peak_bytes(lambda: (x + 1).add_(1)) == 8000
    assert peak_bytes(lambda: x.view(10, 100)) == 0


def test_functions_are_timed_in_turn_after_one_call_each(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    called = ""

    def work(name: str, durations: list[float]) -> None:
        nonlocal now, called
        called += name
        now += durations.pop(0)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    # The first call of each function, of 99 seconds, is not counted.
    durations_of_a = [99.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    durations_of_b = [99.0, 7.0, 7.0, 7.0, 7.0, 7.0]
    found = paired_timings(
        [lambda: work("a", durations_of_a), lambda: work("b", durations_of_b)], repeats=5
    )
    # The quartiles of 1 to 5 are 2 and 4.
    assert found == [Timing(median=3, spread=2), Timing(median=7, spread=0)]
    assert called == "ab" * 6


def test_rendering_prints_a_row_for_each_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rendering._seconds_of_process", lambda words: 1.0)
    results = make_results(losses={"exact": 0.1}, tasks={"t": "set_error"})
    published_reports.save(results, tmp_path)
    rendering.main([str(tmp_path)], quick=True)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    name_and_cells = ["demo", "3"]
    assert name_and_cells in [row[:2] for row in rows]
