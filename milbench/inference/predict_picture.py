"""Predictions for a picture: the class probabilities of positions, label set, boxes and string."""

import math
from collections.abc import Sequence
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

Size = tuple[int, int]
"""Width and height, in pixels."""
LARGEST_SCALE = 1000.0
"""The largest scale of a picture. The smallest scale is its inverse."""
OFTEN_WRONG = 0.5
"""The set error on test bags above which a note warns the reader of a prediction."""
LEAST_MASS = 0.5
"""The least mass of a component that is named in a picture, if the decoder reads no components."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for one picture with C classes.

    The map of the picture has the class probabilities of its positions, in h rows and w columns.
    """

    probs: Tensor
    """(C+1, h, w) float64, the map: the probability of each class at each position.

    Background is the last class.
    """
    centres: tuple[Tensor, Tensor]
    """y (h,) of the rows and x (w,) of the columns of positions, in pixels."""
    labels: Tensor
    """(C,) bool, the label set by the threshold of the cell.

    Where the cell has no threshold, it is the most probable label set.
    """
    log_prob: float
    """The log-probability of the label set by the map, in nats.

    For large label sets, where the exact sum would take too long, it is a lower bound.
    """
    presence: Tensor
    """(C,), the probability by the map that each class occurs."""
    components: Components
    """The D connected components of positions with the same most probable class."""
    boxes: Tensor
    """(D, 4) float64, the boxes of `components` within the picture.

    Each box is left, top, right and bottom in pixels.
    """
    reading: String
    """The string that is read in the picture."""
    read_from: Components
    """The components from which the string is read.

    The decoder `columns` reads no components. The field then has all `components` with a mass of
    LEAST_MASS or more, so that they can be named in a figure.
    """
    decoder: Decoder
    """The decoder that has read the string."""


def predict(model: Trained, instances: Tensor, decoder: Decoder | None = None) -> Prediction:
    """Return the prediction of a trained network for one picture (N, H, W), in its pixels.

    Without a `decoder`, the string is read by the decoder that the cell has chosen, or by
    `components` if it has chosen none. Raises UsageError where the positions of the network have no
    rows and columns.
    """
    reader = model.reader
    learnt = None if reader is None else reader.learnt
    if decoder is None:
        decoder = "components" if reader is None else reader.decoder

    predictions = _predictions(model, instances)
    centres = _centres(model, instances, predictions.probs)
    components = find_components(predictions.probs)
    boxes = boxes_of(components, centres)
    if learnt is not None:
        boxes = with_margin(boxes, learnt.margin)
    reading, read_from = _read(predictions, decoder, learnt)
    if read_from is None:
        read_from = components[components.mass >= LEAST_MASS]
    return Prediction(
        probs=predictions.probs[0],
        centres=centres,
        labels=predictions.labels[0],
        log_prob=float(predictions.log_prob[0]),
        presence=predictions.presence[0],
        components=components,
        boxes=_within_picture(boxes, instances),
        reading=reading,
        read_from=read_from,
        decoder=decoder,
    )


def _predictions(model: Trained, instances: Tensor) -> BagPredictions:
    """Return the predictions for a picture, as those for a batch of one bag.

    Raises UsageError where the positions of the network have no rows and columns.
    """
    no_labels = torch.zeros(1, model.format.num_classes, dtype=torch.bool)
    picture = NamedBags("image", [""], Bags(instances.unsqueeze(0), no_labels))
    predictions = predict_bags([model], [picture])
    if predictions.probs.ndim != 4:
        raise UsageError(f"the network of {model.cell} has no map of positions to show")
    return predictions


