"""The devices that `--device` names, what they can do, and how tensors are copied to them."""

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
"""Linux's names of the instructions that multiply bfloat16: two of x86 and one of Arm."""


def resolve(name: str) -> torch.device:
    """Return the device that a name means: auto (cuda if available), cpu, cuda or cuda:N.

    Raises UsageError if the device is not there.
    """
    import torch

    if name == "auto":
        # Torch warns in ten lines about a GPU that it cannot use; `unusable_gpu` needs one line.
        with warnings.catch_warnings(action="ignore"):
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    match = re.fullmatch(r"cuda(?::(\d{1,4}))?", name)
    if not match:
        raise unknown("device", name, ["auto", "cpu", "cuda", "cuda:0"])
    number = int(match[1] or 0)
    count = torch.cuda.device_count()
    if number < count:
        return torch.device(name)
    reason = "" if count else unusable_gpu()
    if reason:
        raise UsageError(f"device {name!r}: {reason}")
    raise UsageError(
        f"device {name!r} is not there: {count} CUDA devices here; use --device cpu or auto"
    )


def resolve_all(name: str) -> list[str]:
    """Return the devices that compute cells.

    They are all GPUs for the name cuda, and for auto if there is a GPU. For any other name it is
    the named device.
    """
    if name in ("auto", "cuda") and resolve(name).type == "cuda":
        import torch

        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(resolve(name))]


class AutoPrecision(NamedTuple):
    """What the precision `auto` stands for on a device."""

    precision: Literal["bfloat16", "float32"]
    reason: str
    """What the device does, such as "multiplies bfloat16"."""


def auto_precision(device: torch.device) -> AutoPrecision:
    """Return what the precision `auto` stands for on a device, with the reason.

    A GPU gets bfloat16 if its hardware multiplies it. A CPU gets it if its hardware multiplies it
    too (AVX-512 BF16, AMX, some Arm) and a trial shows that training is faster with it; see
    `milbench._utils.bfloat16`. A CPU that only emulates bfloat16 needs no trial: it is several
    times slower than in float32.
    """
    if not multiplies_bfloat16(device):
        return AutoPrecision("float32", "does not multiply bfloat16")
    if device.type == "cuda":
        return AutoPrecision("bfloat16", "multiplies bfloat16")
    # Imported here, since a user who imports only losses needs none of its modules.
    from milbench._utils.bfloat16 import is_bfloat16_quicker

    if is_bfloat16_quicker(processor()):
        return AutoPrecision("bfloat16", "trains quicker in bfloat16")
    return AutoPrecision("float32", "does not train clearly quicker in bfloat16")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware of a device multiplies bfloat16, according to torch or Linux."""
    import torch

    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return not BFLOAT16_FLAGS.isdisjoint(_about_processor().split())


def unusable_gpu() -> str:
    """Return in one line why torch cannot use the NVIDIA GPU of this machine.

    It is "" if torch can use the GPU, or there is none, or the user has hidden it.
    """
    import torch

    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    if is_hidden or torch.cuda.is_available():
        return ""
    name = _nvidia_gpu()
    if not name:
        return ""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        message = " ".join(str(error).split())
        # The first sentence of torch says what is wrong; the next sentences give general advice.
        reason = message.partition(". ")[0].removesuffix(".")
        cannot = f"torch {torch.__version__} cannot use the GPU of this machine ({name})"
        return f"{cannot}: {reason}; docs/running.md says which PyTorch fits which driver"
    return ""


def _nvidia_gpu() -> str:
    """Return the name of the first NVIDIA GPU according to its driver, "" if there is none."""
    with suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        name = re.match(r"GPU \d+: (.+?)(?: \(UUID|$)", output)
        if name:
            return name[1]
    has_device_file = any(Path("/dev").glob("nvidia[0-9]*"))
    return "NVIDIA, of an unknown kind" if has_device_file else ""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on `device`, without waiting for a GPU that is busy with earlier work.

    A copy from the CPU to a GPU goes through page-locked memory, which torch keeps until the copy
    has ended.
    """
    if tensor.device.type == "cpu" and device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def all_to_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return tensors of one type and device on `device`, like `to_device`, with a single copy."""
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
    """Return the name of the CPU according to the system."""
    model = re.search(r"^model name\s*:\s*(.*\S)", _about_processor(), re.MULTILINE)
    if model:
        return model[1]
    return platform.processor() or platform.machine()


def _about_processor() -> str:
    """Return what Linux says about the CPU, or "" on other systems."""
    if sys.platform != "linux":
        return ""
    return Path("/proc/cpuinfo").read_text("utf-8", "replace")
