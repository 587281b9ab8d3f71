"""Checkpoints: the state of training between two steps, from which it continues bit for bit."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from milbench._utils.files import write_atomically


@dataclass
class Checkpoint:
    """How far the training of a cell is, and what was measured so far.

    The file also has the weights, the state of the optimiser and those of torch's global generators. It is read with
    `weights_only=True`: no code in it is run.

    Args:
        cell: the id of the cell.
        epoch: how many epochs are finished.
        step: how many steps of the next epoch are done.
        loss_sum: the sum of the losses of these steps.
        clipped: in how many of these steps the gradient was longer than the recipe allows.
        seconds: how long these steps took.
        history: the metrics of every finished epoch.
        decoder: that of the last finished epoch, see `milbench.api.task.Evaluation`.
        loaded: what `load` read besides, until `restore` has used it.
    """

    cell: str
    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    clipped: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    decoder: dict[str, Any] | None = None
    loaded: dict[str, Any] = field(default_factory=dict, repr=False)

    def end_epoch(self, metrics: dict[str, float], decoder: dict[str, Any] | None) -> None:
        """Count the epoch as finished, with its metrics and its decoder."""
        self.history.append(metrics)
        self.decoder = decoder
        self.epoch, self.step, self.loss_sum, self.clipped, self.seconds = self.epoch + 1, 0, 0.0, 0.0, 0.0

    def save(self, path: Path, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write the state to a file, completely or not at all.

        Args:
            path: of the file; an earlier checkpoint there is replaced.
            network: whose weights are stored.
            optimizer: whose state is stored.
        """
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
        """Return the state of a cell, None where the file is missing, damaged or of another cell.

        Args:
            path: of the file; a damaged one is renamed to end in .damaged.
            cell: the id of the cell.
            device: where the tensors are to be.

        Returns:
            The counters and the history, with the weights and the other state for `restore`; or None.
        """
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
        """Set the weights, the state of the optimiser and torch's global generators to those that were loaded."""
        network.load_state_dict(self.loaded["network"])
        optimizer.load_state_dict(self.loaded["optimizer"])
        torch.set_rng_state(self.loaded["generators"]["cpu"].cpu())
        if "cuda" in self.loaded["generators"] and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.loaded["generators"]["cuda"].cpu())
        self.loaded = {}
