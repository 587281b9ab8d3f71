"""The folder of a cell: its results, its progress, its error. No other module knows the names of the files.

    cell.json            the cell, and the code, the machine and the libraries that compute it
    history.csv          epoch, metric, value: appended after every epoch
    progress.json        the progress of training and evaluation, while it is running
    checkpoint.pt        from which training continues
    predictions.npz, decoder.json, task.json, weights.safetensors, gallery.npz: the results
    outcomes.npz, classes.json, reliability.json: results of cells that an earlier version computed
    best-EPOCH.npz       predictions after the best epoch so far, which join predictions.npz in the end
    error.txt            why it failed: the reason in the first line, then the traceback
    output.txt           what plug-ins printed
    hang.txt             where it was when it exceeded its time limit
    result.json          written last, with the size and the digest of every file that belongs to the cell
    mlflow.json          which part of it is in MLflow

A cell is done where all that `result.json` lists is as it was written. The process that runs the cell holds a lock
beside the folder.
"""

import hashlib
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
WEIGHTS = "weights.safetensors"
PREDICTIONS = "predictions.npz"
LISTED = (
    "cell.json", "history.csv", PREDICTIONS, "outcomes.npz", "classes.json", "reliability.json", "decoder.json",
    "task.json", "gallery.npz", WEIGHTS,
)  # fmt: skip
"""The files that belong to a finished cell."""
SMALL = 65_536
"""Bytes of weights whose digest is computed whenever the state of a cell is asked for, as those of other files are."""


