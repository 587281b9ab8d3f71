"""What a training step takes, by its parts, and an evaluation, beside a plain float32 step of the same network."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from milbench.api.bags import Bags
from milbench.api.plan import Cell, Plan
from milbench.api.registry import losses
from milbench.api.supervision import SUPERVISIONS
from milbench.api.targets import make_target
from milbench.bench.profiling import paired_timings, peak_bytes, seconds_of, synchronise
from milbench.data import catalog
from milbench.engine.evaluate import score_function
from milbench.engine.parts import set_up, training_logits
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec, parse_setting
from milbench.optimizers.psgd import KroneckerPSGD
from milbench.optimizers.registry import learning_rate

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("forward", "loss", "backward", "optimiser")
"""The parts of a step besides drawing its batch; clipping is one with the optimiser."""
WITHOUT_DATA = ("extended-digits", "synthetic-bags")
"""The tasks that are measured where none is named: these need no files."""
WHERE_FOUND = {"extended-mnist": "mnist"}
"""Further ones, with the data set whose files they need."""
FEW_BAGS = 16


class Training:
    """A cell, trained step by step in the manner of `milbench.engine.train.train`."""

    def __init__(self, cell: Cell, device: torch.device, data_dir: Path | None) -> None:
        self.it = set_up(cell, device, data_dir)
        self.done = 0

    def batches(self, count: int) -> list[Bags]:
        """Return the first batches of the training, from as many epochs as that takes."""
        return list(islice(chain.from_iterable(map(self._epoch, range(count))), count))

    def _epoch(self, epoch: int) -> Iterator[Bags]:
        return islice(self.it.train_batches(epoch), self.it.steps)

    def seconds_of_data(self, limit: float) -> float:
        """Return the mean seconds of drawing a batch, over an epoch or `limit` seconds.

        A task may draw several batches when it is asked for one, and keep what it has drawn: so whole epochs count.
        """
        synchronise()
        begun, drawn = time.perf_counter(), 0
        for _ in self._epoch(0):
            drawn += 1
            if time.perf_counter() - begun >= limit:
                break
        synchronise()
        return (time.perf_counter() - begun) / drawn

    def step(self, bags: Bags, lap: Callable[[str], None] = lambda _: None) -> None:
        """Make a step; `lap` is called at the end of each of its parts."""
        it, steps = self.it, self.it.recipe.epochs * self.it.steps
        for group in it.optimizer.param_groups:
            group["lr"] = learning_rate(it.recipe, min(self.done, steps - 1), steps)
        it.model.network.train()
        it.model.loss.validate = False
        it.optimizer.zero_grad(set_to_none=True)
        logits = training_logits(it, bags)
        lap("forward")
        target = make_target(it.model.loss, bags, logits, it.model.network)
        value = it.model.loss(logits, bags.labels, bags.mask, target).mean()
        lap("loss")
        if isinstance(it.optimizer, KroneckerPSGD):
            it.optimizer.backward(value)
        else:
            value.backward()
        lap("backward")
        it.clipping.apply([p for group in it.optimizer.param_groups for p in group["params"]])
        it.optimizer.step()
        lap("optimiser")
        self.done += 1

    def seconds_of_parts(self, bags: Bags) -> dict[str, float]:
        """Return the seconds of the parts of a step, each until the accelerator has finished too."""
        taken: dict[str, float] = {}

        def lap(part: str) -> None:
            synchronise()
            taken[part] = time.perf_counter() - begun - sum(taken.values())

        synchronise()
        begun = time.perf_counter()
        self.step(bags, lap)
        return taken

    def plain_step(self) -> Callable[[Bags], None]:
        """Return a step as one writes it at first: float32 and AdamW, with a copy of the network and the loss."""
        network, loss = copy.deepcopy(self.it.model.network), copy.deepcopy(self.it.model.loss)
        optimizer = torch.optim.AdamW([*network.parameters(), *loss.parameters()], lr=self.it.recipe.lr)

        def step(bags: Bags) -> None:
            optimizer.zero_grad()
            logits = network.logits_of(bags)
            target = make_target(loss, bags, logits, network)
            loss(logits, bags.labels, bags.mask, target).mean().backward()
            optimizer.step()

        return step

    def seconds_of_evaluation(self) -> float:
        """Return the seconds of an evaluation as after the last epoch, once what it imports is imported."""
        score, task = score_function(self.it), self.it.task
        task.evaluation_limit = FEW_BAGS
        task.evaluate(score)
        task.evaluation_limit = self.it.recipe.evaluation_bags
        return seconds_of(lambda: task.evaluate(score))


def plan(
    loss_names: Sequence[str] | None,
    task_names: Sequence[str] | None,
    settings: Sequence[str] = (),
    data_dir: Path | None = None,
    device: str = "cpu",
) -> Plan:
    """Return the cells to measure, with one seed.

    Losses, None: all of set supervision that come with milbench. Tasks, None: those that need no files or whose files
    are here. Settings: as `-p` of `milbench run`.
    """
    if task_names is None:
        root = catalog.data_dir(data_dir)
        found = [task for task, files in WHERE_FOUND.items() if not catalog.DATASETS[files].missing(root)]
        task_names = [*WITHOUT_DATA, *found]
    if loss_names is None:
        loss_names = [name for name in losses().names() if _is_own_of_sets(name)]
    values: dict[str, Any] = {"name": "bench", "losses": [*loss_names], "tasks": [*task_names]}
    for setting in settings:
        parse_setting(values, setting)
    values["run"] = {**values.get("run", {}), "data_dir": data_dir}
    return make_plan(make_spec({**values, "seeds": 0, "supervision": [*SUPERVISIONS]}), device)


def _is_own_of_sets(name: str) -> bool:
    loss = losses().cls(name)
    return losses().entry(name).origin == "milbench" and loss.supervision == "set" and loss.head != "class"


def measure(planned: Plan, device: torch.device, data_dir: Path | None, *, quick: bool = False) -> pd.DataFrame:
    """Return a row a cell, measured one after the other.

    Milliseconds of a step (median, with half the width of the middle half) and of its parts, peak memory of its tensors
    in MiB, seconds of an evaluation, and the time of a plain step by that of ours, batches not counted in either.
    """
    import pandas as pd

    rows = []
    for cell in planned.cells:
        name = ", ".join(filter(None, (planned.labels[cell.id][i] for i in (1, 0, 2))))
        rows.append({"task, loss": name} | _row(Training(cell, device, data_dir), 5 if quick else 25))
    return pd.DataFrame(rows)


def _row(training: Training, repeats: int) -> dict[str, float]:
    (bags,) = training.batches(1)
    plain = training.plain_step()
    data = training.seconds_of_data(limit=0.2 * repeats)
    step, by_plain = paired_timings([lambda: training.step(bags), lambda: plain(bags)], repeats)
    parts = [training.seconds_of_parts(bags) for _ in range(repeats)]
    memory = peak_bytes(lambda: training.step(bags))
    return {
        "bags/s": len(bags) / (data + step.median),
        "ms a step": 1e3 * (data + step.median),
        "±": 500 * step.spread,
        "data": 1e3 * data,
        **{part: 1e3 * median(taken[part] for taken in parts) for part in PARTS},
        "MiB": memory / 2**20,
        "evaluation s": training.seconds_of_evaluation(),
        "plain/ours": by_plain.median / step.median,
    }
