"""Verdicts by marks, against intervals computed by hand, and the matrix as a page, Markdown, CSV and figure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from milbench.api.marks import Mark
from milbench.api.plan import Plan
from milbench.engine.planning import make_plan
from milbench.engine.spec import read_spec
from milbench.launch.request import RunRequest, requested_spec
from milbench.report.marks import judge, passed_most
from milbench.report.render import render
from milbench.report.study import Sample, Study
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import Ran
from tests._helpers.report_data import constant

T_2, T_4 = 4.302652729911275, 2.7764451051977987
"""The quantile 0.975 of Student's t with 2 and 4 degrees of freedom, from a table."""
MINE = '''
from torch import Tensor

from milbench import Loss


class Mine(Loss):
    """The largest logit of every class."""

    name = "mine"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return logits.square().mean(dim=(1, 2))

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return logits[:, :-1].amax(dim=2)
'''


def mark(bound: float, at_most: bool = True) -> Mark:
    return Mark("easy", "task", {}, "instance_error", bound, at_most)


def sample(*values: float, planned: int | None = None) -> Sample:
    return Sample(pd.Series(values, dtype=float), len(values) if planned is None else planned)


def test_the_distance_and_its_interval_are_those_of_the_mean() -> None:
    """0.02, 0.03, 0.04: mean 0.03, standard deviation 0.01, half width 4.303 * 0.01 / sqrt(3)."""
    half = T_2 * 0.01 / math.sqrt(3)
    found = judge(sample(0.02, 0.03, 0.04), mark(0.05))
    assert found.distance == pytest.approx(-0.02)
    assert found.bounds == pytest.approx((-0.02 - half, -0.02 + half))
    other = judge(sample(0.02, 0.03, 0.04), mark(0.05, at_most=False))
    assert other.distance == pytest.approx(0.02)
    assert other.bounds == pytest.approx((0.02 - half, 0.02 + half))


@pytest.mark.parametrize(
    ("bound", "at_most", "verdict"),
    [
        # The interval of the mean is [0.00516, 0.05484].
        (0.055, True, "pass"),
        (0.054, True, "unresolved"),
        (0.006, True, "unresolved"),
        (0.005, True, "fail"),
        (0.055, False, "fail"),
        (0.054, False, "unresolved"),
        (0.006, False, "unresolved"),
        (0.005, False, "pass"),
    ],
)
def test_the_interval_decides(bound: float, at_most: bool, verdict: str) -> None:
    assert judge(sample(0.02, 0.03, 0.04), mark(bound, at_most)).verdict == verdict


def test_a_seed_without_a_value_is_no_pass_and_does_not_undo_a_fail() -> None:
    assert judge(sample(0.02, 0.02, 0.03, planned=4), mark(0.5)).verdict == "unresolved"
    assert judge(sample(0.8, 0.9, 0.8, planned=4), mark(0.5)).verdict == "fail"
    assert judge(sample(planned=3), mark(0.5)).verdict == "no value"
    assert judge(sample(0.0, 0.0), mark(0.5)).verdict == "unresolved"  # two seeds have no interval


def test_the_matrix_shows_every_verdict_in_words_with_how_much(tmp_path: Path) -> None:
    values = {"good": [0.02, 0.03, 0.04], "bad": [0.29, 0.30, 0.31], "near": [0.04, 0.05, 0.06]}
    results = constant({(loss, seed): [(0.1, v)] for loss, of in values.items() for seed, v in enumerate(of)})
    marks = {"extended-digits": [replace(mark(0.055), why="Not <hard>.")]}
    render(replace(results, marks=marks), tmp_path, gallery="none")
    text = (tmp_path / "report.md").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| easy<br>")]
    fields = [field.strip() for field in line.strip("| ").split("|")]
    assert fields[0] == "easy<br>at most 5.5 %"
    # 3 - 5.5 in points, half width 2.48; -0.02 of a point is 0.0 with the digits of a spread of 1 point.
    assert fields[1] == "✓ pass<br>−2.5 \\[−5.0, 0.0\\]"
    assert fields[2] == "✗ fail<br>+24.5 \\[+22.0, +27.0\\]"
    assert fields[3] == "? unresolved<br>−0.5 \\[−3.0, +2.0\\]"
    page = (tmp_path / "index.html").read_text("utf-8")
    said = "Of 1 mark, the most are passed by good (1 passed); none by bad (1 failed) and near (1 unresolved)."
    assert f"<p>{said}</p>" in page
    assert '<table data-sortable class="matrix">' in page
    assert "Not &lt;hard&gt;." in page
    assert "Which tests each loss passes, by the one-instance error" in page
    assert (tmp_path / "figures" / "marks-instance-error.png").is_file()
    rows = pd.read_csv(tmp_path / "marks.csv").set_index("loss")
    assert rows.loc["good", "verdict"] == "pass"
    assert rows.loc["good", "distance"] == pytest.approx(-0.025)
    assert rows.loc["near", "distance_high"] == pytest.approx(-0.005 + T_2 * 0.01 / math.sqrt(3))
    assert (rows["mark"] == 0.055).all()


