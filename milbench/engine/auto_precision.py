"""The precision `auto` of a recipe: bfloat16 where it makes a task's network quicker on this machine, else float32.

It is measured once a task and store, before the first cell is computed, and every cell gets the precision that was
chosen: its results do not depend on when or where the cell itself is computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from milbench._utils import locks
from milbench._utils.files import write_atomically
from milbench._utils.seeding import generator
from milbench.api.plan import Cell, Plan, labels
from milbench.engine.cell_parts import task_for
from milbench.engine.objective import network_logits
from milbench.engine.profiling import paired_seconds
from milbench.store.provenance import processor

LEAST_GAIN = 1.2
"""bfloat16 is chosen where float32 takes at least this many times as long: a smaller gain may be noise."""


@dataclass(frozen=True)
class Choice:
    """What `auto` means for the network of a task.

    Args:
        precision: that was chosen.
        float32_seconds: how long the network's forward and backward pass on a training batch take, the median.
        bfloat16_seconds: the same in bfloat16.
        machine: on which this was measured.
    """

    precision: Literal["float32", "bfloat16"]
    float32_seconds: float
    bfloat16_seconds: float
    machine: str

    def __str__(self) -> str:
        ratio = self.float32_seconds / self.bfloat16_seconds
        times = f"{1000 * self.float32_seconds:.3g} ms in float32, {1000 * self.bfloat16_seconds:.3g} ms in bfloat16"
        measured = f"{times} a batch (ratio {ratio:.2f}) on {self.machine}"
        return f"{self.precision}, chosen by measurement: {measured}. It was chosen by speed alone, errors may differ"


def choose(
    plan: Plan, device: torch.device, threads: int, data_dir: Path | None, kept: Path, earlier: Plan | None = None
) -> Plan:
    """Return the plan with a precision in place of every `auto`, and a note for the report on each choice.

    Cells that are the same with the precision that was chosen are in the plan once.

    Args:
        plan: whose recipes may have the precision `auto`.
        device: on which the networks are measured.
        threads: how many threads a cell uses.
        data_dir: the folder of the data; None: the default one.
        kept: the file with the choices of earlier launches, which are made once and for all; updated where its folder
            is there.
        earlier: the plan of earlier launches of the comparison, perhaps from another machine; what was chosen for them
            holds for this one too, so that all losses are compared with one precision.
    """
    wanting = _wanting(plan, device)
    if not wanting:
        return plan
    choices = _read(kept)
    inherited = _inherited(earlier, device)
    wanting = {key: cell for key, cell in wanting.items() if key not in inherited}
    measured = {k: _measured(cell, device, threads, data_dir) for k, cell in wanting.items() if k not in choices}
    if kept.parent.is_dir():
        with locks.lock(kept.with_name(f".{kept.name}.lock")):
            choices = measured | _read(kept)  # what another launch has chosen in the meantime counts
            _write(kept, choices)
    else:
        choices |= measured
    return _with_choices(plan, device, {key: _worded(choice) for key, choice in choices.items()} | inherited)


def recall(plan: Plan, device: torch.device, kept: Path, earlier: Plan | None = None) -> Plan:
    """Return what `choose` does where a choice is kept, without measuring or writing anything.

    Cells whose choice is not known keep the precision `auto`, and a note says so.

    Args:
        plan: whose recipes may have the precision `auto`.
        device: for which the choices hold.
        kept: the file with the choices of earlier launches; it need not exist.
        earlier: as for `choose`.
    """
    known = {key: _worded(choice) for key, choice in _read(kept).items()} | _inherited(earlier, device)
    return _with_choices(plan, device, known) if _wanting(plan, device) else plan


def _wanting(plan: Plan, device: torch.device) -> dict[str, Cell]:
    """Return a cell with the precision `auto` for every choice that the plan needs, by `_key`."""
    return {_key(cell, device): cell for cell in plan.cells if cell.recipe["precision"] == "auto"}


WordedChoice = tuple[str, str]
"""A precision, and how it was chosen in the words of a note."""


def _worded(choice: Choice) -> WordedChoice:
    return choice.precision, str(choice)


def _inherited(earlier: Plan | None, device: torch.device) -> dict[str, WordedChoice]:
    """Return what was chosen for the cells of a plan, by `_key`; its notes say for which tasks that was `auto`."""
    found: dict[str, WordedChoice] = {}
    if earlier is None:
        return found
    for cell in earlier.cells:
        precision, prefix = cell.recipe["precision"], _note(cell)
        words = [note.removeprefix(prefix) for note in earlier.notes if note.startswith(f"{prefix}{precision},")]
        if words:
            found.setdefault(_key(cell, device), (precision, words[0].removesuffix(".")))
    return found


def _note(cell: Cell) -> str:
    return f"Precision `auto` of {cell.task}: "


def _with_choices(plan: Plan, device: torch.device, choices: dict[str, WordedChoice]) -> Plan:
    chosen = [_with_choice(cell, choices.get(_key(cell, device))) for cell in plan.cells]
    cells = list({cell.id: cell for cell in chosen}.values())  # a recipe may name the precision that was chosen
    notes = [
        f"{_note(cell)}{choices.get(key, ('', 'not measured yet'))[1]}." for key, cell in _wanting(plan, device).items()
    ]
    return plan.with_cells(cells, labels=labels(cells), notes=[*plan.notes, *notes])


def _with_choice(cell: Cell, choice: WordedChoice | None) -> Cell:
    if choice is None or cell.recipe["precision"] != "auto":
        return cell
    return replace(cell, recipe={**cell.recipe, "precision": choice[0]})


def _key(cell: Cell, device: torch.device) -> str:
    """Return what a choice holds for: the network and the batches of a task, and the kind of device."""
    return json.dumps([cell.task, cell.task_params, cell.task_revision, device.type], sort_keys=True)


def _measured(cell: Cell, device: torch.device, threads: int, data_dir: Path | None) -> Choice:
    """Return the choice for the task of a cell, by timing both precisions in turn."""
    task = task_for(cell)
    task.seed = cell.seed
    task.prepare(data_dir, device)
    network = task.network(cell.seed).move_to(device)
    bags = next(iter(task.train_batches(0, generator("auto precision", task.name))))

    def step(half: bool) -> Callable[[], object]:
        def forward_and_backward() -> None:
            network.zero_grad(set_to_none=True)
            network_logits(network, bags, device, half=half).square().mean().backward()

        return forward_and_backward

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        slow, quick = paired_seconds([step(False), step(True)], repeats=7)
    finally:
        torch.set_num_threads(before)
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{processor()}, {threads} threads"
    return Choice("bfloat16" if slow >= LEAST_GAIN * quick else "float32", slow, quick, machine)


def _read(kept: Path) -> dict[str, Choice]:
    """Return the choices in a file; none where it is missing or not what `_write` writes."""
    try:
        found: dict[str, dict[str, Any]] = json.loads(kept.read_text("utf-8"))
        return {key: Choice(**value) for key, value in found.items() if value["precision"] in ("float32", "bfloat16")}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _write(kept: Path, choices: dict[str, Choice]) -> None:
    content = json.dumps({key: asdict(choice) for key, choice in choices.items()}, indent=1)
    write_atomically(kept, lambda temporary: temporary.write_text(content, "utf-8"))
