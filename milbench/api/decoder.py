"""The decoders, which read a string from a map of positions."""

from typing import Literal, get_args

Decoder = Literal["columns", "strongest", "components"]
"""See `milbench.evaluation.reading.reader`. Without learnt numbers, `components` reads a character a component."""
DECODERS: tuple[Decoder, ...] = get_args(Decoder)
"""All of them, the simplest first: the first of equally good ones is chosen."""
