from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from milbench import Bags, InstanceMLP, Loss, Network, Recipe, load_loss, load_task
from milbench.api.plan import Cell
from milbench.api.registry import tasks
from milbench.engine import trainer as trainer_module
from milbench.engine.callback import Stopped
from milbench.engine.memory import is_out_of_memory
from milbench.engine.objective import Objective
from milbench.engine.optimizers import backward
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.engine.trainer import Trainer
from tests._helpers.command_line import PLUGINS, TINY
from tests._helpers.training import Recorder, small_cell, train

CPU = torch.device("cpu")
LEARNING = str(PLUGINS / "learning_loss.py")


def cell(loss: str = "exact", **recipe: object) -> Cell:
    loss, _, normalization = loss.partition(" ")
    params = {loss: {"normalization": normalization}} if normalization else {}
    return small_cell(loss, recipe={"epochs": 1, **recipe}, loss=params)


Limit = Callable[[int], None]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """A function that sets how many bags a network can take at once before memory runs out."""

    def set_limit(bags: int) -> None:
        forward = InstanceMLP.forward

        def limited(self: InstanceMLP, instances: Tensor) -> Tensor:
            if len(instances) > bags:
                raise torch.OutOfMemoryError(f"out of memory: {len(instances)} bags")
            return forward(self, instances)

        monkeypatch.setattr(InstanceMLP, "forward", limited)

    return set_limit


@pytest.mark.parametrize(
    ("loss", "optimizer"),
    [
        ("exact", "sgd"),
        ("max-pooling bag", "sgd"),
        ("max-pooling batch", "sgd"),
        (LEARNING, "sgd"),
        ("count", "sgd"),
        ("position", "sgd"),
        ("exact", "adamw"),
        ("exact", "psgd"),
        ("position", "psgd"),
        ("exact", "muon"),
        ("max-pooling batch", "muon"),
    ],
)
def test_a_batch_that_does_not_fit_is_computed_in_parts_with_the_same_gradient(
    loss: str, optimizer: str, tmp_path: Path, limit: Limit
) -> None:
    """Four steps on batches of eight bags, of which three fit: parts of two, in training and in evaluation."""
    one = cell(loss, optimizer=optimizer, lr=0.02, schedule="constant")
    whole = train(one, tmp_path / "whole.pt")
    limit(3)
    callback = Recorder()
    parts = train(one, tmp_path / "parts.pt", callback)
    assert callback.sizes == [(4, 1, 1), (2, 1, 1)]
    for name, weight in whole.weights.items():
        torch.testing.assert_close(parts.weights[name], weight, rtol=1e-4, atol=1e-5)
    for metric, value in whole.history[0].items():
        if not metric.startswith("cost/"):
            assert parts.history[0][metric] == pytest.approx(value, rel=1e-4), metric
    start = tasks().create(TINY, {}).network(0).state_dict()
    assert any((whole.weights[f"network.{k}"] - v).abs().max() > 1e-3 for k, v in start.items())


def test_bags_that_are_scored_in_parts_have_the_scores_of_the_whole_batch(tmp_path: Path, limit: Limit) -> None:
    """The loss has independent detectors: its evidence is not its map."""
    trainer = Trainer(cell("one-vs-rest"), torch.device("cpu"), None, Recorder(), tmp_path / "c.pt")
    trainer.run()
    bags = trainer.task.gallery()
    whole = trainer._score(bags)
    limit(1)
    parts = trainer._score(bags)
    for field in ("classes", "presence", "instances", "evidence"):
        torch.testing.assert_close(getattr(parts, field), getattr(whole, field))
    assert not torch.equal(whole.strength, whole.instances[:, :-1])


def test_a_resumed_cell_goes_on_with_its_micro_batch_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Limit
) -> None:
    monkeypatch.setattr(trainer_module, "STOP_INTERVAL", -1.0)
    limit(3)
    one = cell(str(PLUGINS / "drawing_loss.py"), epochs=2)
    unbroken = train(one, tmp_path / "unbroken.pt")
    with pytest.raises(Stopped):
        train(one, tmp_path / "broken.pt", Recorder(stop_at=2))
    callback = Recorder()
    resumed = train(one, tmp_path / "broken.pt", callback)
    assert callback.sizes == []
    assert all(torch.equal(resumed.weights[k], unbroken.weights[k]) for k in unbroken.weights)


