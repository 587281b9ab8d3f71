"""Published numbers as a task lists them, a plan stores them and a report reads them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict

import pytest

from milbench import Published as PublicPublished
from milbench.api.plan import TaskInfo
from milbench.api.published import Published
from milbench.api.registry import tasks
from milbench.api.task import Published as PublishedOfTask


def test_there_is_one_class_under_all_its_names() -> None:
    assert PublicPublished is Published
    assert PublishedOfTask is Published


def test_a_field_that_an_older_plan_lacks_has_its_default_and_other_keys_are_left_out() -> None:
    old = {"task": "mnist", "loss": "exact", "metric": "instance_error", "value": 0.01, "source": "A paper"}
    assert Published.from_dict(old) == Published("exact", "instance_error", 0.01, "A paper")
    with pytest.raises(TypeError, match="value"):
        Published.from_dict({"loss": "exact", "metric": "instance_error", "source": "A paper"})


@pytest.mark.parametrize("name", ["mnist", "extended-mnist"])
def test_what_a_plan_holds_of_a_task_is_read_back_whole(name: str) -> None:
    task = tasks().create(name, {})
    info = TaskInfo.of(task)
    assert task.published
    assert tuple(Published.from_dict(entry) for entry in info.published) == task.published
    assert [{k: v for k, v in entry.items() if k != "task"} for entry in info.published] == [
        asdict(p) for p in task.published
    ]


def test_it_needs_no_torch() -> None:
    code = "import sys, milbench.api.published; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
