"""A trained network as a folder in MLflow's format, which needs milbench to be loaded, but not the store of its run."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from milbench._version import __version__
from milbench.api import gallery
from milbench.api.plan import Cell

FOLDER = "model"
"""The name of the artifact."""
CELL_FILE = "cell.json"
LOADER = "milbench.inference.saved_model"


def save_model(
    folder: Path, cell: Cell, class_names: list[str], threshold: float | None, files: Iterable[Path], pictures: Path
) -> None:
    """Write a trained network as an MLflow model.

    Args:
        folder: the folder to write, which must not be there yet.
        cell: what was trained.
        class_names: of the task's classes.
        threshold: the presence score from which a class is in a label set; None: not known.
        files: the artifacts of the run that the network needs: its weights, and the task's memory if it has one.
        pictures: the gallery of the run, whose first bag becomes the input example.
    """
    from milbench.store import mlflow_client

    shown = gallery.load(pictures)
    with tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
        data = Path(scratch) / "network"
        data.mkdir()
        for path in files:
            shutil.copyfile(path, data / path.name)
        inside: dict[str, Any] = {}
        for kind, file in (("loss", cell.loss_file), ("task", cell.task_file)):
            if file:
                (data / kind).mkdir()
                shutil.copyfile(file, data / kind / Path(file).name)
                inside[f"{kind}_file"] = f"{kind}/{Path(file).name}"
        about = {"cell": asdict(replace(cell, **inside)), "id": cell.id, "threshold": threshold}
        (data / CELL_FILE).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        columns = [("labels", "string"), ("probability", "double")]  # as milbench.inference.saved_model returns them
        columns += [(f"presence {name}", "double") for name in class_names]
        mlflow_client.write_model(
            folder, data, LOADER, shown.batch_shape, columns, shown.one_bag(), [f"milbench=={__version__}"]
        )
