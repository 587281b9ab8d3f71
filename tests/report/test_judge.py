"""The verdict on a task: which losses may be the best by a metric, or why there is no answer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from milbench.contracts.outcomes import Outcomes, save_outcomes
from milbench.contracts.supervision import Supervision
from milbench.experiment.display_names import Label
from milbench.experiment.plan import Arm, Draw, SearchRecord
from milbench.report.bag_items import BagItems, save_bag_items
from milbench.report.judge import judge
from milbench.report.learning import better_than_no_skill, learnt_by_others
from milbench.report.limits import small_search_lines
from milbench.report.published_reports import read, save
from milbench.report.sentences import sentences
from milbench.report.study import Study
from milbench.report.use_verdicts import uses_table
from milbench.report.uses import USES
from milbench.report.values import rows_of
from milbench.report.verdict import (
    Best,
    NoResult,
    NothingLearnt,
    NotToldApart,
    OneLoss,
    TooFewSeeds,
)
from milbench.store.results import Results
from tests._helpers.report_data import (
    make_results,
    results_by_seed,
    with_line,
    with_test_metric,
)


def around(*levels: float, seeds: int = 5) -> Results:
    """Return results of losses a, b, ..., whose set errors vary by 2 % around these levels."""
    values = {}
    for number, level in enumerate(levels):
        noise = np.random.default_rng(number).normal(size=seeds)
        values["abcdefgh"[number]] = (level * (1 + 0.02 * noise)).tolist()
    return results_by_seed(values)


def test_half_of_the_losses_may_be_the_best_and_are_named() -> None:
    finding = judge(Study(around(0.1, 0.1, 0.5, 0.5)), "t").finding
    assert isinstance(finding, Best)
    assert set(finding.contenders) == {"a", "b"}
    assert set(finding.worse) == {"c", "d"}


def test_more_than_half_of_the_losses_are_not_told_apart() -> None:
    finding = judge(Study(around(0.1, 0.1, 0.1, 0.5)), "t").finding
    assert isinstance(finding, NotToldApart)
    assert finding.worse == ("d",)


def test_a_resolution_lies_between_what_was_and_was_not_told_apart() -> None:
    finding = judge(Study(around(0.1, 0.101, 0.5)), "t").finding
    assert isinstance(finding, NotToldApart)
    assert 0.001 < finding.resolution < 0.4


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param(make_results(losses={"a": 0.1}, tasks={"t": "set_error"}), OneLoss, id="one"),
        pytest.param(results_by_seed({"a": [0.1], "b": [0.4]}), TooFewSeeds, id="one seed"),
        pytest.param(results_by_seed({"a": [math.nan], "b": [math.nan]}), NoResult, id="no value"),
    ],
)
def test_too_few_results_have_a_verdict_of_their_own(results: Results, expected: type) -> None:
    assert isinstance(judge(Study(results), "t").finding, expected)


NO_BETTER = [0.6, 0.61, 0.6]
"""The set errors of a loss with three seeds, no better than a constant answer's 60 %."""


def unlearnt() -> Results:
    """Return results of losses that do not beat no skill by set error."""
    results = results_by_seed({"a": NO_BETTER, "b": NO_BETTER})
    return with_line(results, "no_skill_set_error", [0.6] * 3)


def test_a_verdict_without_learning_names_the_uses_that_were_learnt() -> None:
    ranked = with_test_metric(unlearnt(), "auroc", {"a": [0.80, 0.82, 0.81], "b": [0.4, 0.6, 0.51]})
    finding = judge(Study(ranked), "t").finding
    assert isinstance(finding, NothingLearnt)
    (learnt,) = finding.by_others
    assert learnt.metric == "auroc"
    assert learnt.losses == 1
    assert learnt.of == 2
    assert learnt.leader.loss == "a"


def test_single_classes_are_learnt_where_label_errors_beat_the_constant_answer() -> None:
    errors = {"a": [0.10, 0.11, 0.10], "b": [0.20, 0.21, 0.19]}
    results = with_test_metric(unlearnt(), "own_label_error", errors)
    beside_no_skill = with_line(results, "no_skill_label_error", [0.2] * 3)
    finding = judge(Study(beside_no_skill), "t").finding
    assert isinstance(finding, NothingLearnt)
    assert [learnt.metric for learnt in finding.by_others] == ["own_label_error"]
    assert finding.by_others[0].no_skill == pytest.approx(0.2)


