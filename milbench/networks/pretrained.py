"""The weights that torchvision publishes for a network, fetched on request."""

from __future__ import annotations

from pathlib import Path

from milbench.errors import UsageError, unknown
from milbench.networks.backbone import backbones

FOLDER = "weights"
"""Below the data directory."""


def fetch_weights(name: str, root: Path) -> Path:
    """Download torchvision's default weights of a network, unless they are there, and return their file.

    They were trained on ImageNet, whose terms allow research. The file's name ends with the beginning of its SHA-256,
    which is checked.

    Args:
        name: one of `backbones()`, such as "resnet18".
        root: the data directory; the file comes into its folder `weights`.

    Raises:
        UsageError: there is no such network, or its weights cannot be had or written.
    """
    if name not in backbones():
        raise unknown("network of torchvision", name, backbones())
    from torch.hub import load_state_dict_from_url
    from torchvision import models

    url = str(models.get_model_weights(name).DEFAULT.url)
    try:
        load_state_dict_from_url(url, str(root / FOLDER), progress=False, check_hash=True, weights_only=True)
    except (OSError, RuntimeError) as error:  # a wrong hash is a RuntimeError
        raise UsageError(f"cannot fetch the weights of {name} into {root / FOLDER}: {error}") from error
    return root / FOLDER / url.rpartition("/")[2]