class Dropping(InstanceMLP):
    """A network that draws, as one with dropout does."""

    def forward(self, instances: Tensor) -> Tensor:
        return super().forward(torch.nn.functional.dropout(instances, 0.5))


class Normalising(InstanceMLP):
    """A network with batch statistics."""

    def __init__(self) -> None:
        super().__init__([2, 8, 4], 0)
        self.normalise = torch.nn.BatchNorm1d(4)

    def forward(self, instances: Tensor) -> Tensor:
        logits: Tensor = self.normalise(super().forward(instances))
        return logits


def tiny_batch() -> Bags:
    return next(load_task(TINY).train_batches(0, torch.Generator().manual_seed(0)))


def test_a_network_that_draws_random_numbers_draws_the_same_for_a_loss_that_couples_bags() -> None:
    bags, network, loss = tiny_batch(), Dropping([2, 8, 4], 0), load_loss("max-pooling", normalization="batch")
    torch.manual_seed(5)
    logits = torch.cat([network(part.instances) for part in bags.parts(3)])
    expected = torch.autograd.grad(loss(logits, bags.labels).mean(), list(network.parameters()))
    following = torch.rand(3)
    optimizer = torch.optim.SGD(network.parameters())
    torch.manual_seed(5)
    backward(optimizer, Objective(network, loss, Recipe(), CPU).terms(bags, 3, 1, 1))
    assert torch.equal(torch.rand(3), following)
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("loss", ["exact", "max-pooling"])
@pytest.mark.parametrize("network", [InstanceMLP([2, 8, 4], 0), Normalising()], ids=["plain", "batch statistics"])
@pytest.mark.parametrize("optimizer", ["sgd", "psgd"])
def test_what_parts_cannot_give_is_not_computed_in_parts(loss: str, network: Network, optimizer: str) -> None:
    from milbench.engine.optimizers import make_optimizer

    one: Loss = load_loss(loss, **({"normalization": "batch"} if loss == "max-pooling" else {}))
    objective = Objective(network, one, Recipe(), CPU)
    plain = not isinstance(network, Normalising)
    divisible = plain and not (loss == "max-pooling" and optimizer == "psgd")
    bags = Bags(torch.zeros(2, 3, 2), torch.zeros(2, 3))
    assert objective.divisible(make_optimizer(network, Recipe(optimizer=optimizer), 0), bags) == divisible


def test_a_loss_that_is_divided_by_the_mean_size_couples_bags_of_unequal_sizes_alone() -> None:
    from milbench.engine.optimizers import make_optimizer

    network, recipe = InstanceMLP([2, 8, 4], 0), Recipe(optimizer="psgd")
    objective = Objective(network, load_loss("exact"), recipe, CPU)
    optimizer = make_optimizer(network, recipe, 0)
    bags = Bags(torch.zeros(2, 3, 2), torch.zeros(2, 3))
    masked = Bags(torch.zeros(2, 3, 2), torch.zeros(2, 3), torch.tensor([[True] * 3, [True, True, False]]))
    assert objective.divisible(optimizer, bags)
    assert not objective.divisible(optimizer, masked)


def test_the_original_error_is_raised_where_parts_do_not_help(tmp_path: Path, limit: Limit) -> None:
    limit(0)
    with pytest.raises(torch.OutOfMemoryError, match="1 bags"):
        train(cell(), tmp_path / "one.pt")
    with pytest.raises(torch.OutOfMemoryError, match="8 bags"):
        train(cell("max-pooling batch", optimizer="psgd"), tmp_path / "coupled.pt")


def test_other_errors_are_not_taken_for_a_lack_of_memory(tmp_path: Path) -> None:
    one = make_plan(
        make_spec({"name": "t", "losses": [str(PLUGINS / "breaking_loss.py")], "tasks": [TINY]}), None
    ).cells[0]
    callback = Recorder()
    with pytest.raises(RuntimeError, match="broke"):
        train(one, tmp_path / "c.pt", callback)
    assert callback.sizes == []


def test_real_allocators_that_fail_are_recognised() -> None:
    with pytest.raises(RuntimeError) as torch_error:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(torch_error.value)
    with pytest.raises(MemoryError) as python_error:
        bytearray(2**60)
    assert is_out_of_memory(python_error.value)
    assert not is_out_of_memory(RuntimeError("size mismatch"))
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_full_gpu_is_recognised() -> None:
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**50, dtype=torch.uint8, device="cuda")
    assert is_out_of_memory(error.value)