def test_a_use_without_a_line_is_judged_where_another_use_was_learnt() -> None:
    values = {"a": [0.80, 0.82, 0.81], "b": [0.40, 0.45, 0.42]}
    ranked = with_test_metric(
        with_test_metric(unlearnt(), "auroc", values), "average_precision", values
    )
    study = Study(ranked)
    assert isinstance(judge(study, "t").finding, NothingLearnt)
    by_precision = judge(study, "t", "average_precision").finding
    assert isinstance(by_precision, Best)
    assert by_precision.contenders == ("a",)


def test_a_loss_that_varies_more_than_it_gains_has_learnt_nothing() -> None:
    values = {"a": [0.599, 0.5985, 0.5992, 0.5989, 0.599], "b": [0.1, 0.65, 0.35, 0.75, 0.55]}
    results = with_line(results_by_seed(values), "no_skill_set_error", [0.6] * 5)
    assert better_than_no_skill(Study(results), "t", "set_error", 0.95) == ["a"]


def test_two_seeds_do_not_show_that_another_use_was_learnt() -> None:
    results = with_line(results_by_seed({"a": [0.6, 0.6]}), "no_skill_set_error", [0.6] * 2)
    ranked = with_test_metric(results, "auroc", {"a": [0.8, 0.9]})
    finding = judge(Study(ranked), "t").finding
    assert isinstance(finding, NothingLearnt)
    assert finding.by_others == ()


def test_a_loss_without_some_of_its_values_is_not_judged_by_them() -> None:
    likelihoods = {"a": [0.3, 0.31, math.inf, math.inf], "b": [0.41] * 3 + [0.42], "c": [0.6] * 4}
    results = around(0.1, 0.1, 0.1, seeds=4)
    finding = judge(Study(with_test_metric(results, "nll", likelihoods)), "t", "nll").finding
    assert isinstance(finding, Best | NotToldApart)
    assert "a" not in finding.contenders + finding.worse
    assert finding.leader.loss == "b"


def test_the_table_says_which_loss_lacks_values() -> None:
    values = {"a": [0.3, math.nan, 0.3], "b": [0.4] * 3, "c": [0.6] * 3}
    measured = with_test_metric(around(0.1, 0.1, 0.1, seeds=3), "nll", values)
    table = uses_table(Study(measured), "t")
    assert table is not None
    (likelihoods,) = [head for head in map(str, table.frame) if head.startswith("probabilities")]
    assert table.frame[likelihoods]["a"].endswith("(2 of 3 seeds)")


def test_a_loss_without_probabilities_has_a_dash() -> None:
    values = {"a": [math.nan] * 3, "b": [0.4] * 3, "c": [0.6] * 3}
    table = uses_table(Study(with_test_metric(around(0.1, 0.1, 0.1, seeds=3), "nll", values)), "t")
    assert table is not None
    (likelihoods,) = [head for head in map(str, table.frame) if head.startswith("probabilities")]
    assert table.frame[likelihoods]["a"] == "—"


def test_the_last_row_says_which_difference_would_show_for_each_use() -> None:
    # By set error b is worse than a by 2 points, by likelihood no loss is worse.
    likelihoods = {"a": [0.3, 0.5, 0.4], "b": [0.5, 0.3, 0.4], "c": [0.4, 0.4, 0.5]}
    results = around(0.1, 0.12, 0.13, seeds=3)
    table = uses_table(Study(with_test_metric(results, "nll", likelihoods)), "t")
    assert table is not None
    row = table.frame.loc["smallest difference usually found"]
    points = float(str(row["whole label sets: set error (%) ↓"]).removesuffix(" points"))
    assert 0 < points < 2
    assert float(str(row["probabilities: negative log-likelihood, nats ↓"])) > 0.1


