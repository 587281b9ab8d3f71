"""Runs copied whole out of one store and into another, where they stay out of sight until all of them are in."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from milbench.api.plan import Cell
from milbench.store.mlflow_store import HOST, KIND, OPEN, ROOT, Store

ORIGIN = "milbench.origin_run"
"""A tag with the id that a run had in the store where it was made."""
STAGED = "staged"
"""The kind of a run that is only half here: nothing but `discard` looks for it."""
Artifact = Literal["plan.json", "data_digest.txt", "traceback.txt", "gallery.npz", "model.safetensors", "decoder.json"]


class LaunchCopy(BaseModel):
    """Everything about the run of a launch; times are in milliseconds, a value that is not a number is null."""

    model_config = ConfigDict(extra="forbid")

    run_id: str = Field(pattern="^[0-9a-f]{32}$", description="where it was made, however often it was copied since")
    status: Literal["FINISHED", "FAILED", "KILLED"]
    start: int
    end: int
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, list[tuple[float | None, int, int]]] = Field(description="value, time, epoch")
    artifacts: dict[Artifact, str] = Field(description="their SHA-256")


class CellCopy(LaunchCopy):
    """The same of the run of a cell that is done or failed: what else there is goes on where it is."""

    status: Literal["FINISHED", "FAILED"]
    cell: Cell
    launch: str = Field(description="run_id of the launch it is shown under")


def snapshot(store: Store, run_id: str) -> dict[str, Any]:
    """Return the fields of a copy of a run, but for its artifacts."""
    run = store.client.get_run(run_id)
    # A launch that is still going on is over for whoever gets the copy.
    ended = run.info.status not in OPEN
    return {
        "run_id": origin(run),
        "status": run.info.status if ended else "KILLED",
        "start": run.info.start_time,
        "end": run.info.end_time if ended else run.info.start_time,
        "tags": dict(sorted(run.data.tags.items())),
        "params": dict(sorted(run.data.params.items())),
        "metrics": {k: _values(store, run_id, k) for k in sorted(run.data.metrics) if not k.startswith("system/")},
    }


def _values(store: Store, run_id: str, metric: str) -> list[tuple[float | None, int, int]]:
    history = sorted(store.client.get_metric_history(run_id, metric), key=lambda m: (m.step, m.timestamp))
    return [(None if math.isnan(m.value) else m.value, m.timestamp, m.step) for m in history]


def origin(run: Any) -> str:
    """Return the id that a run had where it was made."""
    return str(run.data.tags.get(ORIGIN, run.info.run_id))


def origins(store: Store) -> dict[str, str]:
    """Return the run here of every run that was made here or came from elsewhere, by the id that it had there."""
    return {origin(run): str(run.info.run_id) for run in [*store.search("launch"), *store.search("cell")]}


def insert(store: Store, name: str, copy: LaunchCopy, files: dict[Artifact, bytes], tags: dict[str, str]) -> str:
    """Write a copy into the store as a run with more tags, out of sight; return its id here."""
    # Until it is revealed it belongs to this host and root, which may throw it away.
    tags = {**copy.tags, ORIGIN: copy.run_id, **tags, **store.owner, KIND: STAGED}
    run_id = str(store.client.create_run(store.experiment(name), copy.start, tags).info.run_id)
    values = [
        (metric, math.nan if value is None else value, moment, epoch)
        for metric, history in copy.metrics.items()
        for value, moment, epoch in history
    ]
    store.log_values(run_id, copy.params, values)
    if isinstance(copy, CellCopy):
        store.log_data(run_id, copy.cell)
    _log(store, run_id, files)
    store.client.set_terminated(run_id, copy.status, copy.end)
    return run_id


def complete(store: Store, run_id: str, files: dict[Artifact, bytes]) -> list[Artifact]:
    """Add the files that a run here lacks, or has no more than a part of; return which."""
    sizes = {found.path: found.file_size for found in store.client.list_artifacts(run_id)}
    lacking: list[Artifact] = [name for name, content in files.items() if sizes.get(name) != len(content)]
    _log(store, run_id, {name: files[name] for name in lacking})
    return lacking


def _log(store: Store, run_id: str, files: dict[Artifact, bytes]) -> None:
    with tempfile.TemporaryDirectory(prefix="milbench-") as folder:
        for artifact, content in files.items():
            (Path(folder) / artifact).write_bytes(content)
            store.log_file(run_id, Path(folder) / artifact)


def publish(store: Store, run_id: str, copy: LaunchCopy) -> None:
    """Let a staged run count, as what it is and as made where it was made."""
    kind = "cell" if isinstance(copy, CellCopy) else "launch"
    store.tag(run_id, {KIND: kind, HOST: copy.tags.get(HOST, ""), ROOT: copy.tags.get(ROOT, "")})


def discard(store: Store) -> None:
    """Throw away what an import from here that was killed has left."""
    for run in store.search(STAGED):
        if store.is_own(run):
            store.client.delete_run(run.info.run_id)
            if store.is_local:  # MLflow only marks it as deleted, and keeps its files
                shutil.rmtree(store.root.artifacts / run.info.run_id, ignore_errors=True)
