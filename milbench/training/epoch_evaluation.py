"""Evaluate the network of a cell by its problem, and write the results of a trained cell."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors.torch import save as save_tensors
from torch import Tensor

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
from milbench.store.cell_folder import CellFolder, CellResult
from milbench.training.checkpoint import Progress
from milbench.training.costs import costs_of
from milbench.training.training_setup import Setup, network_logits, training_logits

SELECTED_BY = "validation/set_error"
"""The metric by which the best epoch is found. It needs no annotation beyond label sets."""


def evaluate(setup: Setup, epoch: int, progress: Progress) -> Evaluation:
    """Return the evaluation after an epoch (from 1).

    It has no metrics where the recipe asks for no evaluation after this epoch.
    """
    if epoch not in setup.recipe.evaluated_epochs():
        return Evaluation({})
    # A problem of the user's own may return anything.
    evaluation: object = setup.problem.evaluate(score_function(setup, progress))
    if not isinstance(evaluation, Evaluation):
        got = type(evaluation).__name__
        raise TypeError(
            f"evaluate of task {setup.problem.task_name} must return milbench.Evaluation, got {got}"
        )
    return evaluation


def score_function(setup: Setup, progress: Progress | None = None) -> ScoreFunction:
    """Return the function from bags to scores by which a problem evaluates the model.

    With `progress`, the function reports how many bags it has scored.
    """
    network = setup.final_model.network
    loss = setup.final_model.loss

    @torch.no_grad()
    def score(bags: Bags) -> Scores:
        network.eval()
        if progress is not None:
            progress.scored(len(bags))
        logits = network_logits(network, bags, setup.device)
        mask = network.mask_of(bags)
        # Values are not checked on a GPU, since the CPU would have to wait for it.
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
    """Return the epoch so far with the smallest set error on validation bags.

    None where there are no validation bags.
    """
    errors = {epoch: value for epoch, metric, value in folder.history() if metric == SELECTED_BY}
    if not errors:
        return None
    least = min(errors.values())
    # Of equally good epochs the last one is taken, since learning rates fall towards the end.
    return max(epoch for epoch, error in errors.items() if error == least)


def keep_if_best(folder: CellFolder, epoch: int, evaluation: Evaluation) -> bool:
    """Keep the predictions of an epoch until the end if it is the best so far.

    Returns whether it is. The metrics of the epoch must be in the history already.
    """
    if evaluation.predictions is None or best_epoch(folder) != epoch:
        return False
    by_epoch: dict[Epoch, tuple[int, Predictions]] = {"best": (epoch, evaluation.predictions)}
    # Not compressed, since the file is written often and read once.
    buffer = io.BytesIO()
    save_predictions(buffer, by_epoch, compressed=False)
    write_durably(folder.best(epoch), buffer.getvalue())
    return True


def _keep_predictions(
    folder: CellFolder, epoch: int, last: Evaluation, best: int, class_names: list[str]
) -> None:
    """Write the predictions after the last epoch, and after the best one if that is another.

    Args:
        folder: the folder of the cell.
        epoch: the number of the last epoch.
        last: the evaluation after the last epoch.
        best: the best epoch before the last one; 0: none.
        class_names: the names of the classes, which are stored with the predictions.
    """
    if last.predictions is None:
        return
    predictions = replace(last.predictions, class_names=class_names)
    by_epoch: dict[Epoch, tuple[int, Predictions]] = {"last": (epoch, predictions)}
    # The last epoch may be better than `best`.
    if best and best_epoch(folder) == best:
        _, of_best = load_predictions(folder.best(best))["best"]
        by_epoch["best"] = best, replace(of_best, class_names=class_names)
    write_atomically(folder.predictions, lambda path: save_predictions(path, by_epoch))


def keep_results(
    setup: Setup, cell: Cell, folder: CellFolder, last: Evaluation, best: int
) -> CellResult:
    """Write all results of a trained cell into its folder, except for `result.json`.

    Args:
        setup: the parts of the training.
        cell: the cell.
        folder: its folder.
        last: the evaluation after the last epoch.
        best: the best epoch before the last one, whose predictions are kept; 0: none.

    Returns:
        What `result.json` will say, as far as it is known by now.

    Raises:
        Incomplete: somebody has changed the history of the cell meanwhile.
    """
    folder.check_complete()
    class_names = list(setup.problem.format.class_names)
    threshold = last.metrics.get(THRESHOLD)
    decoder = last.decoder or {}
    _keep_predictions(folder, setup.recipe.epochs, last, best, class_names)
    _write_unless_empty(folder.decoder, decoder)
    _write_unless_empty(folder.memory, setup.problem.format.memory())
    _write_weights(setup, cell, folder)
    _save_gallery(folder.gallery, setup, threshold)
    return {
        "costs": _measured_costs(setup, folder),
        "threads": torch.get_num_threads(),
        "threshold": threshold,
        "decoder": str(decoder.get("decoder", "")),
        "classes": class_names,
    }


def _write_unless_empty(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of JSON, unless there is nothing to say."""
    if content:
        path.write_text(json.dumps(content, allow_nan=False) + "\n", "utf-8")


