"""Predictions for a picture: the map of positions, the label set, detections and a string."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from milbench._utils.images import bounded
from milbench.contracts.bags import Bags, NamedBags
from milbench.contracts.criterion import score
from milbench.contracts.decoder import Decoder
from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.errors import UsageError
from milbench.evaluation.localisation import boxes_of, with_margin
from milbench.evaluation.reading.component_decoder import (
    ComponentDecoder,
    kept_components,
    ordered_pieces,
    read_components,
    read_strongest,
)
from milbench.evaluation.reading.components import Components, find_components, strongest_positions
from milbench.evaluation.reading.patterns import String
from milbench.evaluation.reading.reader import posterior_given, read_columns
from milbench.evaluation.thresholds import FEW_BAGS
from milbench.inference.predict_bags import BagPredictions, predict_bags
from milbench.inference.trained import Trained

Size = tuple[int, int]  # width and height, in pixels
LARGEST_SCALE = 1000.0  # of a picture, and the smallest is its inverse
OFTEN_WRONG = 0.5  # the share of wrong label sets of test bags above which whoever reads a prediction is told of it
LEAST_MASS = 0.5  # of a component that is named in a picture, where the decoder reads no components


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for one picture; C is the number of classes, and background comes last."""

    probs: Tensor  # (C+1, h, w) float64, the probability that each position shows each class
    centres: tuple[Tensor, Tensor]  # y of every row and x of every column of positions, in pixels
    labels: Tensor  # (C,) bool, the label set by the cell's threshold, else the most probable one
    log_prob: float  # of that set in nats, by the map; a lower bound for more classes than the exact sum can do
    presence: Tensor  # (C,) the probability that each class occurs, by the map
    components: Components  # the connected positions whose most probable class is the same
    boxes: Tensor  # (D, 4) float64, those of `components`, (left, top, right, bottom) in pixels, within the picture
    reading: String
    read_from: (
        Components  # what it is read from; for `columns` the `components` with LEAST_MASS or more
    )
    decoder: Decoder


def predict(model: Trained, instances: Tensor, decoder: Decoder | None = None) -> Prediction:
    """Return the prediction of a trained network for one picture (N, H, W), in its pixels.

    Without a `decoder` the string is read by the one that the cell has chosen, else by components. Raises UsageError
    where the network has no map of positions.
    """
    learnt = model.reader.learnt if model.reader else None
    chosen_decoder: Decoder = decoder or (model.reader.decoder if model.reader else "components")
    height, width = instances.shape[1:]
    no_labels = torch.zeros(1, model.format.num_classes, dtype=torch.bool)
    predictions = predict_bags(
        [model], [NamedBags("image", [""], Bags(instances.unsqueeze(0), no_labels))]
    )
    if predictions.probs.ndim != 4:
        raise UsageError(f"the network of {model.cell} has no map of positions to show")
    centres = model.network.position_centres(height, width)
    if centres is None:  # not known: evenly over the picture
        sides = zip(predictions.probs.shape[2:], (height, width), strict=True)
        ys, xs = ((torch.arange(count).double() + 0.5) * (size / count) for count, size in sides)
        centres = ys, xs
    components = find_components(predictions.probs)
    boxes = with_margin(boxes_of(components, centres), learnt.margin if learnt else (0.0, 0.0))
    reading, read_from = _read(predictions, chosen_decoder, learnt)
    return Prediction(
        probs=predictions.probs[0],
        centres=centres,
        labels=predictions.labels[0],
        log_prob=float(predictions.log_prob[0]),
        presence=predictions.presence[0],
        components=components,
        boxes=boxes.clamp(min=0).minimum(torch.tensor([width, height] * 2, dtype=torch.float64)),
        reading=reading,
        read_from=components[components.mass >= LEAST_MASS] if read_from is None else read_from,
        decoder=chosen_decoder,
    )


def read_picture(
    model: Trained, picture: Image.Image, scale: float = 1.0, decoder: Decoder | None = None
) -> tuple[Image.Image, Prediction]:
    """Return a picture of mode L or RGB at the size at which it is read, and its prediction in these pixels."""
    size = size_at(model, picture.size, scale)
    resized = picture if size == picture.size else picture.resize(size, Image.Resampling.BICUBIC)
    return resized, predict(model, model.task.instances_from(resized), decoder)


def size_at(model: Trained, size: Size, scale: float) -> Size:
    """Return width and height at which a picture is read, a very large one shrunk; UsageError: it is too small."""
    if not 1 / LARGEST_SCALE <= scale <= LARGEST_SCALE:
        raise UsageError(
            f"--scale {scale:g}: expected a number from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}"
        )
    width, height = bounded(*(max(round(side * scale), 1) for side in size))
    shape = model.network.output_shape(height, width)
    if shape is not None and min(shape) < 1:
        least = model.network.smallest_side()
        raise UsageError(
            f"{width}x{height} pixels: the network of {model.cell.task.name} needs at least {least}x{least}"
        )
    return width, height


