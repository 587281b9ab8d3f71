"""Where and by what a number was made: code, machine, libraries."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

LIBRARIES = ("torch", "torchvision", "numpy", "scikit-learn", "mlflow")


def tags(device: str, threads: int) -> dict[str, str]:
    """Return everything that a run's record says of its making."""
    import torch

    import milbench

    revision, dirty = code_version(Path(milbench.__file__).resolve().parent)
    found = {
        "version": milbench.__version__,
        "code": revision,
        "dirty": dirty,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": _processor(),
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if device.startswith("cuda") else _processor(),
        "threads": str(threads),
        "pid": str(os.getpid()),
    }
    found |= {f"library.{name}": metadata.version(name) for name in LIBRARIES}
    return {f"milbench.{k}": v for k, v in found.items()}


def code_version(folder: Path) -> tuple[str, str]:
    """Return the git revision that `folder` is checked out from and whether it was changed since; "" without git."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != folder.parent:
            return "", ""  # installed into somebody else's checkout: that revision says nothing of this code
        dirty = git("status", "--porcelain", "--", ":/milbench", ":/losses", ":/tasks")
        return git("rev-parse", "HEAD"), "yes" if dirty else "no"
    except (OSError, subprocess.SubprocessError):
        return "", ""


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
