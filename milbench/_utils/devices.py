"""Device names, as in `--device`, as torch devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from milbench.errors import UsageError, unknown

if TYPE_CHECKING:
    import torch


def resolve(given: str) -> torch.device:
    """Return the device for auto (cuda if there is one), cpu, cuda or cuda:N. Raises UsageError if it is not there."""
    import torch

    if given == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if given == "cpu":
        return torch.device("cpu")
    match = re.fullmatch(r"cuda(?::(\d{1,4}))?", given)
    if not match:
        raise unknown("device", given, ["auto", "cpu", "cuda", "cuda:0"])
    count = torch.cuda.device_count()
    if int(match[1] or 0) >= count:
        raise UsageError(f"device {given!r} is not there: {count} CUDA devices here; use --device cpu or auto")
    return torch.device(given)
