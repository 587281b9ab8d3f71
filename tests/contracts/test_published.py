"""Published numbers as a task lists them, a plan stores them and a report reads them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from milbench.contracts.published import Published
from milbench.contracts.registry import tasks
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan, TaskInfo
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.experiment.questions import Questions
from milbench.experiment.spec_files import make_spec


def test_listed_runs_decide_and_not_what_the_source_prints() -> None:
    runs = (0.089, 0.054, 0.084, 0.071, 0.101, 0.081)
    printed = Published("instance_error", 0.5, "A paper", "a", spread=0.2, runs=9)
    assert (printed.mean, printed.deviation, printed.count) == (0.5, 0.2, 9)
    listed = replace(printed, values=runs)
    assert (listed.mean, listed.deviation) == pytest.approx((np.mean(runs), np.std(runs, ddof=1)))
    assert listed.count == 6
    assert replace(printed, values=runs[:1]).deviation == 0.2, "one run has no deviation"


def test_what_a_plan_holds_of_a_task_is_read_back() -> None:
    task = tasks().create("extended-mnist", {})
    info = TaskInfo(task.primary, published=list(task.published))
    written = plan_to_json(Plan(Questions(name="x"), [], {"t": info}))
    read = plan_from_json(written.encode())
    assert json.loads(plan_to_json(read)) == json.loads(written)
    assert replace(read.tasks["t"].published[-1], protocol={}) == replace(
        task.published[-1], protocol={}
    )


@pytest.mark.parametrize(
    "other", [{"train_bags": 500}, {"labels": "all"}, {"bag_size": 5}, {"data": "fashion-mnist"}]
)
def test_a_method_of_others_stands_beside_results_on_the_bags_that_it_was_measured_on_alone(
    other: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tasks().get("mnist-bags"), "check_data", lambda self, data_dir: "not looked at"
    )

    def methods(**params: object) -> set[str]:
        values = {
            "name": "x",
            "losses": ["exact"],
            "tasks": ["mnist-bags"],
            "task": {"mnist-bags": params},
        }
        plan = make_plan(make_spec(values))
        return {published.method for info in plan.tasks.values() for published in info.published}

    published = {"attention, Ilse et al.", "instance + max, Ilse et al."}
    assert methods(train_bags=50) == methods(train_bags=50, batch_bags=8) == published
    assert methods(**{"train_bags": 50, **other}) == set()
