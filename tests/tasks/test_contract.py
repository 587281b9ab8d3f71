"""The contract tests of every built-in task, on small files where its data are files, and of tasks of third parties."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from milbench import Bags, Task
from milbench.api.registry import tasks
from milbench.testing import TaskContract
from tests._helpers.bag_tables import small_images, small_table
from tests._helpers.cifar_files import small_cifar
from tests._helpers.command_line import REPOSITORY, TINY
from tests._helpers.idx_files import small_mnist
from tests._helpers.sequence_files import RATE, small_sequences
from tests._helpers.spoken_files import small_spoken_digits


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with small MNIST and CIFAR-10."""
    return small_cifar(small_mnist(tmp_path_factory.mktemp("data")))


class TestSyntheticBags(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = {"bags_per_epoch": 100}


class TestSyntheticBagsOfDependentClasses(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = {
        "bags_per_epoch": 100,
        "num_classes": 4,
        "label_sets": "together",
        "empty_share": 0.3,
        "context": 0.5,
        "test_sizes": "10-20",
    }


class TestSaturatedSyntheticBags(TaskContract):
    task = "synthetic-bags"
    params: ClassVar = {
        "bags_per_epoch": 100,
        "num_classes": 8,
        "min_size": 4,
        "max_size": 5,
        "label_sets": "uniform",
        "labels_per_bag": 4,
        "imbalance": 100,
    }


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


class TestFeatureBags(TaskContract):
    task = "feature-bags"
    params: ClassVar = {"table": "bags.csv"}

    @pytest.fixture(scope="class")
    def data_dir(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return small_table(tmp_path_factory.mktemp("tables"))


class TestImageBags(TaskContract):
    task = "image-bags"
    params: ClassVar = {"table": "images.csv", "size": 32, "flip": True, "crop": 3}

    @pytest.fixture(scope="class")
    def data_dir(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return small_images(tmp_path_factory.mktemp("images"))


class TestSoundEvents(TaskContract):
    task = "sound-events"
    params: ClassVar = {"train_bags": 64}


class TestSpokenDigits(TaskContract):
    task = "spoken-digits"
    params: ClassVar = {"train_bags": 64, "any_data": True}

    @pytest.fixture(scope="class")
    def data_dir(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return small_spoken_digits(tmp_path_factory.mktemp("spoken"))


class TestSequenceBags(TaskContract):
    task = "sequence-bags"
    params: ClassVar = {"table": "table.csv", "sample_rate": RATE}

    @pytest.fixture(scope="class")
    def data_dir(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return small_sequences(tmp_path_factory.mktemp("sequences"))


class OnMNIST(TaskContract):
    params: ClassVar = {"any_data": True, "validation": 20}

    @pytest.fixture
    def data_dir(self, small_files: Path) -> Path:
        return small_files


class TestExtendedMNIST(OnMNIST):
    task = "extended-mnist"


class TestMNIST(OnMNIST):
    task = "mnist"


class TestMNISTBags(OnMNIST):
    task = "mnist-bags"
    params: ClassVar = {"any_data": True, "train_bags": 24}


class TestMNISTBagsOfAllClasses(OnMNIST):
    task = "mnist-bags"
    params: ClassVar = {"any_data": True, "train_bags": 24, "labels": "all", "bag_size": 3}


class TestCIFAR10(TaskContract):
    task = "cifar10"
    params: ClassVar = {"any_data": True, "validation": 10}

    @pytest.fixture
    def data_dir(self, small_files: Path) -> Path:
        return small_files


class TestHouseNumbers(TaskContract):
    task = "house-numbers"
    params: ClassVar = {"validation": 20}

    @pytest.fixture
    def data_dir(self, street_data: Path) -> Path:
        return street_data


class TestTiny(TaskContract):
    task = TINY


class TestWithoutTruth(TaskContract):
    task = str(REPOSITORY / "milbench" / "templates" / "my_task_without_truth.py")


def test_every_built_in_task_has_contract_tests() -> None:
    tried = {cls.task for cls in TaskContract.__subclasses__() + OnMNIST.__subclasses__() if hasattr(cls, "task")}
    registry = tasks()
    # svhn has the files of house-numbers' family, and no others.
    assert {n for n in registry.names() if registry.entry(n).origin == "milbench"} <= tried | {"svhn"}
