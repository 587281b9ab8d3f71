"""`milbench model`: a trained network as an MLflow model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from milbench._utils.files import copy_folder
from milbench.cli import options
from milbench.errors import UsageError, as_usage
from milbench.store.existing import existing_workspace


def model(
    run: options.TrainedRunOption,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write, which must not be there; default: the run in the store.")
    ] = None,
    data_dir: options.DataDirOption = None,
    root: options.RootOption = options.HERE,
) -> int:
    """Save what a run has trained as an MLflow model, with signature and input example.

    mlflow.pyfunc.load_model loads it where milbench is installed, without the store. With run --log-models every cell
    logs its model.
    """
    import torch

    from milbench._utils.console import console
    from milbench.inference.load import load_trained
    from milbench.store.artifacts import GALLERY, MEMORY, WEIGHTS
    from milbench.store.saved_model import FOLDER, save_model
    from milbench.store.writer import StoreWriter

    if out is not None and out.exists():
        raise UsageError(f"--out {out} is there already: name a new folder")
    store = StoreWriter(existing_workspace(root))
    trained = load_trained(store, run, torch.device("cpu"), data_dir)
    found = {name: store.artifact(trained.run_id, name) for name in (WEIGHTS, MEMORY, GALLERY)}
    pictures = found.pop(GALLERY)
    if pictures is None:
        raise UsageError(f"run {trained.run_id} has no gallery, from which an input example would come")
    if trained.task.network_needs_data and found[MEMORY] is None:
        raise UsageError(f"run {trained.run_id} keeps no {MEMORY}: the network of {trained.cell.task} needs its data")
    files = [path for path in found.values() if path is not None]
    with as_usage(), tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
        place = Path(scratch) / FOLDER
        save_model(place, trained.cell, trained.task.class_names, trained.threshold, files, pictures)
        if out is None:
            store.log_folder(trained.run_id, place)
        else:
            copy_folder(place, out)
    where = out or f"the store, runs:/{trained.run_id}/{FOLDER}"
    console.print(f"saved {trained.name} to {where}", soft_wrap=True, highlight=False, markup=False)
    return 0
