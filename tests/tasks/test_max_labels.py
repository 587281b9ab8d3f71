"""The bound of |L| that training hands to losses holds for all training bags and is reached, or nearly so."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from milbench import Task, generator, load_task
from milbench.data import digit_struct

CPU = torch.device("cpu")


def largest(task: Task, data: Path | None) -> int:
    """Return the number of classes of the training bag with most of them."""
    task.prepare(data, CPU)
    return max(int(bags.labels.sum(dim=1).max()) for bags in islice(task.train_batches(0, generator("bags")), 30))


@pytest.mark.parametrize("params", [{"num_classes": 3, "class_rate": 0.2}, {"max_size": 2, "min_size": 2}])
def test_synthetic_bags_have_no_more_classes_than_instances(params: dict[str, float]) -> None:
    task = load_task("synthetic-bags", **params)
    assert task.max_labels == min(params.get("num_classes", 5), params.get("max_size", 16)) == largest(task, None)


def test_canvases_have_no_more_classes_than_digits() -> None:
    task = load_task("extended-digits")
    assert largest(task, None) == task.max_labels


def test_a_house_number_counts_a_digit_that_it_repeats_once(street_data: Path) -> None:
    folder, task = street_data / "house-numbers", load_task("house-numbers", validation=10)
    records = [r for part in ("train", "test") for r in digit_struct.read(folder / part / digit_struct.FILE)]
    assert largest(task, street_data) <= max(len(set(record.classes)) for record in records)
    assert task.max_labels == max(len(set(record.classes)) for record in records)
