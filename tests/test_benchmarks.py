"""Benchmarks run on sizes that are as small as can be, and what they measure is what they say."""

import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import data
import likelihood
import pytest
import rendering
import torch
import training
from _measuring import Timing, paired_timings, peak_bytes

from milbench import Bags
from milbench.likelihood import bag_log_prob
from milbench.report import published_reports
from milbench.training.training_setup import setup_for_cell
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
    assert f"python benchmarks/{script}" in (REPOSITORY / "docs" / "performance.md").read_text(
        "utf-8"
    )


def test_training_prints_a_row_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_batches_that_are_drawn_together_are_charged_to_all_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (cell,) = training.plan(["noisy-or"], [TINY], ["task.batches=12"]).cells
    ours, now = setup_for_cell(cell, torch.device("cpu"), None), [0.0]
    draw = ours.problem.train_batches

    def in_groups(epoch: int, rng: torch.Generator) -> Iterator[Bags]:
        for number, bags in enumerate(draw(epoch, rng)):
            now[0] += 4 if number % 4 == 0 else 0
            yield bags

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(ours.problem, "train_batches", in_groups)
    assert training.seconds_of_data(ours, limit=100) == 1
    assert training.seconds_of_data(ours, limit=1) == 4, "the time is over after one batch"


def test_the_plain_loop_computes_what_it_is_compared_with() -> None:
    config = likelihood.Config(bags=6, classes=5, positions=7, sizes=(0, 1, 3), background=1.0)
    logits, labels = config.draw("cpu")
    assert logits.shape == (6, 6, 7)
    assert labels.sum(dim=1).tolist() == [0, 1, 3, 0, 1, 3]
    plain = likelihood.plain_loop(logits, labels)
    torch.testing.assert_close(
        plain, bag_log_prob(logits.log_softmax(dim=1), labels), rtol=1e-9, atol=0
    )


def test_slides_are_trained_on_and_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the commands are started, the others left out."""
    for name, value in {
        "QUICK_SLIDES": 10,
        "QUICK_PATCHES": (30, 50),
        "LONG": (600, 64),
        "SETTLED": 0.0,
    }.items():
        monkeypatch.setattr(data, name, value)
    started, timed = ["slides, milbench, first launch", "check of 10 slides"], data.timed

    def few(name: str, command: Sequence[Any], at_once: int = 1) -> dict[str, Any]:
        return timed(name, command, at_once) if name in started else {"": name}

    monkeypatch.setattr(data, "timed", few)
    data.main(quick=True)
    rows = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (launch,) = (row.removeprefix(started[0]).split() for row in rows if row.startswith(started[0]))
    first_step, first_epoch, _, memory = (float(number.replace(",", "")) for number in launch)
    assert 0 < first_step <= first_epoch
    assert memory > 50, "torch alone takes more"
    assert any(row.startswith("wide table, check") for row in rows)


def test_peak_bytes_counts_what_lives_at_once() -> None:
    x = torch.zeros(1000, dtype=torch.float64)
    assert peak_bytes(lambda: x + 1) == 8000
    assert peak_bytes(lambda: (x + 1) + 1) == 16000
    assert peak_bytes(lambda: (x + 1).add_(1)) == 8000
    assert peak_bytes(lambda: x.view(10, 100)) == 0


def test_functions_are_timed_in_turn_after_one_call_each(monkeypatch: pytest.MonkeyPatch) -> None:
    now, called = 0.0, []

    def work(name: str, durations: list[float]) -> None:
        nonlocal now
        called.append(name)
        now += durations.pop(0)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    first, second = [99.0, 1.0, 2.0, 3.0, 4.0, 5.0], [99.0, *[7.0] * 5]
    found = paired_timings([lambda: work("a", first), lambda: work("b", second)], repeats=5)
    assert found == [Timing(median=3, spread=2), Timing(median=7, spread=0)]
    assert "".join(called) == "ab" * 6


def test_rendering_prints_a_row_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rendering._seconds_of_process", lambda words: 1.0)
    results = make_results(losses={"exact": 0.1}, tasks={"t": "set_error"})
    published_reports.save(results, tmp_path)
    rendering.main([str(tmp_path)], quick=True)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["demo", "3"] in [row[:2] for row in rows], "its name and its number of cells"
