"""What a trained network reads in a picture: positions, the label set, detections and a string."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from milbench.errors import UsageError
from milbench.evaluation.localisation import detect, with_margin
from milbench.evaluation.reading.component_decoder import (
    ComponentDecoder,
    kept_components,
    ordered_pieces,
    read_components,
)
from milbench.evaluation.reading.components import Components, find_components, winners
from milbench.evaluation.reading.decoders import columns, logarithms, posterior_given, read_columns
from milbench.evaluation.reading.strings import CHARACTERS
from milbench.evaluation.saliency import sensitivity_maps
from milbench.inference.load import Trained
from milbench.likelihood import best_label_set_of_large_bags, presence_prob
from milbench.networks.convolutional import AllConvolutional

Decoder = Literal["columns", "posterior", "components", "each"]
DECODERS: tuple[Decoder, ...] = get_args(Decoder)
"""The decoders of milbench.evaluation.reading.decoders, and `each`: every component one character, in their order."""
LEAST_MASS = 0.5
"""A component that no reader has judged is a speck below so many expected positions."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is read in one picture.

    probs: (C+1, h, w) float64, background last; centres: y of every row and x of every column of positions, in pixels.
    labels: (C,) bool, the most probable label set; log_prob: of it, in nats; presence: (C,).
    components: connected positions that show the same class; boxes: (D, 4) theirs (left, top, right, bottom) in pixels,
        with the margin that the run has learnt, within the picture.
    reading: what `decoder` reads, one index of a class a character; None where there are more classes than characters.
    written: the components that it is read from; of a decoder that reads columns those of the map that are no specks.
    """

    probs: Tensor
    centres: tuple[Tensor, Tensor]
    labels: Tensor
    log_prob: float
    presence: Tensor
    components: Components
    boxes: Tensor
    reading: list[int] | None
    written: Components
    decoder: Decoder


def predict(model: Trained, instances: Tensor, decoder: Decoder | None = None) -> Prediction:
    """Read instances (N, H, W), see `Task.instances_from`. Raises UsageError where they do not fit."""
    chosen = chosen_decoder(model, decoder)
    height, width = instances.shape[1:]
    check_size(model, width, height)
    probs = model.probs(instances)
    if probs.ndim != 3:
        raise UsageError(f"the network of {model.cell} has no map of positions to show")
    margin = model.decoder.margin if model.decoder else (0.0, 0.0)
    where = model.network.position_centres(height, width) or _even(height, width, *probs.shape[1:])
    labels, log_prob = (of_bags[0] for of_bags in best_label_set_of_large_bags(logarithms(probs.unsqueeze(0))))
    components = find_components(probs.unsqueeze(0))
    reading, written = _read(probs, labels, chosen, model.decoder)
    return Prediction(
        probs=probs,
        centres=where,
        labels=labels,
        log_prob=float(log_prob),
        presence=presence_prob(probs.log().unsqueeze(0))[0],
        components=components,
        boxes=_within(with_margin(detect(components, where), margin).boxes, width, height),
        reading=reading,
        written=components[components.mass >= LEAST_MASS] if written is None else written,
        decoder=chosen,
    )


def sensitivities(model: Trained, picture: Image.Image, found: Prediction) -> dict[int, NDArray[np.float64]]:
    """Return for each class that wins a position how much each pixel (H, W) of the picture matters to it there.

    See `sensitivity_maps`. Needs the memory of a training step on the whole picture.
    """
    shown, _ = shown_by(found)
    positions = {c: shown == c for c in sorted(set(found.components.cls.tolist()))}
    instances = model.task.instances_from(picture).to(model.device)
    return sensitivity_maps(model.network, model.loss, instances, positions)


def chosen_decoder(model: Trained, wanted: Decoder | None = None) -> Decoder:
    """Return the decoder that was asked for, or the best known: what the run learnt, else what suits the task."""
    learnt = model.decoder is not None
    if wanted == "components" and not learnt:
        raise UsageError(
            f"the run of {model.cell} has not learnt to read components (it has no decoder.json): use one of "
            + ", ".join(d for d in DECODERS if d != "components")
        )
    decoder = wanted or ("components" if learnt else model.task.decoder)
    for known in DECODERS:
        if known == decoder:
            return known
    raise UsageError(f"{model.cell.task} names an unknown decoder {decoder!r}")


def check_size(model: Trained, width: int, height: int) -> None:
    """Raise UsageError where a picture is too small for the network to have a position in it."""
    network = model.network
    if isinstance(network, AllConvolutional) and min(network.output_shape(height, width)) < 1:
        least = next(side for side in range(1, 100_000) if min(network.output_shape(side, side)) > 0)
        raise UsageError(f"{width}x{height} pixels: the network of {model.cell.task} needs at least {least}x{least}")


def _read(
    probs: Tensor, labels: Tensor, decoder: Decoder, reader: ComponentDecoder | None
) -> tuple[list[int] | None, Components | None]:
    """Return what is read, and the components that it is read from where the decoder reads such."""
    background = len(probs) - 1
    if background > len(CHARACTERS):
        return None, None
    if decoder == "columns":
        return _indices(columns(probs.unsqueeze(0))[0]), None
    shown = posterior_given(probs.unsqueeze(0), labels.unsqueeze(0))
    if decoder == "posterior":
        return _indices(read_columns(shown.classes, background)[0]), None
    components = find_components(shown.probs, shown.classes)
    if decoder == "components" and reader is not None:
        return _indices(read_components(components, 1, reader)[0]), kept_components(components, 1, reader)
    return [piece.cls for piece in ordered_pieces(components, 1, ComponentDecoder())[0]], components


def _indices(text: str) -> list[int]:
    return [CHARACTERS.index(character) for character in text]


def _within(boxes: Tensor, width: int, height: int) -> Tensor:
    return boxes.clamp(min=0).minimum(torch.tensor([width, height] * 2, dtype=torch.float64))


def _even(height: int, width: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Return centres spread evenly over a picture."""
    ys, xs = ((torch.arange(n).double() + 0.5) * (size / n) for n, size in ((rows, height), (columns, width)))
    return ys, xs