def _write_weights(setup: Setup, cell: Cell, folder: CellFolder) -> None:
    """Write the weights of network and loss, with a description for readers of the file."""
    weights = {}
    for name, tensor in setup.final_model.state_dict().items():
        # Copied, since safetensors refuses tensors that share memory.
        weights[name] = tensor.detach().cpu().contiguous().clone()
    # A single entry, since safetensors writes several entries in random order.
    metadata = {"milbench": json.dumps(_description(setup, cell))}
    content = save_tensors(weights, metadata=metadata)
    write_atomically(folder.weights, lambda path: path.write_bytes(content))


def _description(setup: Setup, cell: Cell) -> dict[str, Any]:
    """Return what the file of weights says of the network and of how it was trained."""
    return {
        "name": str(cell),
        "cell": cell.id,
        "loss": {cell.loss.name: dict(cell.loss.params)},
        "task": {cell.task.name: dict(cell.task.params)},
        "network": {cell.network.name: dict(cell.network.params)},
        "data": cell.task.data,
        "classes": list(setup.problem.format.class_names),
        "licence": (
            "MIT, as milbench; "
            "the licence of the training data may restrict what is done with the weights"
        ),
    }


def _measured_costs(setup: Setup, folder: CellFolder) -> dict[str, float]:
    """Return the costs of the training, and of the loss alone on one of its batches."""
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
    truth = fitting_truth(_truth_of(bags), scores)
    ys = None
    xs = None
    if scores.centres is not None:
        ys, xs = scores.centres
    content = gallery.make(
        kind=_gallery_kind(bags, xs),
        threshold=threshold,
        frames_per_second=setup.problem.format.frames_per_second,
        class_names=list(setup.problem.format.class_names),
        instances=_array(bags.instances),
        labels=_array(bags.labels),
        coords=_array(bags.coords),
        mask=_array(scores.mask),
        presence=_array(scores.presence),
        probs=_array(scores.instances),
        classes=_array(truth.classes),
        boxes=_array(truth.boxes),
        position_classes=_array(truth.position_classes),
        ys=_array(ys),
        xs=_array(xs),
    )
    gallery.write(path, content)


def _truth_of(bags: Bags) -> Truth:
    """Return the true instances of bags, or none where they are not known."""
    if bags.truth is not None:
        return bags.truth
    no_instances = torch.empty(len(bags), 0, dtype=torch.long)
    return Truth(no_instances)


def _gallery_kind(bags: Bags, xs: Tensor | None) -> gallery.Kind:
    """Return what bags are: images, sequences or sets.

    `xs` are the times of the positions in a sequence. The positions of a set have no `xs`.
    """
    if bags.instances.ndim == 4:
        return "image"
    if xs is None:
        return "set"
    return "sequence"


def _array(values: Tensor | None) -> NDArray[Any] | None:
    """Return a tensor as an array of numpy, None for None."""
    return None if values is None else values.cpu().numpy()
