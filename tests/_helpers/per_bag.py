"""Losses by name that give one value a bag, as training has them."""

from __future__ import annotations

from functools import partial

from milbench import load_loss

per_bag = partial(load_loss, reduction="none")
