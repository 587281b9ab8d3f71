"""The reader of a run: the decoder that was chosen for it, and what was learnt and chosen for that decoder."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milbench.api.decoder import DECODERS, Decoder
from milbench.evaluation.reading.batches import ReadBatch
from milbench.evaluation.reading.component_decoder import ComponentDecoder, read_components, read_strongest


@dataclass(frozen=True, slots=True)
class Reader:
    """How the strings of a run are read."""

    learnt: ComponentDecoder  # for every run, whichever decoder is chosen
    chosen: Decoder = "components"  # that read most validation strings without error
    threshold: float | None = None  # the presence score from which a class is in the loss's own label set, if known

    def read(self, batch: ReadBatch) -> list[str]:
        """Return the string of each image."""
        return read_strings(batch, self.chosen, self.learnt)

    def to_json(self) -> dict[str, Any]:
        """Return the reader as the content of decoder.json, which `from_json` reads."""
        most = sys.float_info.max  # JSON has no infinity
        limit = None if self.threshold is None else min(max(self.threshold, -most), most)
        return self.learnt.to_json() | {"decoder": self.chosen, "threshold": limit}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Reader:
        """Return the reader that `to_json` returned.

        Raises:
            ValueError: the content has another format, or something in it is missing or out of range.
        """
        chosen, threshold = content.get("decoder"), content.get("threshold")
        if chosen not in DECODERS:
            raise ValueError(f"decoder: expected one of {', '.join(DECODERS)}, got {chosen!r}")
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
            raise ValueError(f"threshold: expected a number or null, got {threshold!r}")
        return cls(ComponentDecoder.from_json(content), chosen, threshold)


def read_strings(batch: ReadBatch, decoder: Decoder, learnt: ComponentDecoder) -> list[str]:
    """Return what a decoder reads in the images of a batch; `strongest` uses the learnt tilt alone."""
    if decoder == "columns":
        return batch.columns
    if decoder == "strongest":
        return read_strongest(batch.strongest, len(batch), learnt)
    return read_components(batch.components, len(batch), learnt)


def best_decoder(batch: ReadBatch, learnt: ComponentDecoder) -> Decoder:
    """Return the decoder that reads most strings of these images without error, the first of equally good ones."""
    return min(DECODERS, key=lambda decoder: string_error(read_strings(batch, decoder, learnt), batch.truth))


def string_error(read: Sequence[str], truth: Sequence[str]) -> float:
    """Return the share of strings that are not read exactly; NaN of none."""
    wrong = wrong_strings(read, truth)
    return sum(wrong) / len(wrong) if wrong else math.nan


def wrong_strings(read: Sequence[str], truth: Sequence[str]) -> list[bool]:
    """Return which strings are not read exactly."""
    return [a != b for a, b in zip(read, truth, strict=True)]
