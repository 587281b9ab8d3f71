"""Names of the decoders, which read a string from a map of positions."""

from __future__ import annotations

from typing import Literal, get_args

Decoder = Literal["columns", "strongest", "posterior", "components", "each"]
"""The decoders of `milbench.evaluation.reading.decoders`, and `each`: one character a component, in their order."""
DECODERS: tuple[Decoder, ...] = get_args(Decoder)
