"""Training of small cells in this process, and the results that tests compare."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from _pytest.mark import ParameterSet
from safetensors.torch import load_file

from milbench.contracts.predictions import load_predictions
from milbench.evaluation.metrics import outcomes
from milbench.experiment.cell import Cell
from milbench.experiment.launch_settings import Execution, Launch
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.optimizers.known_optimizers import OPTIMIZERS
from milbench.store.cell_folder import CellFolder, CellResult
from milbench.training import checkpoint
from milbench.training import train as training
from tests._helpers.command_line import TINY

needs_muon = pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on"
)


def _optimizer_param(name: str) -> ParameterSet:
    """Return the name of an optimiser as a case of a test, skipped if this torch lacks it."""
    if name == "muon":
        return pytest.param(name, marks=needs_muon)
    return pytest.param(name)


NAMES = [_optimizer_param(name) for name in OPTIMIZERS]
"""The names of all optimisers, as cases of a test."""


class Stop(Exception):  # noqa: N818
    """Ends a training in the middle, as a kill would."""


@dataclass
class Trained:
    """The results of a trained cell."""

    history: dict[tuple[int, str], float]
    """Epoch and metric -> value, without costs, which differ from run to run."""
    weights: dict[str, torch.Tensor]
    outcomes: dict[str, tuple[list[float], list[float], str]]
    """Metric -> sums, weights and items of the test bags after the last epoch, see `Outcomes`."""
    result: CellResult
    folder: CellFolder


def small_cell(
    loss: str = "exact",
    /,
    seed: int = 0,
    task_name: str = TINY,
    data_dir: Path | None = None,
    **values: object,
) -> Cell:
    """Return a cell of the tiny task, or of another one.

    `values` are further keys of its spec, such as `recipe`.
    """
    spec = make_spec({"name": "t", "losses": [loss], "tasks": [task_name], "seeds": seed, **values})
    return make_plan(spec, Launch(Execution(data_dir=data_dir))).cells[0]


NORMED = """import torch
from milbench import InstanceMLP


class Normed(InstanceMLP):
    def __init__(self, inputs, num_classes, seed):
        super().__init__(inputs, num_classes, seed, hidden=8)
        self.norm = torch.nn.BatchNorm1d(5)

    def forward(self, instances):
        return super().forward(self.norm(instances))
"""


def normed_network(folder: Path) -> str:
    """Write a network with batch normalisation, for bags of five instances; return its file."""
    normed = folder / "normed.py"
    normed.write_text(NORMED)
    return str(normed)


def train(cell: Cell, path: Path, device: str = "cpu", data_dir: Path | None = None) -> Trained:
    """Train a cell in this process, in a new folder at a path; return its results."""
    folder = CellFolder(path)
    folder.begin(cell, str(cell), {})
    result = training.train(cell, folder, torch.device(device), data_dir)
    _, predictions = load_predictions(folder.predictions)["last"]
    history = {}
    for epoch, name, value in folder.history():
        if not name.startswith("cost/"):
            history[epoch, name] = value
    by_metric = {}
    for name, of_bags in outcomes(predictions).items():
        by_metric[name] = (of_bags.sums.tolist(), of_bags.weights.tolist(), of_bags.items)
    return Trained(history, load_file(folder.weights), by_metric, result, folder)


def stop_after(saves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training save a checkpoint at every step, and end it by `Stop` after `saves` of them."""
    save = checkpoint.Checkpoint.save
    calls = itertools.count(1)

    def save_and_stop(target: checkpoint.Checkpoint, counters: checkpoint.Counters) -> None:
        save(target, counters)
        if next(calls) == saves:
            raise Stop

    # Usually some time has to pass before a checkpoint is due.
    monkeypatch.setattr(checkpoint, "CHECKPOINT_INTERVAL", -1.0)
    monkeypatch.setattr(training, "LOOK_INTERVAL", -1.0)
    monkeypatch.setattr(checkpoint.Checkpoint, "save", save_and_stop)
