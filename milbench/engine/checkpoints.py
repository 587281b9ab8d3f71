"""Checkpoints: the state of training between two steps, from which it continues bit for bit."""

from __future__ import annotations

import io
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milbench._utils.files import write_atomically
from milbench.api.outcomes import Outcomes
from milbench.api.reliability import Bin
from milbench.api.task import Evaluation
from milbench.engine.averaging import Averaging
from milbench.engine.clipping import Clipping
from milbench.errors import StoreError


@dataclass(frozen=True)
class Generators:
    """The states of torch's global generators.

    Args:
        cpu: that of the CPU.
        cuda: that of a GPU; None where training needs none.
    """

    cpu: Tensor
    cuda: Tensor | None = None

    @classmethod
    def now(cls, device: torch.device) -> Generators:
        """Return the present states; of the GPU's where `device` is one."""
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None)

    def restore(self, device: torch.device) -> None:
        """Set the generators to these states."""
        torch.set_rng_state(self.cpu.cpu())
        if self.cuda is not None and device.type == "cuda":
            torch.cuda.set_rng_state(self.cuda.cpu(), device)


@dataclass
class Checkpoint:
    """How far the training of a cell is, and what was measured so far.

    The file also has the weights and their mean, the state of the optimiser and of the clipping, and those of torch's
    global generators. It is read with `weights_only=True`: no code in it is run.

    Args:
        cell: the id of the cell.
        epoch: how many epochs are finished.
        step: how many steps of the next epoch are done.
        loss_sum: the sum of the losses of these steps.
        clipped: in how many of these steps the gradient was longer than the recipe allows.
        seconds: how long these steps took.
        history: the metrics of every finished epoch.
        decoder: that of the last evaluation, see `milbench.api.task.Evaluation`.
        outcomes: of the test items at the last epoch, if that was evaluated on all bags, see
            `milbench.api.task.Evaluation`.
        reliability: of the same bags, likewise.
        micro_batch: how many bags of a batch are computed at a time, since more did not fit into memory; None: all.
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
    outcomes: dict[str, Outcomes] | None = None
    reliability: dict[str, list[Bin]] | None = None
    micro_batch: int | None = None
    loaded: dict[str, Any] = field(default_factory=dict, repr=False)

    def end_epoch(self, evaluation: Evaluation) -> None:
        """Count the epoch as finished, with its evaluation, among whose metrics are those of training."""
        self.history.append(evaluation.metrics)
        self.decoder, self.outcomes, self.reliability = evaluation.decoder, evaluation.outcomes, evaluation.reliability
        self.epoch, self.step, self.loss_sum, self.clipped, self.seconds = self.epoch + 1, 0, 0.0, 0.0, 0.0

    def save(
        self,
        path: Path,
        network: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        clipping: Clipping,
        averaging: Averaging,
        device: torch.device,
    ) -> None:
        """Write the state to a file, completely or not at all.

        Args:
            path: of the file; an earlier checkpoint there is replaced.
            network: whose weights are stored.
            optimizer: whose state is stored.
            clipping: whose memory of earlier gradients is stored.
            averaging: whose mean of weights is stored.
            device: of the training, whose generator's state is stored.
        """
        counters = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "loaded"}
        counters["reliability"] = self.reliability and {
            name: [astuple(found) for found in bins] for name, bins in self.reliability.items()
        }
        counters["outcomes"] = self.outcomes and {name: _as_tensors(found) for name, found in self.outcomes.items()}
        generators = Generators.now(device)
        state = {
            "counters": counters,
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "clipping": clipping.state_dict(),
            "averaging": averaging.state_dict(),
            "generators": {k: v for k, v in vars(generators).items() if v is not None},
        }
        content = io.BytesIO()  # torch raises errors of its own kind where a disk is full
        torch.save(state, content)
        write_atomically(path, lambda temporary: temporary.write_bytes(content.getbuffer()))

    @classmethod
    def load(cls, path: Path, cell: str) -> Checkpoint | None:
        """Return the state of a cell, None where the file is missing, damaged or of another cell.

        Args:
            path: of the file; a damaged one is renamed to end in .damaged.
            cell: the id of the cell.

        Returns:
            The counters and the history, with the weights and the other state, on the CPU, for `restore`; or None.

        Raises:
            StoreError: the file cannot be read at the moment, which says nothing of what it holds.
        """
        try:
            content = io.BytesIO(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read the checkpoint {path}: {error.strerror or error}") from None
        try:
            # On a GPU the optimiser's counters would stay there, and the host would wait for them in every step.
            state = torch.load(content, map_location="cpu", weights_only=True)
            counters = dict(state)["counters"]
            stored = counters.get("outcomes")
            counters["outcomes"] = stored and {name: _from_tensors(*terms) for name, terms in stored.items()}
            curves = counters.get("reliability")  # files of earlier versions lack it
            counters["reliability"] = curves and {name: [Bin(*row) for row in rows] for name, rows in curves.items()}
            found = cls(**counters)
            found.loaded = {name: state[name] for name in ("network", "optimizer", "generators")}
            # Files of earlier versions lack these.
            found.loaded |= {name: state.get(name) for name in ("clipping", "averaging")}
        except MemoryError:
            raise StoreError(f"cannot read the checkpoint {path}: there is too little memory") from None
        except Exception:  # noqa: BLE001 a file may hold anything, and torch then raise anything
            path.replace(path.with_suffix(".damaged"))
            return None
        return found if found.cell == cell else None

    def restore(
        self,
        network: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        clipping: Clipping,
        averaging: Averaging,
        device: torch.device,
    ) -> None:
        """Set weights and their mean, the state of optimiser and clipping and torch's generators to those loaded."""
        network.load_state_dict(self.loaded["network"])
        averaging.load_state_dict(self.loaded["averaging"])
        optimizer.load_state_dict(self.loaded["optimizer"])
        if self.loaded["clipping"] is not None:
            clipping.load_state_dict(self.loaded["clipping"], device)
        Generators(**self.loaded["generators"]).restore(device)
        self.loaded = {}


def _as_tensors(outcomes: Outcomes) -> tuple[Tensor, Tensor, str]:
    """Return outcomes as what torch reads from a file without running code in it."""
    return torch.from_numpy(outcomes.sums), torch.from_numpy(outcomes.weights), outcomes.items


def _from_tensors(sums: Tensor, weights: Tensor, items: str) -> Outcomes:
    return Outcomes(sums.numpy(), weights.numpy(), items)
