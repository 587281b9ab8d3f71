"""Contrasts in a report: their family, their words, and how often their intervals are right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from milbench.api.contrast import Contrast
from milbench.api.outcomes import Outcomes
from milbench.report.contrasts import contrast_frame, contrast_sentences, contrast_tables, families
from milbench.report.pairs import pairs_frame
from milbench.report.render import render
from milbench.report.statistics import compare_all, differences, sampling_noise
from milbench.report.study import Study
from tests._helpers.report_data import constant, make_results
from tests._helpers.simulated_losses import Design, drawn

TASK = "extended-digits"
ERRORS = {"a": [4, 6, 5, 6], "b": [5, 6, 6, 6], "c": [40, 44, 41, 42], "d": [60, 62, 66, 61]}
"""Wrong ones of 400 test bags with each seed."""


def contrast(first: str, second: str, *tasks: str, **more: Any) -> Contrast:
    sides = (first, ""), (second, "")
    return Contrast(f"{first} less {second}", first, second, variants=dict.fromkeys(tasks or (TASK,), sides), **more)


def study(*contrasts: Contrast, **changes: Any) -> Study:
    values = {(loss, s): [(0.1, 0.5), (0.2, n / 400)] for loss, ns in ERRORS.items() for s, n in enumerate(ns)}
    return Study(replace(constant(values), contrasts=list(contrasts), **changes))


def test_one_contrast_on_one_task_has_the_interval_of_students_paired_test() -> None:
    (row,) = contrast_frame(families(study(contrast("c", "a")))).to_dict("records")
    expected = stats.ttest_rel(np.array(ERRORS["c"]) / 400, np.array(ERRORS["a"]) / 400).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))
    assert (row["difference"], row["verdict"]) == (pytest.approx(146 / 4 / 400), "worse")


def test_intervals_of_few_contrasts_are_narrower_than_those_of_all_pairs() -> None:
    found = study(contrast("b", "a"), contrast("d", "c"))
    few, every = (
        {frozenset((row["loss"], row["other_loss"])): row for row in frame.to_dict("records")}
        for frame in (contrast_frame(families(found)), pairs_frame(found))
    )
    assert (len(few), len(every)) == (2, 6)
    for pair, row in few.items():
        assert row["difference"] == pytest.approx(-every[pair]["difference"])
        assert row["high"] - row["low"] < every[pair]["high"] - every[pair]["low"]


def test_tasks_are_part_of_the_family_and_metrics_are_not() -> None:
    """Two tasks with one contrast each: Student's intervals of sqrt(95 %) coverage."""
    tasks = {"one": "set_error", "two": "set_error"}
    results = make_results(None, {"a": 0.1, "b": 0.3}, tasks, 4, 2, contrasts=[contrast("b", "a", *tasks)],
                           compare_by=["set_error", "auroc"])  # fmt: skip
    found = Study(results)
    frame = contrast_frame(families(found))
    assert list(zip(frame["family"], frame["task"], frame["metric"], strict=True)) == [
        (0, "one", "set_error"), (0, "two", "set_error"), (1, "one", "auroc"), (1, "two", "auroc")
    ]  # fmt: skip
    for _, row in frame.iterrows():
        values = [found.sample(row["task"], v, row["metric"]).by_seed for v in found.variants]
        expected = stats.ttest_rel(values[1], values[0]).confidence_interval(0.95**0.5)
        assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))


def test_the_sentence_and_the_table_have_the_verdict_on_the_first_variant() -> None:
    margin = {"instance_error": 0.02}
    found = study(contrast("c", "a"), contrast("a", "d"), contrast("b", "a", margin=margin), contrast("d", "c"))
    named = families(found)
    sentences = dict(contrast_sentences(named))
    assert sentences["c less a"].startswith("in one-instance error, c beside a is worse on extended-digits (+9.12 [+")
    assert sentences["a less d"].startswith("in one-instance error, a beside d is better on extended-digits (−14.2")
    assert "b beside a is equivalent within 2 points on extended-digits" in sentences["b less a"]
    (table,) = contrast_tables(found, named)
    assert [name for name, _ in table.groups][:2] == ["c less a: c − a", "a less d: a − d"]
    assert [row[5].text for _, rows in table.groups for row in rows][:2] == ["worse", "better"]
    assert "the 4 contrasts of the spec on 1 task" in " ".join(table.notes)


@pytest.mark.usefixtures("blank_figures")
def test_the_report_shows_contrasts_first_and_says_whether_they_were_named_in_advance(tmp_path: Path) -> None:
    found = study(contrast("c", "a"), before_contrasts=3)
    render(found.results, tmp_path, gallery="none")
    page = (tmp_path / "report.md").read_text("utf-8")
    assert page.index("## What the comparison was made for") < page.index("## Every loss on every task")
    assert "3 of 16 cells began before the first launch that had them in its plan" in page
    assert (tmp_path / "contrasts.csv").is_file()
    for before, says in ((0, "before any of these cells began"), (None, "A difference is the first variant")):
        other = study(contrast("c", "a"), before_contrasts=before)
        (table,) = contrast_tables(other, families(other))
        assert says in table.notes[0]


def test_a_contrast_without_results_is_a_line_all_the_same() -> None:
    lost = {("c", TASK, seed): ("failed", "it broke") for seed in range(3)}
    results = make_results(None, {"a": 0.1, "b": 0.2, "c": 0.3}, {TASK: "instance_error"}, 3, 2, statuses=lost)
    found = Study(replace(results, contrasts=[contrast("b", "a"), contrast("c", "a")]))
    named = families(found)
    assert dict(contrast_sentences(named))["c less a"].endswith("c beside a is without a result on extended-digits.")
    assert len(contrast_frame(named)) == 1


def test_contrasts_on_two_tasks_miss_no_more_often_than_once_in_twenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of equal error, two contrasts on each of two tasks; more than 21 of 200 once in a thousand.

    Intervals that hold 95 % of the time each, as if every contrast were the only one, miss more often.
    """
    monkeypatch.setattr(differences, "DRAWS", 1000)
    differences._normal_draws.cache_clear()
    rng, design = np.random.default_rng(1), Design(5, (0.15,) * 3, (0.02,) * 3, False)
    together = alone = 0
    for _ in range(200):
        tasks = [drawn(rng, design).wrong for _ in range(2)]
        together += any(misses(wrong, [(1, 0), (2, 1)], 0.95**0.5) for wrong in tasks)
        alone += any(misses(wrong, [pair], 0.95) for wrong in tasks for pair in [(1, 0), (2, 1)])
    differences._normal_draws.cache_clear()
    assert together <= stats.binom.isf(0.001, 200, 0.05) < alone


def misses(wrong: NDArray[np.float32], pairs: list[tuple[int, int]], level: float) -> bool:
    """Return whether some interval of a family does not hold 0."""
    ones = np.ones(wrong.shape[2], np.float32)
    noise = sampling_noise([[Outcomes(outcomes, ones, "all") for outcomes in of_loss] for of_loss in wrong])
    found = compare_all(wrong.mean(axis=2, dtype=float), noise, level, pairs=pairs).values()
    return any(not difference.interval[0] <= 0 <= difference.interval[1] for difference in found)
