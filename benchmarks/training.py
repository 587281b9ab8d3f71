"""What a training step takes, by its parts, and an evaluation, beside a plain float32 step of the same network."""

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
"""The tasks that are measured where none is named: these need no files."""
FEW_BAGS = 16
EPOCH_SECONDS = 0.2
"""Seconds of drawing batches for each repetition."""


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
    """Measure the parts of training steps and evaluations, beside a plain float32 step of the same network.

    Default tasks: those that need no files, and extended-mnist if its files are here. Default losses: those that learn
    from label sets.

    Example: python benchmarks/training.py --loss exact --quick
    """
    place = resolve(device)
    set_torch_defaults(threads)
    planned, rows = (
        plan(names(loss), names(task), setting or [], data_dir, str(place), names(network)),
        [],
    )
    for cell in planned.cells:
        name = ", ".join(filter(None, planned.labels[cell.id]))
        rows.append(
            {"task, loss": name} | _row(setup_for_cell(cell, place, data_dir), 5 if quick else 25)
        )
    show(
        pd.DataFrame(rows),
        f"training steps, {threads} threads: medians ± half the width of the middle half",
        "data to optimiser: ms of a step; data: the mean of an epoch's batches. MiB: the most that the tensors of a "
        "step occupy.\nevaluation: of all bags, in seconds and in the time of an epoch of training.\n"
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

    Losses, None: all of set supervision that come with milbench. Tasks, None: those that need no files or whose files
    are here. Networks, None: the default of each task. Settings: as `-p` of `milbench run`.
    """
    if task_names is None:
        root = catalog.data_dir(data_dir)
        task_names = [
            *WITHOUT_DATA,
            *([] if catalog.DATASETS["mnist"].missing(root) else ["extended-mnist"]),
        ]
    if loss_names is None:
        loss_names = [name for name in losses().names() if _is_own_of_sets(name)]
    values: dict[str, Any] = {"name": "bench", "losses": [*loss_names], "tasks": [*task_names]}
    if network_names is not None:
        values["networks"] = [*network_names]
    for setting in settings:
        apply_assignment(values, setting)
    spec = make_spec({**values, "seeds": 0, "supervision": [*SUPERVISIONS]})
    return make_plan(spec, Launch(Execution(data_dir=data_dir)), device)


def _is_own_of_sets(name: str) -> bool:
    loss = losses().get(name)
    return (
        losses().entry(name).origin == "milbench"
        and loss.supervision == "set"
        and loss.head != "class"
    )


def _row(setup: Setup, repeats: int) -> dict[str, float]:
    bags = next(iter(setup.train_batches(0)))
    plain = plain_step(setup, bags)  # before the weights change
    data = seconds_of_data(setup, EPOCH_SECONDS * repeats)
    setup.model.network.train()

    def step() -> None:
        train_step(setup, bags, 1)

    whole, by_plain = paired_timings([step, plain], repeats)
    parts = [seconds_of_parts(setup, step) for _ in range(repeats)]
    evaluation = seconds_of_evaluation(setup)
    return {
        "bags/s": len(bags) / (data + whole.median),
        "ms a step": 1e3 * (data + whole.median),
        "±": 500 * whole.spread,
        "data": 1e3 * data,
        **{part: 1e3 * median(taken[part] for taken in parts) for part in parts[0]},
        "MiB": peak_bytes(step) / 2**20,
        "evaluation": evaluation,
        "in epochs": evaluation / (setup.steps * (data + whole.median)),
        "plain/ours": by_plain.median / whole.median,
    }


def seconds_of_parts(setup: Setup, step: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of the parts of a step, each until the accelerator has finished too; clipping is backward."""
    taken: dict[str, float] = {}

    def lap(part: str) -> None:
        synchronise()
        taken[part] = time.perf_counter() - begun - sum(taken.values())

    hooks = (
        setup.model.network.register_forward_hook(lambda *_: lap("forward")),
        setup.model.loss.register_forward_hook(lambda *_: lap("loss")),
        setup.optimizer.register_step_pre_hook(lambda *_: lap("backward")),
    )
    synchronise()
    begun = time.perf_counter()
    step()
    lap("optimiser")
    for hook in hooks:
        hook.remove()
    return taken


def seconds_of_data(setup: Setup, limit: float) -> float:
    """Return the mean seconds of drawing a batch, over an epoch or `limit` seconds.

    A task may draw several batches when it is asked for one, and keep what it has drawn: so whole epochs count.
    """
    synchronise()
    begun, drawn = time.perf_counter(), 0
    for _ in islice(setup.train_batches(0), setup.steps):
        drawn += 1
        if time.perf_counter() - begun >= limit:
            break
    synchronise()
    return (time.perf_counter() - begun) / drawn


def plain_step(setup: Setup, bags: Bags) -> Callable[[], object]:
    """Return a step as one writes it at first: float32 and AdamW, with a copy of the network and the loss."""
    network, loss = copy.deepcopy(setup.model.network), copy.deepcopy(setup.model.loss)
    optimizer = torch.optim.AdamW([*network.parameters(), *loss.parameters()], lr=setup.recipe.lr)

    def step() -> None:
        optimizer.zero_grad()
        logits = network.logits_of(bags)
        loss(
            logits, bags.labels, network.mask_of(bags), make_target(loss, bags, logits, network)
        ).mean().backward()
        optimizer.step()

    return step


def seconds_of_evaluation(setup: Setup) -> float:
    """Return the seconds of an evaluation as after the last epoch, once what it imports is imported."""
    score, problem = score_function(setup), setup.problem
    if isinstance(problem, EvaluatedBags):
        replace(problem, limit=FEW_BAGS).evaluate(score)
    return seconds_of(lambda: problem.evaluate(score))


if __name__ == "__main__":
    start(main)
