"""The precisions of a network in training: which one `auto` is on a machine, and where TF32 is allowed.

An NVIDIA GPU multiplies float32 numbers faster where it reads their first 11 significant bits alone.

torch's switches for it belong to the whole process, and some are on from the start. Here they are on where a recipe
wants it, and there alone.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from milbench.api.plan import Cell
from milbench.errors import UsageError


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware of a device multiplies bfloat16; emulation is several times as slow as float32.

    Args:
        device: a GPU, or the CPU: there AVX-512 BF16, AMX or the instructions of ARM count.
    """
    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if platform.machine().lower() in ("aarch64", "arm64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 on x86 it counts emulation
    # They have no public names, and earlier versions of torch lack them.
    return any(getattr(torch.cpu, name, bool)() for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))


def auto_precision(device: torch.device) -> Literal["bfloat16", "float32"]:
    """Return the precision that `auto` is on a device: by what its hardware does, not by a measurement."""
    return "bfloat16" if multiplies_bfloat16(device) else "float32"


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
