"""The Python interface gives the same cells as the command line, and frames that agree with the store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace

import milbench as mb
from milbench import Comparison, UsageError
from tests._helpers.command_line import PLUGINS

TINY = {"bags_per_epoch": 64}


def tiny(root: Path, **changes: Any) -> Comparison:
    given: dict[str, Any] = {
        "losses": {"exact": {}, "noisy-or": {"head": ["sigmoid", "softmax"]}}, "tasks": {"synthetic-bags": TINY},
        "seeds": range(3), "recipe": {"epochs": 2, "evaluate_every": 1}, "name": "tiny", "root": root,
        "in_process": True, "progress": False,
    }  # fmt: skip
    return mb.compare(**given | changes)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return tiny(tmp_path_factory.mktemp("compare"))


def test_the_command_line_finds_nothing_left_to_run(
    found: Comparison, milbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = found._reports.parent
    run = milbench(
        "run", "--loss", "exact,noisy-or", "--task", "synthetic-bags", "-p", "loss.noisy-or.head=sigmoid,softmax",
        "-p", "task.bags_per_epoch=64", "-p", "recipe.evaluate_every=1", "--epochs", "2", "--seeds", "0-2",
        "--name", "tiny", "--root", str(root),
    )  # fmt: skip
    assert (run.code, "nothing to run" in run.out) == (0, True), run.err


def test_the_frame_has_a_row_a_cell_and_metric_as_the_store_has_them(found: Comparison) -> None:
    frame = found.frame
    assert len(frame["cell"].unique()) == 9
    assert not frame.duplicated(["cell", "split", "metric"]).any()
    assert set(frame["loss"]) == {"exact", "noisy-or head=sigmoid", "noisy-or head=softmax"}
    assert set(frame["epoch"]) == {2}
    store = StoreReader(Workspace(found._reports.parent))
    for run, rows in frame.groupby("run"):
        logged = store.run(str(run)).metrics
        for split, metric, value in zip(rows["split"], rows["metric"], rows["value"], strict=True):
            assert value == pytest.approx(logged[f"{split}/{metric}" if split else metric])


def test_the_table_is_the_mean_of_the_frame_with_its_interval(found: Comparison) -> None:
    frame, table = found.frame, found.table("set_error")
    errors = frame[(frame["metric"] == "set_error") & (frame["split"] == "test")].groupby("loss")["value"]
    mean = table["synthetic-bags", "mean"].droplevel("recipe")
    assert mean.to_dict() == pytest.approx(errors.mean().to_dict())
    half = 4.30265 * errors.std() / 3**0.5
    high = table["synthetic-bags", "high"].droplevel("recipe")
    assert high.to_dict() == pytest.approx((errors.mean() + half).to_dict(), rel=1e-4)
    assert set(table["synthetic-bags", "seeds"]) == {3}
    assert len(found.differences[found.differences["metric"] == "posterior_error"]) == 3


def test_figures_and_the_report(found: Comparison, tmp_path: Path) -> None:
    assert found.figure().axes
    page = found.report(tmp_path / "page", gallery="none")
    assert page == tmp_path / "page/index.html"
    assert "milbench.compare(losses=" in page.read_text("utf-8"), "how it was computed"
    assert "exact" in found._repr_html_()
    assert repr(found) == "<milbench.Comparison 'tiny': 9 of 9 cells done>"
    assert any(sentence.startswith("synthetic-bags: lowest ") for sentence in found.findings)


def test_a_comparison_is_opened_again(found: Comparison) -> None:
    again = mb.results(found._reports.parent)
    pd.testing.assert_frame_equal(again.frame, found.frame)
    assert mb.results(found._reports.parent, "tiny").name == "tiny"


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda found: found.table("set_eror"), "did you mean 'set_error'"),
        (lambda found: found.figure("seed"), "did you mean 'seeds'"),
        (lambda found: found.figure(task="synthetic"), "did you mean 'synthetic-bags'"),
        (lambda found: mb.results(found._reports.parent, "tny"), "tny"),
        (lambda found: tiny(found._reports.parent, losses=["exat"]), "did you mean 'exact'"),
        (
            lambda found: tiny(found._reports.parent, tasks={"synthetic-bags": {"dimensions": 3}}),
            "did you mean 'dimension'",
        ),
        (lambda found: tiny(found._reports.parent, losses=3), "loss = 3: expected a name, several, or a mapping"),
        (lambda found: tiny(found._reports.parent, losses={"noisy-or": "softmax"}), "'softmax' are no parameters"),
        (lambda found: tiny(found._reports.parent, seeds=True), "seeds = True: expected numbers"),
        (lambda found: tiny(found._reports.parent, recipe=["epochs"]), r"recipe = \['epochs'\]: expected a mapping"),
        (lambda found: tiny(found._reports.parent, rerun="faild"), "unknown rerun 'faild'; did you mean 'failed'"),
        (lambda found: found.figure(3), "unknown kind of figure '3'"),
        (lambda found: mb.changes("tiny", "tiny", margin=-1, root=found._reports.parent), "margin = -1: expected"),
    ],
)
def test_a_mistake_is_named(found: Comparison, call: Callable[[Comparison], object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        call(found)


DIVERGES = {"lr": 1e30, "epochs": 1, "normalize_gradient": False}


def test_a_failed_cell_is_in_the_frame_without_a_metric(
    tmp_path: Path, milbench: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = tiny(tmp_path, losses=["exact"], seeds=[0], recipe=DIVERGES)
    (row,) = found.frame.to_dict("records")
    assert (row["status"], row["metric"]) == ("failed", "")
    again = tiny(tmp_path, losses=["exact"], seeds=[0], recipe=DIVERGES, rerun="failed")
    assert again.frame["run"].item() != row["run"], "it was computed again"


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_the_frame_is_exported_in_every_format(
    found: Comparison, milbench: Callable[..., Any], tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"metrics.{form}"
    run = milbench("export", "tiny", "--format", form, "--out", str(out), "--root", str(found._reports.parent))
    assert run.code == 0, run.err
    if form == "csv":
        read = pd.read_csv(out, keep_default_na=False)
    else:
        read = pd.read_json(out, lines=True) if form == "json" else pd.read_parquet(out)
    assert list(read.columns) == list(found.frame.columns)
    assert read["value"].to_numpy(dtype=float) == pytest.approx(found.frame["value"].to_numpy(), abs=1e-9)
    assert read["metric"].tolist() == found.frame["metric"].tolist()
    assert [path.name for path in tmp_path.glob("*metrics*")] == [out.name], "no draft is left"
    refused = milbench(
        "export", "tiny", "--format", form, "--no-weights", "--out", str(out), "--root", str(found._reports.parent)
    )
    assert (refused.code, "are for --format archive" in refused.err) == (2, True)
    here = str(found._reports.parent)
    folder = milbench("export", "tiny", "--format", form, "--out", str(tmp_path), "--root", here)
    assert (folder.code, f"--out {tmp_path} is a folder" in folder.err) == (2, True)


def test_a_file_is_named_by_its_path_and_read_anew_when_it_was_edited(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text((PLUGINS / "learning_loss.py").read_text("utf-8"))
    first = tiny(tmp_path, losses={mine: {}}, seeds=1)
    mine.write_text(mine.read_text("utf-8") + "\n# edited\n")
    again = tiny(tmp_path, losses={mine: {}}, seeds=1)
    cells = [set(found.frame["cell"]) for found in (first, again)]
    assert len(cells[0]) == len(cells[1]) == 1
    assert cells[0] != cells[1], "results of the earlier code do not stand for those of the later one"


SCRIPT = """
import milbench

print("the top level is run")
found = milbench.compare("exact", {"synthetic-bags": {"bags_per_epoch": 64}}, recipe={"epochs": 1}, jobs=1)
print(found)
"""
"""A script as README has it: without the guard that processes of multiprocessing need elsewhere."""


def test_a_script_computes_cells_in_workers_that_do_not_run_it_again(tmp_path: Path) -> None:
    """Nor does the process that forks them write a word when it ends, as on what its imports have leaked."""
    (tmp_path / "script.py").write_text(SCRIPT)
    ran = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.count("the top level is run") == 1
    assert "<milbench.Comparison 'synthetic-bags': 1 of 1 cells done>" in ran.stdout
    assert ran.stderr == ""
