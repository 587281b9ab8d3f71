"""Measure the parts of a training step, and an evaluation.

A step is compared with a plain float32 step of the same network.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from _measuring import (
    QuickOption,
    ThreadsOption,
    paired_timings,
    peak_bytes,
    seconds_of,
    show,
    start,
    synchronise,
)

from milbench._utils.devices import resolve
from milbench.cli import options
from milbench.cli.options import SeveralNames, names
from milbench.contracts.bags import Bags
from milbench.contracts.registry import losses
from milbench.contracts.supervision import SUPERVISIONS
from milbench.contracts.targets import make_target
from milbench.data import catalog
from milbench.experiment.flags import apply_assignment
from milbench.experiment.launch_settings import Execution, Launch
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.spec_files import make_spec
from milbench.families.fixed_bags import EvaluatedBags
from milbench.running.worker import set_torch_defaults
from milbench.training.epoch_evaluation import score_function
from milbench.training.train import train_step
from milbench.training.training_setup import Setup, setup_for_cell

WITHOUT_DATA = ("extended-digits", "synthetic-bags")
"""The tasks that are measured by default, since they need no files."""
FEW_BAGS = 16
"""How many bags are evaluated before an evaluation is measured."""
EPOCH_SECONDS = 0.2
"""For how many seconds batches are made, for each repetition."""


def main(
    loss: SeveralNames = None,
    task: SeveralNames = None,
    network: SeveralNames = None,
    setting: options.SettingOption = None,
    data_dir: options.DataDirOption = None,
    device: options.DeviceOption = "auto",
    threads: ThreadsOption = 1,
    quick: QuickOption = False,
) -> None:
    """Measure the parts of training steps and evaluations, beside a plain float32 step.

    Default tasks: those that need no files, and extended-mnist if its files are here. Default
    losses: those that learn from label sets.

    Example: python benchmarks/training.py --loss exact --quick
    """
    resolved = resolve(device)
    set_torch_defaults(threads)
    repeats = 5 if quick else 25
    planned = plan(names(loss), names(task), setting or [], data_dir, str(resolved), names(network))
    rows: list[dict[str, Any]] = []
    for cell in planned.cells:
        label = ", ".join(filter(None, planned.labels[cell.id]))
        setup = setup_for_cell(cell, resolved, data_dir)
        rows.append({"task, loss": label, **_row(setup, repeats)})
    show(
        pd.DataFrame(rows),
        f"training steps, {threads} threads: medians ± half the width of the middle half",
        "data to optimiser: ms of a step; data: the mean of an epoch's batches. "
        "MiB: the most that the tensors of a step occupy.\n"
        "evaluation: of all bags, in seconds and in the time of an epoch of training.\n"
        "plain/ours: time of a step in float32 with AdamW, in that of ours, without data.",
    )


def plan(
    loss_names: Sequence[str] | None,
    task_names: Sequence[str] | None,
    settings: Sequence[str] = (),
    data_dir: Path | None = None,
    device: str = "cpu",
    network_names: Sequence[str] | None = None,
) -> Plan:
    """Return the cells to measure, with one seed.

    Args:
        loss_names: None: all built-in losses that learn from label sets.
        task_names: None: the tasks that need no files, and extended-mnist if its files are here.
        settings: texts such as "recipe.lr=0.1", as `-p` of `milbench run` takes them.
        data_dir: the folder of the data; None: the default folder.
        device: where cells run.
        network_names: None: the default network of each task.
    """
    if task_names is None:
        task_names = list(WITHOUT_DATA)
        missing_files = catalog.DATASETS["mnist"].missing(catalog.data_dir(data_dir))
        if not missing_files:
            task_names.append("extended-mnist")
    if loss_names is None:
        loss_names = [name for name in losses().names() if _learns_from_sets(name)]
    values: dict[str, Any] = {
        "name": "bench",
        "losses": list(loss_names),
        "tasks": list(task_names),
    }
    if network_names is not None:
        values["networks"] = list(network_names)
    for setting in settings:
        apply_assignment(values, setting)
    spec = make_spec({**values, "seeds": 0, "supervision": [*SUPERVISIONS]})
    return make_plan(spec, Launch(Execution(data_dir=data_dir)), device)


def _learns_from_sets(name: str) -> bool:
    """Return whether a loss is built in, and learns from label sets alone."""
    if losses().entry(name).origin != "milbench":
        return False
    loss = losses().get(name)
    return loss.supervision == "set" and loss.head != "class"


def _row(setup: Setup, repeats: int) -> dict[str, float]:
    """Return the row of a cell: the times of the parts of a step, and of an evaluation."""
    bags = next(iter(setup.train_batches(0)))
    # Made first, as it copies the weights before training changes them.
    plain = plain_step(setup, bags)
    data = seconds_of_data(setup, EPOCH_SECONDS * repeats)
    setup.model.network.train()

    def step() -> None:
        train_step(setup, bags, 1)

    whole, by_plain = paired_timings([step, plain], repeats)
    repeated_parts = [seconds_of_parts(setup, step) for _ in range(repeats)]
    evaluation = seconds_of_evaluation(setup)

    # The seconds of a step together with its data.
    step_and_data = data + whole.median
    row = {
        "bags/s": len(bags) / step_and_data,
        "ms a step": 1e3 * step_and_data,
        # Half the width of the middle half, in ms.
        "±": 1e3 * whole.spread / 2,
        "data": 1e3 * data,
    }
    for part in repeated_parts[0]:
        row[part] = 1e3 * median(seconds[part] for seconds in repeated_parts)
    row["MiB"] = peak_bytes(step) / 2**20
    row["evaluation"] = evaluation
    row["in epochs"] = evaluation / (setup.steps * step_and_data)
    row["plain/ours"] = by_plain.median / whole.median
    return row


def seconds_of_parts(setup: Setup, step: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of each part of a step, until the accelerator has finished it too.

    Clipping the gradient counts as part of the backward pass.
    """
    ends: dict[str, float] = {}

    def mark_end(part: str) -> None:
        synchronise()
        ends[part] = time.perf_counter()

    hooks = (
        setup.model.network.register_forward_hook(lambda *_: mark_end("forward")),
        setup.model.loss.register_forward_hook(lambda *_: mark_end("loss")),
        setup.optimizer.register_step_pre_hook(lambda *_: mark_end("backward")),
    )
    synchronise()
    begun = time.perf_counter()
    step()
    mark_end("optimiser")
    for hook in hooks:
        hook.remove()

    seconds: dict[str, float] = {}
    begin_of_part = begun
    for part, end in ends.items():
        seconds[part] = end - begin_of_part
        begin_of_part = end
    return seconds


