"""What a report says of no skill, the best answer that is the same for every bag.

No loss may beat it, or some losses do, or the error of this answer is unknown.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from milbench.contracts.outcomes import Outcomes, save_outcomes
from milbench.report.learning import has_learnt
from milbench.report.ranking_table import ranking_table
from milbench.report.render import sentence
from milbench.report.study import Study
from milbench.report.tables import main_table
from milbench.store.results import Results
from tests._helpers.report_data import (
    make_results,
    results_by_seed,
    with_line,
    with_test_metric,
)

NO_LOSS_BEATS_IT = {"a": [0.60, 0.58, 0.61], "b": [0.59, 0.62, 0.60]}
"""The set errors of two losses with three seeds, beside the errors of NO_SKILL."""
NO_SKILL = [0.6, 0.6, 0.59]
"""The set errors of the best constant answer with three seeds."""


def beside_no_skill(errors: dict[str, list[float]], no_skill: list[float]) -> Results:
    """Return results of losses and of no skill with these set errors, one for each seed."""
    return with_line(results_by_seed(errors), "no_skill_set_error", no_skill)


def test_a_report_says_that_no_loss_beats_no_skill() -> None:
    results = beside_no_skill(NO_LOSS_BEATS_IT, NO_SKILL)
    assert sentence(results).startswith(
        "On t no loss is shown to beat the best constant answer (no skill) by set error"
    )


def test_the_table_ends_with_no_skill() -> None:
    results = beside_no_skill(NO_LOSS_BEATS_IT, NO_SKILL)
    # The mean and the standard deviation of NO_SKILL.
    assert main_table(Study(results)).frame.iloc[-1].tolist()[0] == "59.7 ± 0.6"


def test_one_seed_that_does_not_beat_no_skill_is_named() -> None:
    results = beside_no_skill({"a": [0.61], "b": [0.6]}, [0.6])
    assert "no loss is shown to beat" in sentence(results)


def test_a_mean_below_no_skill_may_be_chance() -> None:
    results = beside_no_skill({"a": [0.2, 0.7], "b": [0.9, 0.8]}, [0.6, 0.6])
    assert sentence(results).endswith("no skill has 60 %, a 45 %, which may be chance.")


def test_a_single_loss_that_does_not_beat_no_skill_is_named() -> None:
    alone = beside_no_skill({"a": NO_LOSS_BEATS_IT["a"]}, NO_SKILL)
    assert sentence(alone).startswith("On t a is not shown to beat")


def with_auroc(auroc: dict[str, list[float]]) -> Results:
    """Return results with these AUROCs, of losses that do not beat no skill by set error."""
    errors = {loss: [0.6, 0.61, 0.6] for loss in auroc}
    return with_test_metric(beside_no_skill(errors, [0.6, 0.6, 0.6]), "auroc", auroc)


def test_losses_above_chance_by_auroc_are_said_to_be() -> None:
    said = sentence(with_auroc({"a": [0.80, 0.82, 0.81], "b": [0.4, 0.6, 0.51]}))
    assert said.endswith("By AUROC 1 of 2 losses are above chance (0.5): a has 0.81.")


def test_losses_at_chance_by_auroc_are_not_praised() -> None:
    assert "AUROC" not in sentence(with_auroc({"a": [0.4, 0.7, 0.5], "b": [0.4, 0.6, 0.51]}))


def test_a_metric_without_a_line_is_replaced_by_the_set_error() -> None:
    results = beside_no_skill(NO_LOSS_BEATS_IT, NO_SKILL)
    measured = with_line(results, "posterior_error", [0.1, 0.1, 0.1])
    spec = measured.plan.spec.model_copy(update={"compare_by": ["posterior_error"]})
    said = sentence(replace(measured, plan=replace(measured.plan, spec=spec)))
    assert said == (
        "On t no loss is shown to beat the best constant answer (no skill) by set error: "
        "no skill has 60 %, a 60 %."
    )


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_one_loss_that_beats_no_skill_is_enough(seeds: int) -> None:
    errors = {"a": [0.20, 0.22, 0.21][:seeds], "b": [0.6, 0.61, 0.6][:seeds]}
    results = beside_no_skill(errors, [0.6] * seeds)
    assert has_learnt(Study(results), "t")


@pytest.mark.parametrize(
    ("wrong", "learnt"),
    [
        pytest.param(276, False, id="a gain that chance explains"),
        pytest.param(240, True, id="a gain beyond chance"),
    ],
)
def test_a_gain_has_to_exceed_what_other_test_items_explain(
    wrong: int, learnt: bool, tmp_path: Path
) -> None:
    results = beside_no_skill({"a": [wrong / 300] * 3}, [0.93] * 3)
    outcomes = Outcomes(np.arange(300) < wrong, np.ones(300), "same")
    save_outcomes(tmp_path / "outcomes.npz", {"set_error": outcomes})
    folders = dict.fromkeys(results.frame["cell"], tmp_path)
    study = Study(replace(results, folders=folders))
    assert has_learnt(study, "t") is learnt
    # Without learning there is no tick.
    assert bool(study.contenders("t")) is learnt


def test_where_no_skill_is_unknown_nothing_is_said_of_it() -> None:
    study = Study(results_by_seed({"a": [0.90, 0.91, 0.92], "b": [0.90, 0.91, 0.92]}))
    assert has_learnt(study, "t")
    assert "no skill" not in main_table(study).frame.index


def test_a_task_where_nothing_was_learnt_does_not_rank_losses() -> None:
    results = make_results(tasks={f"t{k}": "set_error" for k in range(6)})
    tested = results.frame[results.frame["metric"] == "test/set_error"]
    # On the last task the best constant answer makes no error, so that no loss beats it.
    no_skill = np.where(tested["task"] == "t5", 0.0, 1.0)
    line = tested.assign(metric="test/no_skill_set_error", value=no_skill)
    frame = pd.concat([results.frame, line], ignore_index=True)
    table = ranking_table(Study(replace(results, frame=frame)))
    assert table is not None
    assert table.title == "Over 5 tasks"


@pytest.mark.parametrize("losses", [1, 2, 6])
def test_losses_without_skill_are_seldom_said_to_have_learnt(losses: int) -> None:
    """With three seeds 7 % are promised: more than 14 of 100 have a probability of 0.4 %."""
    rng = np.random.default_rng(losses)
    learnt = 0
    for _ in range(100):
        # Every seed has test bags of its own, which move the constant answer as well.
        no_skill = 0.6 + 0.01 * rng.normal(size=3)
        errors = {}
        for number in range(losses):
            errors[f"l{number}"] = (no_skill + 0.03 * rng.normal(size=3)).tolist()
        study = Study(beside_no_skill(errors, no_skill.tolist()))
        if has_learnt(study, "t"):
            learnt += 1
    assert learnt <= 14
