"""Reads runs straight from MLflow's tables in a SQLite file.

MLflow's own interface reads run by run and metric by metric, and takes seconds to import: thousands of cells need
neither. Only what MLflow documents of a run is read, from tables that it has had since its first version.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from milbench.errors import StoreError
from milbench.store.records import History, MetricValue, RunRecord, RunSummary, logged, metric_today, metrics_today

SECONDS_LOCKED = 120.0
"""How long to wait for other processes that write to the database."""

_EXPERIMENTS = "select name, experiment_id from experiments where lifecycle_stage = 'active'"
# Ids are given as a list in JSON: SQLite limits how many parameters a query may have.
_FOUND = (
    "select r.run_uuid from runs r join tags t on t.run_uuid = r.run_uuid and t.key = ? and t.value = ? where "
    "r.lifecycle_stage = 'active' and cast(r.experiment_id as text) in (select value from json_each(?))"
)
_RUNS = (
    "select run_uuid, experiment_id, name, status, start_time, end_time from runs "
    "where run_uuid in (select value from json_each(?)) order by start_time desc, rowid desc"
)
_TAGS = "select run_uuid, key, value from tags where run_uuid in (select value from json_each(?))"
_PARAMS = "select run_uuid, key, value from params where run_uuid in (select value from json_each(?))"
_LAST = "select run_uuid, key, value, is_nan from latest_metrics where run_uuid in (select value from json_each(?))"
# In the order of writing, not of the time: clocks differ between machines, and are set back.
_HISTORY = (
    "select run_uuid, key, value, is_nan, timestamp, step from metrics "
    "where run_uuid in (select value from json_each(?)) order by rowid"
)


class SqliteSource:
    """The runs in a database file of MLflow, read only.

    Args:
        database: the file; it must exist.
    """

    def __init__(self, database: Path) -> None:
        self.database = database

    def experiments(self) -> dict[str, str]:
        """Return the ids of the experiments by name."""
        with self._connected() as database:
            return {str(name): str(number) for name, number in database.execute(_EXPERIMENTS)}

    def search(self, experiments: Iterable[str], tag: str, value: str) -> list[RunSummary]:
        """Return the runs in these experiments (ids) whose tag has this value, the newest first."""
        with self._connected() as database:
            found = database.execute(_FOUND, (tag, value, json.dumps(list(experiments)))).fetchall()
            return _summaries(database, json.dumps([run_id for (run_id,) in found]))

    def records(self, run_ids: Collection[str]) -> dict[str, RunRecord]:
        """Return runs with parameters and last values, by id."""
        given = json.dumps(list(run_ids))
        with self._connected() as database:
            params: dict[str, dict[str, str]] = defaultdict(dict)
            for run_id, key, text in database.execute(_PARAMS, (given,)):
                params[run_id][key] = text
            metrics: dict[str, dict[str, float]] = defaultdict(dict)
            for run_id, key, number, is_nan in database.execute(_LAST, (given,)):
                metrics[run_id][key] = math.nan if is_nan else number
            return {
                run.run_id: RunRecord(
                    **vars(run), params=params[run.run_id], metrics=metrics_today(metrics[run.run_id])
                )
                for run in _summaries(database, given)
            }

    def histories(self, run_ids: Collection[str]) -> dict[str, History]:
        """Return every value of every metric of these runs, by the id of the run."""
        found: dict[str, dict[str, list[MetricValue]]] = {run_id: defaultdict(list) for run_id in run_ids}
        with self._connected() as database:
            rows = database.execute(_HISTORY, (json.dumps(list(run_ids)),))
            for run_id, key, number, is_nan, moment, step in rows:
                found[run_id][metric_today(key)].append(
                    MetricValue(math.nan if is_nan else logged(number), moment, step)
                )
        return {run_id: dict(of_run) for run_id, of_run in found.items()}

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Connect for the block, in one transaction. Raises StoreError if the file is no database of MLflow."""
        address = f"{self.database.absolute().as_uri()}?mode=rw"  # rw: a killed writer's journal is rolled back
        try:
            database = sqlite3.connect(address, uri=True, timeout=SECONDS_LOCKED)
            try:
                yield database
            finally:
                database.close()
        except sqlite3.Error as error:
            raise StoreError(f"cannot open the store {self.database}: {error}") from None


def _summaries(database: sqlite3.Connection, run_ids: str) -> list[RunSummary]:
    """Return the runs of these ids, a list in JSON, the newest first."""
    tags: dict[str, dict[str, str]] = defaultdict(dict)
    for run_id, key, text in database.execute(_TAGS, (run_ids,)):
        tags[run_id][key] = text
    return [
        RunSummary(run_id, str(experiment), name or "", status, int(start or 0), end, tags[run_id])
        for run_id, experiment, name, status, start, end in database.execute(_RUNS, (run_ids,))
    ]
