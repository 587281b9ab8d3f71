"""The tables [[marks]] of a spec: which cells they plan, what they keep, and what is wrong in them."""

from __future__ import annotations

from typing import Any

import pytest

from milbench import UsageError
from milbench.api.merged_plans import merge
from milbench.api.plan import Plan
from milbench.engine.planning import make_plan
from milbench.engine.spec import Spec, make_spec, read_spec

ERROR = {"at_most": {"set_error": 0.05}}


def spec(marks: Any, **changes: Any) -> Spec:
    values = {"name": "t", "losses": ["exact", "mean"], "tasks": ["synthetic-bags"], "seeds": "0-1"}
    return make_spec({**values, **changes, "marks": marks}, owner="spec t.toml")


def plan(marks: Any, **changes: Any) -> Plan:
    return make_plan(spec(marks, **changes), None)


def asked(found: Plan) -> dict[str, list[tuple[str, str, float, bool]]]:
    return {
        task: [(mark.name, mark.metric, mark.bound, mark.at_most) for mark in marks]
        for task, marks in found.marks_by_task().items()
    }


def test_a_mark_plans_its_cells_once_and_is_on_them_alone() -> None:
    marks = [
        {"name": "easy", **ERROR},
        {"name": "few", "params": {"training_bags": 50}, "at_least": {"hit_rate": 0.9, "auroc": 0.8}},
    ]
    found = plan(marks, task={"synthetic-bags": {"num_classes": 3}})
    assert len(found.cells) == len({cell.id for cell in found.cells}) == 2 * 2 * 2
    assert asked(found) == {
        "synthetic-bags": [("easy", "set_error", 0.05, True)],
        "synthetic-bags training_bags=50": [("few", "hit_rate", 0.9, False), ("few", "auroc", 0.8, False)],
    }
    assert all(cell.task_params["num_classes"] == 3 for cell in found.cells)
    without = plan([], task={"synthetic-bags": {"num_classes": 3}})
    assert {cell.id for cell in without.cells} < {cell.id for cell in found.cells}


def test_a_mark_holds_for_every_value_of_an_axis_that_it_does_not_name() -> None:
    axes = {"synthetic-bags": {"num_classes": [2, 3], "training_bags": [0, 50]}}
    found = plan([{"name": "few", "params": {"training_bags": 50}, **ERROR}], task=axes)
    few = ("few", "set_error", 0.05, True)
    assert asked(found) == {f"synthetic-bags num_classes={n} training_bags=50": [few] for n in (2, 3)}
    assert len(found.cells) == 2 * 2 * 4


def test_marks_of_a_task_that_a_flag_left_out_are_left_out() -> None:
    marks = [{"name": "easy", "task": "synthetic-bags", **ERROR}]
    assert asked(plan(marks, tasks=["extended-digits"])) == {}


def test_a_mark_that_names_a_value_of_an_axis_counts_once() -> None:
    found = plan(
        [{"name": "few", "params": {"min_size": 4}, **ERROR}], task={"synthetic-bags": {"min_size": [3, 4, 5]}}
    )
    assert [(mark.name, mark.task_params["min_size"]) for mark in found.marks] == [("few", 4)]


def test_a_plan_keeps_its_marks_and_a_later_launch_with_another_loss_has_them_too() -> None:
    marks = [{"name": "few", "params": {"training_bags": 50}, **ERROR, "why": "As said."}]
    first, second = plan(marks), plan(marks, losses=["isr"])
    again = Plan.from_json(first.to_json())
    assert again == first
    assert again.marks[0].why == "As said."
    both = merge([Plan.from_json(second.to_json()), again])
    assert asked(both) == asked(first)
    assert {cell.loss for cell in both.cells} == {"exact", "mean", "isr"}


def test_the_bounds_of_the_newest_launch_count() -> None:
    old, new = ([{"name": "easy", "at_most": {"set_error": bound}}] for bound in (0.5, 0.1))
    assert merge([plan(new), plan(old)]).marks[0].bound == 0.1


def test_plans_of_before_have_no_marks() -> None:
    text = plan([]).to_json().replace(', "marks": []', "")
    assert "marks" not in text
    assert Plan.from_json(text).marks == []


@pytest.mark.parametrize(
    ("marks", "complaint"),
    [
        ([{"name": "easy", "at_mots": {"set_error": 1}}], "of spec t.toml 'at_mots'; did you mean 'at_most'"),
        ([{"name": "easy", "at_most": {"set_eror": 1}}], "metric of mark 'easy' 'set_eror'; did you mean 'set_error'"),
        ([{"name": "easy", "task": "synthetic-bag", **ERROR}], "unknown task 'synthetic-bag'; did you mean "),
        ([{"name": "easy", "params": {"trainig_bags": 50}, **ERROR}], "did you mean 'training_bags'"),
        ([{"name": "easy", "params": {"training_bags": -1}, **ERROR}], "training_bags = -1 is wrong"),
        ([{"name": "easy"}], "mark 'easy' of spec t.toml has no bound: expected at_most or at_least"),
        ([ERROR], "mark 'number 1' of spec t.toml needs a value for 'name'"),
        ([{"name": "easy", "at_most": {"set_error": float("nan")}}], "at_most.set_error = nan is wrong"),
        ([{"name": "easy", **ERROR}] * 2, "two marks are named 'easy'"),
        ({"name": "easy"}, r"marks are tables, \[\[marks\]\]"),
        (["easy"], r"marks are tables, \[\[marks\]\]"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_mark_is_said_in_one_line(marks: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        plan(marks)
    assert "\n" not in str(caught.value)


def test_of_several_tasks_a_mark_names_one() -> None:
    with pytest.raises(
        UsageError, match="mark 'easy' names no task, and there are several: extended-digits, synthetic"
    ):
        plan([{"name": "easy", **ERROR}], tasks=["extended-digits", "synthetic-bags"])


def test_the_obstacle_course_has_every_loss_of_label_sets_and_a_mark_on_every_task() -> None:
    from milbench.api.registry import losses

    found = make_plan(read_spec("stress"), None)
    assert {cell.loss for cell in found.cells} == {n for n in losses().names() if losses().cls(n).supervision == "set"}
    labels = {label for _, label, _ in found.labels.values()}
    assert set(found.marks_by_task()) == labels
    assert len({mark.name for mark in found.marks}) == len(labels) == 26
    assert all(mark.why for mark in found.marks)
    assert len(found.cells) == 18 * 26 * 5
    # What may be asked of wrong labels: 5 points, divided by 1 less the shares that are wrong.
    noisy = {m.name: m for m in found.marks if {"labels_dropped", "labels_added"} & m.task_params.keys()}
    for mark in noisy.values():
        wrong = mark.task_params.get("labels_dropped", 0) + mark.task_params.get("labels_added", 0)
        assert mark.bound == pytest.approx(0.05 / (1 - wrong), abs=5e-5)
    few = {m.task_params["training_bags"]: m.bound for m in found.marks if "training_bags" in m.task_params}
    assert few == {n: pytest.approx(0.05 * (3200 / n) ** 0.5) for n in (3200, 800, 200, 50)}
    assert len(noisy) == 4
