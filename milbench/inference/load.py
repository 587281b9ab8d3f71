"""Load what a run has trained, its network, task, loss and decoder, from the store and without the task's data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.decoder import Decoder
from milbench.api.loss import Loss
from milbench.api.plan import Cell, Plan
from milbench.api.task import Network, Scores, Task
from milbench.engine.cell_parts import check_data_unchanged, check_unchanged, loss_for, network_for, task_for
from milbench.engine.precision import forbid_tf32
from milbench.errors import UsageError
from milbench.evaluation.evaluate import THRESHOLD
from milbench.evaluation.reading.component_decoder import DECODER_FORMAT, ComponentDecoder
from milbench.evaluation.reading.reader import Reader
from milbench.store.artifacts import DECODER, MEMORY, PLAN, WEIGHTS
from milbench.store.reader import StoreReader
from milbench.store.records import CELL, PARENT, RunSummary

_FORMAT_NAME = DECODER_FORMAT.partition("/")[0]
"""What the format of every version of a component decoder begins with."""
STATES = {"FAILED": "failed", "KILLED": "was interrupted"}
NAMED_RUNS = 4
"""How many runs are named in an error message about an ambiguous reference."""


@dataclass(frozen=True)
class Trained:
    """A trained network, ready for instances, with its task and loss.

    Args:
        run_id: the run in the store.
        cell: the cell that the run computed.
        task: not prepared, unless its network needs data and the run keeps no memory of them.
        network: with the weights of the run, on `device`.
        loss: the loss that it was trained with.
        device: where the network is.
        decoder: what was learnt from validation bags in order to read strings; None if nothing was.
        chosen: the decoder that was chosen on validation strings; None if none was.
        threshold: the presence score from which a class is in the label set; None: the run has recorded none.
        label: of the cell in its comparison, with the parameters that tell it from others; "": it is not known.
        set_error: the share of test bags whose label set the run found wrong; None: it has recorded none.
    """

    run_id: str
    cell: Cell
    task: Task
    network: Network
    loss: Loss
    device: torch.device
    decoder: ComponentDecoder | None = None
    chosen: Decoder | None = None
    threshold: float | None = None
    label: str = ""
    set_error: float | None = None

    @property
    def name(self) -> str:
        """The loss, the task and the seed, with the parameters that tell them from others of the comparison."""
        return self.label or str(self.cell)

    def scores(self, instances: Tensor) -> Scores:
        """Return the scores of one bag as a batch of one, in float64 on the CPU.

        Args:
            instances: (N, H, W), see `Task.instances_from`.

        Raises:
            UsageError: the network returns values that are not finite.
        """
        return self.scores_of(Bags(instances.unsqueeze(0), torch.zeros(1, self.task.num_classes, dtype=torch.bool)))

    @torch.no_grad()
    def scores_of(self, bags: Bags) -> Scores:
        """Return the scores of a batch of bags, in float64 on the CPU; their labels are not read.

        Raises:
            UsageError: the network returns values that are not finite.
        """
        batch = self.network.as_input(bags.instances.to(self.device))
        logits = self.network(batch).cpu().double()
        mask = None if bags.mask is None else bags.mask.cpu()
        if not bool(torch.isfinite(logits).all()):
            raise UsageError(f"the network of run {self.run_id} gives values that are not finite")
        return Scores(
            self.loss.class_scores(logits, mask),
            self.loss.presence_scores(logits, mask),
            self.loss.instance_probs(logits, mask),
            self.loss.instance_evidence(logits, mask),
        )


def load_trained(
    store: StoreReader,
    reference: str,
    device: torch.device,
    data_dir: Path | None = None,
    *,
    needs_data: bool = False,
) -> Trained:
    """Return what a run has trained.

    Args:
        store: the store of the run.
        reference: a run id, a cell id or the beginning of one.
        device: of the network.
        data_dir: the folder of the task's data, which is read only if its network needs them and the run keeps no
            memory of them, or if they are asked for; None: the default one.
        needs_data: whether the task is to be prepared with its data in any case.

    Returns:
        The network, the task and the loss of the run, with its decoder if the run has one.

    Raises:
        UsageError: no run or more than one matches the reference, the run is not done, or its weights, its decoder or
            the code that they belong to are missing, damaged or changed.
    """
    run = _find(store, reference)
    run_id, (cell, label) = run.run_id, _cell(store, run)
    weights = store.artifact(run_id, WEIGHTS)
    if weights is None:
        raise UsageError(
            f"run {run_id} ({cell}) has no weights: it was imported from an export without them (--no-weights)"
        )
    memory = store.artifact(run_id, MEMORY)
    trained = assemble(run_id, cell, weights, memory, device, data_dir, needs_data=needs_data)
    metrics = store.run(run_id).metrics
    trained = replace(trained, threshold=metrics.get(THRESHOLD), label=label, set_error=metrics.get("test/set_error"))
    reader = _reader(store, run_id, metrics, trained.task.num_classes)
    if reader is None:
        return trained
    # Pictures are read at several scales anyway: there is nothing else to rescore.
    chosen: Decoder = "components" if reader.chosen == "rescored" else reader.chosen
    return replace(trained, decoder=reader.learnt, chosen=chosen)


def assemble(
    run_id: str,
    cell: Cell,
    weights: Path,
    memory: Path | None,
    device: torch.device,
    data_dir: Path | None = None,
    *,
    needs_data: bool = False,
) -> Trained:
    """Return the network, the task and the loss of a cell from files, without its threshold and its decoder.

    Args:
        run_id: of the run, for messages.
        cell: what was trained.
        weights: the file of the weights.
        memory: the file of the task's memory; None: there is none.
        device: of the network.
        data_dir: see `load_trained`.
        needs_data: see `load_trained`.

    Raises:
        UsageError: a file is missing, damaged or changed, or does not fit the code.
    """
    whose = f"run {run_id} ({cell})"
    check_unchanged(cell)
    forbid_tf32()
    task = task_for(cell)
    prepares = needs_data or (task.network_needs_data and memory is None)
    if prepares:
        check_data_unchanged(task, cell, data_dir)
    task.seed = cell.seed
    if prepares:
        task.prepare(data_dir, device)
    elif memory is not None:
        _recall(task, memory, whose)
    loss = loss_for(cell, task)
    network = network_for(loss, task, cell.seed)
    _load_weights(torch.nn.ModuleDict({"network": network, "loss": loss}), weights, whose)
    return Trained(run_id, cell, task, network.eval().move_to(device), loss.eval(), device)


def _recall(task: Task, memory: Path, whose: str) -> None:
    """Give a task the file of what its network needs of the data; `whose` names the run in error messages."""
    try:
        task.recall(json.loads(memory.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{MEMORY} of {whose} cannot be read: {error!r}") from None


def _find(store: StoreReader, reference: str) -> RunSummary:
    """Return the one run that matches a reference and is done."""
    start = reference.strip().lower()
    runs = {run.run_id: run for run in store.search("cell")}
    counted = {cell: found.run_id for cell, found in store.cell_runs().items() if found.run_id in runs}
    if not start:
        matches = set()
    elif start in counted:
        matches = {counted[start]}
    else:
        matches = {run_id for run_id in runs if run_id.startswith(start)}
        matches |= {run_id for cell, run_id in counted.items() if cell.startswith(start)}
    if not matches:
        raise UsageError(f"no run or cell {reference!r} in {store.address}; milbench status shows the ids of its runs")
    if len(matches) > 1:
        named = [f"{run_id} ({runs[run_id].name})" for run_id in sorted(matches)]
        more = f" and {len(named) - NAMED_RUNS} more" if len(named) > NAMED_RUNS else ""
        some = ", ".join(named[:NAMED_RUNS])
        raise UsageError(f"{reference!r} is the beginning of {len(named)} runs: {some}{more}; give more of it")
    run = runs[matches.pop()]
    if run.status != "FINISHED":
        state = STATES.get(run.status, "is not done yet")
        raise UsageError(f"run {run.run_id} ({run.name}) {state}: only a run that is done has a trained network")
    return run


def _cell(store: StoreReader, run: RunSummary) -> tuple[Cell, str]:
    """Return the cell of a run and its name, from the plan that it was launched with, or any other if that is lost."""
    for launch in [run.tags.get(PARENT, run.run_id), *(launch.run_id for launch in store.search("launch"))]:
        if path := store.artifact(launch, PLAN):
            plan = Plan.from_json(path.read_text("utf-8"))
            for cell in plan.cells:
                if cell.id == run.tags[CELL]:
                    if cell.id not in plan.labels:
                        return cell, ""
                    loss, task, recipe = plan.labels[cell.id]
                    return cell, f"{loss} on {task}{', ' if recipe else ''}{recipe}, seed {cell.seed}"
    raise UsageError(f"the plan of run {run.run_id} ({run.name}) is missing from the store")


def _reader(store: StoreReader, run_id: str, metrics: Mapping[str, float], classes: int) -> Reader | None:
    """Return the reader of a run, from its artifact or, for a run of an earlier version, its metrics.

    None where the run has none, or where the artifact is a decoder of another kind, which a task may define.
    """
    path = store.artifact(run_id, DECODER)
    if path is None:
        decoder = ComponentDecoder.from_metrics(metrics)
        return Reader(decoder) if decoder is not None and len(decoder.reach) == classes else None
    try:
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
        if not str(content.get("format", _FORMAT_NAME)).startswith(_FORMAT_NAME):
            return None
        reader = Reader.from_json(content)
        if len(reader.learnt.reach) != classes:
            raise ValueError(f"reach: expected {classes} numbers, one a class, got {len(reader.learnt.reach)}")
    except (OSError, ValueError) as error:
        raise UsageError(f"{DECODER} of run {run_id} cannot be read: {error}") from None
    return reader


def _load_weights(model: torch.nn.Module, weights: Path, whose: str) -> None:
    """Load a file of weights into a model; `whose` names the run in error messages."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        model.load_state_dict(load_file(weights))
    except (SafetensorError, OSError) as error:
        raise UsageError(f"the weights of {whose} cannot be read: {error}") from None
    except RuntimeError:  # its message lists every tensor
        raise UsageError(
            f"the weights of {whose} do not fit its network: they were written by another version of milbench"
        ) from None
