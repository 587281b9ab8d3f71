"""The artifacts of a cell that is done: what the training returned, as files in the store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import save

from milbench.api import gallery
from milbench.api.outcomes import OUTCOMES_FILE, save_outcomes
from milbench.api.plan import Cell
from milbench.api.reliability import RELIABILITY_FILE, save_reliability
from milbench.engine.trainer import TrainedCell
from milbench.evaluation.evaluate import THRESHOLD
from milbench.store.artifacts import DECODER, GALLERY, MEMORY, WEIGHTS
from milbench.store.records import CODE, VERSION
from milbench.store.saved_model import FOLDER, save_model
from milbench.store.writer import StoreWriter


def weights_metadata(cell: Cell, trained: TrainedCell, tags: dict[str, str]) -> dict[str, str]:
    """Return what a file of weights says of itself, for who finds it without its store: one entry of JSON.

    Several entries are written in an order that is drawn at random: the same weights would be other bytes every time.

    Args:
        cell: what was trained.
        trained: what the training returned.
        tags: the provenance of the run, see `milbench.store.provenance.tags`.
    """
    about = {
        "name": str(cell),
        "cell": cell.id,
        "loss": {cell.loss: cell.loss_params},
        "task": {cell.task: cell.task_params},
        "data": cell.data,
        "classes": trained.class_names,
        "commit": tags[CODE],
        "version": tags[VERSION],
        "licence": "MIT, as milbench; the licence of the training data may restrict what is done with the weights",
    }
    return {"milbench": json.dumps(about)}


def keep_artifacts(
    run_id: str, store: StoreWriter, folder: Path, trained: TrainedCell, about: dict[str, str]
) -> tuple[int, ...]:
    """Log the weights, the gallery, the decoder, the task's memory, the outcomes and the bins of reliability.

    Args:
        run_id: the run of the cell.
        store: where the files are logged.
        folder: a folder for the files, which is made if it is missing.
        trained: what the training returned.
        about: see `weights_metadata`.

    Returns:
        The shape of batches of bags, with -1 where sizes may differ.
    """
    folder.mkdir(exist_ok=True)
    weights, pictures = folder / WEIGHTS, folder / GALLERY
    weights.write_bytes(save(trained.weights, metadata=about))
    trained.save_gallery(pictures)
    paths = [weights, pictures]
    if trained.decoder is not None:
        paths.append(folder / DECODER)
        paths[-1].write_text(json.dumps(trained.decoder, allow_nan=False) + "\n", "utf-8")
    if trained.memory:
        paths.append(folder / MEMORY)
        paths[-1].write_text(json.dumps(trained.memory, allow_nan=False) + "\n", "utf-8")
    if trained.outcomes:
        paths.append(folder / OUTCOMES_FILE)
        save_outcomes(paths[-1], trained.outcomes)
    if trained.reliability:
        paths.append(folder / RELIABILITY_FILE)
        save_reliability(paths[-1], trained.reliability)
    for path in paths:
        store.log_file(run_id, path)
    return gallery.load(pictures).batch_shape


def log_model(run_id: str, store: StoreWriter, folder: Path, cell: Cell, trained: TrainedCell) -> None:
    """Log the network as an MLflow model.

    Args:
        run_id: the run of the cell.
        store: where the model is logged.
        folder: the folder with the files that `keep_artifacts` wrote.
        cell: what was trained.
        trained: what the training returned.
    """
    needed = [path for name in (WEIGHTS, MEMORY) if (path := folder / name).is_file()]
    place = folder / FOLDER
    shutil.rmtree(place, ignore_errors=True)  # of a cell that was killed here
    threshold = trained.history[-1].get(THRESHOLD)
    save_model(place, cell, trained.class_names, threshold, needed, folder / GALLERY)
    store.log_folder(run_id, place)
