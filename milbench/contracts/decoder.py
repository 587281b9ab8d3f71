"""The decoders, which read a string from a map of positions, and the names of what they get wrong."""

from typing import Literal, get_args

Decoder = Literal["columns", "strongest", "components"]
"""The simplest first, see `milbench.evaluation.reading.reader`. `components` learns from validation bags; without them
it reads one character for each component."""

Pattern = Literal[
    "no_detection", "orientation", "clustering", "edge_or_one", "substitution", "other"
]
"""Why a string was read wrongly, see `milbench.evaluation.reading.patterns`."""
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
