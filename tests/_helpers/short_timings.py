"""Importing this lets every cell time its loss by the fewest calls, since the tests compute hundreds of cells."""

from __future__ import annotations

from milbench.engine import costs

costs.WINDOW = 0.0
