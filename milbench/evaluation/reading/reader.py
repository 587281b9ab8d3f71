"""The reader of a run: the decoder that was chosen for it, and what was learnt and chosen for that decoder."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from milbench.evaluation.reading.batches import ReadBatch
from milbench.evaluation.reading.component_decoder import ComponentDecoder, read_components, read_strongest

Choice = Literal["columns", "strongest", "posterior", "components", "rescored"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
"""The decoders that are chosen from for every loss, the simplest first: the first of equally good ones is chosen."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How the strings of a run are read.

    Args:
        learnt: the numbers of the component decoder, learnt for every run, whichever decoder is chosen.
        chosen: the decoder that read most validation strings without error.
        threshold: the presence score from which a class is in the loss's own label set; None: not known, in a run of
            an earlier version.
    """

    learnt: ComponentDecoder
    chosen: Choice = "components"
    threshold: float | None = None

    def read(self, batch: ReadBatch) -> list[str]:
        """Return the string of each image of a batch. Raises ValueError where they were to be rescored and were not."""
        read = read_strings(batch, self.chosen, self.learnt)
        if read is None:
            raise ValueError("the decoder that was chosen rescores images, and these were not rescored")
        return read

    def to_json(self) -> dict[str, Any]:
        """Return the reader as the content of decoder.json, which `from_json` reads."""
        most = sys.float_info.max  # JSON has no infinity
        limit = None if self.threshold is None else min(max(self.threshold, -most), most)
        return self.learnt.to_json() | {"decoder": self.chosen, "threshold": limit}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Reader:
        """Return the reader that `to_json` returned; in files of earlier versions the decoder is `components`.

        Raises:
            ValueError: the content has another format, or something in it is missing or out of range.
        """
        chosen, threshold = content.get("decoder", "components"), content.get("threshold")
        if chosen not in CHOICES:
            raise ValueError(f"decoder: expected one of {', '.join(CHOICES)}, got {chosen!r}")
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
            raise ValueError(f"threshold: expected a number or null, got {threshold!r}")
        return cls(ComponentDecoder.from_json(content), chosen, threshold)


def read_strings(batch: ReadBatch, choice: Choice, learnt: ComponentDecoder) -> list[str] | None:
    """Return what a decoder reads in the images of a batch; None for `rescored` where none was rescored.

    Args:
        batch: what was read of all images.
        choice: the decoder.
        learnt: the numbers of the component decoder; `strongest` has its rule for numbers from top to bottom.

    Returns:
        One string an image.
    """
    if choice == "columns":
        return batch.columns
    if choice == "posterior":
        return batch.posterior
    if choice == "strongest":
        return read_strongest(batch.strongest, len(batch), learnt)
    components = batch.components if choice == "components" else batch.rescored
    return None if components is None else read_components(components, len(batch), learnt)


def best_decoder(batch: ReadBatch, learnt: ComponentDecoder) -> Choice:
    """Return the decoder that reads most strings of these images without error, the simplest of equally good ones."""
    errors = {
        choice: string_error(read, batch.truth)
        for choice in CHOICES
        if (read := read_strings(batch, choice, learnt)) is not None
    }
    return min(errors, key=errors.__getitem__)


def string_error(read: Sequence[str], truth: Sequence[str]) -> float:
    """Return the share of strings that are not read exactly; NaN of none.

    Examples:
        >>> string_error(["12", "7"], truth=["12", "17"])
        0.5
    """
    wrong = wrong_strings(read, truth)
    return sum(wrong) / len(wrong) if wrong else math.nan


def wrong_strings(read: Sequence[str], truth: Sequence[str]) -> list[bool]:
    """Return which strings are not read exactly."""
    return [a != b for a, b in zip(read, truth, strict=True)]
