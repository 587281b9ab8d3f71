"""`milbench report` of published reports, and `milbench list`."""

from __future__ import annotations

import re
from pathlib import Path

from milbench.engine.spec import settings
from milbench.report.published import keep
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.report_data import ONE, make_results

BASE = ("run", "--loss", "exact", "--task", TINY)


def test_lists(milbench: Milbench) -> None:
    losses = milbench("list", "losses")
    assert losses.code == 0
    for name in ("exact", "max-pooling", "one-vs-rest", "noisy-or", "normalization=bag"):
        assert name in losses.out
    tasks = milbench("list", "tasks")
    assert tasks.code == 0
    for name in ("extended-digits", "extended-mnist", "synthetic-bags", "table (required)"):
        assert name in tasks.out
    specs = milbench("list", "specs")
    assert specs.code == 0
    assert "demo" in specs.out
    listed = milbench("list", "settings")
    assert listed.code == 0
    assert re.search(r"run\.timeout +│ none +│ Seconds after which a cell fails", listed.out)
    assert all(meaning for *_, meaning in settings()), "every setting says what it means"
    milbench(*BASE, "--name", "mine")
    runs = milbench("list", "runs")
    assert runs.code == 0
    assert "mine" in runs.out


def test_the_page_of_a_published_report_is_made_again_and_its_sentence_is_last(
    milbench: Milbench, tmp_path: Path
) -> None:
    keep(make_results(losses={"a": 0.01, "b": 0.4}, tasks=ONE), tmp_path)
    done = milbench("report", "--from", str(tmp_path))
    assert done.code == 0, done.err
    last = done.out.splitlines()[-1]
    assert last == f"Best on extended-digits: a. b is worse (95 % confidence). {tmp_path / 'index.html'}"
    assert (tmp_path / "index.html").is_file()
