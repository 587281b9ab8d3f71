"""The provenance of a cell: by which code, on which machine and with which libraries it was computed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

import milbench

LIBRARIES = ("torch", "torchvision", "numpy", "scikit-learn")
"""Distributions whose versions are recorded."""
PACKAGE = Path(milbench.__file__).resolve().parent


def provenance(device: str, threads: int) -> dict[str, str]:
    """Return by which code, on which machine and with which libraries a cell is computed.

    Args:
        device: where it is computed, such as "cpu" or "cuda:0".
        threads: threads of PyTorch on the CPU.
    """
    revision, dirty = _own_version()
    return {
        "version": milbench.__version__,
        "code": revision,
        "dirty": dirty,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "machine": processor(),
        "device": device,
        "device_name": device_name(device),
        "threads": str(threads),
        "pid": str(os.getpid()),
        **{f"library.{name}": metadata.version(name) for name in LIBRARIES},
    }


@cache
def _own_version() -> tuple[str, str]:
    """Return `code_version` of the code that this process has imported, when it is asked for the first time."""
    return code_version()


def code_version(package: Path = PACKAGE) -> tuple[str, str]:
    """Return the git revision of the code, and whether its files differ from that revision.

    Args:
        package: the folder of the package milbench, which stands at the top of its checkout.

    Returns:
        The revision, and "yes" or "no"; both are "" where the package is not part of a checkout of milbench.
    """
    try:
        if Path(_git(package, "rev-parse", "--show-toplevel")).resolve() != package.parent:
            return "", ""  # installed into the checkout of another project, whose revision is not that of this code
        dirty = _git(package, "status", "--porcelain", "--", ":/milbench", ":/losses", ":/tasks")
        return _git(package, "rev-parse", "HEAD"), "yes" if dirty else "no"
    except (OSError, subprocess.SubprocessError):
        return "", ""


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


def device_name(device: str) -> str:
    """Return the name of a GPU, such as "cuda:0", or of the CPU."""
    if not device.startswith("cuda"):
        return processor()
    import torch

    return str(torch.cuda.get_device_name(device))


def processor() -> str:
    """Return the name of the CPU, as far as the system tells it."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
