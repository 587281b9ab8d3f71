"""When losses are ranked over tasks, in which direction, and what is said where they are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milbench.report.figures import charts, ranks
from milbench.report.figures.ranks import draw_ranks
from milbench.report.render import render
from milbench.report.study import Study
from tests._helpers.report_data import make_results

THREE = {"good": 0.01, "middling": 0.05, "bad": 0.2}


def of_tasks(count: int, metric: str = "instance_error") -> Study:
    return Study(make_results(None, THREE, {f"t{i}": metric for i in range(count)}, 1, 2))


def texts(study: Study) -> list[str]:
    (picture,), reasons = draw_ranks(study)
    assert not reasons
    return [text.get_text() for text in picture.figure.axes[0].texts]


@pytest.mark.parametrize("metric", ["instance_error", "auroc"])
def test_the_best_loss_has_rank_one_whichever_direction_is_better(metric: str) -> None:
    assert texts(of_tasks(5, metric)) == ["good (1)", "middling (2)", "(3) bad"]


def test_the_diagram_is_in_the_report_and_its_caption_says_what_it_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "draw", lambda *_, **__: [])
    render(of_tasks(5).results, tmp_path)
    assert (tmp_path / "figures/ranks-set.svg").exists()
    assert "Friedman's test of equal ranks: p = 0.00674." in (tmp_path / "index.html").read_text("utf-8").replace(
        "&#39;", "'"
    )  # chi square of 10 with two degrees of freedom: exp(-5)


def test_where_losses_are_not_ranked_one_line_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    too_few = "No ranks over tasks (set supervision): 4 tasks, Friedman's test needs 5 of different data."
    assert draw_ranks(of_tasks(4)) == ([], [too_few])
    assert draw_ranks(of_tasks(1)) == ([], []), "with one task there is nothing to be said"
    study = of_tasks(5)
    lost = (study.cells["task"] == "t2") & (study.cells["loss"] == "bad")
    part = Study(replace(study.results, cells=study.cells.assign(status=study.cells["status"].mask(lost, "failed"))))
    assert draw_ranks(part) == ([], ["No ranks over tasks (set supervision): bad has no result on t2."])
    monkeypatch.setattr(charts, "draw", lambda *_, **__: [])
    monkeypatch.setattr(ranks, "find_spec", lambda name: None)
    ((), (reason,)) = draw_ranks(study)
    assert "pip install milbench[ranks]" in reason
    render(study.results, tmp_path)
    assert reason in (tmp_path / "report.md").read_text("utf-8").replace("\\", "")


def on_the_same_data(study: Study, *tasks: str) -> Study:
    """Return a study in which some tasks are variants of the first one of them."""
    cells = study.cells.copy()
    same = cells["task"].isin(tasks)
    cells.loc[same, "data_digest"] = cells.loc[same, "data_digest"].iloc[0]
    cells.loc[same, "task"] = tasks[0]
    return Study(replace(study.results, cells=cells))


def test_variants_of_one_task_on_the_same_data_are_one_block() -> None:
    study = on_the_same_data(of_tasks(6), "t1", "t2", "t3")
    reason = "No ranks over tasks (set supervision): 6 tasks of 4 different data, Friedman's test needs 5"
    assert draw_ranks(study) == ([], [f"{reason} of different data."])
    (picture,), _ = draw_ranks(on_the_same_data(of_tasks(6), "t1", "t2"))
    assert "there are 5" in picture.caption
    assert "p = 0.00674" in picture.caption, "as with five tasks: the sixth adds nothing"
