"""The folder of a cell: its results, its progress, its error.

No other module knows the names of the files:

    cell.json            the cell, and the code, the machine and the libraries that compute it
    history.csv          lines of epoch, metric and value, appended after every epoch
    progress.json        the progress of training and evaluation, while it is running
    checkpoint.pt        from which training continues
    predictions.npz, decoder.json, task.json, weights.safetensors, gallery.npz: the results
    best-EPOCH.npz       predictions after the best epoch so far, for predictions.npz
    error.txt            why the cell failed: the reason in the first line, then the traceback
    output.txt           what plug-ins printed
    hang.txt             which line was running when the cell exceeded its time limit
    result.json          written last: size and digest of every file that belongs to the cell
    mlflow.json          which part of the cell is in MLflow

A cell is done where every file that `result.json` lists is as it was written, among them its
description and a history with every epoch. A cell with a file that is not as it was written is
damaged, and is computed again. A file that the system does not let us read may be whole, so its
cell is left alone. The process that runs the cell holds a lock beside the folder.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from milbench._utils import locks
from milbench._utils.files import (
    LinkToNothing,
    Unreadable,
    WrongFile,
    check_readable,
    kind_of,
    open_file,
    read_file,
    write_atomically,
    write_durably,
)
from milbench.errors import UsageError
from milbench.experiment.cell import Cell

Status = Literal["done", "failed", "running", "missing", "unreadable"]
Row = tuple[int, str, float]
"""A row of the history: an epoch, a metric with its split, and its value."""
HEADER = "epoch,metric,value\n"
WEIGHTS = "weights.safetensors"
PREDICTIONS = "predictions.npz"
LISTED = (
    "cell.json", "history.csv", PREDICTIONS, "decoder.json", "task.json", "gallery.npz", WEIGHTS,
)  # fmt: skip
"""The files that may belong to a finished cell; `result.json` lists those that do."""
SMALL_WEIGHTS = 65_536
"""The size in bytes of the largest weights whose digest is always checked.

Checking the digest of larger weights takes long, and is done only on request. The size of weights
is always checked.
"""
MOST_EPOCHS = 1 << 62
"""The largest number of an epoch. A line of a history with a larger one is damaged."""


class Incomplete(UsageError):  # noqa: N818 it is named for the state of the cell
    """Raised when a cell lacks its description or an epoch of its history.

    Without them it can neither be done nor go on.
    """


class CellResult(TypedDict, total=False):
    """What `result.json` says of a finished cell. Of any other cell there are no keys."""

    costs: dict[str, float]
    """The costs of training by name, see `milbench.training.costs`."""
    threads: int
    """The threads of PyTorch at the end of the training."""
    threshold: float | None
    """The presence from which a class counts as detected; None: none was chosen."""
    decoder: str
    """The name of the decoder that reads strings, "" where there is none."""
    classes: list[str]
    """The names of the classes."""
    imported_later: dict[str, list[str]]
    """What plug-ins imported during the training, see `CellFolder.imported_later`.

    The key is absent where they imported nothing.
    """
    seconds: float
    """How many seconds the training took, with its evaluations."""
    finished: float
    """When the training ended, in seconds since 1970."""


@dataclass(frozen=True)
class State:
    """The state of a cell.

    A cell is running while a process holds its lock. It is missing if it was never begun, was
    interrupted, or is damaged. It is unreadable if the system does not let us read a file of it:
    such a cell may be done, and is left alone.
    """

    status: Status
    reason: str = ""
    progress: Mapping[str, Any] | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether the cell was done, and a file of it is not as it was written."""
        # Of the missing cells only damaged ones have a reason.
        return self.status == "missing" and bool(self.reason)

    @property
    def problem(self) -> str:
        """Why a cell is damaged or cannot be read, "" where it is neither."""
        return self.reason if self.is_damaged or self.status == "unreadable" else ""


