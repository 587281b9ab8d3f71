"""The check before a launch, which tries each loss on a first batch.

It refuses a loss that training cannot use, and warns of a loss that looks suspicious.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from milbench import Bags, UsageError, generator
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
from milbench.training.training_setup import Setup, setup_for_cell
from tests._helpers.command_line import LOSS, PLUGINS, TINY
from tests._helpers.training import small_cell

FAULTY = str(PLUGINS / "faulty_loss.py")


def check(loss: str, tmp_path: Path, /, **values: object) -> list[str]:
    """Check a loss on the tiny task in this process, and return the warnings.

    `values` are further keys of the spec.
    """
    return check_many(tmp_path, {"losses": [loss], **values})


def check_many(tmp_path: Path, values: Mapping[str, object]) -> list[str]:
    """Check the cells of a spec on the tiny task in this process, and return the warnings."""
    cells = make_plan(make_spec({"name": "t", "tasks": [TINY], **values})).cells
    jobs = [
        Job(
            cell,
            label="",
            folder=CellFolder(tmp_path / cell.id),
            execution=Execution(in_process=True),
            threads=1,
            devices=["cpu"],
            cells_per_gpu=1,
        )
        for cell in cells
    ]
    return check_all(jobs, FreshProcesses(), at_once=1)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("scalar", "bag_loss"),
        ("a value a class", "bag_loss"),
        ("number", "bag_loss"),
        ("detached", "a gradient"),
        ("other", "do not depend on the logits"),
        ("infinite", "finite values"),
        ("infinite gradient", "finite gradient"),
        ("scores with background", "must return (8, 3) from scores"),
        ("nan scores", "values that can be compared"),
        ("nan evidence", "values that can be compared"),
        ("posterior of a bag", "must return (8, 4, 5) from posterior"),
        ("log posterior", "probabilities"),
        ("posterior over positions", "sum to 1"),
    ],
)
def test_a_wrong_result_of_a_loss_is_one_line(fault: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        check(FAULTY, tmp_path, loss={"faulty": {"fault": fault}})
    message = str(error.value)
    assert "faulty with network mlp on the first batch of tiny" in message
    assert says in message
    assert "faulty_loss.py:" in message, "the file and the line of the method"


LATE = """
    def bag_loss(self, logits, labels, mask):
        are_few = logits[:, :-1].sigmoid().mean() < 0.3
        weight = are_few.to(logits.dtype)
        return weight * logits.square().mean(dim=(1, 2))
"""
"""A method whose gradient is 0, unless few classes are expected at each position.

