"""TF32: an NVIDIA GPU multiplies float32 numbers faster where it reads their first 11 significant bits alone.

torch's switches for it belong to the whole process, and some are on from the start. Here they are on where a recipe
wants it, and there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from milbench.api.plan import Cell
from milbench.errors import UsageError


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow TF32 in convolutions and matrix products of float32 numbers inside the block, or forbid it there."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    _switch(allowed, allowed)
    try:
        yield
    finally:
        _switch(*before)


def forbid_tf32() -> None:
    """Forbid TF32 wherever no block of `tf32` allows it; torch allows it for convolutions."""
    _switch(False, False)


def tf32_behind(values: Tensor, allowed: bool) -> None:
    """Allow or forbid TF32 in the backward pass of what computed `values`, from where their gradient is known.

    The backward of a backward pass, which Hessian-vector products need, comes through here in the other direction, so
    that the switches are then turned the other way. They stay as the last such place has left them: let the backward
    pass run in a block of `tf32`, which puts them back.

    Args:
        values: with their graph; nothing is to be done for values without one.
        allowed: whether TF32 is allowed in what computed them.
    """

    def enter(gradient: Tensor) -> None:
        _switch(allowed, allowed)
        if gradient.requires_grad:
            gradient.register_hook(leave)

    def leave(_: Tensor) -> None:
        _switch(not allowed, not allowed)

    if values.requires_grad:
        values.register_hook(enter)


def _switch(convolutions: bool, products: bool) -> None:
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cuda.matmul.allow_tf32 = products


def check_precision(cells: Iterable[Cell], devices: Iterable[str]) -> None:
    """Raise UsageError if a recipe wants TF32 of a CPU, which has none: its results would bear a wrong name."""
    if "cpu" in devices and any(cell.recipe["precision"] == "tf32" for cell in cells):
        raise UsageError("recipe.precision = tf32 needs an NVIDIA GPU, and cells are computed on the CPU; use float32")
