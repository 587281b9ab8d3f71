"""The decoders, which read a string from a map of positions."""

from typing import Literal

Decoder = Literal["columns", "strongest", "components"]
"""Simple ones first, see `milbench.evaluation.reading.reader`. Unlearnt, `components` reads a character a component."""
