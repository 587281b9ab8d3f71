"""The contract tests of every built-in task, on small files where its data are files, and of tasks of third parties."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from milbench import Bags, Task
from milbench.api.registry import tasks
from milbench.testing import TaskContract
from tests._helpers.command_line import REPOSITORY, TINY
from tests._helpers.small_data import PARAMS

FEW: dict[str, Any] = {"bags_per_epoch": 100}
TRIED: dict[str, tuple[str, dict[str, Any]]] = {
    "SyntheticBags": ("synthetic-bags", FEW),
    "DependentClasses": ("synthetic-bags", FEW | {"num_classes": 4, "label_sets": "together", "empty_share": 0.3,
                                                  "context": 0.5, "test_sizes": "10-20"}),
    "SaturatedBags": ("synthetic-bags", FEW | {"num_classes": 8, "min_size": 4, "max_size": 5, "label_sets": "uniform",
                                               "labels_per_bag": 4, "imbalance": 100}),
    "ExtendedDigits": ("extended-digits", FEW),
    # svhn has the files of house-numbers' family, and no others.
    **{name.title().replace("-", ""): (name, params) for name, params in PARAMS.items() if name != "svhn"},
    "MNISTBagsOfAllClasses": ("mnist-bags", PARAMS["mnist-bags"] | {"labels": "all", "bag_size": 3}),
    "Tiny": (TINY, {}),
    "Template": (str(REPOSITORY / "milbench" / "templates" / "my_task.py"), {}),
}  # fmt: skip


class OnFiles(TaskContract):
    """The contract of a task whose data are files."""

    @pytest.fixture
    def data_dir(self, data_of_all: Path) -> Path:
        return data_of_all


for _name, (_task, _params) in TRIED.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (OnFiles,), {"task": _task, "params": _params})


class TestFewSyntheticBagsWithErrors(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = FEW | {"training_bags": 60, "labels_dropped": 0.2, "labels_added": 0.05}

    def test_label_sets_agree_with_the_truth(self, prepared: Task, batches: list[Bags]) -> None:
        """Those of test bags alone: training label sets have errors, and no truth, which would know better."""
        assert all(bags.truth is None for bags in batches)
        super().test_label_sets_agree_with_the_truth(prepared, [])


def test_every_built_in_task_has_contract_tests() -> None:
    registry = tasks()
    tried = {task for task, _ in TRIED.values()} | {"svhn"}
    assert {n for n in registry.names() if registry.entry(n).origin == "milbench"} <= tried