def spelled(model: Trained, found: Prediction) -> str:
    """Return a reading in the words of the task."""
    names = [model.task.class_names[c] for c in found.reading or ()]
    return ("" if all(len(name) == 1 for name in names) else " ").join(names)


def set_name(model: Trained, labels: Tensor) -> str:
    """Return a label set as it is written."""
    return "{" + ", ".join(model.task.class_names[c] for c in labels.nonzero().flatten().tolist()) + "}"


def as_json(
    model: Trained, path: Path, size: tuple[int, int], seen: tuple[int, int], found: Prediction, *, positions: bool
) -> dict[str, Any]:
    """Return all that is known of one picture; lengths are in pixels of the picture as it is, upright.

    size: its width and height; seen: those that the network was shown.
    """
    names = model.task.class_names
    across, down = size[0] / seen[0], size[1] / seen[1]
    boxes = found.boxes * torch.tensor([across, down, across, down], dtype=torch.float64)
    ys, xs = found.centres
    about: dict[str, Any] = {
        "picture": str(path),
        "size": list(size),
        "seen": list(seen),
        "run": model.run_id,
        "cell": model.cell.id,
        "loss": model.cell.loss,
        "task": model.cell.task,
        "seed": model.cell.seed,
        "reading": None if found.reading is None else spelled(model, found),
        "decoder": found.decoder,
        "label_set": [names[c] for c in found.labels.nonzero().flatten().tolist()],
        "label_set_probability": math.exp(found.log_prob),
        "label_set_log_probability": found.log_prob,
        "presence": dict(zip(names, found.presence.tolist(), strict=True)),
        "detections": [
            {"class": names[c], "expected_positions": mass, "box": box}
            for c, mass, box in zip(
                found.components.cls.tolist(), found.components.mass.tolist(), boxes.tolist(), strict=True
            )
        ],
        "read_from": [
            {"class": names[c], "expected_positions": mass, "x": at(x, xs) * across, "y": at(y, ys) * down}
            for c, mass, x, y in zip(
                *(getattr(found.written, f).tolist() for f in ("cls", "mass", "x", "y")), strict=True
            )
        ],
    }
    if positions:
        about["positions"] = {
            "classes": [*names, "background"],
            "y": (ys * down).tolist(),
            "x": (xs * across).tolist(),
            "probabilities": found.probs.tolist(),
        }
    return about


def at(index: float, centres: Tensor) -> float:
    """Return the pixel at a row or column of positions, also one between two of them."""
    return float(np.interp(index, np.arange(len(centres)), centres.numpy()))


def shown_by(found: Prediction) -> tuple[Tensor, Tensor]:
    """Return (h, w) each: the most probable class of every position, C for background, and its probability."""
    return winners(found.probs.unsqueeze(0))[0], found.probs.amax(dim=0)
