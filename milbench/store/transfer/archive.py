"""The file of an export: its format, and the checks that it has to pass before anything is imported.

It is a zip of `manifest.json` and of artifacts named RUN/ARTIFACT, whose SHA-256 are in the manifest. The names in the
zip are compared with those that the manifest implies and are never used as paths; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from milbench._version import __version__
from milbench.api.plan import COMPARISON_NAME, Cell, Plan, fields_today
from milbench.errors import UsageError
from milbench.store.artifacts import CHECKPOINT, PLAN, Artifact
from milbench.store.records import CELL
from milbench.store.transfer.limits import check_sizes

EXPORT_FORMAT = 2
"""Raise it when this version would misread what an older one wrote, or an older one what this one writes.

1: the kind of supervision of a cell had the key `tier`, and what a decoder had learnt stood among the metrics.
"""
READABLE = (1, 2)
EXPORT_MANIFEST = "manifest.json"

Number = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A number that databases can keep."""
DAY = 24 * 3600 * 1000


def _not_in_the_future(moment: int) -> int:
    if moment > time.time() * 1000 + DAY:
        raise ValueError("a moment in the future: its run would be the newest of the store, whatever is launched")
    return moment


Moment = Annotated[int, Field(ge=0), AfterValidator(_not_in_the_future)]
"""Milliseconds since 1970; clocks of machines may differ by a day."""


class LaunchCopy(BaseModel):
    """The run of a launch.

    Times are in milliseconds since 1970. A value that is not a number is null, an infinite one the largest double.
    """

    model_config = ConfigDict(extra="forbid")

    run_id: str = Field(pattern="^[0-9a-f]{32}$", description="in the store where it was made")
    status: Literal["FINISHED", "FAILED", "KILLED"]
    start: Moment
    end: Moment
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, list[tuple[float | None, Moment, Number]]] = Field(description="value, time, epoch")
    artifacts: dict[Artifact, str] = Field(description="their SHA-256")


class CellCopy(LaunchCopy):
    """The run of a cell that is done or failed, or was interrupted and has its checkpoint; others are not exported."""

    cell: Cell
    launch: str = Field(description="run_id of the launch it is shown under")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.status == "KILLED") != (CHECKPOINT in self.artifacts):
            raise ValueError(f"an interrupted cell has {CHECKPOINT}, and no other one has")
        return self

    @field_validator("cell", mode="before")
    @classmethod
    def _of_any_format(cls, cell: Any) -> Any:
        return fields_today(cell) if isinstance(cell, dict) else cell


class Manifest(BaseModel):
    """What is in an export: the launches whose plans make up a comparison, newest first, and the runs of its cells."""

    model_config = ConfigDict(extra="forbid")

    format: int
    milbench: str = Field(description="the version that wrote it")
    name: str = Field(pattern=COMPARISON_NAME)
    launches: list[LaunchCopy] = Field(min_length=1)
    cells: list[CellCopy]

    @property
    def runs(self) -> list[LaunchCopy]:
        """All runs, the launches first."""
        return [*self.launches, *self.cells]

    def members(self) -> dict[str, str]:
        """Return name and SHA-256 of every file that belongs beside the manifest."""
        return {f"{run.run_id}/{name}": digest for run in self.runs for name, digest in run.artifacts.items()}


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file to an archive; the same contents always give the same bytes.

    Args:
        archive: open for writing.
        name: the path of the file in the archive.
        content: the bytes of the file.
    """
    member = zipfile.ZipInfo(name)  # its date is that of 1980, whatever the time
    member.external_attr = 0o644 << 16
    archive.writestr(member, content, zipfile.ZIP_DEFLATED)


@contextmanager
def open_export(path: Path, purpose: str = "read") -> Iterator[tuple[zipfile.ZipFile, Manifest]]:
    """Open an export for the block and return it with its manifest, after all checks of the file.

    Args:
        path: where it is.
        purpose: a verb for the message about a file that cannot be opened.

    Raises:
        UsageError: the file is damaged or too large, or of a version that this one cannot read.
    """
    with ExitStack() as stack:
        with _one_line_errors(path, purpose):
            archive = stack.enter_context(_opened(path))
            manifest = read_manifest(archive, path)
        yield archive, manifest


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        with path.open("rb") as file:
            begins_as_zip = file.read(4) == b"PK\3\4"
        if not begins_as_zip:
            raise
        raise ValueError(f"it is truncated or damaged: it begins as a zip file, but has no end ({error})") from None


@contextmanager
def _one_line_errors(path: Path, purpose: str) -> Iterator[None]:
    """Turn whatever a damaged file raises into a UsageError that names the file."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot {purpose} {path}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 zipfile, zlib, json and what reads their output fail in many ways
        raise UsageError(f"cannot {purpose} {path}: {str(error)[:500] or type(error).__name__}") from None