def seconds_of_data(setup: Setup, limit: float) -> float:
    """Return the mean seconds to make a batch, over an epoch or over `limit` seconds.

    A task may make several batches at once and keep them, so that the time of one batch means
    little.
    """
    synchronise()
    begun = time.perf_counter()
    made = 0
    for _ in islice(setup.train_batches(0), setup.steps):
        made += 1
        if time.perf_counter() - begun >= limit:
            break
    synchronise()
    return (time.perf_counter() - begun) / made


def plain_step(setup: Setup, bags: Bags) -> Callable[[], object]:
    """Return a plain step: float32 and AdamW, with a copy of the network and of the loss."""
    network = copy.deepcopy(setup.model.network)
    loss = copy.deepcopy(setup.model.loss)
    optimizer = torch.optim.AdamW([*network.parameters(), *loss.parameters()], lr=setup.recipe.lr)

    def step() -> None:
        optimizer.zero_grad()
        logits = network.logits_of(bags)
        target = make_target(loss, bags, logits, network)
        losses_of_bags = loss(logits, bags.labels, network.mask_of(bags), target)
        losses_of_bags.mean().backward()
        optimizer.step()

    return step


def seconds_of_evaluation(setup: Setup) -> float:
    """Return the seconds of an evaluation, as after the last epoch."""
    score = score_function(setup)
    problem = setup.problem
    if isinstance(problem, EvaluatedBags):
        # An evaluation before the measured one, since the first one imports modules.
        replace(problem, limit=FEW_BAGS).evaluate(score)
    return seconds_of(lambda: problem.evaluate(score))


if __name__ == "__main__":
    start(main)
