"""The folder of a cell: its results, its progress, its error. No other module knows the names of the files.

    cell.json            the cell, and the code, the machine and the libraries that compute it
    history.csv          epoch, metric, value: appended after every epoch
    system.csv           milliseconds since 1970, metric, value: the load of the machine
    progress.json        the progress of training and evaluation, while it is running
    checkpoint.pt        from which training continues
    outcomes.npz, reliability.json, decoder.json, task.json, weights.safetensors, gallery.npz   the results
    error.txt            why it failed: the reason in the first line, then the traceback
    hang.txt             where it was when it exceeded its time limit
    result.json          written last: it exists exactly if the cell is done
    mlflow.json          which part of it is in MLflow

The process that runs the cell holds a lock beside the folder.
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
    """State of a cell: running while a process holds its lock, missing if it was never begun, or was interrupted."""

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

    # -- state --------------------------------------------------------------------------------------------------

    def lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of the cell for a block, which gets False where another process holds it."""
        return locks.try_lock(self._lock)

    @property
    def is_done(self) -> bool:
        """Whether all results are there."""
        return self._result.exists()

    def state(self) -> State:
        """Return the state of the cell; files that another process is writing count as absent."""
        if self.is_done:
            return State("done")
        if locks.is_locked(self._lock):
            return State("running", progress=_read_json(self._progress))
        if (reason := self.failure()) is not None:
            return State("failed", reason)
        return State("missing")

    @property
    def begun(self) -> float:
        """When the running process began the cell, in seconds since 1970; 0.0 if none runs it."""
        return float((_read_json(self._progress) or {}).get("begun", 0.0))

    @property
    def timed_out(self) -> bool:
        """Whether the cell exceeded its time limit; a file then says where it was."""
        return self.hang.exists() and self.hang.stat().st_size > 0

    def forget_attempt(self) -> None:
        """Forget the progress and the error of a process that has ended; its checkpoint stays."""
        if not locks.is_locked(self._lock):
            for path in (self._progress, self.error, self.hang):
                path.unlink(missing_ok=True)

    def failure(self) -> str | None:
        """Return the error of the cell in one line, None if it did not fail."""
        try:
            return self.error.read_text("utf-8", "replace").partition("\n")[0]
        except OSError:
            return None

    # -- writing ------------------------------------------------------------------------------------------------

    def remove(self) -> None:
        """Remove the folder of the cell, unless a process is running it."""
        with self.lock() as acquired:
            if acquired and self.path.exists():
                self._result.unlink(missing_ok=True)
                shutil.rmtree(self.path)

    def begin(self, cell: Cell, label: str, provenance: Mapping[str, str]) -> None:
        """Make the folder; an earlier failure is forgotten."""
        self.path.mkdir(parents=True, exist_ok=True)
        for path in (self.error, self.hang):
            path.unlink(missing_ok=True)
        # A cell that starts anew is another run in MLflow; one that continues is not.
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
        """Cut the history to its first epochs, those before a checkpoint."""
        text = HEADER + _lines(row for row in self.history() if row[0] <= epochs)
        write_atomically(self._history, lambda path: path.write_text(text, "utf-8"))

    def append_load(self, load: Mapping[str, float]) -> None:
        """Add the load of the machine at this moment."""
        moment = int(1000 * time.time())
        with self._system.open("a", encoding="utf-8") as file:
            file.write(_lines((moment, metric, value) for metric, value in load.items()))

    def write_progress(self, progress: Mapping[str, Any]) -> None:
        """Write the progress: "doing", "epoch", "epochs", "step", "steps", "loss", "errors", "begun", "at"."""
        with suppress(OSError):  # a display can do without
            _write_json(self._progress, {"host": platform.node(), "pid": os.getpid(), **progress})

    def fail(self, reason: str, details: str = "") -> None:
        """Record why the cell failed, in one line, and the traceback."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = f"{' '.join(reason.split())}\n{details}"
        write_atomically(self.error, lambda path: path.write_text(text, "utf-8", "backslashreplace"))
        self._progress.unlink(missing_ok=True)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Mark the cell as done: "costs" by name, "threshold", "decoder", "classes", "seconds", "finished"."""
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
        """Return the code, the machine and the libraries that compute the cell."""
        content = self._about("provenance")
        return {str(key): str(value) for key, value in content.items()} if isinstance(content, dict) else {}

    def label(self) -> str:
        """Return the name of the cell in its comparison, "" if the folder has none."""
        return str(self._about("label"))

    def attempt(self) -> str:
        """Return the id of this computation of the cell, which tells it from earlier ones."""
        return str(self._about("attempt"))

    def result(self) -> dict[str, Any]:
        """Return what `finish` wrote, {} if the cell is not done. Raises UsageError if the file is damaged."""
        if not self.is_done:
            return {}
        result = _read_json(self._result)
        costs, classes = (result.get("costs", {}), result.get("classes", [])) if result is not None else (None, None)
        if result is None or not isinstance(costs, dict) or not isinstance(classes, list):
            raise self._damaged(self._result)
        numbers = [*costs.values(), result.get("seconds", 0), result.get("finished", 0)]
        if not all(isinstance(value, int | float) for value in numbers):
            raise self._damaged(self._result)
        return result

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
            return [(int(epoch), metric, float(value)) for epoch, metric, value in rows]
        except FileNotFoundError:
            return []
        except ValueError:
            raise self._damaged(path) from None

    def artifacts(self) -> list[Path]:
        """Return the files of results that exist, and the traceback of a failure."""
        files = (self.weights, self.gallery, self.outcomes, self.reliability, self.decoder, self.memory, self.error)
        return [path for path in files if path.exists()]

    # -- MLflow -------------------------------------------------------------------------------------------------

    def mirrored(self) -> dict[str, Any]:
        """Return what `keep_mirrored` wrote last, {} for nothing."""
        return _read_json(self._mirrored) or {}

    def keep_mirrored(self, content: Mapping[str, Any]) -> None:
        """Record which part of the cell is in MLflow."""
        _write_json(self._mirrored, content)


def _lines(rows: Iterable[Row]) -> str:
    return "".join(f"{epoch},{metric},{value!r}\n" for epoch, metric, value in rows)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content)
    write_atomically(path, lambda temporary: temporary.write_text(text + "\n", "utf-8"))
