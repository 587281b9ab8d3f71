"""Published numbers as a task lists them, a plan stores them and a report reads them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from milbench.api.plan import Plan, TaskInfo
from milbench.api.published import Published
from milbench.api.registry import tasks


def test_listed_runs_decide_and_not_what_the_source_prints() -> None:
    runs = (0.089, 0.054, 0.084, 0.071, 0.101, 0.081)
    printed = Published("a", "instance_error", 0.5, "A paper", spread=0.2, runs=9)
    assert (printed.mean, printed.deviation, printed.count) == (0.5, 0.2, 9)
    listed = replace(printed, values=runs)
    assert (listed.mean, listed.deviation) == pytest.approx((np.mean(runs), np.std(runs, ddof=1)))
    assert listed.count == 6
    assert replace(printed, values=runs[:1]).deviation == 0.2, "one run has no deviation"


def test_what_a_plan_holds_of_a_task_is_read_back_and_that_of_an_older_version_too() -> None:
    task = tasks().create("extended-mnist", {})
    written = Plan({"name": "x"}, [], {"t": TaskInfo(task.primary, published=list(task.published))}).to_json()
    read = Plan.from_json(written)
    assert json.loads(read.to_json()) == json.loads(written)
    assert read.tasks["t"].published[-1] == task.published[-1]
    older = written.replace('"margin"', '"no longer there"')
    assert Plan.from_json(older).tasks["t"].published[-1] == replace(task.published[-1], margin=None)
