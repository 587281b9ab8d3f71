"""The weights that torchvision publishes for a network, fetched on request."""

from __future__ import annotations

import hashlib
from pathlib import Path

from milbench.errors import UsageError, unknown
from milbench.networks.backbone import backbones

FOLDER = "weights"
"""Below the data directory."""


def fetch_weights(name: str, root: Path) -> Path:
    """Download torchvision's default weights of a network, unless they are there, and return their file.

    They were trained on ImageNet, whose terms allow research. The file's name ends with the beginning of its SHA-256,
    which is checked, also of a file that is there already.

    Args:
        name: one of `backbones()`, such as "resnet18".
        root: the data directory; the file comes into its folder `weights`.

    Raises:
        UsageError: there is no such network, its weights cannot be had or written, or the file that is there is
            another one.
    """
    if name not in backbones():
        raise unknown("network of torchvision", name, backbones())
    from torch.hub import download_url_to_file
    from torchvision import models

    url = str(models.get_model_weights(name).DEFAULT.url)
    file = root / FOLDER / url.rpartition("/")[2]
    start = file.stem.rpartition("-")[2]
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            download_url_to_file(url, str(file), hash_prefix=start, progress=False)
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except (OSError, RuntimeError) as error:  # a wrong hash is a RuntimeError
        raise UsageError(f"cannot fetch the weights of {name} into {root / FOLDER}: {error}") from error
    if not found.startswith(start):
        raise UsageError(
            f"{file} is not what was expected: its SHA-256 begins with {found[: len(start)]}, expected {start}; "
            "remove it to fetch it again"
        )
    return file
