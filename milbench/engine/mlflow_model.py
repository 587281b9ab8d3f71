"""A trained network as an MLflow model, which needs milbench to be loaded, but not the folder of its cell."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from milbench._version import __version__
from milbench.api import gallery
from milbench.api.plan import Cell
from milbench.engine.cell import CellFolder

LOADER = "milbench.inference.saved_model"


def write_model(place: Path, folder: CellFolder, cell: Cell, result: Mapping[str, Any]) -> None:
    """Write a new folder that `mlflow.pyfunc.load_model` loads, of a cell with this result."""
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    shown = gallery.load(folder.gallery)
    example = shown.one_bag()
    with tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
        data = Path(scratch) / "network"
        data.mkdir()
        for path in (folder.weights, folder.memory):
            if path.exists():
                shutil.copyfile(path, data / path.name)
        inside: dict[str, Any] = {}
        for kind, file in (("loss", cell.loss_file), ("task", cell.task_file)):
            if file.endswith(".py"):
                (data / kind).mkdir()
                shutil.copyfile(file, data / kind / Path(file).name)
                inside[f"{kind}_file"] = f"{kind}/{Path(file).name}"
        CellFolder(data).begin(replace(cell, **inside), folder.label(), provenance={})
        CellFolder(data).finish(result)
        columns = [("labels", "string"), ("probability", "double")]  # as milbench.inference.saved_model returns them
        columns += [(f"presence {name}", "double") for name in result["classes"]]
        mlflow.pyfunc.save_model(
            place,
            loader_module=LOADER,
            data_path=str(data),
            signature=ModelSignature(
                Schema([TensorSpec(example.dtype, shown.batch_shape)]),
                Schema([ColSpec(DataType[kind], name) for name, kind in columns]),
            ),
            input_example=example,
            pip_requirements=[f"milbench=={__version__}"],
        )