@dataclass(frozen=True)
class State:
    """State of a cell: running while a process holds its lock; missing if it is not done, never begun or damaged."""

    status: Status
    reason: str = ""
    progress: Mapping[str, Any] | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether it is the state of a cell that was done."""
        return self.status == "missing" and bool(self.reason)


class CellFolder:
    """The folder of one cell, whose name is the id of the cell; nothing is created before `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.weights = path / WEIGHTS
        self.gallery = path / "gallery.npz"
        self.predictions = path / PREDICTIONS
        self.decoder = path / "decoder.json"
        self.memory = path / "task.json"
        self.checkpoint = path / "checkpoint.pt"
        self.error = path / "error.txt"
        self.output = path / "output.txt"
        self.hang = path / "hang.txt"
        self._cell = path / "cell.json"
        self._result = path / "result.json"
        self._history = path / "history.csv"
        self._progress = path / "progress.json"
        self._mirrored = path / "mlflow.json"
        self._lock = path.with_name(f"{path.name}.lock")

    def best(self, epoch: int) -> Path:
        """Return the file of predictions after an epoch that was the best one so far."""
        return self.path / f"best-{epoch}.npz"

    def keep_best(self, epoch: int) -> None:
        """Remove the predictions of all epochs that were the best one but this."""
        for path in self.path.glob("best-*.npz"):
            if path != self.best(epoch):
                path.unlink(missing_ok=True)

    def lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of the cell for a block, which gets False where another process holds it."""
        return locks.try_lock(self._lock)

    def state(self, *, weights: bool = False) -> State:
        """Return the state of the cell; files that another process is writing count as absent.

        A file that a finished cell has no more, or that has changed, makes it a missing one. Of large weights the
        digest is computed only with `weights`, else their size counts.
        """
        damage = self._damage(weights)
        if damage == "":
            return State("done")
        if locks.is_locked(self._lock):
            return State("running", progress=_read_json(self._progress))
        if damage:
            return State("missing", f"damaged: {damage}; the same milbench run computes it again")
        return (
            State("failed", reason) if (reason := self.failure()) is not None else State("missing")
        )

    @property
    def is_done(self) -> bool:
        """Whether all results are there, as they were written."""
        return self._damage(weights=False) == ""

    def _damage(self, weights: bool) -> str | None:
        """Return what is wrong with a file of a finished cell, "" for nothing; None where the cell is not finished."""
        try:
            names = {entry.name for entry in os.scandir(self.path)}
        except OSError:
            return None
        if self._result.name not in names:
            return None
        try:
            content = self._result.read_bytes()
            result = json.loads(content)
            files = result.pop("files", {})
            result.pop("digest", None)
            if content != self._result_content(result, files):
                return "result.json is not as it was written"
            for name in LISTED:
                if (name in names) != (name in files):
                    return f"{name} is {'no file of this cell' if name in names else 'gone'}"
                if name in names and not self._is_as_written(name, files[name], weights):
                    return f"{name} is not as it was written"
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
            return f"it cannot be read: {error}"
        return ""

    def _is_as_written(self, name: str, listed: tuple[int, str], weights: bool) -> bool:
        size, digest = listed
        with open(f"{self.path}/{name}", "rb", 0) as file:  # noqa: PTH123 for thousands of cells
            if name == WEIGHTS and size > SMALL and not weights:
                return os.fstat(file.fileno()).st_size == size
            return _digest(file.read()) == digest

    @property
    def begun(self) -> float:
        """When the running process began the cell, in seconds since 1970; 0.0 if none runs it."""
        begun = (_read_json(self._progress) or {}).get("begun")
        return begun if isinstance(begun, float) else 0.0

    @property
    def timed_out(self) -> bool:
        """Whether the cell exceeded its time limit; a file then says where it was."""
        return self.hang.exists() and self.hang.stat().st_size > 0

    def tidy(self) -> None:
        """Remove what a process that has ended left: its progress and error, and a checkpoint that is not needed."""
        if self._left():
            with self.lock() as acquired:
                for path in self._left() if acquired else ():
                    _remove(path)

    def _left(self) -> list[Path]:
        passing = [
            self._progress,
            self.error,
            self.hang,
            *([self.checkpoint] if self._result.exists() else []),
        ]
        return [
            p for p in self.path.glob("*") if p in passing or p.name.startswith(".") or p.is_dir()
        ]

    def interruption(self) -> str:
        """Return where training stopped that no process goes on with, such as epoch 38 of 50; "" if it never began.

        It is for a cell that is missing: what a running one does, its progress says.
        """
        progress = _read_json(self._progress) or {}
        if "epoch" in progress:
            return f"epoch {progress['epoch']} of {progress['epochs']}"
        if not self.checkpoint.exists() or not self.is_described():
            return ""
        # A later launch has removed the progress; the checkpoint belongs to the end of the history.
        finished = max((epoch for epoch, *_ in self.history()), default=0)
        epochs = self.cell().recipe["epochs"]
        return f"epoch {min(finished + 1, epochs)} of {epochs}"

    def failure(self) -> str | None:
        """Return the error of the cell in one line, None if it did not fail."""
        try:
            return self.error.read_text("utf-8", "replace").partition("\n")[0]
        except OSError:
            return None

    def remove(self) -> None:
        """Remove the folder of the cell, unless a process is running it."""
        with self.lock() as acquired:
            if acquired:
                self._clear()

    def _clear(self) -> None:
        with suppress(OSError):  # where it is no file
            self._result.unlink(missing_ok=True)  # first: what is half removed is not done
        _remove(self.path)

    def begin(self, cell: Cell, label: str, provenance: Mapping[str, str]) -> None:
        """Make the folder; what a damaged result, an earlier failure or a killed process has left is removed."""
        if os.path.lexists(self._result) or not self.path.is_dir():
            self._clear()
        self.path.mkdir(parents=True, exist_ok=True)
        for path in [*self._left(), *([] if self.checkpoint.exists() else [self.output])]:
            _remove(path)
        # A cell that starts anew is another run in MLflow; one that continues is not.
        attempt = (self.is_described() and self.about()["attempt"]) or uuid.uuid4().hex
        about = {
            "label": label,
            "attempt": attempt,
            "cell": asdict(cell),
            "provenance": dict(provenance),
        }
        _write_json(self._cell, about)
        self.write_progress(
            {"doing": "reading data", "epochs": cell.recipe["epochs"], "begun": time.time()}
        )

    def append(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of an epoch to the history."""
        header = "" if self._history.exists() else HEADER
        with self._history.open("a", encoding="utf-8") as file:
            file.write(header + _lines((epoch, metric, value) for metric, value in metrics.items()))
            file.flush()
            os.fsync(file.fileno())  # before the checkpoint that belongs to it

    def cut_history(self, epochs: int) -> None:
        """Cut the history to its first epochs, those before a checkpoint."""
        text = HEADER + _lines(row for row in self.history() if row[0] <= epochs)
        write_durably(self._history, text.encode())

    def history_digest(self) -> str:
        """Return a digest of the history, which a checkpoint holds, so that it goes on with no other."""
        return _digest(self.id.encode() + self._history.read_bytes())

    def write_progress(self, progress: Mapping[str, Any]) -> None:
        """Write the progress: "doing", "epoch", "epochs", "step", "steps", "loss", "errors", "begun", "at"."""
        with suppress(OSError):  # a display can do without
            _write_json(self._progress, {"host": platform.node(), "pid": os.getpid(), **progress})

    def fail(self, reason: str, details: str = "") -> None:
        """Record why the cell failed, in one line, and the traceback."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = f"{' '.join(reason.split())}\n{details}"
        write_atomically(
            self.error, lambda path: path.write_text(text, "utf-8", "backslashreplace")
        )
        self._progress.unlink(missing_ok=True)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Mark the cell as done.

        The result has "costs" by name, "threshold", "decoder", "classes", "seconds", "finished", and
        "imported_later" where plug-ins have imported something in training.
        """
        files = {}
        for path in (self.path / name for name in LISTED):
            if path.exists():
                with path.open("rb+") as file:
                    content = file.read()
                    os.fsync(
                        file.fileno()
                    )  # what result.json lists outlives the loss of the machine
                files[path.name] = [len(content), _digest(content)]
        write_durably(self._result, self._result_content(result, files))
        for path in (self.checkpoint, self._progress, *self.path.glob("best-*.npz")):
            path.unlink(missing_ok=True)

    def _result_content(self, result: Mapping[str, Any], files: Mapping[str, Any]) -> bytes:
        digest = _digest(
            json.dumps([self.id, result, files]).encode()
        )  # of another cell, too, it is another one
        return json.dumps({**result, "files": files, "digest": digest}).encode() + b"\n"

    def cell(self) -> Cell:
        """Return the cell. Raises UsageError where the folder does not tell."""
        try:
            return Cell(**json.loads(self._cell.read_text("utf-8"))["cell"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{self._cell} cannot be read: {error}") from None

    def is_described(self) -> bool:
        """Return whether `cell` is the cell of this folder."""
        try:
            return self.cell().id == self.id
        except (UsageError, AttributeError, TypeError):
            return False

    def about(self) -> dict[str, Any]:
        """Return what `begin` wrote: "label", the name in a comparison; "provenance"; "attempt", the id of the run."""
        about, nothing = (
            _read_json(self._cell) or {},
            {"label": "", "attempt": "", "provenance": {}},
        )
        return {
            k: about[k] if isinstance(about.get(k), type(empty)) else empty
            for k, empty in nothing.items()
        }

    def result(self) -> dict[str, Any]:
        """Return what was given to `finish`, {} if the cell is not done; whether it is whole, `state` tells."""
        return {
            k: v
            for k, v in (_read_json(self._result) or {}).items()
            if k not in ("files", "digest")
        }

    def imported_later(self) -> dict[str, list[str]]:
        """Return what plug-ins imported while they were trained: "by", their kinds, "files" and "packages".

        {} where that is nothing, or the file is damaged.
        """
        late = self.result().get("imported_later")
        if not isinstance(late, dict):
            return {}
        found: dict[str, list[str]] = {}
        for key in ("by", "files", "packages"):
            names = late.get(key)
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                return {}
            found[key] = names
        if not {*found["by"]} <= {"loss", "task", "network"}:
            return {}
        return found

    def history(self) -> list[Row]:
        """Return the metrics of all epochs so far, up to a line that is being written or is damaged."""
        rows: list[Row] = []
        with suppress(OSError, ValueError):
            text = self._history.read_text("utf-8")
            for epoch, metric, value in re.findall(r"^(\d+),(.+),(.+)\n", text, re.MULTILINE):
                rows.append((int(epoch), metric, float(value)))
        return rows

    def last_metrics(self) -> dict[str, float]:
        """Return the metrics after the last epoch so far."""
        rows = self.history()
        last = max((epoch for epoch, *_ in rows), default=0)
        return {name: value for epoch, name, value in rows if epoch == last}

    def artifacts(self) -> list[Path]:
        """Return the files of results that exist, and the traceback of a failure."""
        results = self.predictions, self.decoder, self.memory
        return [
            path for path in (self.weights, self.gallery, *results, self.error) if path.exists()
        ]

    def mirrored(self) -> dict[str, Any]:
        """Return what `keep_mirrored` wrote last, {} for nothing."""
        record = _read_json(self._mirrored) or {}
        types = [type(record.get(key)) for key in ("run", "start", "rows")]
        return record if record.get("cell") == self.id and types == [str, int, int] else {}

    def keep_mirrored(self, content: Mapping[str, Any]) -> None:
        """Record which part of the cell is in MLflow."""
        _write_json(self._mirrored, {"cell": self.id, **content})


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that is whole, or is not there, even after the machine is lost."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    write_atomically(path, write)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lines(rows: Iterable[Row]) -> str:
    return "".join(f"{epoch},{metric},{value!r}\n" for epoch, metric, value in rows)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content)
    write_atomically(path, lambda temporary: temporary.write_text(text + "\n", "utf-8"))
