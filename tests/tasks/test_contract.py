"""The contract tests of every built-in task, on small files where its data are files, and of tasks of third parties."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from milbench import Bags, Task
from milbench.api.registry import tasks
from milbench.testing import TaskContract
from tests._helpers.command_line import REPOSITORY, TINY
from tests._helpers.small_data import PARAMS


class TestSyntheticBags(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = {"bags_per_epoch": 100}


class TestSyntheticBagsOfDependentClasses(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = {"bags_per_epoch": 100, "num_classes": 4, "label_sets": "together", "empty_share": 0.3,
                        "context": 0.5, "test_sizes": "10-20"}  # fmt: skip


class TestSaturatedSyntheticBags(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = {"bags_per_epoch": 100, "num_classes": 8, "min_size": 4, "max_size": 5, "label_sets": "uniform",
                        "labels_per_bag": 4, "imbalance": 100}  # fmt: skip


class TestFewSyntheticBagsWithErrors(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = {"bags_per_epoch": 100, "training_bags": 60, "labels_dropped": 0.2, "labels_added": 0.05}

    def test_label_sets_agree_with_the_truth(self, prepared: Task, batches: list[Bags]) -> None:
        """Those of test bags alone: training label sets have errors, and no truth, which would know better."""
        assert all(bags.truth is None for bags in batches)
        super().test_label_sets_agree_with_the_truth(prepared, [])


class TestExtendedDigits(TaskContract):
    task = "extended-digits"
    params: ClassVar = {"bags_per_epoch": 100}


class TestSoundEvents(TaskContract):
    task = "sound-events"
    params: ClassVar = PARAMS[task]


class OnFiles(TaskContract):
    """The contract of a task whose data are files."""

    @pytest.fixture
    def data_dir(self, data_of_all: Path) -> Path:
        return data_of_all


class TestFeatureBags(OnFiles):
    task = "feature-bags"
    params: ClassVar = PARAMS[task]


class TestImageBags(OnFiles):
    task = "image-bags"
    params: ClassVar = PARAMS[task]


class TestSequenceBags(OnFiles):
    task = "sequence-bags"
    params: ClassVar = PARAMS[task]


class TestSpokenDigits(OnFiles):
    task = "spoken-digits"
    params: ClassVar = PARAMS[task]


class TestExtendedMNIST(OnFiles):
    task = "extended-mnist"
    params: ClassVar = PARAMS[task]


class TestMNIST(OnFiles):
    task = "mnist"
    params: ClassVar = PARAMS[task]


class TestMNISTBags(OnFiles):
    task = "mnist-bags"
    params: ClassVar = PARAMS[task]


class TestMNISTBagsOfAllClasses(OnFiles):
    task = "mnist-bags"
    params: ClassVar = PARAMS[task] | {"labels": "all", "bag_size": 3}


class TestCIFAR10(OnFiles):
    task = "cifar10"
    params: ClassVar = PARAMS[task]


class TestHouseNumbers(OnFiles):
    task = "house-numbers"
    params: ClassVar = PARAMS[task]


class TestTiny(TaskContract):
    task = TINY


class TestWithoutTruth(TaskContract):
    task = str(REPOSITORY / "milbench" / "templates" / "my_task_without_truth.py")


def test_every_built_in_task_has_contract_tests() -> None:
    tried = {cls.task for cls in TaskContract.__subclasses__() + OnFiles.__subclasses__() if hasattr(cls, "task")}
    registry = tasks()
    # svhn has the files of house-numbers' family, and no others.
    assert {n for n in registry.names() if registry.entry(n).origin == "milbench"} <= tried | {"svhn"}
