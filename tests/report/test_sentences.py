"""The sentence of a report names the contenders, and no more than the data show."""

from __future__ import annotations

import pytest

from milbench.api.plan import Mark
from milbench.report.render import sentence
from tests._helpers.report_data import ONE, TWO, make_results


def test_the_contenders_of_a_task_are_named_the_best_mean_first() -> None:
    said = sentence(make_results(tasks=ONE))
    assert said in {
        f"On extended-digits the best loss is {names}, with 95 % confidence."
        for names in ("exact or noisy-or", "noisy-or or exact")
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"losses": {"a": 0.01, "b": 0.4}}, "On t the best loss is a, with 95 % confidence."),
        ({"losses": {"a": 0.01, "b": 0.4}, "seeds": 1}, "one seed can't tell whether it is the best loss."),
        ({"losses": {"a": 0.01, "b": 0.0101}}, "any of the 2 losses may be the best"),
        ({"losses": {"a": 0.01, "b": 0.011}, "seeds": 2}, "with 2 seeds that says little"),
        ({"losses": {"a": 0.01}}, "On t a has a mean set error of"),
    ],
)
def test_what_is_said_of_one_task(fields: dict[str, object], expected: str) -> None:
    assert expected in sentence(make_results(tasks={"t": "set_error"}, **fields))  # type: ignore[arg-type]


def test_cells_that_lack_are_counted_since_their_loss_may_be_the_best_too() -> None:
    lost = {("c", "t", seed): ("missing", "") for seed in range(3)}
    said = sentence(make_results(losses={"a": 0.01, "b": 0.4, "c": 0.01}, tasks={"t": "set_error"}, statuses=lost))
    assert said == "On t the best loss is a, with 95 % confidence (6 of 9 cells done)."


def test_few_tasks_have_a_sentence_each_and_many_are_counted() -> None:
    two = {"a": 0.01, "b": 0.4}
    assert sentence(make_results(losses=two, tasks=TWO)).count("the best loss is a, with 95 % confidence.") == 2
    many = make_results(losses=two, tasks={f"t{k}": "set_error" for k in range(5)})
    assert sentence(many) == "Contenders for the best loss, with 95 % confidence on each task: a on 5 of 5 tasks."


@pytest.mark.parametrize("primary", ["set_error", "instance_error"])
def test_equivalence_is_not_counted_over_several_tasks(primary: str) -> None:
    several = {"a": primary, "b": "set_error"}
    margin, params = {"set_error": 0.01}, {"a": {"size": 3, "share": 0.5}}
    said = sentence(make_results(tasks=several, margin=margin, params=params))
    assert said.startswith("On a ")


def test_tests_that_are_passed_are_counted() -> None:
    marks = [Mark("easy", "set_error", 0.3), Mark("hard", "set_error", 0.05)]
    results = make_results(losses={"a": 0.01, "b": 0.1, "c": 0.6}, tasks={"t": "set_error"}, info={"marks": marks})
    assert sentence(results) == "Passed of 2 tests: a 2, b 1."
