"""Training on a GPU, tested without one: no step may wait for a value from the device.

On the devices of these tests, reading a value or mixing devices raises an error.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from milbench import Bags, Problem, generator, load_task
from milbench.contracts.registry import tasks
from milbench.contracts.targets import make_target
from milbench.experiment.launch_settings import Execution, Launch
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.testing import Variant
from milbench.training.train import train_step
from milbench.training.training_setup import network_logits, setup_for_cell
from tests._helpers.fake_gpu import GPU, FakeGPU, needs_fake_gpu
from tests._helpers.losses import BUILT_IN
from tests._helpers.small_data import PARAMS
from tests._helpers.tasks import new_network
from tests._helpers.training import NAMES

META = torch.device("meta")
"""Tensors on this device have no values, so that reading a value raises an error."""
WAITING = ("hard-em", "count")
"""Losses that wait for the device, as their docstrings say."""
METHODS_OF_EXACT = [Variant("exact", {"method": method}) for method in ("exact", "lower", "upper")]
VARIANTS = [variant for variant in BUILT_IN if variant.loss not in WAITING] + METHODS_OF_EXACT


def task_for(variant: Variant, other: str) -> str:
    """Return `other`, or the name of a task with the special bags that a loss needs."""
    if variant.one_class:
        return "cifar10"
    if variant.load().supervision == "order":
        return "svhn"
    return other


def steps_on_meta(
    variant: Variant, task: str, data: Path | None, recipe: dict[str, Any], steps: int
) -> None:
    """Make whole steps of training on `meta`: target, loss, gradient, clipping, update."""
    spec = make_spec(
        {
            "name": "t",
            "losses": [variant.loss],
            "loss": {variant.loss: variant.params},
            "tasks": [task],
            "task": {task: PARAMS.get(task, {})},
            "supervision": ["set", "count", "order", "position"],
            "recipe": {**recipe, "evaluation_bags": 16},
        }
    )
    (cell,) = make_plan(spec, Launch(Execution(data_dir=data))).cells
    setup = setup_for_cell(cell, META, data)
    batches = iter(setup.train_batches(0))
    # Step 0 is left out. It checks values, so it waits for them on a GPU, too.
    for step in range(1, 1 + steps):
        loss_and_clipped = train_step(setup, next(batches), step)
        assert loss_and_clipped.device == META
    assert all(parameter.grad is not None for parameter in setup.model.network.parameters())


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_no_loss_waits_for_a_value_from_the_device(variant: Variant, data_of_all: Path) -> None:
    task = task_for(variant, "extended-digits")
    # psgd needs a second derivative of the loss, too.
    recipe = {"optimizer": "psgd", "precision": "float32"}
    steps_on_meta(variant, task, data_of_all, recipe, steps=1)


@pytest.mark.parametrize("optimizer", NAMES)
def test_no_optimizer_waits_for_a_value_from_the_device(optimizer: str) -> None:
    # psgd has a rule of its own for the length of a step.
    rule = "rms:1" if optimizer == "psgd" else "max:1"
    recipe = {"optimizer": optimizer, "gradient_norm": rule}
    steps_on_meta(Variant("exact"), "synthetic-bags", None, recipe, steps=2)


class OnGPU:
    """Problems, networks and losses on a GPU of fake tensors."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.gpu = FakeGPU()
        self._problems: dict[str, Problem] = {}

    def batch(self, task: str) -> tuple[Problem, Bags]:
        """Return the problem of a task and a training batch, and check that nothing waits."""
        problem = self._problem(task)

        def first_batch() -> Bags:
            batches = problem.train_batches(0, generator("bags"))
            return next(iter(batches))

        # Batches are usually made in another thread, which the fake GPU does not see. So they are
        # made in this thread.
        with mock.patch("milbench.families.fixed_bags.prefetched", iter):
            bags = self.without_waiting(first_batch)
        assert bags.instances.device == GPU
        assert bags.labels.device == GPU
        return problem, bags

    def _problem(self, name: str) -> Problem:
        """Return the problem of a task, which is loaded once."""
        if name not in self._problems:
            task = load_task(name, **PARAMS.get(name, {}))
            with self.gpu:
                self._problems[name] = task.load(self.data, 0, GPU, limit=8)
        return self._problems[name]

    def moved(self, model: Any) -> Any:
        """Return a loss or network with weights of zero on the GPU.

        torch cannot move the weights of a model to fake tensors.
        """
        for module in model.modules():
            for name, weights in module.named_parameters(recurse=False):
                with self.gpu:
                    zeros = torch.zeros(weights.shape, device=GPU)
                    module.register_parameter(name, torch.nn.Parameter(zeros))
        return model

    def without_waiting(self, compute: Callable[[], Any]) -> Any:
        """Return the result of a function on the GPU, and check that it waited for no value."""
        with self.gpu:
            self.gpu.waits.clear()
            result = compute()
            assert self.gpu.waits == []
        return result


@pytest.fixture(scope="module")
def on_gpu(data_of_all: Path) -> OnGPU:
    return OnGPU(data_of_all)


# Spoken digits are left out, since the tasks of sounds have the same kind of sequences. MNIST-bags
# are left out, since they choose images by their classes before training.
TASKS_ON_GPU = sorted(set(tasks().names()) - {"spoken-digits", "mnist-bags"})


@needs_fake_gpu
@pytest.mark.parametrize("task", TASKS_ON_GPU)
def test_a_batch_of_every_task_reaches_the_gpu_without_waiting(task: str, on_gpu: OnGPU) -> None:
    on_gpu.batch(task)


@needs_fake_gpu
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_loss_and_scores_stay_on_the_gpu(variant: Variant, on_gpu: OnGPU) -> None:
    problem, bags = on_gpu.batch(task_for(variant, "synthetic-bags"))
    loss = variant.load().build(problem.format.num_classes, max_labels=problem.max_labels)
    loss.validate = False
    loss = on_gpu.moved(loss)
    network = on_gpu.moved(new_network(problem, head=loss.head))
    mask = network.mask_of(bags)

    def value() -> torch.Tensor:
        logits = network_logits(network, bags, GPU)
        target = make_target(loss, bags, logits, network)
        losses: torch.Tensor = loss(logits, bags.labels, mask, target)
        return losses.mean()

    assert on_gpu.without_waiting(value).device == GPU
    with torch.no_grad():
        logits = on_gpu.without_waiting(lambda: network_logits(network, bags, GPU))
        scores = on_gpu.without_waiting(lambda: loss.score(logits, mask))
    for part in (scores.classes, scores.presence, scores.instances, scores.evidence):
        assert part.device == GPU