def test_a_use_is_judged_by_the_metric_that_most_losses_have() -> None:
    results = around(0.1, 0.2, 0.3)
    only_one = {"a": [0.1] * 5, "b": [math.nan] * 5, "c": [math.nan] * 5}
    all_three = {"a": [0.1] * 5, "b": [0.2] * 5, "c": [0.3] * 5}
    measured = with_test_metric(results, "own_label_error", only_one)
    measured = with_test_metric(measured, "label_error", all_three)
    (_, classes, *_) = USES
    assert Study(measured).metric_of_use("t", classes) == "label_error"


def test_one_seed_of_losses_that_learn_from_counts_leaves_the_verdict_of_others() -> None:
    supervision: dict[str, Supervision] = {"c": "count", "d": "count"}
    lost = {(loss, "t", seed): ("missing", "") for loss in "cd" for seed in (1, 2)}
    results = make_results(
        losses={"a": 0.01, "b": 0.4, "c": 0.1, "d": 0.2},
        tasks={"t": "set_error"},
        supervision=supervision,
        statuses=lost,
    )
    finding = judge(Study(results), "t").finding
    assert isinstance(finding, Best)
    assert finding.contenders == ("a",)


def test_an_auroc_that_chance_explains_is_no_learning() -> None:
    """With three seeds the mean AUROC lies above 0.5 by two standard errors: too few."""
    alone = with_line(results_by_seed({"a": NO_BETTER}), "no_skill_set_error", [0.6] * 3)
    ranked = with_test_metric(alone, "auroc", {"a": [0.504, 0.522, 0.54]})
    assert learnt_by_others(Study(ranked), "t") == {}


def test_tasks_that_tell_nothing_apart_do_not_count() -> None:
    apart = {"a": 0.01, "b": 0.4, "c": 0.5, "d": 0.6}
    results = make_results(losses=apart, tasks={f"t{k}": "set_error" for k in range(5)})
    # On the last task all losses have the error 0.3 and noise. The noise is cut off so that no
    # error falls below 0.
    values = results.frame["value"].where(results.frame["task"] != "t4", 0.3)
    noise = 0.01 * np.random.default_rng(0).normal(size=len(values))
    frame = results.frame.assign(value=values + noise.clip(-0.009, 0.09))
    first, second = sentences(Study(replace(results, frame=frame)))
    assert "on 4 of 4 tasks" in first
    assert second.startswith("Most losses cannot be told apart on t4 (")
    assert "points). This task is left out of the count" in second


def with_search(
    results: Results, errors: Mapping[str, Sequence[float]], points: int | None = None
) -> Results:
    """Return results with a search for the settings of each loss.

    Args:
        results: the results of the comparison.
        errors: loss -> the set error of each draw, the same on validation and test bags.
        points: the number of points of the ranges, to which the draws go in turn; None: the plan
            does not name them.
    """
    first_row = results.frame.iloc[0].to_dict()
    draws = {}
    rows = []
    for loss, of_loss in errors.items():
        for number, error in enumerate(of_loss):
            cell = f"{loss} {number}"
            point = None if points is None else number % points
            settings = {"recipe.lr": 0.1 * (1 + number)}
            draws[cell] = Draw(Arm("t", loss), number, settings, point)
            row = first_row | {
                "loss": loss,
                "cell": cell,
                "draw": number,
                "value": error,
                "status": "done",
            }
            rows.append(row | {"metric": "validation/set_error"})
            rows.append(row | {"metric": "test/set_error"})
    compared = {cell.id: Label("t", cell.loss.name) for cell in results.plan.cells}
    chosen = {f"t|{loss}|": int(np.argmin(of_loss)) for loss, of_loss in errors.items()}
    search = SearchRecord("validation/set_error", draws, chosen, compared)
    frame = pd.concat([results.frame, pd.DataFrame(rows)], ignore_index=True)
    frame = frame.astype({"draw": "Int64", "epoch": "Int64"})
    return replace(results, frame=frame, plan=replace(results.plan, search=search))


def test_a_search_whose_draws_differ_makes_losses_contend() -> None:
    losses = around(0.10, 0.15, 0.6)
    errors_of_draws = [0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.35]
    study = Study(with_search(losses, dict.fromkeys("abc", errors_of_draws)))
    given = study.contenders("t", settings_are_given=True)["set"]
    assert given.contender.tolist() == [True, False, False]
    assert study.worse_with_given_settings("t") == ["b"]
    assert study.resolution("t") > study.resolution_of_given_settings("t")