class CellFolder:
    """The folder of one cell, named by the id of the cell. Making the object creates nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        # The id of the cell that `begin` was called for. It is not the name of the folder where a
        # saved model has a copy of the cell.
        self._begun_id = path.name
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
        """Return the file with the predictions after an epoch that was the best so far."""
        return self.path / f"best-{epoch}.npz"

    def keep_best(self, epoch: int) -> None:
        """Remove the files of predictions that `best` names, except the file of this epoch."""
        for path in self.path.glob("best-*.npz"):
            if path != self.best(epoch):
                path.unlink(missing_ok=True)

    def lock(self) -> AbstractContextManager[bool]:
        """Hold the lock of the cell for a block, which gets False if another process holds it."""
        return locks.try_lock(self._lock)

    def state(self, *, weights: bool = False) -> State:
        """Return the state of the cell. Files that another process is writing count as absent.

        A finished cell that has lost a file, or whose file has changed, is missing. The digest of
        large weights is checked only with `weights`, and otherwise their size alone.
        """
        try:
            return self._state(weights)
        except Unreadable as error:
            return State("unreadable", f"not readable: {error}; it is left alone")

    def _state(self, weights: bool) -> State:
        """Return the state of the cell.

        Raises Unreadable where the system does not let us read a file of the cell.
        """
        damage = ""
        try:
            names = self._names()
        except NotADirectoryError:
            names = set()
            damage = "it is a file, not a folder"
        if self._result.name in names:
            damage = self._damage(names, weights)
            if not damage:
                return State("done")
        else:
            # Training would go on from these files. If it took a file that cannot be read for a
            # missing one, it would overwrite it.
            for path in (self._cell, self._history, self.checkpoint):
                if path.name in names:
                    check_readable(path)
        if locks.is_locked(self._lock):
            return State("running", progress=_read_json(self._progress))
        if damage:
            return State("missing", f"damaged: {damage}; the same milbench run computes it again")
        failure = self.failure()
        if failure is not None:
            return State("failed", failure)
        return State("missing")

    @property
    def is_done(self) -> bool:
        """Whether all results are there, as they were written."""
        return self.state().status == "done"

    def _names(self) -> set[str]:
        """Return the names of the files in the folder, none where it does not exist.

        Raises NotADirectoryError where a file has the name of the folder.
        """
        try:
            return {entry.name for entry in os.scandir(self.path)}
        except NotADirectoryError:
            raise
        except FileNotFoundError:
            if self.path.is_symlink():
                raise LinkToNothing(self.path) from None
            return set()
        except OSError as error:
            raise Unreadable(self.path, error) from None

    def _damage(self, names: set[str], weights: bool) -> str:
        """Return what is wrong with a finished cell, "" if nothing is.

        `names` are the names of the files in its folder.
        """
        try:
            return self._not_as_written(names, weights) or self._lack()
        except Unreadable:
            raise
        except (
            OSError,
            ValueError,
            LookupError,
            AttributeError,
            TypeError,
            RecursionError,
        ) as error:
            return f"it cannot be read: {error}"

    def _not_as_written(self, names: set[str], weights: bool) -> str:
        """Return which file of a finished cell is not as it was written, "" for none.

        A damaged result.json may hold anything, so this may raise errors of many types.
        """
        content = read_file(self._result)
        result = json.loads(content)
        files = result.pop("files", {})
        result.pop("digest", None)
        # Writing it again computes its digest anew, so that this comparison checks the digest too.
        if content != self._result_content(result, files):
            return "result.json is not as it was written"
        for name in LISTED:
            if name in names and name not in files:
                return f"{name} is no file of this cell"
            if name in files and name not in names:
                return f"{name} is gone"
            if name in names and not self._is_as_written(name, files[name], weights):
                return f"{name} is not as it was written"
        return ""

    def _is_as_written(self, name: str, listed: tuple[int, str], weights: bool) -> bool:
        """Return whether a file has the size and the digest with which result.json lists it."""
        size, digest = listed
        with open_file(self.path / name) as file:
            # The size comes first, so that a file of another size, however large, is not read.
            if os.fstat(file.fileno()).st_size != size:
                return False
            is_large = name == WEIGHTS and size > SMALL_WEIGHTS
            if is_large and not weights:
                return True
            return _digest(file.read()) == digest

    def _lack(self) -> str:
        """Return what the cell lacks to be done, "" for nothing.

        It needs its description and every epoch of its history.
        """
        try:
            about = json.loads(read_file(self._cell))
            history = read_file(self._history)
        except FileNotFoundError as error:
            return f"{Path(error.filename).name} is gone"
        epochs = int(about["cell"]["recipe"]["epochs"])
        finished = {int(epoch) for epoch in re.findall(rb"^(\d+),", history, re.MULTILINE)}
        for epoch in range(1, epochs + 1):
            if epoch not in finished:
                return f"history.csv lacks epoch {epoch}"
        return ""

    @property
    def begun(self) -> float:
        """When the running process began the cell, in seconds since 1970; 0.0 if there is none."""
        begun = (_read_json(self._progress) or {}).get("begun")
        return begun if isinstance(begun, float) else 0.0

    @property
    def timed_out(self) -> bool:
        """Whether the cell exceeded its time limit: the file `hang` then has a traceback."""
        return self.hang.exists() and self.hang.stat().st_size > 0

    def tidy(self) -> None:
        """Remove what a process that has ended left: progress, error and unneeded checkpoint."""
        # Where there is nothing to remove, the lock is not taken.
        if not self._leftovers():
            return
        with self.lock() as acquired:
            if acquired:
                self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        for path in self._leftovers():
            _remove(path)

    def _leftovers(self) -> list[Path]:
        """Return the paths that a process that has ended left.

        Only paths with names that milbench gives are among them.
        """
        unneeded = {self._progress.name, self.error.name, self.hang.name}
        own = {
            *LISTED,
            *unneeded,
            self._result.name,
            self.checkpoint.name,
            self.output.name,
            self._mirrored.name,
        }
        # A finished cell needs no checkpoint. Any other cell goes on from its checkpoint.
        if self._result.exists():
            unneeded.add(self.checkpoint.name)
        leftovers = []
        for path in self.path.glob("*"):
            is_own = path.name in own or path.name.startswith("best-")
            is_in_place_of_file = is_own and _is_no_file(path)
            # A process that is killed while it writes leaves a temporary file.
            is_temporary = path.name.startswith(".") and path.name[1:].startswith((*own, "best-"))
            if path.name in unneeded or is_in_place_of_file or is_temporary:
                leftovers.append(path)
        return leftovers

    def interruption(self) -> str:
        """Return where the training of a missing cell stopped, such as "epoch 38 of 50".

        It is "" if the training never began.
        """
        progress = _read_json(self._progress) or {}
        epoch = progress.get("epoch")
        epochs = progress.get("epochs")
        if isinstance(epoch, int) and isinstance(epochs, int):
            return f"epoch {epoch} of {epochs}"
        if not self.checkpoint.exists() or not self.is_described():
            return ""
        # A later launch has removed the progress. The checkpoint belongs to the end of the history.
        finished = _last_epoch(self.history())
        epochs = self.cell().recipe.epochs
        return f"epoch {min(finished + 1, epochs)} of {epochs}"

    def failure(self) -> str | None:
        """Return the error of the cell in one line, None if it did not fail."""
        try:
            text = read_file(self.error).decode("utf-8", "replace")
        except (FileNotFoundError, WrongFile):
            return None
        return text.partition("\n")[0]

    def remove(self) -> None:
        """Remove the folder of the cell, unless a process is running it."""
        with self.lock() as acquired:
            if acquired:
                self._clear()

    def _clear(self) -> None:
        # The result goes first, so that a half removed cell is not taken for a done one. An OSError
        # means that it is a folder, for example, which `_remove` removes too.
        with suppress(OSError):
            self._result.unlink(missing_ok=True)
        _remove(self.path)

    def begin(self, cell: Cell, label: str, provenance: Mapping[str, str]) -> None:
        """Make the folder and describe the cell in it.

        What a damaged result, an earlier failure or a killed process has left is removed.
        """
        # Nothing of an earlier result stays, nor a file that has the name of the folder.
        if os.path.lexists(self._result) or not self.path.is_dir():
            self._clear()
        self.path.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        if not self.checkpoint.exists():
            _remove(self.output)
        # A cell that starts anew becomes a new run in MLflow. A cell that continues keeps its run.
        attempt = self.about()["attempt"] if self.is_described() else ""
        if not attempt:
            attempt = uuid.uuid4().hex
        about = {
            "label": label,
            "attempt": attempt,
            "cell": cell.to_record(),
            "provenance": dict(provenance),
        }
        self._begun_id = cell.id
        _write_json(self._cell, about)
        self.write_progress(
            {"doing": "reading data", "epochs": cell.recipe.epochs, "begun": time.time()}
        )

    def append(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of an epoch to the history.

        Raises Incomplete where the history of the epochs before is gone.
        """
        if epoch > 1 and not self._history.exists():
            raise Incomplete("history.csv was removed while the cell was computed")
        header = "" if self._history.exists() else HEADER
        rows = [(epoch, metric, value) for metric, value in metrics.items()]
        with self._history.open("a", encoding="utf-8") as file:
            file.write(header + _lines(rows))
            file.flush()
            # The checkpoint that is written next belongs to this history. So the history has to be
            # on the disk before.
            os.fsync(file.fileno())

    def cut_history(self, epochs: int) -> None:
        """Cut the history to its first `epochs`, which a checkpoint knows."""
        text = HEADER + _lines(row for row in self.history() if row[0] <= epochs)
        write_durably(self._history, text.encode())

    def history_digest(self) -> str:
        """Return a digest of the history. Raises Incomplete where the history is gone.

        A checkpoint holds the digest, so that it is never used with another history.
        """
        try:
            return _digest(self.id.encode() + read_file(self._history))
        except FileNotFoundError:
            raise Incomplete("history.csv was removed while the cell was computed") from None

    def write_progress(self, progress: Mapping[str, Any]) -> None:
        """Write the progress: fields of `milbench.training.checkpoint.Shown`."""
        # Only displays read the progress, so a full disk, for example, does no harm here.
        with suppress(OSError):
            _write_json(self._progress, {"host": platform.node(), "pid": os.getpid(), **progress})

    def fail(self, reason: str, details: str = "") -> None:
        """Record why the cell failed, in one line, and the traceback."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = f"{' '.join(reason.split())}\n{details}"
        write_atomically(
            self.error, lambda path: path.write_text(text, "utf-8", "backslashreplace")
        )
        self._progress.unlink(missing_ok=True)

    def finish(self, result: CellResult) -> None:
        """Mark the cell as done.

        Raises Incomplete where the description or an epoch is gone, such as when somebody has
        deleted the folder.
        """
        self.check_complete()
        self.write_result(result)
        for path in (self.checkpoint, self._progress, *self.path.glob("best-*.npz")):
            path.unlink(missing_ok=True)

    def check_complete(self) -> None:
        """Raise Incomplete where a part that a finished cell must have is gone or was changed."""
        try:
            lack = self._lack() or self._changed_meanwhile()
        except Unreadable:
            raise
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            lack = f"a file of it is damaged: {error}"
        if lack:
            raise Incomplete(lack)

    def _changed_meanwhile(self) -> str:
        """Return which file somebody has changed while the cell was computed, "" for none."""
        if self._described_id() != self._begun_id:
            return "cell.json is not that of this cell"
        rows = self.history()
        lines = read_file(self._history).count(b"\n")
        # The first line is the header.
        if len(rows) != lines - 1:
            return "history.csv has a damaged line"
        values = {(epoch, metric) for epoch, metric, _ in rows}
        if len(values) != len(rows):
            return "history.csv has an epoch twice"
        return ""

    def write_result(self, result: CellResult) -> None:
        """Write result.json, with the size and the digest of every file of the cell."""
        files = {}
        for name in LISTED:
            path = self.path / name
            if not path.exists():
                continue
            with path.open("rb+") as file:
                content = file.read()
                # A file that result.json lists has to be on the disk before result.json is.
                os.fsync(file.fileno())
            files[name] = [len(content), _digest(content)]
        write_durably(self._result, self._result_content(result, files))

    def start_anew(self) -> None:
        """Remove everything of the cell, whose lock this process holds."""
        self._clear()

    def _result_content(self, result: Mapping[str, Any], files: Mapping[str, Any]) -> bytes:
        # The id is part of the digest, so that the file of another cell does not fit.
        digest = _digest(json.dumps([self.id, result, files]).encode())
        return json.dumps({**result, "files": files, "digest": digest}).encode() + b"\n"

    def cell(self) -> Cell:
        """Return the cell that cell.json describes. Raises UsageError where it cannot be read."""
        try:
            return Cell.from_record(json.loads(read_file(self._cell))["cell"])
        except Unreadable:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{self._cell} cannot be read: {error}") from None

    def is_described(self) -> bool:
        """Return whether cell.json describes the cell whose id is the name of this folder."""
        return self._described_id() == self.id

    def _described_id(self) -> str:
        """Return the id of the cell that cell.json describes, "" where it describes none."""
        try:
            return self.cell().id
        except (UsageError, AttributeError, TypeError):
            return ""

    def about(self) -> dict[str, Any]:
        """Return what `begin` wrote about the cell.

        "label" is its name in a comparison, "provenance" the code, machine and libraries, and
        "attempt" tells the present computation of the cell from earlier ones.
        """
        written = _read_json(self._cell) or {}
        about: dict[str, Any] = {"label": "", "attempt": "", "provenance": {}}
        for key, empty in about.items():
            if isinstance(written.get(key), type(empty)):
                about[key] = written[key]
        return about

    def result(self) -> CellResult:
        """Return what was given to `finish`, {} if the cell is not done.

        The file may be damaged: only `state` checks that.
        """
        result = _read_json(self._result) or {}
        of_cell = {key: value for key, value in result.items() if key not in ("files", "digest")}
        return cast("CellResult", of_cell)

    def imported_later(self) -> dict[str, list[str]]:
        """Return what plug-ins imported during the training: "files" and "packages".

        "by" are the kinds of these plug-ins. The result is {} where they imported nothing, or the
        file is damaged.
        """
        # A damaged file may hold anything.
        late: object = self.result().get("imported_later")
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
        """Return the metrics of all epochs so far, up to a line that is unfinished or damaged.

        Raises Unreadable where the system does not let us read the file.
        """
        try:
            text = read_file(self._history).decode("utf-8")
        except Unreadable:
            raise
        except (FileNotFoundError, ValueError):
            return []
        rows: list[Row] = []
        for epoch, metric, value in re.findall(r"^(\d+),(.+),(.+)\n", text, re.MULTILINE):
            try:
                number = int(epoch)
                row = (number, metric, float(value))
            except ValueError:
                break
            # No training has that many epochs, and a data frame cannot hold the number.
            if number > MOST_EPOCHS:
                break
            rows.append(row)
        return rows

    def last_metrics(self) -> dict[str, float]:
        """Return the metrics after the last epoch so far."""
        rows = self.history()
        last = _last_epoch(rows)
        return {name: value for epoch, name, value in rows if epoch == last}

    def artifacts(self) -> list[Path]:
        """Return the files of results that exist, and the traceback of a failure."""
        paths = [
            self.weights,
            self.gallery,
            self.predictions,
            self.decoder,
            self.memory,
            self.error,
        ]
        return [path for path in paths if path.exists()]

    def mirrored(self) -> dict[str, Any]:
        """Return what `keep_mirrored` wrote last, {} if nothing was written or it is damaged."""
        record = _read_json(self._mirrored) or {}
        if record.get("cell") != self.id:
            return {}
        for key, expected in (("run", str), ("start", int), ("rows", int)):
            if type(record.get(key)) is not expected:
                return {}
        return record

    def keep_mirrored(self, content: Mapping[str, Any]) -> None:
        """Record which part of the cell is in MLflow."""
        _write_json(self._mirrored, {"cell": self.id, **content})


def _is_no_file(path: Path) -> bool:
    """Return whether a path leads to something else than a file, such as a folder.

    A link to nothing does not count.
    """
    try:
        return bool(kind_of(path.stat().st_mode))
    except OSError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _last_epoch(rows: Iterable[Row]) -> int:
    """Return the last epoch of a history, 0 for an empty one."""
    return max((epoch for epoch, _, _ in rows), default=0)


def _lines(rows: Iterable[Row]) -> str:
    """Return rows of the history as text; `repr` keeps every digit of a value."""
    return "".join(f"{epoch},{metric},{value!r}\n" for epoch, metric, value in rows)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(read_file(path))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content)
    write_atomically(path, lambda temporary: temporary.write_text(text + "\n", "utf-8"))
