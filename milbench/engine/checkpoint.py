"""The checkpoint of a cell: the state of training between two steps, from which it continues bit for bit."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from milbench._utils.files import write_atomically

INTERVAL = 60.0  # least seconds between checkpoints inside an epoch: a killed run loses this much work


@dataclass
class Counters:
    """Progress of training: finished epochs; of the next one steps, the sum of losses, clipped gradients, seconds."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    clipped: float = 0.0
    seconds: float = 0.0

    def means(self) -> dict[str, float]:
        """Return the means over the steps so far, as metrics."""
        return {
            "train/loss": self.loss_sum / self.step,
            "train/clipped": self.clipped / self.step,
            "cost/train_seconds": self.seconds,
            "cost/step_seconds": self.seconds / self.step,
        }


class Checkpoint:
    """A file with the states of objects by name, each of which has a `state_dict`, and of torch's random generators."""

    def __init__(self, path: Path, states: dict[str, Any], device: torch.device) -> None:
        self.path, self.states, self.device = path, states, device
        self._saved = time.monotonic()

    def save(self, counters: Counters) -> None:
        """Write the file, which exists only when it is whole."""
        content = {
            "counters": vars(counters),
            "states": {name: part.state_dict() for name, part in self.states.items()},
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }
        buffer = io.BytesIO()  # torch raises errors of its own kind where a disk is full
        torch.save(content, buffer)
        write_atomically(self.path, lambda temporary: temporary.write_bytes(buffer.getbuffer()))
        self._saved = time.monotonic()

    def save_if_old(self, counters: Counters) -> None:
        """Write the file where the last one was written long ago."""
        if time.monotonic() - self._saved > INTERVAL:
            self.save(counters)

    def restore(self) -> Counters:
        """Restore objects and random generators from the file, and return the progress of training.

        No code in the file is run. A damaged file, as a lost machine leaves it, counts as none.
        """
        try:
            # On a GPU the optimiser's counters would stay there, and the host would wait for them in every step.
            content = torch.load(self.path, map_location="cpu", weights_only=True)
            counters = Counters(**content["counters"])
        except Exception:  # noqa: BLE001 of a damaged file torch raises errors of many kinds
            self.path.unlink(missing_ok=True)
            return Counters()
        for name, part in self.states.items():
            part.load_state_dict(content["states"][name])
        torch.set_rng_state(content["cpu"])
        if content["cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(content["cuda"], self.device)
        return counters
