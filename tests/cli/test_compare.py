"""`milbench compare` on comparisons that were really run, with a loss whose file was changed in between."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

import milbench as mb
from milbench.api.registry import losses
from milbench.store.records import MetricValue
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import TINY, Milbench

LOSS = '''
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from milbench import Loss


class Mine(Loss):
    """The largest logit, times a factor."""

    name, head = "mine", "sigmoid"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        scores = FACTOR * self.scores(logits, mask)
        return binary_cross_entropy_with_logits(scores, labels.float(), reduction="none").sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return logits[:, :-1].amax(dim=2)
'''


@dataclass(frozen=True)
class History:
    """A store in which one comparison was run at two commits of a repository, and what it held after the first."""

    root: Path
    commits: tuple[str, str]
    export: Path


@contextmanager
def forgotten() -> Iterator[None]:
    """Forget the losses that are loaded in the block, as a new process would."""
    before = dict(losses().entries)
    yield
    losses().entries = before


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, fresh_database: Path) -> History:
    """Run a loss that learns, and then one that learns the opposite, beside one that stays as it is."""
    from milbench.cli import main

    folder = tmp_path_factory.mktemp("repository")
    root, export = folder / "root", folder / "before.zip"
    (root / "runs").mkdir(parents=True)
    shutil.copy(fresh_database, root / "runs" / "mlflow.db")
    git(folder, "init", "-q")
    commits = []

    def call(*words: str) -> None:
        patch.setattr(sys, "argv", ["milbench", *words, "--root", str(root)])
        with pytest.raises(SystemExit) as stop:
            main.main()
        assert stop.value.code == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for factor in ("1.0", "-0.5"):
            (folder / "mine.py").write_text(LOSS.replace("FACTOR", factor), "utf-8")
            git(folder, "add", "mine.py")
            git(folder, "commit", "-qm", factor)
            commits.append(git(folder, "rev-parse", "HEAD"))
            with forgotten():
                loss = f"{folder / 'mine.py'},max-pooling"
                call("run", "--loss", loss, "--task", TINY, "--seeds", "0-4", "--name", "mine", "--in-process",
                     "--threads", "1")  # fmt: skip
            if not export.exists():
                call("export", "mine", "--out", str(export), "--no-weights", "--no-gallery")
    return History(root, (commits[0], commits[1]), export)


@pytest.fixture
def at(history: History) -> tuple[str, str]:
    return ("--root", str(history.root))


def test_a_loss_that_was_made_worse_fails_the_test_and_the_other_is_as_it_was(
    history: History, milbench: Milbench, at: tuple[str, str], tmp_path: Path
) -> None:
    before = f"mine@{history.commits[0][:10]}"
    ran = milbench("compare", before, "mine", "--fail-on", "worse", "--out", str(tmp_path / "out"), *at)
    assert ran.code == 1, ran.err
    assert f"mine (B) beside {before} (A): worse: mine on tiny (+" in ran.out
    assert "the same runs: max-pooling on tiny." in ran.out
    assert "code of the loss or the task" in (tmp_path / "out" / "index.html").read_text("utf-8")
    shown = milbench("compare", before, "mine", *at)
    assert shown.code == 0, "without --fail-on it shows, and does not judge"
    back = milbench("compare", "mine", before, "--fail-on", "worse", *at)
    assert (back.code, "better: mine on tiny" in back.out) == (0, True)


def test_report_and_status_are_of_the_newest_code_and_count_what_it_replaced(
    history: History, milbench: Milbench, tmp_path: Path
) -> None:
    shutil.copytree(history.root, tmp_path / "copy")
    at = ("--root", str(tmp_path / "copy"))
    ran = milbench("status", "mine", *at)
    assert (ran.code, "10 of 10 cells done" in ran.out) == (0, True)
    assert (
        "Left out are cells of earlier code or data, which a newer launch replaced (mine on tiny: 5 done)." in ran.out
    )
    assert milbench("report", "mine", "--gallery", "none", *at).code == 0
    report = tmp_path / "copy" / "reports" / "mine"
    assert "(mine on tiny: 5 done)" in (report / "report.md").read_text("utf-8")
    results = pd.read_csv(report / "results.csv")
    assert results.groupby("loss_label").size().to_dict() == {"max-pooling": 5, "mine": 5}
    assert results["recipe_label"].isna().all(), "one variant of each loss, with all of its seeds"
    exported = tmp_path / "whole.zip"
    assert milbench("export", "mine", "--out", str(exported), *at).code == 0
    assert milbench("import", str(exported), "--root", str(tmp_path / "other")).code == 0
    assert milbench("status", "mine", "--root", str(tmp_path / "other")).code == 0
    assert milbench("export", "mine", "--out", str(tmp_path / "metrics.csv"), *at).code == 0
    assert set(pd.read_csv(tmp_path / "metrics.csv")["loss"]) == {"mine", "max-pooling"}, "a table by its ending"


def test_nothing_is_worse_than_itself(history: History, milbench: Milbench, at: tuple[str, str]) -> None:
    ran = milbench("compare", "mine", f"mine@{history.commits[1]}", "--fail-on", "worse", *at)
    assert ran.code == 0
    assert "the same runs: max-pooling on tiny, mine on tiny." in ran.out


def test_an_export_gives_the_table_of_the_store(
    history: History, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:9")  # which an export does not need
    exported = mb.changes(history.export, history.export)
    assert set(exported.frame["verdict"]) == {"the same runs"}
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    one = mb.changes(history.export, "mine", root=history.root).frame
    other = mb.changes(f"mine@{history.commits[0]}", "mine", root=history.root).frame
    pd.testing.assert_frame_equal(one, other)
    assert one.loc[0, "test_bags"] == 64
    assert one.loc[0, "paired_by"] == "seed and test bag"


def test_another_store_is_named_by_an_option(
    history: History, milbench: Milbench, root: Path, at: tuple[str, str]
) -> None:
    assert milbench("import", str(history.export)).code == 0
    ran = milbench("compare", "mine", "mine", "--root-a", str(root), "--fail-on", "worse", *at)
    assert (ran.code, "worse: mine on tiny" in ran.out) == (1, True)
    assert mb.changes("mine", "mine", root=history.root, root_a=root).worse
    assert not mb.changes("mine", "mine", root=history.root, root_b=root).worse
    assert mb.changes("mine", "mine", root=root, root_b=history.root).worse


def test_a_launch_is_named_by_its_id_as_well(history: History, milbench: Milbench, at: tuple[str, str]) -> None:
    store = StoreWriter(Workspace(history.root))
    newest, first = (run.run_id for run in store.all_launches("mine"))
    ran = milbench("compare", f"mine@{first[:12]}", f"mine@{newest[:12]}", "--fail-on", "worse", *at)
    assert ran.code == 1, ran.err


def test_a_cell_that_was_computed_again_counts_as_it_was_at_the_time(
    history: History, milbench: Milbench, tmp_path: Path
) -> None:
    """The same content hash, as of an installed loss whose version did not change; its new runs have another value."""
    root = tmp_path / "again"
    shutil.copytree(history.root, root)
    before = mb.changes("mine", "mine", root=root).frame["b"].tolist()
    store = StoreWriter(Workspace(root))
    newest = store.all_launches("mine")[0].run_id
    plan = store.plan("mine")[0]
    launch = store.launch(plan, "milbench run --rerun all")
    for cell in plan.cells:
        run = store.start_cell("mine", cell, launch, {"milbench.device": "cpu"})
        error = MetricValue(0.5 + cell.seed / 100, time=1, epoch=2)
        store.log_values(run, {}, [("test/instance_error", error), ("validation/instance_error", error)])
        store.end(run, "FINISHED")
    found = mb.changes(f"mine@{newest}", "mine", root=root).frame
    assert set(found["differs"]) == {"computed again"}
    assert found["b"].tolist() == pytest.approx([0.52] * len(found))
    assert found["a"].tolist() == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("mien", "mine"), "unknown comparison 'mien'; did you mean 'mine'?"),
        (("mine@{near}", "mine"), "no launch of mine has the commit or the id '{near}'; did you mean mine@{first}?"),
        (("mine@abc", "mine"), "give 4 characters"),
        (("mine@", "mine"), "'mine@' names no comparison"),
        (("{root}", "mine"), "it is a folder; give the name of a comparison"),
        (("results.csv", "mine"), "it is a table, which lacks the outcomes of test bags"),
        (("none.zip", "mine"), "cannot read none.zip: No such file"),
        (("{root}/runs/mlflow.db", "mine"), "mlflow.db: File is not a zip file"),
        (("mine", "mine", "--metric", "instance_eror"), "did you mean 'instance_error'?"),
        (("mine", "mine", "--fail-on", "better"), "--fail-on"),
        (("mine", "mine", "--root-b", "{root}/nowhere"), "there is no store in"),
        (("mine", "mine", "--out", "{root}/runs/mlflow.db"), "cannot write into --out"),
    ],
)
def test_a_mistake_is_one_line(
    history: History, milbench: Milbench, at: tuple[str, str], words: tuple[str, ...], complaint: str
) -> None:
    first = history.commits[0][:8]
    near = first[:7] + ("0" if first[7] != "0" else "1")
    meant = {"root": history.root, "first": first, "near": near}
    ran = milbench("compare", *(word.format(**meant) for word in words), *at)
    assert complaint.format(**meant) in ran.complaint()


def test_a_test_that_cannot_fail_is_refused(history: History, milbench: Milbench, at: tuple[str, str]) -> None:
    for name, rate in (("one", "0.05"), ("two", "0.06")):
        words = ("--seeds", "0-1", "--name", name, "-p", f"recipe.lr={rate}", *at)
        assert milbench("run", "--loss", "exact", "--task", TINY, *words).code == 0
    assert (
        "exact on tiny, has 2 seeds in A and 2 in B"
        in milbench("compare", "one", "two", "--fail-on", "worse", *at).complaint()
    )
    shown = milbench("compare", "one", "two", *at)
    assert (shown.code, "unresolved: exact on tiny" in shown.out) == (0, True)