def _centres(model: Trained, instances: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return y (h,) of the rows and x (w,) of the columns of positions, in pixels."""
    height, width = instances.shape[1:]
    centres = model.network.position_centres(height, width)
    if centres is not None:
        return centres
    # The network does not say where its positions are, so they are taken to be evenly spread.
    rows, columns = probs.shape[2:]
    return _spread_evenly(rows, height), _spread_evenly(columns, width)


def _spread_evenly(count: int, size: int) -> Tensor:
    """Return the middles of `count` equal parts of a side of `size` pixels."""
    return (torch.arange(count).double() + 0.5) * (size / count)


def _within_picture(boxes: Tensor, instances: Tensor) -> Tensor:
    """Return boxes (D, 4), cut where they extend beyond a picture (N, H, W)."""
    height, width = instances.shape[1:]
    largest = torch.tensor([width, height, width, height], dtype=torch.float64)
    return boxes.clamp(min=0).minimum(largest)


def read_picture(
    model: Trained, picture: Image.Image, scale: float = 1.0, decoder: Decoder | None = None
) -> tuple[Image.Image, Prediction]:
    """Return a picture at the size at which it is read, and its prediction in these pixels.

    The mode of the picture is L or RGB. Without a scale other than 1 it keeps its size, unless it
    is very large.
    """
    size = size_at(model, picture.size, scale)
    if size != picture.size:
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    return picture, predict(model, model.task.instances_from(picture), decoder)


def size_at(model: Trained, size: Size, scale: float) -> Size:
    """Return the width and height at which a picture is read.

    It is the size of the picture, multiplied by the scale. A very large picture is shrunk.
    Raises UsageError where the scale is out of range, or the picture is too small for the network.
    """
    if not 1 / LARGEST_SCALE <= scale <= LARGEST_SCALE:
        raise UsageError(
            f"--scale {scale:g}: expected a number from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}"
        )
    # A side that rounds to 0 still has a pixel.
    wanted_width = max(round(size[0] * scale), 1)
    wanted_height = max(round(size[1] * scale), 1)
    width, height = bounded(wanted_width, wanted_height)
    shape = model.network.output_shape(height, width)
    if shape is not None and min(shape) < 1:
        least = model.network.smallest_side()
        raise UsageError(
            f"{width}x{height} pixels: the network of {model.cell.task.name} needs at least "
            f"{least}x{least}"
        )
    return width, height


def sensitivity(network: Network, loss: Loss, image: Tensor, cls: int, positions: Tensor) -> Tensor:
    """Return (H, W) float64, how much a detection depends on each pixel of an image.

    It is the sum over the channels of |d log p / d I|, in nats per unit of the pixel values I. Here
    p is the probability by the loss that all `positions` show the class: log p is the sum over
    these positions k of log p_{c,k}. For a single position it is the quantity of X.-L. Li,
    arXiv:1811.12346, Section 5.5.

    Args:
        network: the network.
        loss: the loss, which makes probabilities of logits.
        image: (N, H, W), on the device of the network.
        cls: the class c that is detected.
        positions: (h, w) bool, the positions at which it is detected.
    """
    with torch.enable_grad():
        leaf = image.detach().clone().requires_grad_()
        # In float64, as the log of a probability near 1 has next to no gradient in float32.
        logits = network(leaf.unsqueeze(0)).cpu().double()
        probs = score(loss, logits, check_values=True).instances[0, cls]
        # If a probability rounds to 0 even in float64, `clamp` keeps its logarithm finite and makes
        # its gradient 0.
        log_p = probs.clamp(min=torch.finfo(torch.float64).tiny).log()
        (gradient,) = torch.autograd.grad(log_p[positions].sum(), leaf)
    return gradient.abs().sum(dim=0).cpu().double()


def notes(model: Trained) -> list[str]:
    """Return lines that warn a user who may trust the predictions of a cell too much."""
    remarks = []
    if model.threshold is None:
        remarks.append("has no threshold on presence scores: label sets are the most probable ones")
    if model.set_error is not None and model.set_error > OFTEN_WRONG:
        share = f"{100 * model.set_error:.0f} %"
        remarks.append(f"found {share} of the label sets of its own test bags wrong")
    if model.chosen_by is not None and model.chosen_by < FEW_BAGS:
        remarks.append(
            f"has a threshold that was chosen by {model.chosen_by} bags, which are few: "
            "presence scores say more than label sets"
        )
    return [f"note: cell {model.cell.id} {remark}" for remark in remarks]


def reading_text(model: Trained, prediction: Prediction) -> str:
    """Return the string that was read as text, in the class names of the task."""
    names = [model.format.class_names[c] for c in prediction.reading]
    # Names of one letter or digit are joined to a word; longer names are separated by spaces.
    are_characters = all(len(name) == 1 for name in names)
    separator = "" if are_characters else " "
    return separator.join(names)


def label_set_text(model: Trained, labels: Tensor) -> str:
    """Return a label set (C,) bool in the class names of the task, such as {3, 7}."""
    names = ", ".join(_names_of(model, labels))
    return f"{{{names}}}"


def _names_of(model: Trained, labels: Tensor) -> list[str]:
    """Return the names of the classes of a label set (C,) bool."""
    return [model.format.class_names[cls] for cls in labels.nonzero().flatten().tolist()]


def pixel_at(index: float, centres: Tensor) -> float:
    """Return the pixel at the index of a row or column of positions.

    An index between two positions is interpolated.
    """
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
    """Return the prediction for one picture as the content of NAME.json.

    Args:
        model: the network that read the picture.
        path: the file of the picture.
        size: the size of the picture, upright. All lengths in the content are in its pixels.
        read_at: the size at which the network saw the picture.
        prediction: the prediction, with lengths in pixels of the size `read_at`.
        positions: whether to add the probabilities of every position, which are many.
    """
    names = model.format.class_names
    cell = model.cell
    # Pixels of the picture for each pixel that the network saw.
    across = size[0] / read_at[0]
    down = size[1] / read_at[1]
    rule = "most probable" if model.threshold is None else "presence threshold of the cell"
    # JSON has no infinity.
    log_prob = prediction.log_prob if math.isfinite(prediction.log_prob) else None
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
        "label_set_rule": rule,
        "label_set": _names_of(model, prediction.labels),
        "label_set_probability": math.exp(prediction.log_prob),
        "label_set_log_probability": log_prob,
        "presence": dict(zip(names, prediction.presence.tolist(), strict=True)),
        "detections": _detections(prediction, names, across, down),
        "read_from": _read_from(prediction, names, across, down),
    }
    if positions:
        ys, xs = prediction.centres
        about["positions"] = {
            "classes": [*names, "background"],
            "y": (ys * down).tolist(),
            "x": (xs * across).tolist(),
            "probabilities": prediction.probs.tolist(),
        }
    return about


def _detections(
    prediction: Prediction, names: Sequence[str], across: float, down: float
) -> list[dict[str, Any]]:
    """Return the detections for JSON.

    `across` and `down` are the width and the height, in pixels of the picture, of a pixel that the
    network saw.
    """
    scale = torch.tensor([across, down, across, down], dtype=torch.float64)
    boxes = (prediction.boxes * scale).tolist()
    classes = prediction.components.cls.tolist()
    masses = prediction.components.mass.tolist()
    detections = []
    for cls, mass, box in zip(classes, masses, boxes, strict=True):
        detections.append({"class": names[cls], "expected_positions": mass, "box": box})
    return detections


def _read_from(
    prediction: Prediction, names: Sequence[str], across: float, down: float
) -> list[dict[str, Any]]:
    """Return the components from which the string is read, for JSON.

    `across` and `down` are as in `_detections`.
    """
    ys, xs = prediction.centres
    components = prediction.read_from
    described = []
    for number in range(len(components)):
        x = pixel_at(float(components.x[number]), xs)
        y = pixel_at(float(components.y[number]), ys)
        described.append(
            {
                "class": names[int(components.cls[number])],
                "expected_positions": float(components.mass[number]),
                "x": x * across,
                "y": y * down,
            }
        )
    return described


def _read(
    predictions: BagPredictions, decoder: Decoder, learnt: ComponentDecoder | None
) -> tuple[String, Components | None]:
    """Return the string that a decoder reads in one picture, and the components that it reads.

    The components are None where the decoder uses none. `learnt` is None where the cell has learnt
    no decoder.
    """
    if decoder == "columns":
        return _read_columns(predictions.probs), None
    if decoder == "strongest":
        return _read_strongest(predictions, learnt or ComponentDecoder())
    posterior, classes = posterior_given(predictions.probs, predictions.labels)
    components = find_components(posterior, classes)
    if learnt is None:
        return _read_each_component(components), components
    (string,) = read_components(components, 1, learnt)
    return string, kept_components(components, 1, learnt)


def _read_columns(probs: Tensor) -> String:
    """Return the string that the columns of one map (1, C+1, h, w) spell."""
    background = probs.shape[1] - 1
    (string,) = read_columns(probs.argmax(dim=1), background)
    return string


def _read_strongest(
    predictions: BagPredictions, decoder: ComponentDecoder
) -> tuple[String, Components]:
    """Return what the decoder `strongest` reads in one picture, and the positions it reads."""
    components = strongest_positions(predictions.evidence, predictions.probs, predictions.labels)
    (string,) = read_strongest(components, 1, decoder)
    return string, components


def _read_each_component(components: Components) -> String:
    """Return a string with a digit for each component, as the extent of a digit is not known."""
    (pieces,) = ordered_pieces(components, 1, ComponentDecoder())
    return tuple(piece.cls for piece in pieces)
