"""How far the training of a cell is.

A checkpoint lets the training continue bit for bit, and a file of progress is for displays.
"""

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
"""The least time in seconds between reports of progress inside an evaluation."""
CHECKPOINT_INTERVAL = 60.0
"""The least time in seconds between checkpoints inside an epoch.

A killed run loses about this much work.
"""
DIGEST_SIZE = 32
"""The number of bytes of a SHA-256, with which the file of a checkpoint begins."""
ZIP = b"PK"
"""The bytes with which everything begins that torch saves: it is a zip archive."""


@dataclass
class Counters:
    """The progress of training: the number of finished epochs, and how far the next one is."""

    epoch: int = 0
    """The number of finished epochs."""
    step: int = 0
    """The number of finished steps of the next epoch."""
    loss_sum: float = 0.0
    """The sum of the losses of the finished steps of the next epoch."""
    clipped: float = 0.0
    """How many of these steps shortened the gradient."""
    seconds: float = 0.0
    """How many seconds these steps took."""
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
    """A file with the state of a training, from which the training continues.

    It begins with a digest of the rest. It also holds a digest of the history, since it is used
    only with the history beside which it was saved.
    """

    def __init__(self, folder: CellFolder, states: dict[str, Any], device: torch.device) -> None:
        """Take the folder of the cell, and name -> part; each part has a `state_dict`."""
        self.folder = folder
        self.states = states
        self.device = device
        self._saved = time.monotonic()

    def save(self, counters: Counters) -> None:
        """Write the file. It is never seen half written."""
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
        # torch writes to memory, since it would raise an error of its own class for a full disk.
        buffer = io.BytesIO()
        torch.save(content, buffer)
        data = buffer.getvalue()
        write_durably(self.folder.checkpoint, hashlib.sha256(data).digest() + data)
        self._saved = time.monotonic()

    def save_if_old(self, counters: Counters) -> None:
        """Write the file if the last one is older than `CHECKPOINT_INTERVAL`."""
        if time.monotonic() - self._saved > CHECKPOINT_INTERVAL:
            self.save(counters)

    def restore(self) -> Counters:
        """Restore the saved parts and random generators, and return the progress of training.

        The history is cut to the epochs that were finished then. No code in the file is run. A file
        that is damaged, lacks a part or belongs to another history counts as no checkpoint. Raises
        Unreadable where the system does not let us read the file, which is then left alone.
        """
        content = self._read()
        counters = Counters(**content["counters"]) if content else Counters()
        # An epoch is written into the history before its checkpoint is saved. If the process ended
        # between the two, the history has an epoch too many, which is computed once more.
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
        """Return whether the predictions of the best epoch are there and whole.

        It is True if there is no best epoch yet.
        """
        if epoch == 0:
            return True
        check_readable(self.folder.best(epoch))
        try:
            stored_epoch, _ = load_predictions(self.folder.best(epoch))["best"]
        except (UsageError, KeyError):
            return False
        return stored_epoch == epoch

    def _read(self) -> dict[str, Any]:
        """Return the content of the file, {} if it is missing or damaged.

        Raises Unreadable where the system does not let us read it.
        """
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
        except Exception:  # noqa: BLE001
            # torch raises errors of many types for a file that something else has written.
            return {}
        return {}

    def _whole_data(self) -> bytes:
        """Return the bytes that torch has saved, b"" if the file is missing or damaged."""
        try:
            with open_file(self.folder.checkpoint) as file:
                written = file.read(DIGEST_SIZE)
                # Another program may have left a file of any size. Only its beginning is read.
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
    """What a display reads of a running cell: the keys of `progress.json`."""

    doing: str
    """What the cell is doing: "training", or evaluating and how many bags so far."""
    epochs: int
    """How many epochs the training has."""
    steps: int
    """How many steps an epoch has."""
    epoch: int
    """The present epoch, from 1."""
    step: int
    """The number of finished steps of the present epoch."""
    begun: float
    """When this process began to train, in seconds since 1970."""
    at: float
    """The share of the training that was done when this process began, from a checkpoint.

    A display estimates the speed from what was done since.
    """
    loss: float | None = None
    """The mean loss over the steps of the present epoch."""
    errors: dict[str, float] = field(default_factory=dict)
    """The errors at the last evaluation, by metric."""


class Progress:
    """Writes the progress of a cell of `epochs`, each of which has `steps`."""

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
        """Report that steps were made."""
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
        """Report the errors after an epoch.

        After an epoch without an evaluation, the errors of the last evaluation stay.
        """
        errors = {name: value for name, value in metrics.items() if name.endswith("_error")}
        if errors:
            self.shown.errors = errors
        self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        self.folder.write_progress(asdict(self.shown))
