"""How far the training of a cell is: the checkpoint, from which it continues bit for bit, and what displays show."""

import hashlib
import io
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from milbench._utils.files import WrongFile, check_readable, open_file, write_durably
from milbench.contracts.predictions import load_predictions
from milbench.errors import UsageError
from milbench.store.cell_folder import CellFolder

REPORT_INTERVAL = 0.5
"""Least seconds between reports of progress inside an evaluation."""
CHECKPOINT_INTERVAL = 60.0
"""Least seconds between checkpoints inside an epoch: a killed run loses about this much work."""
DIGEST_SIZE = 32
"""How many bytes the SHA-256 has that stands before what torch has written."""
ZIP = b"PK"
"""The bytes that every file of torch begins with."""


@dataclass
class Counters:
    """Progress of training: the epochs that are finished, and how far the next one is."""

    epoch: int = 0
    """The number of finished epochs."""
    step: int = 0
    """The number of finished steps of the next epoch."""
    loss_sum: float = 0.0
    """The sum of the losses of these steps."""
    clipped: float = 0.0
    """How many of them clipped the gradient."""
    seconds: float = 0.0
    """How long they took."""
    best: int = 0
    """The epoch whose predictions are kept until the end, since it is the best so far; 0: none."""

    def means(self) -> dict[str, float]:
        """Return the means over the steps so far, as metrics."""
        return {
            "train/loss": self.loss_sum / self.step,
            "train/clipped": self.clipped / self.step,
            "cost/train_seconds": self.seconds,
            "cost/step_seconds": self.seconds / self.step,
        }


class Checkpoint:
    """A file with the states of objects by name, each of which has a `state_dict`, and of torch's random generators.

    Before them stands their digest. A checkpoint is used only with the history it was saved beside,
    whose digest is among them.
    """

    def __init__(self, folder: CellFolder, states: dict[str, Any], device: torch.device) -> None:
        self.folder = folder
        self.states = states
        self.device = device
        self._saved = time.monotonic()

    def save(self, counters: Counters) -> None:
        """Write the file, which exists only when it is whole."""
        gpu_state = None
        if self.device.type == "cuda":
            gpu_state = torch.cuda.get_rng_state(self.device)
        content = {
            "counters": vars(counters),
            "states": {name: part.state_dict() for name, part in self.states.items()},
            "cpu": torch.get_rng_state(),
            "cuda": gpu_state,
            "history": self.folder.history_digest(),
        }
        # Where a disk is full, torch would raise an error of its own kind, so it writes to memory.
        buffer = io.BytesIO()
        torch.save(content, buffer)
        data = buffer.getvalue()
        write_durably(self.folder.checkpoint, hashlib.sha256(data).digest() + data)
        self._saved = time.monotonic()

    def save_if_old(self, counters: Counters) -> None:
        """Write the file where the last one was written long ago."""
        if time.monotonic() - self._saved > CHECKPOINT_INTERVAL:
            self.save(counters)

    def restore(self) -> Counters:
        """Restore objects and random generators, cut the history to there, and return the progress of training.

        No code in the file is run. One that is damaged, lacks a part or belongs to another history
        counts as none. One that the system does not let us read is left alone: that raises
        Unreadable.
        """
        content = self._read()
        counters = Counters(**content["counters"]) if content else Counters()
        # An epoch is written into the history before the checkpoint after it. Where the process
        # ended in between, the history has an epoch that is computed once more.
        self.folder.cut_history(counters.epoch)
        belongs = content.get("history") == self.folder.history_digest()
        if not belongs or not self._has_best(counters.best):
            self.folder.checkpoint.unlink(missing_ok=True)
            self.folder.cut_history(0)
            return Counters()
        for name, part in self.states.items():
            part.load_state_dict(content["states"][name])
        torch.set_rng_state(content["cpu"])
        if content["cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(content["cuda"], self.device)
        return counters

    def _has_best(self, epoch: int) -> bool:
        """Return whether the predictions of the best epoch so far are there and whole; True where there is none."""
        if epoch == 0:
            return True
        check_readable(self.folder.best(epoch))
        try:
            stored_epoch, _ = load_predictions(self.folder.best(epoch))["best"]
        except (UsageError, KeyError):
            return False
        return stored_epoch == epoch

    def _read(self) -> dict[str, Any]:
        """Return the content of the file, {} where it is not whole. Raises Unreadable where it cannot be read."""
        data = self._whole_data()
        if not data:
            return {}
        try:
            # Everything is read to the CPU. Otherwise the optimiser's step counters would be on the
            # GPU, and every step would wait for them.
            content: dict[str, Any] = torch.load(
                io.BytesIO(data), map_location="cpu", weights_only=True
            )
            is_whole = {"counters", "states", "cpu", "cuda", "history"} <= content.keys()
            if is_whole and content["states"].keys() == self.states.keys():
                return content
        except Exception:  # noqa: BLE001 torch raises errors of many kinds for a file that something else has written
            return {}
        return {}

    def _whole_data(self) -> bytes:
        """Return what torch has written, b"" where there is no file, or it is not as it was written."""
        try:
            with open_file(self.folder.checkpoint) as file:
                written = file.read(DIGEST_SIZE)
                # Something else may have left a file of any size there. Only its beginning is read.
                if file.read(len(ZIP)) != ZIP:
                    return b""
                file.seek(DIGEST_SIZE)
                data = file.read()
        except (FileNotFoundError, WrongFile):
            return b""
        if hashlib.sha256(data).digest() != written:
            return b""
        return data


@dataclass
class Shown:
    """What a display reads of a running cell; `progress.json` has these names."""

    doing: str
    """Training, or evaluating and how many bags so far."""
    epochs: int
    steps: int
    """How many steps an epoch has."""
    epoch: int
    """The present one, from 1."""
    step: int
    """The number of its finished steps."""
    begun: float
    """When this process began to train, in seconds since 1970."""
    at: float
    """The share of the training that was done then, from a checkpoint. Displays estimate the rest from there."""
    loss: float | None = None
    errors: dict[str, float] = field(default_factory=dict)
    """The errors at the last evaluation, by metric."""


class Progress:
    """Writes the progress of a cell of `epochs` with `steps` each, at most twice a second."""

    def __init__(self, folder: CellFolder, epochs: int, steps: int, counters: Counters) -> None:
        self.folder = folder
        self.shown = Shown(
            doing="training",
            epochs=epochs,
            steps=steps,
            epoch=counters.epoch + 1,
            step=counters.step,
            begun=time.time(),
            at=(counters.epoch + counters.step / steps) / epochs,
        )
        self._scored = 0
        self._write()

    def trained(self, counters: Counters) -> None:
        """Report steps."""
        self._scored = 0
        self.shown.doing = "training"
        self.shown.epoch = counters.epoch + 1
        self.shown.step = counters.step
        self.shown.loss = counters.loss_sum / counters.step
        self._write()

    def scored(self, bags: int) -> None:
        """Report that some more bags are evaluated."""
        self._scored += bags
        if time.monotonic() - self._written > REPORT_INTERVAL:
            self.shown.doing = f"evaluating, {self._scored:,} bags"
            self._write()

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Report the errors of an epoch; after one without an evaluation those of the last one stay."""
        errors = {name: value for name, value in metrics.items() if name.endswith("_error")}
        if errors:
            self.shown.errors = errors
        self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        self.folder.write_progress(asdict(self.shown))
