"""Published numbers: a task lists them, a plan stores them, and a report reads them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from milbench.contracts.published import Published
from milbench.contracts.registry import tasks
from milbench.contracts.task import Task
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan, TaskInfo
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.experiment.questions import Questions
from milbench.experiment.spec_files import make_spec

RUNS = (0.089, 0.054, 0.084, 0.071, 0.101, 0.081)
PRINTED = Published("instance_error", 0.5, "A paper", "a", spread=0.2, runs=9)
"""A result of a paper that prints a mean, a standard deviation and a number of runs only."""


def test_what_a_source_prints_counts_where_no_runs_are_listed() -> None:
    assert PRINTED.mean == 0.5
    assert PRINTED.deviation == 0.2
    assert PRINTED.count == 9


def test_listed_runs_count_and_not_what_the_source_prints() -> None:
    listed = replace(PRINTED, values=RUNS)
    assert listed.mean == pytest.approx(np.mean(RUNS))
    assert listed.deviation == pytest.approx(np.std(RUNS, ddof=1))
    assert listed.count == 6


def test_one_listed_run_leaves_the_printed_deviation() -> None:
    assert replace(PRINTED, values=RUNS[:1]).deviation == 0.2


@pytest.fixture
def task() -> Task:
    return tasks().create("extended-mnist", {})


def plan_with(task: Task) -> Plan:
    info = TaskInfo(task.primary, published=list(task.published))
    return Plan(Questions(name="x"), [], {"t": info})


def test_a_plan_that_is_read_is_written_the_same(task: Task) -> None:
    written = plan_to_json(plan_with(task))
    again = plan_to_json(plan_from_json(written.encode()))
    assert json.loads(again) == json.loads(written)


def test_published_numbers_of_a_plan_are_read_back(task: Task) -> None:
    read = plan_from_json(plan_to_json(plan_with(task)).encode()).tasks["t"].published
    assert read
    assert len(read) == len(task.published)
    for published, original in zip(read, task.published, strict=True):
        # JSON has no tuples, which a protocol may hold.
        assert replace(published, protocol={}) == replace(original, protocol={})


def methods_beside(**params: object) -> set[str]:
    """Return the published methods that are shown beside results on mnist-bags.

    `params` are the parameters of the task.
    """
    spec = make_spec(
        {
            "name": "x",
            "losses": ["exact"],
            "tasks": ["mnist-bags"],
            "task": {"mnist-bags": params},
        }
    )
    plan = make_plan(spec)
    return {published.method for info in plan.tasks.values() for published in info.published}


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let mnist-bags be planned without its files."""
    task = tasks().get("mnist-bags")
    monkeypatch.setattr(task, "check_data", lambda self, data_dir: "not looked at")


METHODS_OF_50_BAGS = {"attention, Ilse et al.", "instance + max, Ilse et al."}


@pytest.mark.usefixtures("without_data")
@pytest.mark.parametrize(
    "same", [pytest.param({}, id="as published"), pytest.param({"batch_bags": 8}, id="batches")]
)
def test_published_methods_are_shown_beside_results_on_the_same_bags(
    same: dict[str, object],
) -> None:
    assert methods_beside(train_bags=50, **same) == METHODS_OF_50_BAGS


@pytest.mark.usefixtures("without_data")
@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"train_bags": 500}, id="more bags"),
        pytest.param({"labels": "all"}, id="other labels"),
        pytest.param({"bag_size": 5}, id="smaller bags"),
        pytest.param({"data": "fashion-mnist"}, id="other images"),
    ],
)
def test_published_methods_are_not_shown_beside_results_on_other_bags(
    other: dict[str, object],
) -> None:
    params: dict[str, object] = {"train_bags": 50}
    assert methods_beside(**(params | other)) == set()
