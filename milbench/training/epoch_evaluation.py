"""Evaluate the network of a cell by its problem, and write the results of a trained cell."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors

from milbench._utils.files import write_atomically, write_durably
from milbench.contracts import criterion
from milbench.contracts.bags import Bags, Truth
from milbench.contracts.predictions import Epoch, Predictions, load_predictions, save_predictions
from milbench.contracts.problem import Evaluation, ScoreFunction
from milbench.contracts.scores import Scores
from milbench.contracts.targets import make_target
from milbench.evaluation.maps import fitting_truth
from milbench.evaluation.metrics import THRESHOLD
from milbench.evaluation.thresholds import EVEN_ODDS
from milbench.experiment.cell import Cell
from milbench.store import gallery
from milbench.store.cell_folder import CellFolder
from milbench.training.checkpoint import Progress
from milbench.training.costs import costs_of
from milbench.training.training_setup import Setup, network_logits, training_logits

SELECTED_BY = "validation/set_error"
"""The metric by which the best epoch is found: it needs label sets alone."""


def evaluate(setup: Setup, epoch: int, progress: Progress) -> Evaluation:
    """Return the evaluation after an epoch (from 1), without metrics where the recipe asks for none."""
    if epoch not in setup.recipe.evaluated_epochs():
        return Evaluation({})
    evaluation: object = setup.problem.evaluate(score_function(setup, progress))
    if not isinstance(evaluation, Evaluation):
        got = type(evaluation).__name__
        raise TypeError(
            f"evaluate of task {setup.problem.task_name} must return milbench.Evaluation, got {got}"
        )
    return evaluation


def score_function(setup: Setup, progress: Progress | None = None) -> ScoreFunction:
    """Return the function from bags to their scores by which a problem evaluates a network and its loss."""
    network, loss = setup.final_model.network, setup.final_model.loss

    @torch.no_grad()
    def score(bags: Bags) -> Scores:
        network.eval()
        if progress is not None:
            progress.scored(len(bags))
        logits = network_logits(network, bags, setup.device)
        mask = network.mask_of(bags)
        # For a check of values the host would wait for a GPU.
        scores = criterion.score(loss, logits, mask, check_values=setup.device.type == "cpu")
        even_odds_sets = scores.presence >= EVEN_ODDS
        return replace(
            scores,
            log_prob=criterion.label_log_prob(loss, logits, bags.labels, mask),
            even_odds_log_prob=criterion.label_log_prob(loss, logits, even_odds_sets, mask),
            mask=mask,
            centres=network.centres_in(bags),
        )

    return score


def best_epoch(folder: CellFolder) -> int | None:
    """Return the epoch so far with the smallest set error of validation bags, None where there are none."""
    errors = {epoch: value for epoch, metric, value in folder.history() if metric == SELECTED_BY}
    if not errors:
        return None
    least = min(errors.values())
    # Learning rates fall towards the end, so that of equally good epochs the last one is taken.
    return max(epoch for epoch, error in errors.items() if error == least)


def keep_if_best(folder: CellFolder, epoch: int, evaluation: Evaluation) -> bool:
    """Keep the predictions of an epoch until the end if it is the best so far; return whether it is.

    Its metrics are in the history already.
    """
    if evaluation.predictions is None or best_epoch(folder) != epoch:
        return False
    by_epoch: dict[Epoch, tuple[int, Predictions]] = {"best": (epoch, evaluation.predictions)}
    # Not compressed: it is written often, and read once.
    buffer = io.BytesIO()
    save_predictions(buffer, by_epoch, compressed=False)
    write_durably(folder.best(epoch), buffer.getvalue())
    return True


def _keep_predictions(
    folder: CellFolder, epoch: int, last: Evaluation, best: int, class_names: list[str]
) -> None:
    """Write the predictions after the last epoch and, where it is another, after the best one."""
    if last.predictions is None:
        return
    predictions = replace(last.predictions, class_names=class_names)
    by_epoch: dict[Epoch, tuple[int, Predictions]] = {"last": (epoch, predictions)}
    if best and best_epoch(folder) == best:
        _, of_best = load_predictions(folder.best(best))["best"]
        by_epoch["best"] = best, replace(of_best, class_names=class_names)
    write_atomically(folder.predictions, lambda path: save_predictions(path, by_epoch))


def keep_results(
    setup: Setup, cell: Cell, folder: CellFolder, last: Evaluation, best: int
) -> dict[str, Any]:
    """Write weights, gallery, predictions, decoder and memory; return the cell's `result`.

    `best` is the epoch before the last one whose predictions are kept; 0: none. Raises Incomplete where somebody has
    changed the history of the cell meanwhile.
    """
    folder.check_complete()
    _keep_predictions(
        folder, setup.recipe.epochs, last, best, list(setup.problem.format.class_names)
    )
    for path, content in (
        (folder.decoder, last.decoder),
        (folder.memory, setup.problem.format.memory()),
    ):
        if content:
            path.write_text(json.dumps(content, allow_nan=False) + "\n", "utf-8")
    _write_weights(setup, cell, folder)
    _save_gallery(folder.gallery, setup, last.metrics.get(THRESHOLD))
    return {
        "costs": _measured_costs(setup, folder),
        "threads": torch.get_num_threads(),
        "threshold": last.metrics.get(THRESHOLD),
        "decoder": str((last.decoder or {}).get("decoder", "")),
        "classes": list(setup.problem.format.class_names),
    }


def _write_weights(setup: Setup, cell: Cell, folder: CellFolder) -> None:
    """Write the weights of network and loss, with what a reader who has nothing else needs to know."""
    about = {
        "name": str(cell),
        "cell": cell.id,
        "loss": {cell.loss.name: dict(cell.loss.params)},
        "task": {cell.task.name: dict(cell.task.params)},
        "network": {cell.network.name: dict(cell.network.params)},
        "data": cell.task.data,
        "classes": list(setup.problem.format.class_names),
        "licence": "MIT, as milbench; the licence of the training data may restrict what is done with the weights",
    }
    weights = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in setup.final_model.state_dict().items()
    }
    # One entry, since safetensors writes several in random order.
    tensors = save_tensors(weights, metadata={"milbench": json.dumps(about)})
    write_atomically(folder.weights, lambda path: path.write_bytes(tensors))


def _measured_costs(setup: Setup, folder: CellFolder) -> dict[str, float]:
    """Return the costs of the training, and those of the loss alone on a batch of it."""
    bags = next(iter(setup.train_batches(0)))
    with torch.no_grad():
        logits = training_logits(setup, bags)
    network = setup.model.network
    loss = setup.model.loss
    target = make_target(loss, bags, logits, network)
    masked_bags = replace(bags, mask=network.mask_of(bags))
    return costs_of(folder.history(), loss, logits, masked_bags, target)


def _save_gallery(path: Path, setup: Setup, threshold: float | None) -> None:
    """Write test bags with the detections of the network."""
    bags = setup.problem.gallery()
    scores = score_function(setup)(bags)
    truth = fitting_truth(bags.truth or Truth(torch.empty(len(bags), 0, dtype=torch.long)), scores)
    ys, xs = scores.centres or (None, None)
    arrays = {
        "instances": bags.instances, "labels": bags.labels, "mask": scores.mask, "coords": bags.coords,
        "presence": scores.presence, "probs": scores.instances,
        "classes": truth.classes, "boxes": truth.boxes, "position_classes": truth.position_classes,
        "ys": ys, "xs": xs,
    }  # fmt: skip
    content = gallery.make(
        threshold=threshold,
        kind="image" if bags.instances.ndim == 4 else "set" if xs is None else "sequence",
        frames_per_second=setup.problem.format.frames_per_second,
        class_names=list(setup.problem.format.class_names),
        **{k: None if v is None else v.cpu().numpy() for k, v in arrays.items()},
    )
    gallery.write(path, content)
