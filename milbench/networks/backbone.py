"""Torchvision's networks for images, made fully convolutional.

They then give logits for each position of a map instead of one class for the image.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from milbench._utils.seeding import generator
from milbench.contracts.geometry import Layer, layers_on_path
from milbench.contracts.network import Network
from milbench.errors import UsageError, unknown

FAMILIES = ("resnet", "resnext", "wide_resnet", "convnext", "efficientnet", "mobilenet", "vgg")
"""What the names of suitable networks begin with: all their layers before the pooling are local."""
# Mean and standard deviation of ImageNet's pixels by channel, as torchvision's weights expect.
_MEAN = (0.485, 0.456, 0.406)
_SCALE = (0.229, 0.224, 0.225)


@cache
def backbones() -> tuple[str, ...]:
    """Return the names of torchvision's networks that can be made fully convolutional."""
    from torchvision import models

    return tuple(name for name in models.list_models(module=models) if name.startswith(FAMILIES))


class Backbone(Network):
    """A network of torchvision without its pooling and its classifier.

    It makes logits (B, C+1, h, w), background last, of images (B, N, H, W), by a convolution of one
    pixel on the last map of features. Layers that would make the stride larger than `stride` are
    left out, so that an image has more positions. Grey images are shown in three equal channels.
    Images are standardised by the mean and the scale of ImageNet's pixels. Nothing is random when
    the network runs: stochastic depth and dropout are off.

    Args:
        name: one of `backbones()`, such as "resnet18".
        inputs: N, 1 or 3, the channels of images in [0, 1].
        stride: the largest distance of neighbouring positions, in pixels.
        weights: the path of a file with the state_dict of torchvision's network, from which
            training starts. Weights of layers that are left out are ignored. "": training starts
            from random weights, initialised as torchvision does.

    Raises:
        UsageError: a tensor is missing from `weights` or has another shape, or no layer is left.
    """

    standardises = True
    head: nn.Conv2d
    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        name: str,
        inputs: int,  # noqa: ARG002
        num_classes: int,
        seed: int,
        *,
        stride: Literal[2, 4, 8, 16, 32] = 8,
        weights: str = "",
    ) -> None:
        from torchvision import models

        super().__init__()
        # torchvision initialises weights by the global generator, whose state is restored after.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.set_state(generator("backbone", seed).get_state())
            original = models.get_model(name, weights=None)
            stages, self.geometry = _stages(original, stride)
            if not self.geometry:
                raise UsageError(f"stride = {stride} leaves no layer of {name}")
            if weights:
                prefixes = tuple(f"{stage}." for stage in stages)
                _fill(original, read_weights(Path(weights)), prefixes, name)
            self.body = nn.Sequential(*stages.values())
            self.head = nn.Conv2d(_last_channels(self.geometry), num_classes + 1, 1)
        for module in self.body.modules():
            if type(module).__name__ in ("StochasticDepth", "Dropout"):
                # `setattr`, since for the type checker a module has no attribute `p`.
                setattr(module, "p", 0.0)  # noqa: B010
        self.register_buffer("mean", torch.tensor(_MEAN).view(-1, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(_SCALE).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        colours = images.expand(-1, 3, -1, -1)
        logits: Tensor = self.head(self.body((colours - self.mean) / self.scale))
        return logits


def fetch_weights(name: str, root: Path) -> Path:
    """Return the file of torchvision's default weights of a network, downloading it if needed.

    The weights were trained on ImageNet, whose terms allow research. The file is kept in the folder
    `weights` of a data directory, `root`. Its name ends with the beginning of its SHA-256, which is
    checked after the download. Raises UsageError where the file cannot be downloaded or written, or
    where it is there but damaged.
    """
    if name not in backbones():
        raise unknown("network of torchvision", name, backbones())
    from torch.hub import download_url_to_file
    from torchvision import models

    url = str(models.get_model_weights(name).DEFAULT.url)
    _, _, file_name = url.rpartition("/")
    file = root / "weights" / file_name
    _, _, hash_prefix = file.stem.rpartition("-")
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            download_url_to_file(url, str(file), hash_prefix=hash_prefix, progress=False)
        # torch raises RuntimeError where the hash is wrong.
        except (OSError, RuntimeError) as error:
            raise UsageError(
                f"cannot fetch the weights of {name} into {file.parent}: {error}"
            ) from error
    read_weights(file)
    return file


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file .pth, .pt or .safetensors by their names.

    Nothing but tensors is unpickled, as unpickling may run code. Raises UsageError where the file
    holds anything else, cannot be read or does not exist.
    """
    if not path.is_file():
        raise UsageError(f"there is no file of weights {path}")
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors.torch import load_file

            weights: Any = load_file(path)
        else:
            weights = torch.load(path, map_location="cpu", weights_only=True)
    # Every format has errors of its own for a damaged file.
    except Exception:  # noqa: BLE001
        raise UsageError(
            f"{path} cannot be read as weights: it holds more than tensors, or is damaged"
        ) from None
    is_state_dict = isinstance(weights, dict) and all(
        isinstance(value, Tensor) for value in weights.values()
    )
    if not is_state_dict:
        raise UsageError(
            f"{path} holds no state_dict, expected tensors by the names of a network's parameters"
        )
    tensors: dict[str, Tensor] = weights
    return tensors


def _stages(network: nn.Module, stride: int) -> tuple[dict[str, nn.Module], tuple[Layer, ...]]:
    """Return the stages of a network that are kept, by their names in a state_dict.

    They are the stages before the pooling and before the stride would get larger than `stride`.
    Their geometry is returned too.
    """
    # In some families the stages are children of the network, in others of its `features`.
    container = network
    prefix = ""
    features = getattr(network, "features", None)
    if isinstance(features, nn.Module):
        container = features
        prefix = "features."
    stages: dict[str, nn.Module] = {}
    geometry: tuple[Layer, ...] = ()
    for name, stage in container.named_children():
        if name == "avgpool":
            break
        longer = (*geometry, *layers_on_path(stage))
        if math.prod(layer.stride for layer in longer) > stride:
            break
        stages[prefix + name] = stage
        geometry = longer
    return stages, geometry


def _last_channels(geometry: tuple[Layer, ...]) -> int:
    """Return how many channels the last layer gives.

    A pooling keeps the channels of the layer before it, and has 0 in the geometry.
    """
    return next(layer.channels for layer in reversed(geometry) if layer.channels)


def _fill(
    network: nn.Module, weights: Mapping[str, Tensor], prefixes: tuple[str, ...], name: str
) -> None:
    """Load the weights of the stages that are kept, whose names begin with one of the prefixes."""
    own_weights = {key: tensor for key, tensor in weights.items() if key.startswith(prefixes)}
    try:
        missing = network.load_state_dict(own_weights, strict=False).missing_keys
    # A weight has another shape. The message of torch names it.
    except RuntimeError as error:
        raise UsageError(f"the weights are not those of torchvision's {name}: {error}") from None
    for key in missing:
        # Files of early torch versions lack `num_batches_tracked`, on which nothing depends.
        if key.startswith(prefixes) and not key.endswith("num_batches_tracked"):
            raise UsageError(
                f"the weights have no {key!r}, expected the state_dict of torchvision's {name}"
            )
