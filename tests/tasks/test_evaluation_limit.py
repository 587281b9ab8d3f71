"""Every task that comes with milbench evaluates on few bags where that is asked for, and keeps their outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Bags, Evaluation, Scores, Task, load_task
from milbench.api.registry import tasks
from tests._helpers.bag_tables import small_images, small_table
from tests._helpers.cifar_files import small_cifar
from tests._helpers.idx_files import small_mnist
from tests._helpers.sequence_files import RATE, small_sequences
from tests._helpers.spoken_files import small_spoken_digits

CPU = torch.device("cpu")
TRIED: dict[str, dict[str, Any]] = {
    "synthetic-bags": {},
    "extended-digits": {},
    "extended-mnist": {"any_data": True, "validation": 20},
    "mnist": {"any_data": True, "validation": 20},
    "feature-bags": {"table": "bags.csv"},
    "image-bags": {"table": "images.csv", "size": 32},
    "mnist-bags": {"any_data": True, "train_bags": 24},
    "cifar10": {"any_data": True, "validation": 10},
    "house-numbers": {"validation": 20},
    "sound-events": {"train_bags": 40},
    "spoken-digits": {"train_bags": 40, "any_data": True},
    "sequence-bags": {"table": "table.csv", "sample_rate": RATE, "test": 0.4, "validation": 0.4},
}


SETS = {"set_error", "label_error", "own_label_error"}
EVERY = SETS | {"instance_error"}
OUTCOMES = {
    "synthetic-bags": EVERY | {"hit_rate", "posterior_error"},
    "extended-digits": EVERY | {"hit_rate"},
    "extended-mnist": EVERY | {"hit_rate"},
    "feature-bags": EVERY | {"hit_rate", "posterior_error"},
    "image-bags": SETS | {"hit_rate"},
    "mnist": EVERY,
    "mnist-bags": SETS | {"hit_rate", "posterior_error"},
    "cifar10": EVERY,
    "house-numbers": SETS | {"hit_rate", "transcription_error"},
    "sound-events": EVERY | {"hit_rate"},
    "spoken-digits": EVERY | {"hit_rate"},
    "sequence-bags": EVERY | {"hit_rate"},
}
"""The metrics of each task that are ratios of sums over items."""


def evaluated(task: Task) -> tuple[Evaluation, list[int]]:
    """Return an evaluation of a network that was not trained, and the sizes of the batches that it scored."""
    network, sizes = task.network(0), []

    @torch.no_grad()
    def score(bags: Bags) -> Scores:
        sizes.append(len(bags))
        probs = network(bags.instances).float().softmax(dim=1)
        highest = probs[:, :-1].flatten(2).amax(dim=2)
        return Scores(highest, highest, probs)

    return task.evaluate(score), sizes


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a small data set for every task but house-numbers."""
    folder = small_spoken_digits(tmp_path_factory.mktemp("data"))
    return small_sequences(small_cifar(small_mnist(small_images(small_table(folder)))))


@pytest.mark.parametrize("when", ["before prepare", "after it"])
@pytest.mark.parametrize("name", TRIED)
def test_an_evaluation_can_be_limited_to_few_bags(name: str, when: str, data: Path, street_data: Path) -> None:
    task = load_task(name, **TRIED[name])
    task.evaluation_limit = 6 if when == "before prepare" else None
    task.prepare(street_data if name == "house-numbers" else data, CPU)
    task.evaluation_limit = 6
    found, sizes = evaluated(task)
    assert max(sizes) == 6
    # Bags and single instances of two splits; house numbers for a threshold, then two splits at three scales.
    assert sum(sizes) <= (7 if name == "house-numbers" else 4) * 6
    assert found.outcomes is not None
    assert set(found.outcomes) == OUTCOMES[name]
    for metric, outcomes in found.outcomes.items():
        assert len(outcomes) == 6
        assert outcomes.value == pytest.approx(found.metrics[f"test/{metric}"], abs=1e-12)
    of_bags = {found.outcomes[metric].items for metric in OUTCOMES[name] - {"instance_error"}}
    assert len(of_bags) == 1, "the metrics of bags have the same items"
    same = name in ("mnist", "cifar10")  # where a bag is one instance
    assert "instance_error" not in found.outcomes or ({found.outcomes["instance_error"].items} == of_bags) == same


def test_every_built_in_task_is_tried() -> None:
    registry = tasks()
    # svhn has the files of house-numbers' family, and no others.
    assert {*TRIED, "svhn"} == {n for n in registry.names() if registry.entry(n).origin == "milbench"}