@pytest.mark.usefixtures("blank_figures")
def test_without_marks_there_is_no_matrix_and_that_of_before_is_removed(tmp_path: Path) -> None:
    results = constant({("good", seed): [(0.1, 0.1)] for seed in range(3)})
    render(replace(results, marks={"extended-digits": [mark(0.5)]}), tmp_path, gallery="none")
    before = [tmp_path / "marks.csv", tmp_path / "figures/marks-instance-error.png"]
    assert all(path.is_file() for path in before)
    render(results, tmp_path, gallery="none")
    assert "Which tests" not in (tmp_path / "report.md").read_text("utf-8")
    assert not any(path.exists() for path in before)


def keep(store: StoreWriter, plan: Plan, errors: dict[tuple[str, int], list[float]]) -> None:
    """Put runs into a store as a launch leaves them, with an error by loss, number of training bags and seed."""
    parent = store.launch(plan, "milbench run t.toml")
    for cell in plan.cells:
        run_id = store.start_cell(plan.name, cell, parent, {"milbench.device": "cpu"})
        value = errors[cell.loss, cell.task_params.get("training_bags", 0)][cell.seed]
        store.log(run_id, 1, {"test/set_error": value, "test/posterior_error": value})
        store.end(run_id, "FINISHED")
    store.end(parent, "FINISHED")


def test_a_loss_of_ones_own_appears_in_the_matrix(root: Path, tmp_path: Path, milbench: Callable[..., Ran]) -> None:
    """Five seeds; with 50 bags exact has errors around 0.3, and mine around 0.1, where 0.2 passes."""
    mine, file = tmp_path / "mine.py", tmp_path / "t.toml"
    mine.write_text(MINE)
    file.write_text("""
losses = ["exact"]
tasks = ["synthetic-bags"]
seeds = "0-4"

[[marks]]
name = "many bags"
at_most = {set_error = 0.2}

[[marks]]
name = "few bags"
params = {training_bags = 50}
at_most = {set_error = 0.2}
""")
    around: dict[float, list[float]] = {x: [x - 0.02, x - 0.01, x, x + 0.01, x + 0.02] for x in (0.1, 0.3)}
    errors = {
        ("exact", 0): around[0.1],
        ("exact", 50): around[0.3],
        ("mine", 0): around[0.3],
        ("mine", 50): around[0.1],
    }
    spec, store = read_spec(str(file)), StoreWriter(Workspace(root))
    keep(store, make_plan(spec, None), errors)
    keep(store, make_plan(requested_spec(RunRequest("", str(file), values={"losses": [str(mine)]})), None), errors)
    assert milbench("report", "t", "--gallery", "none").code == 0
    rows = pd.read_csv(root / "reports" / "t" / "marks.csv").set_index(["test", "loss"])
    assert rows["verdict"].to_dict() == {
        ("many bags", "exact"): "pass",
        ("many bags", "mine"): "fail",
        ("few bags", "exact"): "fail",
        ("few bags", "mine"): "pass",
    }
    half = T_4 * math.sqrt(0.001 / 4) / math.sqrt(5)
    assert rows.loc[("few bags", "exact"), "distance_low"] == pytest.approx(0.1 - half)
    matrix = [line for line in (root / "reports/t/report.md").read_text("utf-8").splitlines() if "✗ fail<br>" in line]
    assert [line.split("<br>")[0] for line in matrix] == ["| many bags", "| few bags"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("at_most = {set_eror = 0.2}", "did you mean 'set_error'"),
        ("at_moust = {set_error = 0.2}", "did you mean 'at_most'"),
    ],
)
def test_a_wrong_mark_ends_a_run_before_it_starts(
    line: str, complaint: str, tmp_path: Path, milbench: Callable[..., Ran]
) -> None:
    file = tmp_path / "t.toml"
    file.write_text(f'losses = ["exact"]\ntasks = ["synthetic-bags"]\n[[marks]]\nname = "few bags"\n{line}\n')
    ran = milbench("run", str(file))
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err
    assert "few bags" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_sentence_names_what_passes_most_and_what_passes_none() -> None:
    tests = {"extended-digits": [replace(mark(bound), name=f"below {bound}") for bound in (0.5, 0.2, 0.01)]}

    def said(values: dict[str, float], seeds: int = 3, missing: str = "") -> str:
        ends = {(loss, seed): [(0.1, v)] for loss, v in values.items() for seed in range(seeds)}
        statuses = {(missing, "extended-digits", 0): ("failed", "x")} if missing else {}
        return passed_most(Study(replace(constant(ends, statuses=statuses), marks=tests)), "set")

    two = "2 passed, 1 failed"
    assert said({"a": 0.3, "b": 0.1, "c": 0.15}) == f"Of 3 marks, the most are passed by b ({two}) and c ({two})."
    assert said({"a": 0.9, "b": 0.1}) == f"Of 3 marks, the most are passed by b ({two}); none by a (3 failed)."
    assert said({"a": 0.9, "b": 0.8}) == "Of 3 marks, no loss is shown to pass any."
    assert said({"a": 0.1}, seeds=2) == "Of 3 marks, no loss is shown to pass any.", "two seeds give no interval"
    lost = said({"a": 0.1, "b": 0.3, "c": 0.9}, missing="a")
    assert lost.startswith("Of 3 marks, the most are passed by b (1 passed, 2 failed); none by c (3 failed); ")
    assert lost.endswith("; 1 loss without all results not counted.")
    assert said({"a": 0.1}, missing="a") == ""
    assert passed_most(Study(constant({("a", 0): [(0.1, 0.2)]})), "set") == "", "no marks"
