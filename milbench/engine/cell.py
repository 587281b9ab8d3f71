"""A cell is a folder: what was computed, how far it is, why it failed. No other module knows the names of its files.

    cell.json            the cell, and by which code, on which machine and with which libraries it is computed
    history.csv          epoch, metric, value: appended after every epoch
    system.csv           milliseconds since 1970, metric, value: the load of the machine
    progress.json        how far training and evaluation are, while it is computed
    checkpoint.pt        from which training goes on
    outcomes.npz, reliability.json, decoder.json, task.json, weights.safetensors, gallery.npz   the results
    error.txt            why it failed: the reason in the first line, then the traceback
    hang.txt             where it was when it had taken too long
    result.json          written last: it exists exactly if the cell is done
    mlflow.json          what of it is in MLflow

A lock beside the folder is held by the process that computes the cell.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from milbench._utils import locks
from milbench._utils.files import write_atomically
from milbench.api.plan import Cell
from milbench.errors import UsageError

Status = Literal["done", "failed", "running", "missing"]
Row = tuple[int, str, float]  # an epoch, a metric with its split, and its value
HEADER = "epoch,metric,value\n"


@dataclass(frozen=True)
class State:
    """What has become of a cell: running where a process holds its lock, missing if never begun or stopped."""

    status: Status
    reason: str = ""
    progress: Mapping[str, Any] | None = None


class CellFolder:
    """The folder of one cell, whose name is the id of the cell; nothing is created before `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.weights = path / "weights.safetensors"
        self.gallery = path / "gallery.npz"
        self.outcomes = path / "outcomes.npz"
        self.reliability = path / "reliability.json"
        self.decoder = path / "decoder.json"
        self.memory = path / "task.json"
        self.checkpoint = path / "checkpoint.pt"
        self.error = path / "error.txt"
        self.hang = path / "hang.txt"
        self._cell = path / "cell.json"
        self._result = path / "result.json"
        self._history = path / "history.csv"
        self._system = path / "system.csv"
        self._progress = path / "progress.json"
        self._mirrored = path / "mlflow.json"
        self._lock = path.with_name(f"{path.name}.lock")

    # -- what has become of it ----------------------------------------------------------------------------------

    def lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of the cell for a block, which gets False where another process holds it."""
        return locks.try_lock(self._lock)

    @property
    def is_done(self) -> bool:
        """Whether all results are there."""
        return self._result.exists()

    def state(self) -> State:
        """Return what has become of the cell; files that another process writes at this moment count as absent."""
        if self.is_done:
            return State("done")
        if locks.is_locked(self._lock):
            return State("running", progress=_read_json(self._progress))
        if (reason := self.failure()) is not None:
            return State("failed", reason)
        return State("missing")

    @property
    def begun(self) -> float:
        """When a process began with the cell, in seconds since 1970, 0.0 for none or one that has ended it."""
        return float((_read_json(self._progress) or {}).get("begun", 0.0))

    @property
    def timed_out(self) -> bool:
        """Whether a process has ended itself since the cell took too long: where it was then is in a file."""
        return self.hang.exists() and self.hang.stat().st_size > 0

    def forget_attempt(self) -> None:
        """Forget how far a process was that has ended, and why it failed; its checkpoint stays."""
        if not locks.is_locked(self._lock):
            for path in (self._progress, self.error, self.hang):
                path.unlink(missing_ok=True)

    def failure(self) -> str | None:
        """Return in one line why the cell failed, None where it did not."""
        try:
            return self.error.read_text("utf-8", "replace").partition("\n")[0]
        except OSError:
            return None

    # -- writing ------------------------------------------------------------------------------------------------

    def remove(self) -> None:
        """Forget all that was computed of the cell, but for a process that computes it now."""
        with self.lock() as mine:
            if mine and self.path.exists():
                self._result.unlink(missing_ok=True)
                shutil.rmtree(self.path)

    def begin(self, cell: Cell, label: str, provenance: Mapping[str, str]) -> None:
        """Make the folder; an earlier failure is forgotten."""
        self.path.mkdir(parents=True, exist_ok=True)
        for path in (self.error, self.hang):
            path.unlink(missing_ok=True)
        # A cell that is computed anew is another run in MLflow; one that goes on is not.
        attempt = self.attempt() or uuid.uuid4().hex
        about = {"label": label, "attempt": attempt, "cell": asdict(cell), "provenance": dict(provenance)}
        _write_json(self._cell, about)
        self.write_progress({"doing": "reading data", "epochs": cell.recipe["epochs"], "begun": time.time()})

    def append(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of an epoch to the history."""
        header = "" if self._history.exists() else HEADER
        with self._history.open("a", encoding="utf-8") as file:
            file.write(header + _lines((epoch, metric, value) for metric, value in metrics.items()))

    def cut_history(self, epochs: int) -> None:
        """Keep the first epochs of the history alone: those that a checkpoint knows."""
        text = HEADER + _lines(row for row in self.history() if row[0] <= epochs)
        write_atomically(self._history, lambda path: path.write_text(text, "utf-8"))

    def append_load(self, load: Mapping[str, float]) -> None:
        """Add the load of the machine at this moment."""
        moment = int(1000 * time.time())
        with self._system.open("a", encoding="utf-8") as file:
            file.write(_lines((moment, metric, value) for metric, value in load.items()))

    def write_progress(self, progress: Mapping[str, Any]) -> None:
        """Say how far the cell is: "doing", "epoch", "epochs", "step", "steps", "loss", "errors", "begun", "at"."""
        with suppress(OSError):  # a display can do without
            _write_json(self._progress, {"host": platform.node(), "pid": os.getpid(), **progress})

    def fail(self, reason: str, details: str = "") -> None:
        """Keep why the cell failed, in one line, and the traceback."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = f"{' '.join(reason.split())}\n{details}"
        write_atomically(self.error, lambda path: path.write_text(text, "utf-8", "backslashreplace"))
        self._progress.unlink(missing_ok=True)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Say that all results are there: "costs" by name, "threshold", "decoder", "classes", "seconds", "finished"."""
        _write_json(self._result, result)
        for path in (self.checkpoint, self._progress):
            path.unlink(missing_ok=True)

    # -- reading ------------------------------------------------------------------------------------------------

    def cell(self) -> Cell:
        """Return the cell. Raises UsageError where the folder does not tell."""
        try:
            return Cell(**json.loads(self._cell.read_text("utf-8"))["cell"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self._cell} cannot be read: {error}") from None

    def _about(self, key: str) -> Any:
        return (_read_json(self._cell) or {}).get(key, "")

    def provenance(self) -> dict[str, str]:
        """Return by which code, on which machine and with which libraries the cell is computed."""
        found = self._about("provenance")
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}

    def label(self) -> str:
        """Return the cell in words, as its comparison names it, "" where the folder does not tell."""
        return str(self._about("label"))

    def attempt(self) -> str:
        """Return what tells this computation of the cell from earlier ones of the same cell."""
        return str(self._about("attempt"))

    def result(self) -> dict[str, Any]:
        """Return what `finish` was given, {} where the cell is not done. Raises UsageError where it is damaged."""
        if not self.is_done:
            return {}
        found = _read_json(self._result)
        costs, classes = (found.get("costs", {}), found.get("classes", [])) if found is not None else (None, None)
        if found is None or not isinstance(costs, dict) or not isinstance(classes, list):
            raise self._damaged(self._result)
        numbers = [*costs.values(), found.get("seconds", 0), found.get("finished", 0)]
        if not all(isinstance(value, int | float) for value in numbers):
            raise self._damaged(self._result)
        return found

    def _damaged(self, file: Path) -> UsageError:
        return UsageError(f"{file} is damaged; delete its folder, and the same milbench run computes the cell again")

    def history(self) -> list[Row]:
        """Return the metrics of all epochs so far; a line that is being written is left out."""
        return self._rows(self._history)

    def last_metrics(self) -> dict[str, float]:
        """Return the metrics after the last epoch so far."""
        rows = self.history()
        last = max((epoch for epoch, *_ in rows), default=0)
        return {name: value for epoch, name, value in rows if epoch == last}

    def load(self) -> list[Row]:
        """Return the load of the machine so far: the moment in milliseconds since 1970, the metric and its value."""
        return self._rows(self._system)

    def _rows(self, path: Path) -> list[Row]:
        try:
            rows = re.findall(r"^(\d+),(.+),(.+)\n", path.read_text("utf-8"), re.MULTILINE)
            return [(int(when), metric, float(value)) for when, metric, value in rows]
        except FileNotFoundError:
            return []
        except ValueError:
            raise self._damaged(path) from None

    def artifacts(self) -> list[Path]:
        """Return the files of results that exist, and the traceback of a failure."""
        known = (self.weights, self.gallery, self.outcomes, self.reliability, self.decoder, self.memory, self.error)
        return [path for path in known if path.exists()]

    # -- what is in MLflow --------------------------------------------------------------------------------------

    def mirrored(self) -> dict[str, Any]:
        """Return what `keep_mirrored` was given last, {} for nothing."""
        return _read_json(self._mirrored) or {}

    def keep_mirrored(self, content: Mapping[str, Any]) -> None:
        """Remember what of the cell is in MLflow."""
        _write_json(self._mirrored, content)


def _lines(rows: Iterable[Row]) -> str:
    return "".join(f"{epoch},{metric},{value!r}\n" for epoch, metric, value in rows)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content)
    write_atomically(path, lambda temporary: temporary.write_text(text + "\n", "utf-8"))
