"""The state of a cell between two steps, saved so that it continues bit for bit."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from milbench._utils.files import write_atomically


@dataclass
class Checkpoint:
    """Where a cell is: whole epochs done, steps done in the next, and what was seen on the way.

    Weights, optimiser state and the global generators are beside it in the file, which is read with
    `weights_only=True`: nothing in it is unpickled.
    """

    cell: str
    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    clipped: float = 0.0
    """In how many of these steps the gradient was longer than the recipe allows."""
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    decoder: dict[str, Any] | None = None
    """See `milbench.api.task.Evaluation`; of the last whole epoch."""
    loaded: dict[str, Any] = field(default_factory=dict, repr=False)

    def end_epoch(self, metrics: dict[str, float], decoder: dict[str, Any] | None) -> None:
        """Count the epoch as done; its decoder replaces that of the epoch before."""
        self.history.append(metrics)
        self.decoder = decoder
        self.epoch, self.step, self.loss_sum, self.clipped, self.seconds = self.epoch + 1, 0, 0.0, 0.0, 0.0

    def save(self, path: Path, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write the state, whole or not at all."""
        counters = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "loaded"}
        generators = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            generators["cuda"] = torch.cuda.get_rng_state()
        state = {
            "counters": counters,
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "generators": generators,
        }
        write_atomically(path, lambda temporary: torch.save(state, temporary))

    @classmethod
    def load(cls, path: Path, cell: str, device: torch.device) -> Checkpoint | None:
        """Return the state of this cell, or None where there is none or the file is damaged (it is then set aside)."""
        if not path.exists():
            return None
        try:
            state = torch.load(path, map_location=device, weights_only=True)
            found = cls(**state["counters"], loaded=state)
        except (OSError, RuntimeError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError):
            path.replace(path.with_suffix(".damaged"))
            return None
        return found if found.cell == cell else None

    def restore(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put weights, optimiser state and generators back."""
        network.load_state_dict(self.loaded["network"])
        optimizer.load_state_dict(self.loaded["optimizer"])
        torch.set_rng_state(self.loaded["generators"]["cpu"].cpu())
        if "cuda" in self.loaded["generators"] and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.loaded["generators"]["cuda"].cpu())
        self.loaded = {}
