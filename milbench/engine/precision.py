"""The precision of a network in training that `auto` is on a device."""

from __future__ import annotations

import platform
from typing import Literal

import torch


def auto_precision(device: torch.device) -> Literal["bfloat16", "float32"]:
    """Return bfloat16 where the hardware of a device multiplies it: a GPU that does, AVX-512 BF16, AMX, some ARM.

    A CPU that emulates it is several times slower than in float32.
    """
    if device.type == "cuda":
        with torch.cuda.device(device):
            capable = torch.cuda.is_bf16_supported(including_emulation=False)
    elif platform.machine().lower() in ("aarch64", "arm64"):
        capable = torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001 on x86 it counts emulation
    else:  # no public names tell, and earlier versions of torch lack these
        names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        capable = any(getattr(torch.cpu, name, bool)() for name in names)
    return "bfloat16" if capable else "float32"
