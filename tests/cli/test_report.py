"""`milbench report` of published and of several comparisons, and `milbench list`."""

import re
from pathlib import Path

import pytest

from milbench.experiment.spec_files import describe_settings
from milbench.report.published_reports import save
from milbench.report.render import render
from tests._helpers.command_line import SMALL, TINY, Milbench
from tests._helpers.report_data import ONE, make_results

BASE = ("run", "--loss", "exact", "--task", TINY)


def test_a_list_of_no_runs_names_the_demo(milbench: Milbench) -> None:
    assert "next: milbench run demo" in milbench("list", "runs").done()


def test_a_list_of_runs_has_their_names(milbench: Milbench) -> None:
    milbench(*BASE, "--name", "mine").done()
    assert "mine" in milbench("list", "runs").done()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("losses", ["exact", "max-pooling", "one-vs-rest", "noisy-or", "normalization=bag"]),
        ("specs", ["demo"]),
        ("tasks", ["extended-digits", "extended-mnist", "synthetic-bags", "table (required)"]),
        ("settings", ["run.timeout", "Seconds after which a cell fails"]),
    ],
    ids=["losses", "specs", "tasks", "settings"],
)
def test_a_list_has_the_known_names(milbench: Milbench, kind: str, names: list[str]) -> None:
    listed = milbench("list", kind).done()
    assert [name for name in names if name not in listed] == []


def test_every_setting_says_what_it_means() -> None:
    assert all(meaning for *_, meaning in describe_settings())


def test_a_published_report_is_made_again_below_the_root(
    milbench: Milbench, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(root.parent))
    results = make_results(tmp_path / "cells", losses={"a": 0.01, "b": 0.4}, tasks=ONE)
    render(results, tmp_path / "published")
    save(results, tmp_path / "published")
    ran = milbench("report", "--from", str(tmp_path / "published"), "--root", f"~/{root.name}")
    page = root / "reports" / "demo" / "index.html"
    *_, answer, step = ran.out.splitlines()
    assert answer == "Best on extended-digits: a. b is worse (95 % confidence)."
    assert step == f"next: open {page}"
    # The caption of a picture that the published report holds.
    assert "What each loss finds where" in page.read_text("utf-8")


def test_comparisons_stand_side_by_side(milbench: Milbench, root: Path) -> None:
    both = f"{TINY},synthetic-bags"
    milbench(*BASE, "--name", "short", "--seeds", "0-1", "-p", "recipe.epochs=1").done()
    milbench("run", "--loss", "exact,noisy-or", "--task", both, "--name", "long", *SMALL).done()
    again = ("--name", "again", *SMALL, "-p", "task.size=6")
    milbench("run", "--loss", "exact", "--task", both, *again).done()
    milbench("report", "short", "long", "again").done()

    page = (root / "reports" / "short+long+again" / "report.md").read_text("utf-8")
    rows = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("|")}
    assert {"exact (short)", "exact (long)", "noisy-or", "exact"} <= rows
    # Its cell on synthetic-bags is also a cell of "long", and is named after that comparison.
    assert "exact (again)" not in rows
    sections = re.findall("^## (.*)", page, re.MULTILINE)
    assert sections == ["tiny (short)", "synthetic-bags", "tiny (again)"]
