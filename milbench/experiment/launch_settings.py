"""What one command adds to a spec: where and how cells run. No result depends on it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from milbench.experiment.questions import Table

MOST_WORKERS = 1024
"""The most processes, and threads of each. More would exhaust the machine."""


class Execution(Table):
    """Where and how cells run, which changes no result."""

    device: str = "auto"
    """auto, cpu, cuda (every GPU) or cuda:N."""
    jobs: int | None = Field(default=None, ge=1, le=MOST_WORKERS)
    """Cells that run at a time; none: one per core, or one per GPU."""
    threads: int | None = Field(default=None, ge=1, le=MOST_WORKERS)
    """Threads of each cell; none: cores / jobs, and one where a step is small."""
    data_dir: Path | None = None
    """Folder of the data sets; none: the default one."""
    cluster: str | None = None
    """Address of a dask scheduler, or local:N; none: processes of this machine."""
    shard: str | None = None
    """i/n: only every n-th cell, from the i-th on, for job arrays on a shared disk."""
    rerun: Literal["missing", "failed", "all"] = "missing"
    """Run missing cells, failed ones as well, or all cells anew."""
    timeout: float | None = Field(default=None, ge=1, le=10_000_000)
    """Seconds after which a cell fails; none: never."""
    in_process: bool = False
    """Run cells in the launching process, one at a time, for a debugger."""
    log_models: bool = False
    """Log every network as an MLflow model too."""


@dataclass(frozen=True)
class Launch:
    """One command that runs a comparison."""

    execution: Execution
    root: Path = Path()
    """The folder with the store, `runs`, and `reports`."""
    command: str = ""
    """As the user typed it, to be kept with the plan."""
    origin: str = ""
    """A digest of the spec and of the flags.

    Launches of one name and origin add their cells to one plan.
    """
    is_changed: bool = False
    """Whether flags have changed what the file of a spec says.

    It is then no error if the file names a metric or contrast that the flags have left out.
    """
    quiet: bool = False
    """Whether only failures are printed."""
    dry_run: bool = False
    """Whether the plan is shown and nothing is run."""
