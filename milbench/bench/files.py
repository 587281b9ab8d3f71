"""What a benchmark measured, as a JSON file: its rows, and the facts of the machine that they were measured on."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from milbench.errors import UsageError

if TYPE_CHECKING:
    from milbench.engine.profiling import Timing

FORMAT = "milbench-bench/1"
Kind = Literal["training", "losses", "runner", "data"]
Fact = str | int | float | bool | None


@dataclass(frozen=True)
class Seconds:
    """How long something took.

    Args:
        median: of the measurements.
        least: the shortest of them.
        spread: the width of their middle half; None of a single measurement.
    """

    median: float
    least: float
    spread: float | None = None

    @classmethod
    def of(cls, timing: Timing) -> Seconds:
        """Return the summary of repeated measurements."""
        return cls(timing.median, timing.least, timing.spread)


@dataclass(frozen=True)
class Row:
    """What was measured of one thing.

    Args:
        name: which is the same in every file that measures the thing.
        seconds: by what took them.
        bytes: by what occupied them.
        numbers: everything else, such as rates and shares.
    """

    name: str
    seconds: dict[str, Seconds] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """The content of a file.

    Args:
        kind: which benchmark wrote it.
        machine: facts by name, see `machine`.
        rows: in the order of the table.
    """

    kind: Kind
    machine: dict[str, Fact]
    rows: list[Row]


def machine(device: str, threads: int) -> dict[str, Fact]:
    """Return the facts that a duration depends on: processor, cores, threads, device, versions, load, and the code.

    Args:
        device: where it is measured, such as "cpu" or "cuda:0".
        threads: threads of PyTorch on the CPU.
    """
    from milbench.store import provenance

    tags = {name.removeprefix("milbench."): value for name, value in provenance.tags(device, threads).items()}
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": tags["machine"],
        "cores": cores,
        "threads": threads,
        "device": device,
        "device name": tags["device_name"],
        "bfloat16": _has_bfloat16(device),
        "load": load,
        "torch": tags["library.torch"],
        "python": tags["python"],
        "platform": tags["platform"],
        "milbench": tags["version"],
        "code": tags["code"],
        "changed code": tags["dirty"],
    }


def _has_bfloat16(device: str) -> bool | None:
    """Return whether the device multiplies bfloat16 in hardware; None where that is not known."""
    if device.startswith("cuda"):
        import torch

        return bool(torch.cuda.get_device_capability(device) >= (8, 0))
    if sys.platform != "linux":
        return None
    words = set(Path("/proc/cpuinfo").read_text("utf-8", "replace").split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


def as_text(measured: Measured) -> str:
    """Return the text of a file, which `read` reads."""
    return json.dumps({"format": FORMAT, **asdict(measured)}, indent=1) + "\n"


def read(path: Path) -> Measured:
    """Return the content of a file of what `as_text` returned.

    Raises:
        UsageError: the file cannot be read, or is another one.
    """
    from pydantic import TypeAdapter, ValidationError

    expected = "expected a file that `milbench bench training|losses|runner --json FILE` wrote"
    try:
        raw = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no JSON; {expected}") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise UsageError(f"{path} has no format {FORMAT!r}; {expected}")
    del raw["format"]
    try:
        # As JSON, where a list is no mapping and "3" is no number.
        measured = TypeAdapter(Measured).validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path} is damaged ({where}: {first['msg']}); {expected}") from None
    load = measured.machine.get("load")
    if isinstance(load, str | bool):
        raise UsageError(f"{path} is damaged (machine.load: {load!r} is no number); {expected}")
    return measured
