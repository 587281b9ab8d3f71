"""Every task that comes with milbench evaluates on few bags where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Bags, Scores, Task, load_task
from milbench.api.registry import tasks
from tests._helpers.cifar_files import small_cifar
from tests._helpers.idx_files import small_mnist

CPU = torch.device("cpu")
TRIED: dict[str, dict[str, Any]] = {
    "synthetic-bags": {},
    "extended-digits": {},
    "extended-mnist": {"any_data": True, "validation": 20},
    "mnist": {"any_data": True, "validation": 20},
    "cifar10": {"any_data": True, "validation": 10},
    "house-numbers": {"validation": 20},
}


def scored(task: Task) -> list[int]:
    """Return the sizes of the batches that an evaluation scores, by a network that was not trained."""
    network, sizes = task.network(0), []

    @torch.no_grad()
    def score(bags: Bags) -> Scores:
        sizes.append(len(bags))
        probs = network(bags.instances).float().softmax(dim=1)
        highest = probs[:, :-1].flatten(2).amax(dim=2)
        return Scores(highest, highest, probs)

    assert task.evaluate(score).metrics
    return sizes


@pytest.mark.parametrize("when", ["before prepare", "after it"])
@pytest.mark.parametrize("name", TRIED)
def test_an_evaluation_can_be_limited_to_few_bags(name: str, when: str, tmp_path: Path, street_data: Path) -> None:
    small_mnist(tmp_path)
    small_cifar(tmp_path)
    task = load_task(name, **TRIED[name])
    task.evaluation_limit = 6 if when == "before prepare" else None
    task.prepare(street_data if name == "house-numbers" else tmp_path, CPU)
    task.evaluation_limit = 6
    sizes = scored(task)
    assert max(sizes) == 6
    assert sum(sizes) <= 4 * 6, "bags and single instances of two splits"


def test_every_built_in_task_is_tried() -> None:
    registry = tasks()
    # svhn has the files of house-numbers' family, and no others.
    assert {*TRIED, "svhn"} == {n for n in registry.names() if registry.entry(n).origin == "milbench"}
