"""The progress of a running cell, written into its folder for displays and `milbench status`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from milbench.engine.cell import CellFolder
from milbench.engine.checkpoint import Counters

INTERVAL = 0.5  # least seconds between reports of progress inside an epoch; each makes the host wait for the device
LOAD_INTERVAL = 10.0  # seconds between two measurements of the machine's load


class Progress:
    """Writes the progress of a cell of `epochs` with `steps` each, at most twice a second."""

    def __init__(self, folder: CellFolder, epochs: int, steps: int, counters: Counters) -> None:
        self.folder = folder
        self.shown: dict[str, Any] = {
            "doing": "training", "epochs": epochs, "steps": steps, "epoch": counters.epoch + 1, "step": counters.step,
            "begun": time.time(), "at": (counters.epoch + counters.step / steps) / epochs, "loss": None, "errors": {},
        }  # fmt: skip
        self._scored, self._measured = 0, 0.0
        self._write()

    def trained(self, counters: Counters) -> None:
        """Report steps."""
        self._scored = 0
        self.shown |= {
            "doing": "training",
            "epoch": counters.epoch + 1,
            "step": counters.step,
            "loss": counters.loss_sum / counters.step,
        }
        self._write()

    def scored(self, bags: int) -> None:
        """Report that some more bags are evaluated."""
        self._scored += bags
        if time.monotonic() - self._written > INTERVAL:
            self.shown["doing"] = f"evaluating, {self._scored:,} bags"
            self._write()

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Report the errors of an epoch; after one without an evaluation those of the last one stay."""
        self.shown["errors"] = {k: v for k, v in metrics.items() if k.endswith("_error")} or self.shown["errors"]
        self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        self.folder.write_progress(self.shown)
        if self._written - self._measured > LOAD_INTERVAL:
            self._measured = self._written
            self.folder.append_load(machine_load())


def machine_load() -> dict[str, float]:
    """Return the load of this machine by MLflow's names; {} without the extra `ui`, whose pages show it."""
    try:
        import psutil
    except ImportError:
        return {}
    memory = psutil.virtual_memory()
    return {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),
        "system/system_memory_usage_megabytes": memory.used / 1e6,
        "system/system_memory_usage_percentage": memory.percent,
    }