def test_the_table_by_use_names_losses_that_have_a_tick_because_the_search_counts() -> None:
    likelihoods = {loss: [0.3, 0.4, 0.5, 0.3, 0.4] for loss in "abc"}
    results = with_test_metric(around(0.10, 0.15, 0.6), "nll", likelihoods)
    errors_of_draws = [0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.35]
    table = uses_table(Study(with_search(results, dict.fromkeys("abc", errors_of_draws))), "t")
    assert table is not None
    sentence = (
        "Whole label sets, with the chosen settings taken as given: worse than the best as well: b."
    )
    assert sentence in table.note


def test_a_search_whose_draws_are_equal_changes_nothing() -> None:
    losses = around(0.10, 0.12, 0.13, 0.14)
    finding = judge(Study(losses), "t").finding
    searched = with_search(losses, dict.fromkeys("abcd", [0.1] * 8))
    assert judge(Study(searched), "t").finding == finding


def test_a_search_of_few_draws_changes_no_verdict_and_is_named() -> None:
    losses = around(0.10, 0.15, 0.6)
    errors_of_draws = [0.05, 0.1, 0.3, 0.7]
    study = Study(with_search(losses, dict.fromkeys("abc", errors_of_draws)))
    assert judge(study, "t").finding == judge(Study(losses), "t").finding
    (line,) = small_search_lines(study)
    assert line.startswith("Each loss had four settings to choose from.")


def test_a_search_at_few_points_changes_no_verdict_and_is_named() -> None:
    losses = around(0.10, 0.15, 0.6)
    errors_of_draws = [0.05, 0.1, 0.3, 0.7] * 2
    study = Study(with_search(losses, dict.fromkeys("abc", errors_of_draws), points=4))
    assert judge(study, "t").finding == judge(Study(losses), "t").finding
    (line,) = small_search_lines(study)
    assert line.startswith("Each loss had eight settings at four points of their ranges to choose")


def results_on_bags(
    folder: Path, wrong: Mapping[str, Sequence[int]], bag_items: BagItems
) -> Results:
    """Return results with three seeds and 200 test bags.

    Args:
        folder: where the folders of cells are made.
        wrong: loss -> the test bags on which it is wrong, with every seed.
        bag_items: the items or groups of the test bags.
    """
    values = {loss: [len(bags) / 200] * 3 for loss, bags in wrong.items()}
    results = results_by_seed(values)
    folders = {}
    for row in rows_of(results.frame.drop_duplicates("cell")):
        own = folder / row.cell
        own.mkdir(parents=True)
        outcomes = Outcomes(np.isin(np.arange(200), wrong[row.loss]), np.ones(200), "bags")
        save_outcomes(own / "outcomes.npz", {"set_error": outcomes})
        save_bag_items(own / "test_items.npz", {"bags": bag_items})
        folders[row.cell] = own
    return replace(results, folders=folders)


ALONE = BagItems(group=None, items=np.arange(200)[:, None])
"""Each of 200 test bags has an item of its own."""
IN_TEN = BagItems(group=np.arange(200) // 20, items=None)
"""The 200 test bags are in ten groups of twenty."""
WRONG = {"a": range(5), "b": range(20, 40), "c": range(100), "d": range(150)}
"""The bags on which each loss is wrong. Loss b is wrong on one whole group of twenty."""


def test_bags_of_few_groups_exclude_less_than_bags_of_their_own(tmp_path: Path) -> None:
    independent = judge(Study(results_on_bags(tmp_path / "alone", WRONG, ALONE)), "t").finding
    of_groups = judge(Study(results_on_bags(tmp_path / "groups", WRONG, IN_TEN)), "t").finding
    assert isinstance(independent, Best)
    assert independent.contenders == ("a",)
    assert isinstance(of_groups, Best | NotToldApart)
    assert "b" in of_groups.contenders
    assert of_groups.resolution > independent.resolution


def test_a_published_report_has_the_verdict_of_its_comparison(tmp_path: Path) -> None:
    results = results_on_bags(tmp_path / "cells", WRONG, IN_TEN)
    save(results, tmp_path / "published")
    published = read(tmp_path / "published")
    assert judge(Study(published), "t") == judge(Study(results), "t")
