"""A dask cluster, on whose workers cells are computed."""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milbench._utils import locks
from milbench.api.plan import Cell
from milbench.engine.pools import GRACE, WorkerProcess
from milbench.engine.worker import Job, JobResult, check_worker, compute_in_cluster
from milbench.errors import UsageError
from milbench.store.workspace import Workspace

FIRST_WORKER = 600.0
"""Seconds to wait for the first worker: a batch system may start it late."""
ANSWER = 15.0
"""Seconds to wait for the scheduler to answer."""
POLL = 0.1
"""Seconds between two looks at a cluster for cells that have ended and workers that have joined."""
TRIES = 3
"""How often dask may give up a cell of which nothing shows that a worker has begun it."""


class ClusterLost(Exception):  # noqa: N818 it is named for what has happened
    """Raised when the scheduler of a cluster does not answer any more."""


@dataclass
class Cluster:
    """Computes cells on the workers of a dask cluster.

    Args:
        client: connected to the cluster.
        stopping: set when no more cells are to be started.
    """

    client: Any
    stopping: threading.Event
    _futures: dict[str, Any] = field(default_factory=dict, init=False)
    _lost: Counter[str] = field(default_factory=Counter, init=False)

    def check(self, cells: Iterable[Cell], data_dir: Path | None, timeout: float | None) -> None:
        """Try out the losses of some cells on their tasks, on this machine. Raises UsageError if one does not suit."""
        worker = WorkerProcess()
        try:
            worker.check(cells, data_dir, timeout)
        finally:
            worker.close()

    def results(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Compute jobs and yield their results as they end. What a lost worker was computing is computed elsewhere.

        Raises:
            ClusterLost: the scheduler has ended.
        """
        from distributed import as_completed

        waiting = list(reversed(jobs))
        running: dict[str, Job] = {}
        ended = as_completed(loop=self.client.loop)

        def submit(job: Job) -> None:
            future = self.client.submit(
                compute_in_cluster, job, key=f"milbench-{job.cell.id}-{uuid.uuid4().hex}", pure=False
            )
            running[future.key], self._futures[future.key] = job, future
            ended.add(future)

        # No more than the workers can compute at once: a cell that waits at a worker that dies would count as suspect.
        while running or (waiting and not self.stopping.is_set()):
            for future in ended.next_batch(block=False):
                job = running.pop(future.key)
                del self._futures[future.key]
                result = self._result(future, job)
                if self.client.status != "running":
                    raise ClusterLost
                if result is not None:
                    yield result
                elif not self.stopping.is_set():
                    waiting.append(job)
            time.sleep(POLL)
            # Workers may join at any time. Without any, cells wait for the next one.
            while waiting and not self.stopping.is_set() and len(running) < self._threads():
                submit(waiting.pop())

    def _threads(self) -> int:
        """Return how many cells the workers can compute at once. Raises ClusterLost where nobody answers."""
        try:
            return sum(self.client.nthreads().values())
        except OSError:
            raise ClusterLost from None

    def close(self) -> None:
        """Wait for the cells that are computed: the launch has asked them to stop."""
        from distributed import wait

        with suppress(TimeoutError, OSError, CancelledError), self.client.as_current():  # the cluster may be lost
            wait(list(self._futures.values()), timeout=GRACE)

    def _result(self, future: Any, job: Job) -> JobResult | None:
        """Return the result of a job; None where its worker was lost before it began."""
        from distributed import KilledWorker

        try:
            result: JobResult = future.result()
            return result
        except KilledWorker:
            self._lost[job.cell.id] += 1
            begun = Workspace(Path(job.workspace)).progress(job.cell.id).exists()
            if not begun and self._lost[job.cell.id] < TRIES:
                return None
            return JobResult(job.cell.id, "failed", "each worker that computed it died: out of memory, or ended by it?")
        except CancelledError:
            return None


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a dask cluster for the block.

    Args:
        address: of a scheduler, or "local:N" for a cluster of N processes on this machine, which ends with the block.

    Raises:
        UsageError: dask is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise UsageError("--cluster needs dask: pip install 'milbench[dask]'") from None
    for name in [*logging.root.manager.loggerDict, "tornado", "asyncio"]:
        if name.startswith(("distributed", "tornado", "asyncio")):  # what happens to workers is told by their cells
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind, _, number = address.partition(":")
    with ExitStack() as stack:
        if kind == "local":
            if not number.isdigit() or not 0 < int(number) <= 1024:
                raise UsageError(f"--cluster {address}: expected local:N with N from 1 to 1024 processes")
            cluster = LocalCluster(n_workers=int(number), threads_per_worker=1, dashboard_address=None)
            scheduler = stack.enter_context(cluster).scheduler_address
        elif re.fullmatch(r"(\w+://)?[^/\s]+:\d+/?", address):
            scheduler = address
        else:
            raise UsageError(f"--cluster {address}: expected the address of a scheduler, tcp://HOST:PORT, or local:N")
        try:
            client = stack.enter_context(Client(scheduler, timeout=ANSWER, set_as_default=False))
        except (OSError, ValueError) as error:
            raise UsageError(f"no dask scheduler answers at {address}: {error}") from None
        yield client


def check_workers(client: Any, workspace: Workspace, tracking_uri: str) -> None:
    """Check that there is a worker, and that each of them reaches the store.

    Args:
        client: connected to the cluster.
        workspace: of this machine, whose folder workers must see.
        tracking_uri: the address of the store.

    Raises:
        UsageError: there is no worker, or one cannot reach the store.
    """
    token = workspace.lock(f"seen-by-workers-{uuid.uuid4().hex}")
    token.touch()  # also where the file system has no locks
    try:
        with locks.try_lock(token):  # other launches sweep the folder, but not while a lock in it is held
            with suppress(TimeoutError):
                client.wait_for_workers(1, timeout=FIRST_WORKER)
            reasons = client.run(check_worker, str(workspace.path), tracking_uri, token.name, on_error="return")
    finally:
        token.unlink(missing_ok=True)
    if not reasons:
        raise UsageError(f"the dask cluster had no worker for {FIRST_WORKER:.0f} seconds")
    for worker, reason in reasons.items():
        if reason:
            raise UsageError(f"worker {worker} cannot reach the store: {reason}")