def sensitivity(network: Network, loss: Loss, image: Tensor, cls: int, positions: Tensor) -> Tensor:
    """Return (H, W) float64, how much a detection depends on each pixel of an image, in nats per unit of its values.

    That is the sum over the channels of |d log p / d I|, where p is the probability by the loss that all of
    `positions`, (h, w) bool, show the class: log p is the sum over them of log p_{c,k}. With one position it is the
    quantity of X.-L. Li, arXiv:1811.12346, Section 5.5. From the logits on everything is in float64, as the log of a
    probability near 1 has next to no gradient in float32. The image (N, H, W) is on the network's device.
    """
    with torch.enable_grad():
        leaf = image.detach().clone().requires_grad_()
        logits = network(leaf.unsqueeze(0)).cpu().double()
        probs = score(loss, logits, check_values=True).instances[0, cls]
        # A probability that rounds to 0 even here has no logarithm, and no gradient that would mean anything.
        log_p = probs.clamp(min=torch.finfo(torch.float64).tiny).log()
        (gradient,) = torch.autograd.grad(log_p[positions].sum(), leaf)
    return gradient.abs().sum(dim=0).cpu().double()


def notes(model: Trained) -> list[str]:
    """Return remarks on what a cell is read by, one line each."""
    remarks = []
    if model.threshold is None:
        remarks.append("has no threshold on presence scores: label sets are the most probable ones")
    if (model.set_error or 0) > OFTEN_WRONG:
        remarks.append(
            f"found {100 * (model.set_error or 0):.0f} % of the label sets of its own test bags wrong"
        )
    if model.chosen_by is not None and model.chosen_by < FEW_BAGS:
        remarks.append(
            f"has a threshold that was chosen by {model.chosen_by} bags, which are few: "
            "presence scores say more than label sets"
        )
    return [f"note: cell {model.cell.id} {remark}" for remark in remarks]


def reading_text(model: Trained, prediction: Prediction) -> str:
    """Return the reading as text, in the class names of the task."""
    names = [model.format.class_names[c] for c in prediction.reading]
    return ("" if all(len(name) == 1 for name in names) else " ").join(names)


def label_set_text(model: Trained, labels: Tensor) -> str:
    """Return a label set (C,) bool in the class names of the task, such as {3, 7}."""
    return (
        "{"
        + ", ".join(model.format.class_names[c] for c in labels.nonzero().flatten().tolist())
        + "}"
    )


def pixel_at(index: float, centres: Tensor) -> float:
    """Return the pixel at a row or column of positions; an index between two positions is interpolated."""
    return float(np.interp(index, np.arange(len(centres)), centres.numpy()))


def as_json(
    model: Trained,
    path: Path,
    size: Size,
    read_at: Size,
    prediction: Prediction,
    *,
    positions: bool,
) -> dict[str, Any]:
    """Return what is read in one picture as the content of NAME.json, perhaps with that of all positions.

    All lengths are in pixels of the picture, upright, of this `size`; the network saw it at `read_at`.
    """
    names, cell = model.format.class_names, model.cell
    across, down = size[0] / read_at[0], size[1] / read_at[1]
    boxes = prediction.boxes * torch.tensor([across, down, across, down], dtype=torch.float64)
    ys, xs = prediction.centres
    components, read_from = prediction.components, prediction.read_from
    about: dict[str, Any] = {
        "picture": str(path),
        "size": list(size),
        "seen": list(read_at),
        "cell": cell.id,
        "loss": cell.loss.name,
        "loss_params": dict(cell.loss.params),
        "task": cell.task.name,
        "task_params": dict(cell.task.params),
        "seed": cell.seed,
        "reading": reading_text(model, prediction),
        "decoder": prediction.decoder,
        "label_set_rule": "most probable"
        if model.threshold is None
        else "presence threshold of the cell",
        "label_set": [names[c] for c in prediction.labels.nonzero().flatten().tolist()],
        "label_set_probability": math.exp(prediction.log_prob),
        "label_set_log_probability": prediction.log_prob
        if math.isfinite(prediction.log_prob)
        else None,
        "presence": dict(zip(names, prediction.presence.tolist(), strict=True)),
        "detections": [
            {"class": names[c], "expected_positions": mass, "box": box}
            for c, mass, box in zip(
                components.cls.tolist(), components.mass.tolist(), boxes.tolist(), strict=True
            )
        ],
        "read_from": [
            {
                "class": names[c],
                "expected_positions": mass,
                "x": pixel_at(x, xs) * across,
                "y": pixel_at(y, ys) * down,
            }
            for c, mass, x, y in zip(
                *(getattr(read_from, f).tolist() for f in ("cls", "mass", "x", "y")), strict=True
            )
        ],
    }
    if positions:
        about["positions"] = {
            "classes": [*names, "background"],
            "y": (ys * down).tolist(),
            "x": (xs * across).tolist(),
            "probabilities": prediction.probs.tolist(),
        }
    return about


def _read(
    predictions: BagPredictions, decoder: Decoder, learnt: ComponentDecoder | None
) -> tuple[String, Components | None]:
    """Return the string read in one bag, and the components that it is read from, if the decoder uses components."""
    probs, sets, numbers = predictions.probs, predictions.labels, learnt or ComponentDecoder()
    if decoder == "columns":
        return read_columns(probs.argmax(dim=1), probs.shape[1] - 1)[0], None
    if decoder == "strongest":
        components = strongest_positions(predictions.evidence, probs, sets)
        return read_strongest(components, 1, numbers)[0], components
    components = find_components(*posterior_given(probs, sets))
    if learnt is None:  # nothing is known of how far a digit reaches: each component is one
        return tuple(piece.cls for piece in ordered_pieces(components, 1, numbers)[0]), components
    return read_components(components, 1, learnt)[0], kept_components(components, 1, learnt)
