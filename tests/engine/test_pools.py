"""What joblib does to worker processes, and what of it a user sees."""

from __future__ import annotations

import os
import time
import warnings

from milbench.engine.pools import WorkerProcess

_kept: list[bytearray] = []


def keep(megabytes: int) -> int:
    """Keep memory that was written to, longer than joblib takes to look at it."""
    _kept.append(bytearray(os.urandom(1)) * (megabytes * 1_000_000))
    time.sleep(1.2)
    return os.getpid()


def test_a_process_that_keeps_the_data_of_a_task_is_replaced_without_a_word() -> None:
    worker = WorkerProcess()
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            pids = {worker._call(None, keep, megabytes) for megabytes in (1, 600, 1)}
        assert len(pids) > 1, "joblib has replaced none: is the filter of its warning still needed?"
        assert not seen
    finally:
        worker.kill()
