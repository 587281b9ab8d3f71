"""The bound of |L| that training hands to losses is reached, and a bag beyond it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from milbench import Bags, UsageError, generator, load_task
from milbench.engine.parts import set_up
from milbench.engine.train import train_step
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.training import small_cell

CPU = torch.device("cpu")


@pytest.fixture(scope="module")  # the registry of a process knows one file of a name
def modest_task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task whose bags have up to three classes, and which says that they have at most two."""
    path = tmp_path_factory.mktemp("task") / "modest.py"
    source = Path(TINY).read_text("utf-8").replace("class TinyTask(Task)", "class ModestTask(Task)")
    path.write_text(source.replace('name = "tiny"', 'name = "modest"\n    max_labels = 2'), "utf-8")
    return path


@pytest.mark.parametrize("loss", ["exact", "noisy-or"])
def test_a_bound_that_is_too_small_is_one_line_before_anything_starts(
    loss: str, modest_task: Path, milbench: Milbench
) -> None:
    task = load_task(str(modest_task))
    task.prepare(None, CPU)
    sizes = next(iter(task.train_batches(0, generator("bags", "modest", 0, 0)))).labels.sum(dim=1).tolist()
    complaint = milbench("run", "--loss", loss, "--task", str(modest_task)).complaint()
    assert f"max_labels of task modest is 2, but bag {sizes.index(3)} of a training batch has 3 classes" in complaint
    assert "bag_log_prob_bounds" not in complaint


def test_training_finds_a_bound_that_a_later_batch_breaks(modest_task: Path) -> None:
    """Training checks every batch on a CPU, and on a GPU the first one, as that makes the host wait."""
    it = set_up(small_cell(task_name=str(modest_task)), CPU, None)
    bags = next(iter(it.task.train_batches(0, generator("bags"))))
    few, many = bags.labels.sum(dim=1) <= 2, bags.labels.sum(dim=1) == 3
    train_step(it, chosen(bags, few), 0)
    with pytest.raises(UsageError, match=r"max_labels of task modest is 2, but bag 0 .* has 3 classes"):
        train_step(it, chosen(bags, many), 1)


def chosen(bags: Bags, which: torch.Tensor) -> Bags:
    return Bags(bags.instances[which], bags.labels[which])
