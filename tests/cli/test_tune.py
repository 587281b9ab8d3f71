"""`milbench tune`: from a spec to the report, stopped and extended."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests._helpers.command_line import TINY, Milbench

MINE = str(Path(TINY).with_name("third_party_loss.py"))
"""The path of a loss of one's own."""


@pytest.fixture(scope="session")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task that tells label sets right or wrong on validation bags."""
    path = tmp_path_factory.mktemp("tasks") / "tiny_sets.py"
    error = 'metrics[f"{split}/instance_error"] ='
    sets = 'metrics[f"{split}/set_error"] = float(wrong.any(dim=1).double().mean())'
    text = Path(TINY).read_text().replace('name = "tiny"', 'name = "tiny-sets"')
    path.write_text(text.replace(error, f"{sets}\n            {error}"))
    return path


@pytest.fixture
def spec(tmp_path: Path, task: Path) -> Path:
    """A spec with a search."""
    path = tmp_path / "tuned.toml"
    path.write_text(f"""
losses = ["exact", "one-vs-rest"]
tasks = ["{task}"]
seeds = "0-2"

[tune]
draws = 3
seeds = "50"

[tune.recipe]
lr = {{low = 1e-5, high = 1e-1, scale = "log"}}
clipping = [{{normalize_gradient = true}}, {{clip_norm = "none"}}]
""")
    return path


@pytest.mark.drawn
def test_search_comparison_and_report(milbench: Milbench, spec: Path, root: Path) -> None:
    first = milbench("tune", str(spec), "--dry-run")
    assert "6 cells" in first.out
    assert "dry run" in first.out
    done = milbench("tune", str(spec))
    assert done.code == 0
    assert "12 of 12 cells done" in done.out  # two losses: three draws, three fresh seeds
    again = milbench("tune", str(spec))
    assert "nothing to run" in again.out
    more = milbench("tune", str(spec), "--draws", "5")
    assert more.code == 0
    assert "10 cells, 4 to run" in more.out  # the earlier draws are done
    assert milbench("report", "tuned").code == 0
    page = (root / "reports" / "tuned" / "report.md").read_text("utf-8")
    assert "6 cells planned, 6 done" in page  # the draws are no cells of the comparison
    for title in ("Settings that were chosen", "What fewer draws would have found", "Every draw"):
        assert f"### {title}" in page
    assert (root / "reports" / "tuned" / "figures" / "search-tiny-sets.png").exists()
    searched = pd.read_csv(root / "reports" / "tuned" / "search.csv")
    assert len(searched) == 10, "two losses, five draws, one seed"
    assert searched["run"].map(lambda run: (root / "runs" / "artifacts" / run).is_dir()).all()
    least = searched.groupby("loss")["validation/set_error"].min()
    assert searched[searched["chosen"]].set_index("loss")["validation/set_error"].to_dict() == least.to_dict()
    assert searched["recipe.lr"].between(1e-5, 1e-1).all()
    lines = page[page.index("### Settings that were chosen") :].splitlines()
    for loss, rows in searched.groupby("loss"):
        (line,) = [line for line in lines[:8] if line.startswith(f"| {loss} |")]
        chosen = float(rows.loc[rows["chosen"], "recipe.lr"].iloc[0])
        assert ("least lr" in line) == (chosen == rows["recipe.lr"].min())
        assert ("largest lr" in line) == (chosen == rows["recipe.lr"].max())
    draws = page[page.index("### Every draw") :].splitlines()
    assert sum(line.startswith(("| 1 |", "| 2 |", "| 3 |", "| 4 |", "| 5 |")) for line in draws[:12]) == 5


def test_a_failed_draw_stays_visible_and_is_not_chosen(milbench: Milbench, spec: Path, root: Path) -> None:
    spec.write_text(spec.read_text().replace("high = 1e-1", "high = 1e30").replace("low = 1e-5", "low = 1e-2"))
    done = milbench("tune", str(spec))
    assert done.code == 1
    assert milbench("report", "tuned").code == 0
    page = (root / "reports" / "tuned" / "report.md").read_text("utf-8")
    assert "failed: " in page[page.index("### Settings that were chosen") :]
    assert "6 cells planned, 6 done" in page


def test_a_search_that_was_stopped_chooses_nothing_and_the_report_says_so(
    milbench: Milbench, spec: Path, root: Path
) -> None:
    spec.write_text(spec.read_text().replace("high = 1e-1", "high = 1e30").replace("low = 1e-5", "low = 1e29"))
    stopped = milbench("run", str(spec), "--fail-fast", "--jobs", "1")
    assert stopped.code == 1
    assert "of 6 cells done" in stopped.out
    assert "of 12 cells done" not in stopped.out, "the comparison is not begun"
    assert milbench("report", "tuned").code == 0
    page = (root / "reports" / "tuned" / "report.md").read_text("utf-8")
    assert "The search has chosen no settings yet: 0 of 6 draws done." in page
    assert "Nothing was planned" not in page


def test_a_search_with_more_draws_leaves_the_report_as_it_was_until_it_has_chosen(
    milbench: Milbench, spec: Path, root: Path
) -> None:
    assert milbench("tune", str(spec)).code == 0
    again = milbench("tune", str(spec), "--rerun", "all")
    assert "6 cells, 6 to run" in again.out
    assert "12 cells, 6 to run" in again.out, "draws are computed again once"
    spec.write_text(spec.read_text().replace("high = 1e-1", "high = 1e30").replace("draws = 3", "draws = 8"))
    assert milbench("run", str(spec), "--fail-fast", "--jobs", "1").code == 1
    assert milbench("report", "tuned").code == 0
    page = (root / "reports" / "tuned" / "report.md").read_text("utf-8")
    assert "6 cells planned, 6 done" in page
    assert "A search was begun since and has chosen nothing yet: this is what was chosen before." in page


def test_more_draws_than_there_may_be_are_refused(milbench: Milbench, spec: Path) -> None:
    assert (
        "--draws 9000 is too many, expected at most 4096" in milbench("tune", str(spec), "--draws", "9000").complaint()
    )


def test_a_spec_without_a_search_is_refused(milbench: Milbench) -> None:
    assert "has no table [tune]" in milbench("tune", "demo").complaint()


def test_a_loss_of_ones_own_is_put_through_the_companions_too(milbench: Milbench, spec: Path, tmp_path: Path) -> None:
    harder = tmp_path / "harder.toml"
    harder.write_text(f'losses = ["exact"]\ntasks = ["{TINY}"]\nseeds = "0-3"\n')
    spec.write_text(f'companions = ["{harder.as_posix()}"]\n{spec.read_text()}')
    ran = milbench("tune", str(spec), "--loss", MINE, "--draws", "2", "--dry-run")
    assert ran.code == 0, ran
    assert "tuned: 2 cells, 2 to run" in ran.out
    assert "harder: 4 cells, 4 to run" in ran.out
    without = milbench("tune", str(spec), "--dry-run")
    assert without.code == 0, without
    assert "harder" not in without.out


def test_as_many_draws_as_asked_for_are_tried_on_the_companions_too(
    milbench: Milbench, spec: Path, tmp_path: Path
) -> None:
    harder = tmp_path / "harder.toml"
    harder.write_text(spec.read_text())
    spec.write_text(f'companions = ["{harder.as_posix()}"]\n{spec.read_text()}')
    ran = milbench("tune", str(spec), "--loss", MINE, "--draws", "2", "--dry-run")
    assert ran.code == 0, ran
    assert "tuned: 2 cells, 2 to run" in ran.out
    assert "harder: 2 cells, 2 to run" in ran.out  # the file says 3


def test_a_loss_of_ones_own_joins_those_that_were_tuned_before(milbench: Milbench, spec: Path, root: Path) -> None:
    assert milbench("run", str(spec)).code == 0  # as milbench tune does
    assert "3 cells, 3 to run" in milbench("run", str(spec), "--loss", MINE, "--dry-run").out
    alone = milbench("run", str(spec), "--loss", MINE)
    assert alone.code == 0
    assert "6 of 6 cells done" in alone.out  # three draws and three fresh seeds, of this loss alone
    assert milbench("report", "tuned").code == 0
    page = (root / "reports" / "tuned" / "report.md").read_text("utf-8")
    assert "9 cells planned, 9 done" in page
    for loss in ("exact", "one-vs-rest", "mean-pooling"):
        assert f"| {loss} |" in page[page.index("### Settings that were chosen") :]
    searched = pd.read_csv(root / "reports" / "tuned" / "search.csv")
    assert searched.groupby("loss")["chosen"].sum().to_dict() == {"exact": 1, "mean-pooling": 1, "one-vs-rest": 1}
