"""Published numbers as a task lists them, a plan stores them and a report reads them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from milbench.api.plan import Plan, TaskInfo
from milbench.api.published import Published
from milbench.api.registry import tasks


def test_a_field_that_an_older_plan_lacks_has_its_default_and_other_keys_are_left_out() -> None:
    old = {"task": "mnist", "loss": "exact", "metric": "instance_error", "value": 0.01, "source": "A paper"}
    assert Published.from_dict(old) == Published("exact", "instance_error", 0.01, "A paper")
    with pytest.raises(TypeError, match="value"):
        Published.from_dict({"loss": "exact", "metric": "instance_error", "source": "A paper"})


def test_listed_runs_decide_and_not_what_the_source_prints() -> None:
    runs = (0.089, 0.054, 0.084, 0.071, 0.101, 0.081)
    printed = Published("a", "instance_error", 0.5, "A paper", spread=0.2, runs=9)
    assert (printed.mean, printed.deviation, printed.count) == (0.5, 0.2, 9)
    listed = replace(printed, values=runs)
    assert (listed.mean, listed.deviation) == pytest.approx((np.mean(runs), np.std(runs, ddof=1)))
    assert listed.count == 6
    assert replace(printed, values=runs[:1]).deviation == 0.2, "one run has no deviation"


@pytest.mark.parametrize("name", ["mnist", "extended-mnist", "cifar10", "svhn"])
def test_what_a_plan_holds_of_a_task_is_read_back_whole(name: str) -> None:
    task = tasks().create(name, {})
    assert task.published
    plan = Plan({"name": "x"}, [], {name: TaskInfo(task.primary, published=[asdict(one) for one in task.published])})
    read = Plan.from_json(plan.to_json()).tasks[name]
    found = [asdict(Published.from_dict(entry)) for entry in read.published]
    assert json.dumps(found) == json.dumps([asdict(one) for one in task.published])