def read_manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    """Return the manifest of an export after all checks of the file.

    Args:
        archive: the open file.
        path: where it is.

    Raises:
        ValueError: the file is damaged or too large, or of a version that this one cannot read; a damaged file can
            also raise whatever zipfile, zlib and json raise.
    """
    check_sizes(archive, path, {EXPORT_MANIFEST, PLAN})
    raw = json.loads(archive.read(EXPORT_MANIFEST))
    if not isinstance(raw, dict):
        raise ValueError("its manifest is no table of JSON")
    if raw.get("format") not in READABLE:
        raise ValueError(
            f"it has format {raw.get('format')}, written by milbench {raw.get('milbench')}; "
            f"this is milbench {__version__}, which reads formats {' and '.join(map(str, READABLE))}"
        )
    try:
        manifest = Manifest.model_validate(raw)
        _check_members(manifest, archive)
        _check_runs(manifest, archive)
    except ValueError as error:
        reason = _first(error) if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{reason[:300]}{_writer(raw.get('milbench'))}") from None
    return manifest


def _first(error: ValidationError) -> str:
    """Return the first thing that is wrong with a manifest, and where."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))} in its manifest: {first['msg']}"


def _writer(version: Any) -> str:
    """Return a remark on the version that wrote a file which cannot be read, "" if it is this one."""
    return "" if version == __version__ else f" (written by milbench {str(version)[:40]}, this is {__version__})"


def _check_members(manifest: Manifest, archive: zipfile.ZipFile) -> None:
    expected, found = manifest.members(), set(archive.namelist()) - {EXPORT_MANIFEST}
    if lacking := sorted(set(expected) - found):
        raise ValueError(f"it lacks {lacking[0]}")
    if strange := sorted(found - set(expected)):
        raise ValueError(f"its manifest does not name {strange[0]!r}")
    for name, digest in expected.items():
        with archive.open(name) as member:
            actual = hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]
        if actual != digest:
            raise ValueError(f"{name} has another SHA-256 than in its manifest")


def _check_runs(manifest: Manifest, archive: zipfile.ZipFile) -> None:
    run_id, count = Counter(run.run_id for run in manifest.runs).most_common(1)[0]
    if count > 1:
        raise ValueError(f"its manifest names run {run_id} {count} times")
    for launch in manifest.launches:
        plan = Plan.from_json(archive.read(f"{launch.run_id}/{PLAN}").decode())
        if plan.name != manifest.name:
            raise ValueError(f"it holds a launch of {plan.name!r} among those of {manifest.name!r}")
        _check_ids(launch, {cell.id for cell in plan.cells}, set(plan.labels))
    for run in manifest.cells:
        _check_ids(run, {run.cell.id}, {run.tags.get(CELL, "")})
        if run.launch not in {launch.run_id for launch in manifest.launches}:
            raise ValueError(f"it lacks the launch of run {run.run_id}")


def _check_ids(run: LaunchCopy, computed: set[str], recorded: set[str]) -> None:
    """Compare cell ids computed from the content of a run with those under which it was recorded."""
    if computed != recorded:
        raise ValueError(
            f"run {run.run_id} was recorded under other cell ids than its content has: the file is damaged, or from a "
            "version of milbench that computes something else from the same cells"
        )


STATES = {"FINISHED": "done", "FAILED": "failed", "KILLED": "interrupted"}
"""What a cell is by the status of its run."""


def counts_text(counts: Counter[str], name: str) -> str:
    """Return a summary such as "3 cells of demo (2 done, 1 failed)"."""
    total = counts.total()
    return f"{total} cell{'s' * (total != 1)} of {name} ({', '.join(f'{n} {what}' for what, n in counts.items())})"
