"""The checkpoint of a cell: the state of training between two steps, from which it continues bit for bit."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from milbench._utils.files import write_atomically


@dataclass
class Counters:
    """How far training is: epochs; of the next one steps, the sum of their losses, shortened gradients, seconds."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    clipped: float = 0.0
    seconds: float = 0.0

    def begin_next_epoch(self) -> None:
        """Count an epoch."""
        self.epoch, self.step, self.loss_sum, self.clipped, self.seconds = self.epoch + 1, 0, 0.0, 0.0, 0.0


def save(path: Path, counters: Counters, states: dict[str, Any], device: torch.device) -> None:
    """Write a checkpoint, which exists only when it is whole.

    Of `states`, objects by name, each has a `state_dict`; the random generator of the device is stored besides.
    """
    content = {
        "counters": vars(counters),
        "states": {name: of.state_dict() for name, of in states.items()},
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }
    buffer = io.BytesIO()  # torch raises errors of its own kind where a disk is full
    torch.save(content, buffer)
    write_atomically(path, lambda temporary: temporary.write_bytes(buffer.getbuffer()))


def restore(path: Path, states: dict[str, Any], device: torch.device) -> Counters:
    """Set objects and torch's random generators to what `save` stored, and return how far training was.

    No code in the file is run. One that a lost machine left damaged counts as none.
    """
    try:
        # On a GPU the optimiser's counters would stay there, and the host would wait for them in every step.
        content = torch.load(path, map_location="cpu", weights_only=True)
        counters = Counters(**content["counters"])
    except Exception:  # noqa: BLE001 of a damaged file torch raises errors of many kinds
        path.unlink(missing_ok=True)
        return Counters()
    for name, of in states.items():
        of.load_state_dict(content["states"][name])
    torch.set_rng_state(content["cpu"])
    if content["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(content["cuda"], device)
    return counters
