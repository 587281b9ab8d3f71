"""The check before a launch: a loss that training cannot use is refused, one that is merely suspicious is not."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from milbench import UsageError, generator
from milbench.contracts.registry import tasks
from milbench.contracts.resolver import resolve
from milbench.experiment.launch_settings import Execution
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.processes.fresh import FreshProcesses
from milbench.running.first_batch_check import check_all
from milbench.running.worker import Job
from milbench.store.cell_folder import CellFolder
from milbench.training.train import train_step
from milbench.training.training_setup import setup_for_cell
from tests._helpers.command_line import LOSS, PLUGINS, TINY
from tests._helpers.training import small_cell

FAULTY = str(PLUGINS / "faulty_loss.py")


def check(name: str, tmp_path: Path, **values: object) -> list[str]:
    return check_many(tmp_path, {"losses": [name], **values})


def check_many(tmp_path: Path, values: Mapping[str, object]) -> list[str]:
    cells = make_plan(make_spec({"name": "t", "tasks": [TINY], **values})).cells
    execution = Execution(in_process=True)
    return check_all(
        [Job(cell, "", CellFolder(tmp_path / cell.id), execution, 1, ["cpu"], 1) for cell in cells],
        FreshProcesses(),
        1,
    )


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("scalar", "bag_loss"),
        ("a value a class", "bag_loss"),
        ("number", "bag_loss"),
        ("detached", "a gradient"),
        ("other", "do not depend on the logits"),
        ("infinite", "finite values"),
        ("nan gradient", "finite gradient"),
        ("scores with background", "must return (8, 3) from scores"),
        ("nan scores", "values that can be compared"),
        ("nan evidence", "values that can be compared"),
        ("posterior of a bag", "must return (8, 4, 5) from posterior"),
        ("log posterior", "probabilities"),
        ("posterior over positions", "sum to 1"),
    ],
)
def test_a_wrong_result_of_a_loss_is_one_line(fault: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="faulty with network mlp on the first batch of tiny"
    ) as error:
        check(FAULTY, tmp_path, loss={"faulty": {"fault": fault}})
    assert says in str(error.value)
    assert "faulty_loss.py:" in str(error.value) or "must return" not in str(error.value), (
        "its place"
    )


def test_a_loss_is_tried_from_the_recipe_s_start(tmp_path: Path) -> None:
    """Its gradient is 0 unless a bag has few expected instances, as at the start with head_init = prior."""
    source = tmp_path / "late_loss.py"
    source.write_text(
        LOSS.read_text().replace('"my-loss"', '"late"').replace("def bag_loss(", "def unused(")
        + """
    def bag_loss(self, logits, labels, mask):
        few = logits[:, :-1].sigmoid().mean() < 0.3
        return (logits.square().mean(dim=(1, 2))) * few
"""
    )
    assert check(str(source), tmp_path, recipe={"head_init": "prior"}) == []
    (warning,) = check(str(source), tmp_path, recipe={"head_init": "paper"})
    assert (
        "late with network mlp on the first batch of tiny: bag_loss has a gradient of 0 for all of the 8 bags"
        in warning
    )


@pytest.mark.parametrize("fault", ["labels", "crowded"])
def test_a_batch_that_no_loss_can_use_is_named(fault: str, tmp_path: Path) -> None:
    task = {"tiny": {"fault": fault}}
    if (
        fault == "crowded"
    ):  # all label sets have every class: there may be nothing to learn from this batch
        assert check("exact", tmp_path, task=task) == []
        return
    with pytest.raises(UsageError, match="exact with network mlp on the first batch of tiny"):
        check("exact", tmp_path, task=task)


@pytest.mark.parametrize(
    ("bags", "by_work", "calls"), [(8, True, [1]), (8, False, []), (10_000, True, [])]
)
def test_small_steps_take_one_thread(
    monkeypatch: pytest.MonkeyPatch, bags: int, by_work: bool, calls: object
) -> None:
    called = list[int]()
    monkeypatch.setattr(torch, "set_num_threads", called.append)
    cell = small_cell(task_name="extended-digits", task={"extended-digits": {"batch_bags": bags}})
    setup_for_cell(cell, torch.device("cpu"), None, one_thread_if_small=by_work)
    assert called == calls


def test_a_class_bound_broken_by_a_later_batch_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training checks every batch on a CPU, and on a GPU the first one, as that makes the host wait."""
    monkeypatch.setattr(tasks().get(resolve(tasks(), TINY)), "max_labels", 2)
    setup = setup_for_cell(small_cell(), torch.device("cpu"), None)
    bags = next(iter(setup.problem.train_batches(0, generator("bags", "tiny", 0, 0))))
    sizes = bags.labels.sum(dim=1)
    says = f"max_labels of task tiny is 2, but bag {sizes.tolist().index(3)} of a training batch has 3 classes"
    for loss in ("exact", "noisy-or"):
        with pytest.raises(UsageError, match=says):
            check(loss, tmp_path)
    few, many = (bags.selected(which.nonzero().flatten()) for which in (sizes <= 2, sizes == 3))
    train_step(setup, few, 0)
    with pytest.raises(
        UsageError, match=r"max_labels of task tiny is 2, but bag 0 .* has 3 classes"
    ):
        train_step(setup, many, 1)


def test_many_positions_are_announced_once_with_what_they_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = tasks().get(resolve(tasks(), TINY))
    monkeypatch.setattr(tiny, "typical_size", 2000)
    spec: dict[str, object] = {"losses": ["exact", "one-vs-rest"], "networks": ["context", "mlp"]}
    # Parameters of its own, since a check keeps the last problem that it has loaded.
    spec["task"] = {"tiny": {"batches": 7}}
    (line,) = check_many(tmp_path, spec)
    bags, heads, width = 32, 4, 64
    pairs = 2000 * 2000 * bags
    # Queries by keys, then weights by values.
    assert f"context on tiny attends among 2,000 positions: {2 * pairs * width / 1e9:.3g}" in line
    # The encoder has 2 inputs, 8 hidden units and 64 outputs.
    assert f"(all of its encoder: {2000 * bags * (2 * 8 + 8 * 64) / 1e9:.3g} billion)" in line
    assert f"and at least {4 * pairs * heads / 1e6:,.0f} MB of memory" in line
    monkeypatch.setattr(tiny, "typical_size", 1024)
    spec["task"] = {"tiny": {"batches": 6}}
    assert check_many(tmp_path, spec) == []
