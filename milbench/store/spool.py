"""Keeps on disk what runs write while the server of the store does not answer, and delivers it later.

Every run has a file of its own, with one line of JSON a write, in their order. A delivery that breaks off is begun
again from the first line: MLflow keeps one copy of a tag, a parameter, an artifact, and of a value of a metric with its
time and its epoch.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from milbench._utils import locks
from milbench.errors import StoreAwayError, StoreError, UsageError
from milbench.store.records import MetricValue

AGAIN = 15.0
"""Seconds after which a server that did not answer is asked again."""
PATIENCE = "MILBENCH_PATIENCE"
"""The environment variable with the seconds that a cell waits for a server that does not answer."""
T = TypeVar("T")


class Spool:
    """The writes of runs that wait for the server.

    Args:
        folder: where they wait; it is made for the first.
        client: its methods write to the store; they raise StoreAwayError where the server does not answer.
    """

    def __init__(self, folder: Path, client: Any) -> None:
        self.folder, self._client = folder, client
        self._ask_again = 0.0

    def write(self, run_id: str, call: str, **arguments: Any) -> None:
        """Write to a run now, or keep the write if the server does not answer or earlier ones of the run are kept.

        Args:
            run_id: id of the run.
            call: name of the method of the client that writes.
            arguments: those of the method, besides the run's id; what JSON holds, metrics, or a path.

        Raises:
            StoreError: the server refuses the write, or one of the earlier ones.
            OSError: the write cannot be kept either.
        """
        if time.monotonic() >= self._ask_again:
            try:
                self.deliver(run_id)
                getattr(self._client, call)(run_id, **arguments)
            except StoreAwayError:
                self._ask_again = time.monotonic() + AGAIN
            else:
                return
        with locks.lock(self._lock(run_id)):
            self._keep(run_id, call, arguments)

    def deliver(self, run_id: str) -> None:
        """Make the writes of a run that were kept.

        Raises:
            StoreAwayError: the server does not answer; they stay where they are.
            StoreError: the server refuses one, as it does for a run that was deleted; they stay where they are.
        """
        file = self._file(run_id)
        if not file.exists():
            return
        with locks.lock(self._lock(run_id)):
            if not file.exists():
                return  # another process has delivered them
            try:
                for call, arguments in self._kept(run_id):
                    getattr(self._client, call)(run_id, **arguments)
            except StoreAwayError:
                raise
            except StoreError as error:
                raise StoreError(f"{error}; what run {run_id} wrote stays in {file}") from error
            file.unlink()
            shutil.rmtree(self._copies(run_id), ignore_errors=True)

    def waiting(self) -> list[str]:
        """Return the ids of the runs that have writes waiting."""
        return sorted(path.stem for path in self.folder.glob("*.jsonl"))

    def _keep(self, run_id: str, call: str, arguments: dict[str, Any]) -> None:
        if "path" in arguments:
            copy = self._copies(run_id) / arguments["path"].name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if arguments["path"].is_dir():
                shutil.copytree(arguments["path"], copy, dirs_exist_ok=True)
            else:
                shutil.copyfile(arguments["path"], copy)
            arguments = {"path": copy.name}
        line = json.dumps({"call": call, "arguments": arguments})
        with self._file(run_id).open("a", encoding="utf-8") as file:
            # The line break comes first: a line that a killed process has broken off stays a line of its own.
            file.write(f"\n{line}")
            file.flush()
            os.fsync(file.fileno())

    def _kept(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the writes of a run that were kept, each the name of a method and its arguments."""
        found = []
        for line in self._file(run_id).read_text("utf-8").split("\n"):
            try:
                kept = json.loads(line)
            except ValueError:  # empty, or broken off by a kill: whoever made this write does not know it as made
                continue
            arguments = kept["arguments"]
            if "path" in arguments:
                arguments["path"] = self._copies(run_id) / arguments["path"]
            if "metrics" in arguments:
                arguments["metrics"] = [(name, MetricValue(*value)) for name, value in arguments["metrics"]]
            found.append((kept["call"], arguments))
        return found

    def _file(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.jsonl"

    def _copies(self, run_id: str) -> Path:
        """Return the folder of the files that a run is to store."""
        return self.folder / run_id

    def _lock(self, run_id: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{run_id}.lock"


def patience() -> float:
    """Return for how many seconds a cell waits for a server that does not answer.

    Raises:
        UsageError: the environment variable that says so holds no number.
    """
    text = os.environ.get(PATIENCE, "120")
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{PATIENCE}={text}: expected a number of seconds") from None


def patiently(action: Callable[[], T], stopped: Callable[[], bool]) -> T:
    """Return what an action returns; while the server does not answer, try it again.

    Args:
        action: reads from the store, or creates a run.
        stopped: whether to give up early.

    Raises:
        StoreAwayError: the server has not answered for `patience` seconds.
    """
    end = time.monotonic() + patience()
    while True:
        try:
            return action()
        except StoreAwayError:
            if time.monotonic() >= end or stopped():
                raise
            time.sleep(1)
