"""Devices: those that `--device` names, their properties, and copies of tensors to them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from milbench.errors import UsageError, unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
"""How Linux calls the instructions that multiply bfloat16: two of x86 and that of Arm."""


def resolve(name: str) -> torch.device:
    """Return the device for auto (cuda if there is one), cpu, cuda or cuda:N. Raises UsageError if it is not there."""
    import torch

    if name == "auto":
        with warnings.catch_warnings(
            action="ignore"
        ):  # unusable_gpu says in one line what torch says in ten
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    match = re.fullmatch(r"cuda(?::(\d{1,4}))?", name)
    if not match:
        raise unknown("device", name, ["auto", "cpu", "cuda", "cuda:0"])
    if int(match[1] or 0) >= (count := torch.cuda.device_count()):
        reason = "" if count else unusable_gpu()
        absence = f" is not there: {count} CUDA devices here; use --device cpu or auto"
        raise UsageError(f"device {name!r}{f': {reason}' if reason else absence}")
    return torch.device(name)


def resolve_all(name: str) -> list[str]:
    """Return the devices that cells are dealt to: every GPU for cuda, and for auto if there is any; else that named."""
    if name in ("auto", "cuda") and resolve(name).type == "cuda":
        import torch

        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(resolve(name))]


class AutoPrecision(NamedTuple):
    """What the precision `auto` is on a device."""

    precision: Literal["bfloat16", "float32"]
    reason: str  # what the device does, such as "multiplies bfloat16"


def auto_precision(device: torch.device) -> AutoPrecision:
    """Return the precision `auto` on a device, with the reason.

    A GPU has bfloat16 where its hardware multiplies it. A CPU has it where its hardware does so too (AVX-512 BF16, AMX,
    some ARM) and a trial shows that training is quicker by it; see `milbench._utils.bfloat16`. A CPU that emulates it
    is several times slower than in float32, so that it needs no trial.
    """
    if not multiplies_bfloat16(device):
        return AutoPrecision("float32", "does not multiply bfloat16")
    if device.type == "cuda":
        return AutoPrecision("bfloat16", "multiplies bfloat16")
    # Imported here, since who imports losses alone needs none of the modules that it imports.
    from milbench._utils.bfloat16 import is_bfloat16_quicker

    if is_bfloat16_quicker(processor()):
        return AutoPrecision("bfloat16", "trains quicker in bfloat16")
    return AutoPrecision("float32", "does not train clearly quicker in bfloat16")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware of a device multiplies bfloat16, as far as torch or Linux tell it."""
    import torch

    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return not BFLOAT16_FLAGS.isdisjoint(_about_processor().split())


def unusable_gpu() -> str:
    """Return in one line why torch cannot use the NVIDIA GPU of this machine; "" where it can, or there is none."""
    import torch

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    if hidden or torch.cuda.is_available() or not (name := _nvidia_gpu()):
        return ""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split()).partition(". ")[0].removesuffix(".")
        cannot = f"torch {torch.__version__} cannot use the GPU of this machine ({name})"
        return f"{cannot}: {reason}; docs/running.md says which PyTorch fits which driver"
    return ""


def _nvidia_gpu() -> str:
    """Return the name of the first NVIDIA GPU, as far as its driver tells it, "" where there is none."""
    with suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        if name := re.match(r"GPU \d+: (.+?)(?: \(UUID|$)", output):
            return name[1]
    return "NVIDIA, of an unknown kind" if any(Path("/dev").glob("nvidia[0-9]*")) else ""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on `device`, without making the host wait for a GPU that is still busy with the step before.

    From the CPU to a GPU it goes through page-locked memory, which torch keeps until the copy has ended.
    """
    if tensor.device.type == "cpu" and device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def all_to_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return tensors of one type and device on `device`, as `to_device` does, by a single copy."""
    if all(tensor.device == device for tensor in tensors):
        return list(tensors)
    import torch

    flat = to_device(torch.cat([tensor.flatten() for tensor in tensors]), device)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def device_name(device: str) -> str:
    """Return the name of a GPU, such as "cuda:0", or of the CPU."""
    if not device.startswith("cuda"):
        return processor()
    import torch

    return str(torch.cuda.get_device_name(device))


def processor() -> str:
    """Return the name of the CPU, as far as the system tells it."""
    model = re.search(r"^model name\s*:\s*(.*\S)", _about_processor(), re.MULTILINE)
    if model:
        return model[1]
    return platform.processor() or platform.machine()


def _about_processor() -> str:
    """Return what Linux tells of the CPU, "" on other systems."""
    if sys.platform != "linux":
        return ""
    return Path("/proc/cpuinfo").read_text("utf-8", "replace")
