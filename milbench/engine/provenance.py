"""The provenance of a cell: the code, the machine and the libraries that computed it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from milbench._version import __version__

LIBRARIES = ("torch", "torchvision", "numpy", "scikit-learn")  # distributions whose versions are recorded
PACKAGE = Path(__file__).resolve().parents[1]


def provenance(device: str, threads: int) -> dict[str, str]:
    """Return the provenance of a cell on a device, such as "cpu" or "cuda:0", with these threads of PyTorch."""
    revision, dirty = code_version()
    return {
        "version": __version__,
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


@cache  # of the code that this process has imported, when it is asked for the first time
def code_version(package: Path = PACKAGE) -> tuple[str, str]:
    """Return the git revision of the code, and "yes" or "no": whether its files differ from that revision.

    Both are "" where the package does not stand at the top of a checkout of milbench.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != package.parent:
            return "", ""  # installed into the checkout of another project, whose revision is not that of this code
        dirty = git("status", "--porcelain", "--", ":/milbench", ":/losses", ":/tasks")
        return git("rev-parse", "HEAD"), "yes" if dirty else "no"
    except (OSError, subprocess.SubprocessError):
        return "", ""


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