With the initial weights "prior" of the recipe, few classes are expected.
"""


@pytest.fixture
def late_loss(tmp_path: Path) -> str:
    """The path of a loss that learns only from some initial weights."""
    source = LOSS.read_text()
    source = source.replace('"my-loss"', '"late"')
    # The class ends with LATE, which has a bag_loss of its own.
    source = source.replace("def bag_loss(", "def unused(")
    path = tmp_path / "late_loss.py"
    path.write_text(source + LATE)
    return str(path)


def test_a_loss_is_tried_with_the_initial_weights_of_the_recipe(
    late_loss: str, tmp_path: Path
) -> None:
    assert check(late_loss, tmp_path, recipe={"head_init": "prior"}) == []


def test_a_gradient_of_0_is_a_warning(late_loss: str, tmp_path: Path) -> None:
    (warning,) = check(late_loss, tmp_path, recipe={"head_init": "paper"})
    subject = "late with network mlp on the first batch of tiny"
    assert f"{subject}: bag_loss has a gradient of 0 for all of the 8 bags" in warning


def test_a_batch_that_no_loss_can_use_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exact with network mlp on the first batch of tiny"):
        check("exact", tmp_path, task={"tiny": {"fault": "labels"}})


def test_a_batch_of_all_classes_may_teach_nothing(tmp_path: Path) -> None:
    # With the fault "crowded" every label set has all classes. If all classes are predicted
    # already, a loss rightly has a gradient of 0, and so the check gives no warning.
    assert check("exact", tmp_path, task={"tiny": {"fault": "crowded"}}) == []


@pytest.mark.parametrize(
    ("bags", "may_choose", "calls"),
    [
        pytest.param(8, True, [1], id="small"),
        pytest.param(8, False, [], id="small with threads of the user"),
        pytest.param(10_000, True, [], id="large"),
    ],
)
def test_small_steps_take_one_thread(
    monkeypatch: pytest.MonkeyPatch, bags: int, may_choose: bool, calls: list[int]
) -> None:
    called: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", called.append)
    cell = small_cell(task_name="extended-digits", task={"extended-digits": {"batch_bags": bags}})
    setup_for_cell(cell, torch.device("cpu"), None, one_thread_if_small=may_choose)
    assert called == calls


@pytest.fixture
def at_most_two(monkeypatch: pytest.MonkeyPatch) -> Setup:
    """The setup of a cell whose task promises at most two classes in a bag, but gives more."""
    monkeypatch.setattr(tasks().get(resolve(tasks(), TINY)), "max_labels", 2)
    return setup_for_cell(small_cell(), torch.device("cpu"), None)


def first_batch(setup: Setup) -> Bags:
    """Return the first training batch of a cell."""
    return next(iter(setup.problem.train_batches(0, generator("bags", "tiny", 0, 0))))


@pytest.mark.parametrize("loss", ["exact", "noisy-or"])
def test_a_bound_broken_by_the_first_batch_is_named(
    loss: str, tmp_path: Path, at_most_two: Setup
) -> None:
    sizes = first_batch(at_most_two).labels.sum(dim=1).tolist()
    first_too_large = f"bag {sizes.index(3)} of a training batch"
    with pytest.raises(
        UsageError, match=f"max_labels of task tiny is 2, but {first_too_large} has 3 classes"
    ):
        check(loss, tmp_path)


def test_a_bound_broken_by_a_later_batch_is_named(at_most_two: Setup) -> None:
    """On a CPU training checks every batch; on a GPU, where it costs time, only the first."""
    bags = first_batch(at_most_two)
    sizes = bags.labels.sum(dim=1)
    small_bags = bags.selected((sizes <= 2).nonzero().flatten())
    large_bags = bags.selected((sizes == 3).nonzero().flatten())
    train_step(at_most_two, small_bags, 0)
    with pytest.raises(
        UsageError, match=r"max_labels of task tiny is 2, but bag 0 .* has 3 classes"
    ):
        train_step(at_most_two, large_bags, 1)


def spec_with_attention(batches: int) -> dict[str, object]:
    """Return a spec of two losses, each on a network with self-attention and on one without.

    Each test needs a number of batches of its own, and with it another task: a check keeps the last
    problem that it has loaded, and would not load an equal task again.
    """
    return {
        "losses": ["exact", "one-vs-rest"],
        "networks": ["context", "mlp"],
        "task": {"tiny": {"batches": batches}},
    }


def test_many_positions_are_announced_once_with_what_they_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks().get(resolve(tasks(), TINY)), "typical_size", 2000)
    (line,) = check_many(tmp_path, spec_with_attention(batches=7))
    # The cost is computed for the `batch_bags` of the tiny task, although its training batches have
    # only 8 bags.
    bags = 32
    heads = 4
    width = 64
    pairs = 2000 * 2000 * bags
    # Two products for each pair of positions: queries by keys, then weights by values.
    products = 2 * pairs * width
    assert f"context on tiny attends among 2,000 positions: {products / 1e9:.3g}" in line
    # The encoder has 2 inputs, 8 hidden units and 64 outputs.
    products_of_encoder = 2000 * bags * (2 * 8 + 8 * 64)
    assert f"(all of its encoder: {products_of_encoder / 1e9:.3g} billion)" in line
    # A weight has 4 bytes.
    assert f"and at least {4 * pairs * heads / 1e6:,.0f} MB of memory" in line


def test_1024_positions_are_not_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks().get(resolve(tasks(), TINY)), "typical_size", 1024)
    assert check_many(tmp_path, spec_with_attention(batches=6)) == []
