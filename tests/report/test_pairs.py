"""The differences between losses in tables, sentences and numbers, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from milbench.api.outcomes import Outcomes, save_outcomes
from milbench.api.results import Results
from milbench.report.pairs import findings, pairs_frame, pairs_table
from milbench.report.render import render
from milbench.report.study import Study
from milbench.report.tables import Entry, Table, main_table
from tests._helpers.report_data import ONE, TWO, by_set_error, constant, make_results

TASK, ITEMS = "extended-digits", 400
ERRORS = {"a": [4, 6, 5, 6], "b": [5, 6, 6, 6], "c": [40, 44, 41, 42]}
"""Wrong ones of 400 test bags with each seed."""


def results(errors: dict[str, list[int]] | None = None) -> Results:
    """Return results with these test errors after the last of two epochs."""
    values = {
        (loss, seed): [(0.1, 0.5), (0.2, wrong / ITEMS)]
        for loss, counts in (errors or ERRORS).items()
        for seed, wrong in enumerate(counts)
    }
    return constant(values)


def with_outcomes(found: Results, folder: Path, metric: str = "instance_error", nested: bool = False) -> Results:
    """Return results with the outcomes behind their last test errors, wrong on bags of their own for each cell."""
    paths = {}
    for number, (cell, seed) in enumerate(found.cells["seed"].items()):
        history = found.history[found.history["cell"] == cell]
        value = history.loc[history["metric"] == f"test/{metric}", "value"].iloc[-1]
        wrong = np.zeros(ITEMS)
        wrong[np.random.default_rng(number).permutation(ITEMS)[: round(ITEMS * value)]] = 1
        paths[str(cell)] = folder / f"{cell}.npz"
        items = f"set {seed if nested else 0}"
        save_outcomes(paths[str(cell)], {metric: Outcomes(wrong, np.ones(ITEMS), items)})
    return replace(found, outcomes=paths)


def lines(table: Table | None) -> dict[str, list[Entry]]:
    assert table is not None
    return {row[0].text: row[1:] for _, group in table.groups for row in group}


def notes(table: Table | None) -> str:
    assert table is not None
    return " ".join(table.notes)


def test_every_pair_has_a_line_with_the_best_mean_first() -> None:
    table = pairs_table(Study(results()), TASK)
    assert list(lines(table)) == ["b − a", "c − a", "b − c"]
    far = lines(table)["c − a"]
    assert far[0].text == "4"
    assert far[2].text == "+9.12", "(167 - 21) / 4 of 400"
    assert (far[4].text, far[4].strong) == ("worse", True)
    assert far[5].text == "—", "it is resolved"
    assert lines(table)["b − c"][4].text == "better"
    near = lines(table)["b − a"]
    assert (near[4].text, near[4].strong) == ("unresolved", False)


def test_splits_whose_label_sets_are_in_the_same_order_do_not_share_their_test_bags(tmp_path: Path) -> None:
    """The digest of items has their label sets alone, which stratified splits may have in the same order."""
    found = with_outcomes(results(), tmp_path)
    assert pairs_frame(Study(found))["shared_test_bags"].all()
    split = replace(found, overlaps=dict.fromkeys(map(str, found.cells.index), 0.25))
    assert not pairs_frame(Study(split))["shared_test_bags"].any()


@pytest.mark.parametrize(("nested", "says"), [(False, "shared by all seeds"), (True, "of each seed")])
def test_outcomes_of_test_bags_enter_the_interval_and_are_counted(tmp_path: Path, nested: bool, says: str) -> None:
    alone, paired = Study(results()), Study(with_outcomes(results(), tmp_path, nested=nested))
    entry = lines(pairs_table(paired, TASK))["b − a"][1]
    assert (entry.text, entry.detail) == ("400", says)
    assert lines(pairs_table(alone, TASK))["b − a"][1].text == "—"
    assert "covers training seeds alone" in notes(pairs_table(alone, TASK))
    assert "covers training seeds alone" not in notes(pairs_table(paired, TASK))
    widths = [frame["high"] - frame["low"] for frame in map(pairs_frame, (alone, paired))]
    assert (widths[1] > widths[0]).iloc[0], "five errors on other bags: their draw adds to it"


def test_outcomes_of_another_epoch_or_another_evaluation_are_no_use(tmp_path: Path) -> None:
    found = with_outcomes(results(), tmp_path)
    last = found.history["epoch"] == 2
    first = by_set_error(replace(found, selection="validation"))  # chosen by the smaller validation error
    assert lines(pairs_table(Study(first), TASK))["b − a"][1].text == "—"
    assert lines(pairs_table(Study(replace(first, selection="last")), TASK))["b − a"][1].text == "400"
    other = found.history.assign(value=found.history["value"].where(~last, found.history["value"] + 1 / ITEMS))
    assert lines(pairs_table(Study(replace(found, history=other)), TASK))["b − a"][1].text == "—"


def test_a_file_that_cannot_be_read_is_named_below_the_table(tmp_path: Path) -> None:
    found = with_outcomes(results(), tmp_path)
    damaged = next(iter(found.outcomes.values()))
    damaged.write_bytes(b"nothing")
    table = pairs_table(Study(found), TASK)
    assert f"outcomes {damaged} cannot be read" in notes(table)
    assert [lines(table)[pair][1].text for pair in ("b − a", "b − c")] == ["—", "400"]


def test_an_excess_is_compared_by_the_outcomes_of_its_metric(tmp_path: Path) -> None:
    found = with_outcomes(results(), tmp_path)
    excess = found.history[found.history["metric"] == "test/instance_error"]
    excess = excess.assign(metric="test/excess_instance_error", value=excess["value"] - 0.01)
    cells = found.cells.assign(primary="excess_instance_error")
    study = Study(replace(found, cells=cells, history=pd.concat([found.history, excess], ignore_index=True)))
    plain = pairs_frame(Study(found))
    pd.testing.assert_frame_equal(pairs_frame(study).drop(columns="metric"), plain.drop(columns="metric"))
    assert set(pairs_frame(study)["test_bags"]) == {ITEMS}


def test_two_seeds_are_unresolved_and_the_table_says_why() -> None:
    row = lines(pairs_table(Study(results({"a": [4, 6], "c": [40, 44]})), TASK))["c − a"]
    assert row[3].text == "—"
    assert (row[4].text, row[4].detail) == ("unresolved", "2 seeds")
    assert row[5].text == "—", "two seeds do not show how many would do"
    assert "worse" not in findings(Study(results({"a": [4], "c": [40]})))[0][1], "no rank from one seed"


def test_more_seeds_that_would_resolve_a_difference_are_named_and_where_they_would_not_that_too(tmp_path: Path) -> None:
    study = Study(with_outcomes(results({"a": [4, 6, 5], "b": [7, 5, 6]}), tmp_path))
    needed = lines(pairs_table(study, TASK))["b − a"][5].text
    assert needed == "no number of seeds: the 400 test bags do not suffice"
    assert needed in findings(study)[0][1]
    study = Study(with_outcomes(results({"a": [4, 6, 5], "b": [30, 12, 20]}), tmp_path))
    needed = lines(pairs_table(study, TASK))["b − a"][5].text
    assert needed.startswith("about ")
    assert "approximation" in notes(pairs_table(study, TASK))


def test_equivalence_is_claimed_within_a_margin_given_in_advance_alone(tmp_path: Path) -> None:
    plain = with_outcomes(results(), tmp_path)
    study = Study(replace(plain, margin={"instance_error": 0.05}))
    assert lines(pairs_table(study, TASK))["b − a"][4].text == "equivalent within 5 points"
    assert lines(pairs_table(study, TASK))["c − a"][4].text == "worse"
    assert "equivalent to it within 5 points: b; worse: c." in findings(study)[0][1]
    assert lines(main_table(study))["b"][0].detail.endswith("n=4, equivalent")
    others: list[dict[str, float]] = [{}, {"set_error": 0.05}]
    for other in others:
        assert "equivalent" not in findings(Study(replace(plain, margin=other)))[0][1]
        assert lines(main_table(Study(replace(plain, margin=other))))["b"][0].detail.endswith("n=4, unresolved")


def test_the_main_table_marks_what_may_be_the_best() -> None:
    table = lines(main_table(Study(results())))
    told = [(table[name][0].strong, table[name][0].detail.partition("n=4, ")[2]) for name in "abc"]
    assert told == [(True, "best mean"), (False, "unresolved"), (False, "worse")]


def test_findings_say_what_is_better_worse_and_unresolved() -> None:
    (_, sentence) = findings(Study(results()))[0]
    assert sentence.startswith("lowest one-instance error: a (1.3 ± 0.2 %, 4 seeds); unresolved beside it: b (about ")
    assert "seeds would resolve a difference as large); worse: c." in sentence
    assert sentence.endswith("; worse: c.")
    (_, sentence) = findings(Study(results({"a": [4, 6, 5, 6], "c": [40, 44, 41, 42]})))[0]
    assert "4 seeds), better than every other loss; worse: c." in sentence


def test_a_loss_that_is_better_on_the_common_seeds_than_the_best_mean_is_named() -> None:
    found = results({"a": [50, 53, 51, 50], "b": [10, 12, 11, 9]})
    failed = (found.cells["loss"] == "b") & (found.cells["seed"] == 3)
    study = Study(replace(found, cells=found.cells.assign(status=np.where(failed, "failed", "done"))))
    assert lines(main_table(study))["b"][0].detail.endswith("better on common seeds")
    assert "better than it on the common seeds: b" in findings(study)[0][1]
    assert lines(pairs_table(study, TASK))["b − a"][0].text == "3"


def test_seeds_without_a_result_are_named_in_the_sentence_and_below_the_table() -> None:
    found = results()
    assert "left out" not in findings(Study(found))[0][1] + notes(pairs_table(Study(found), TASK))
    failed = (found.cells["loss"] == "c") & (found.cells["seed"] > 1)
    cells = found.cells.assign(
        status=np.where(failed, "failed", "done"), reason=np.where(failed, "the loss is not finite", "")
    )
    study = Study(replace(found, cells=cells))
    sentence = findings(study)[0][1]
    assert "seeds left out: c (2 of 4 seeds; seeds 2, 3 failed: the loss is not finite)." in sentence
    assert "Seeds without a result are left out of all differences" in notes(pairs_table(study, TASK))


def test_seeds_that_have_learnt_next_to_nothing_are_counted_in_the_sentence() -> None:
    some = results({"a": [4, 6, 5, 6], "b": [5, 6, 355, 6], "c": [370, 200, 181, 183]})
    known = Study(replace(some, chance={TASK: 0.9}))
    # Guessing errs on 360 of 400 and the best mean on 5.25: the middle is 182.6.
    assert (
        "nearer to guessing (90.0 %) than to the best mean: b (1 of 4 seeds), c (3 of 4 seeds)."
        in (findings(known)[0][1])
    )
    assert "guessing" not in findings(Study(some))[0][1], "the value of guessing is not known"
    assert "guessing" not in findings(Study(replace(results(), chance={TASK: 0.9})))[0][1]
    assert "guessing" not in findings(Study(replace(some, chance={TASK: 0.01})))[0][1], "no loss is better than that"


def test_of_many_losses_the_table_has_those_with_the_best_and_the_frame_has_all() -> None:
    study = Study(make_results(None, {f"l{i}": 0.01 * (1 + i) for i in range(9)}, ONE, 3, 2))
    table = pairs_table(study, TASK)
    assert len(lines(table)) == 8
    assert "all are in pairs.csv" in notes(table)
    frame = pairs_frame(study)
    assert len(frame) == 36
    values = study.sample(TASK, study.variants[3]).by_seed - study.sample(TASK, study.variants[7]).by_seed
    (row,) = frame[(frame["loss"] == "l3") & (frame["other_loss"] == "l7")].to_dict("records")
    assert row["difference"] == pytest.approx(values.mean())
    assert row["low"] < row["difference"] < row["high"]
    assert row["seeds"] == 3


def test_one_loss_has_nothing_to_be_compared_with() -> None:
    study = Study(make_results(None, {"exact": 0.1}, ONE, 3, 2))
    assert pairs_table(study, TASK) is None
    assert pairs_frame(study).empty
    assert len(pairs_frame(Study(make_results(None, TWO, ONE, 3, 2)))) == 1


@pytest.mark.usefixtures("blank_figures")
def test_losses_are_compared_by_every_metric_that_the_comparison_names(tmp_path: Path) -> None:
    found = results()
    half = found.history.assign(
        metric=found.history["metric"].str.replace("instance_error", "set_error"), value=found.history["value"] / 2
    )
    both = replace(found, history=pd.concat([found.history, half]), compare_by=["instance_error", "set_error", "auroc"])
    study = Study(both)
    assert study.compared(TASK) == ["instance_error", "set_error"]  # the third was not recorded
    frame = pairs_frame(study).set_index(["metric", "loss", "other_loss"])["difference"]
    assert frame["set_error"].to_numpy() == pytest.approx(frame["instance_error"].to_numpy() / 2)
    assert [sentence.partition(":")[0] for _, sentence in findings(study)] == [
        "lowest one-instance error", "lowest set error"
    ]  # fmt: skip
    render(both, tmp_path)
    page = (tmp_path / "report.md").read_text("utf-8")
    assert "### The differences between the losses: one-instance error" in page
    assert "### The differences between the losses: set error" in page
