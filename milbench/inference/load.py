"""What a run has trained: its network, task and loss, put together again from the store without its data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from milbench.api.loss import Loss
from milbench.api.plan import Cell, Plan
from milbench.api.registry import losses, tasks
from milbench.api.task import Network, Task
from milbench.engine.trainer import check_unchanged, network_for
from milbench.errors import UsageError
from milbench.evaluation.reading.component_decoder import FORMAT, ComponentDecoder
from milbench.store.reader import StoreReader
from milbench.store.records import CELL, PARENT, RunRecord

WEIGHTS, DECODER = "model.safetensors", "decoder.json"
KIND = FORMAT.partition("/")[0]
"""What the format of every version of a component decoder begins with."""
STATES = {"FAILED": "failed", "KILLED": "was interrupted"}
SHOWN = 4
"""How many runs are named where it is not clear which is meant."""


@dataclass(frozen=True)
class Trained:
    """A network with its weights, ready to look at instances.

    decoder: what the run has learnt from validation bags in order to read strings; None if it has learnt no decoder.
    """

    run_id: str
    cell: Cell
    task: Task
    network: Network
    loss: Loss
    device: torch.device
    decoder: ComponentDecoder | None = None

    @torch.no_grad()
    def probs(self, instances: Tensor) -> Tensor:
        """Return (C+1, *positions) float64 on the CPU, what the loss makes of the logits of one bag's instances."""
        batch = instances.unsqueeze(0).to(self.device)
        if batch.ndim == 4:
            batch = batch.contiguous(memory_format=torch.channels_last)
        logits = self.network(batch).cpu().double()
        if not bool(torch.isfinite(logits).all()):
            raise UsageError(f"the network of run {self.run_id} gives values that are not finite")
        return self.loss.instance_probs(logits)[0]


def load(store: StoreReader, reference: str, device: torch.device, data_dir: Path | None = None) -> Trained:
    """Return what a run has trained, named by a run id, a cell id or the beginning of one.

    Only a task whose network depends on its data has them prepared. Raises UsageError, one line, where no run or more
    than one is meant, where it is not done, and where weights or the code they belong to are missing or others.
    """
    run = _find(store, reference)
    run_id, cell = run.run_id, _cell(store, run)
    weights = store.artifact(run_id, WEIGHTS)
    if weights is None:
        raise UsageError(
            f"run {run_id} ({cell}) has no weights: it was imported from an export without them (--no-weights)"
        )
    check_unchanged(cell)
    task: Task = tasks().create(cell.task_file or cell.task, cell.task_params)
    loss: Loss = losses().create(cell.loss_file or cell.loss, cell.loss_params)
    try:
        network = network_for(loss, task, cell.seed)
    except AttributeError:  # what only `prepare` sets
        task.check_data(data_dir)
        task.prepare(data_dir, device)
        network = network_for(loss, task, cell.seed)
    _fill(torch.nn.ModuleDict({"network": network, "loss": loss}), weights, f"run {run_id} ({cell})")
    network = network.eval().to(device).to(memory_format=torch.channels_last)
    decoder = _decoder(store, run_id, run.metrics, task.num_classes)
    return Trained(run_id, cell, task, network, loss.eval(), device, decoder)


def _find(store: StoreReader, reference: str) -> RunRecord:
    """Return the one run that is meant, which is done."""
    wanted = reference.strip().lower()
    runs = {run.run_id: run for run in store.search("cell")}
    counted = {cell: found.run_id for cell, found in store.cell_runs().items() if found.run_id in runs}
    if not wanted:
        matches = set()
    elif wanted in counted:
        matches = {counted[wanted]}
    else:
        matches = {run_id for run_id in runs if run_id.startswith(wanted)}
        matches |= {run_id for cell, run_id in counted.items() if cell.startswith(wanted)}
    if not matches:
        raise UsageError(f"no run or cell {reference!r} in {store.address}; milbench status shows the ids of its runs")
    if len(matches) > 1:
        named = [f"{run_id} ({runs[run_id].name})" for run_id in sorted(matches)]
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        raise UsageError(
            f"{reference!r} is the beginning of {len(named)} runs: {', '.join(named[:SHOWN])}{more}; give more of it"
        )
    run = runs[matches.pop()]
    if run.status != "FINISHED":
        state = STATES.get(run.status, "is not done yet")
        raise UsageError(f"run {run.run_id} ({run.name}) {state}: only a run that is done has a trained network")
    return run


def _cell(store: StoreReader, run: RunRecord) -> Cell:
    """Return the cell of a run, from the plan that it was launched with."""
    plan = store.artifact(run.tags.get(PARENT, run.run_id), "plan.json")
    cells = Plan.from_json(plan.read_text("utf-8")).cells if plan else []
    for cell in cells:
        if cell.id == run.tags[CELL]:
            return cell
    raise UsageError(f"the store has lost the plan of run {run.run_id} ({run.name})")


def _decoder(store: StoreReader, run_id: str, metrics: Mapping[str, float], classes: int) -> ComponentDecoder | None:
    """Return the component decoder that a run has learnt, from its artifact, else from the metrics of an older run.

    A task may keep a decoder of its own there: what has the format of no component decoder is left aside.
    """
    path = store.artifact(run_id, DECODER)
    if path is None:
        decoder = ComponentDecoder.from_metrics(metrics)
        return decoder if decoder is not None and len(decoder.reach) == classes else None
    try:
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
        if not str(content.get("format", KIND)).startswith(KIND):
            return None
        decoder = ComponentDecoder.from_json(content)
        if len(decoder.reach) != classes:
            raise ValueError(f"reach: expected {classes} numbers, one a class, got {len(decoder.reach)}")
    except (OSError, ValueError) as error:
        raise UsageError(f"{DECODER} of run {run_id} cannot be read: {error}") from None
    return decoder


def _fill(model: torch.nn.Module, weights: Path, whose: str) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        model.load_state_dict(load_file(weights))
    except (SafetensorError, OSError) as error:
        raise UsageError(f"the weights of {whose} cannot be read: {error}") from None
    except RuntimeError:  # its message lists every tensor
        raise UsageError(
            f"the weights of {whose} do not fit its network: another version of milbench left them"
        ) from None
