"""Kinds of supervision: how much a loss is given of a bag besides its instances."""

from __future__ import annotations

from typing import Literal

Supervision = Literal["set", "count", "order", "position"]
"""How much a loss is told of a bag: which classes, how often each, in which order, or where."""

TargetKind = Literal["labels", "counts", "order", "positions"]
