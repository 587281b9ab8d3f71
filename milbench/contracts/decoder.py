"""The decoders, which read a string from a map of positions, and the names of their errors."""

from typing import Literal, get_args

Decoder = Literal["columns", "strongest", "components"]
"""The decoders, the simplest first; `milbench.evaluation.reading.reader` describes them.

`components` learns from validation bags. Without them it reads one character for each component.
"""

Pattern = Literal[
    "no_detection", "orientation", "clustering", "edge_or_one", "substitution", "other"
]
"""Why a string was read wrongly; `milbench.evaluation.reading.patterns` describes each pattern."""
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
