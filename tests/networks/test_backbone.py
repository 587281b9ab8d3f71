"""Torchvision's networks as encoders with a map of positions: geometry, weights and randomness."""

import pickle
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor
from torchvision import models

from milbench import UsageError
from milbench.networks.backbone import Backbone, read_weights

NAMES = ("resnet18", "convnext_tiny", "efficientnet_b0", "mobilenet_v3_small", "vgg11_bn")


@pytest.mark.parametrize(("height", "width"), [(64, 96), (75, 101)])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_shape_of_the_map_is_known_without_computing_it(
    name: str, height: int, width: int
) -> None:
    network = Backbone(name, 3, 4, seed=0, stride=8).eval()
    shape = network.output_shape(height, width)
    assert shape is not None
    assert network(torch.zeros(1, 3, height, width)).shape == (1, 5, *shape)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_smallest_image_has_one_position(name: str) -> None:
    network = Backbone(name, 3, 4, seed=0, stride=8).eval()
    side = network.smallest_side()
    assert min(network(torch.zeros(1, 3, side, side)).shape[2:]) == 1


STRIDES = pytest.mark.parametrize(("name", "stride"), [("resnet18", 8), ("convnext_tiny", 4)])
Stride = Literal[4, 8]


def pixels_seen(network: Backbone, side: int, row: int, column: int) -> Tensor:
    """Return the pixels of a square image, (side, side) bool, that a position depends on."""
    is_seen = torch.zeros(side, side, dtype=torch.bool)
    # Rectifiers may make the gradient of a pixel 0 in one pair of images, but hardly in three.
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        images = torch.rand(2, 3, side, side, dtype=torch.float64, generator=rng)
        images.requires_grad_()
        logits = network(images)[:, :, row, column]
        (gradient,) = torch.autograd.grad(logits.square().sum(), images)
        is_seen |= gradient.abs().sum(dim=(0, 1)) > 0
    return is_seen


def middle_of(is_seen: Tensor) -> float:
    """Return the middle of the pixels that are seen along one side, in pixel coordinates."""
    pixels = is_seen.nonzero().flatten().tolist()
    first = pixels[0]
    last = pixels[-1]
    assert first > 0
    assert last < len(is_seen) - 1, "the field ends inside the image, else its middle says nothing"
    return float(first + last + 1) / 2


@STRIDES
def test_positions_are_centred_on_the_pixels_they_see(name: str, stride: Stride) -> None:
    # Large enough for the receptive field of either network.
    side = 144
    network = Backbone(name, 3, 1, seed=0, stride=stride).eval().double()
    centres = network.position_centres(side, side)
    assert centres is not None
    ys, xs = centres
    row = len(ys) // 2
    column = len(xs) // 2 - 1
    is_seen = pixels_seen(network, side, row, column)
    assert float(ys[row]) == middle_of(is_seen.any(dim=1))
    assert float(xs[column]) == middle_of(is_seen.any(dim=0))


@STRIDES
def test_positions_are_a_stride_apart(name: str, stride: Stride) -> None:
    centres = Backbone(name, 3, 1, seed=0, stride=stride).position_centres(96, 96)
    assert centres is not None
    for coordinates in centres:
        assert (coordinates.diff() == stride).all()


# Mean and standard deviation of the pixels of ImageNet, on which torchvision trained its networks.
IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
IMAGENET_SCALE = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


@torch.no_grad()
def test_weights_of_a_file_give_the_maps_of_torchvision(tmp_path: Path) -> None:
    original = models.resnet18(weights=None).eval()
    file = tmp_path / "resnet18.pth"
    torch.save(original.state_dict(), file)
    network = Backbone("resnet18", 1, 2, seed=0, stride=32, weights=str(file)).eval()
    # Without pooling and classifier torchvision's network returns its last map, flattened.
    original.avgpool = torch.nn.Identity()
    original.fc = torch.nn.Identity()
    grey = torch.rand(1, 1, 64, 64)
    features = original((grey - IMAGENET_MEAN) / IMAGENET_SCALE).view(1, 512, 2, 2)
    torch.testing.assert_close(network(grey), network.head(features))


def saved(weights: dict[str, Tensor], folder: Path) -> str:
    """Save weights as torchvision does, and return the path of the file."""
    file = folder / "weights.pth"
    torch.save(weights, file)
    return str(file)


def test_weights_that_lack_a_tensor_are_refused(tmp_path: Path) -> None:
    weights = models.resnet18(weights=None).state_dict()
    del weights["layer1.0.conv1.weight"]
    complaint = r"no 'layer1.0.conv1.weight', expected the state_dict of .* resnet18"
    with pytest.raises(UsageError, match=complaint):
        Backbone("resnet18", 3, 2, 0, weights=saved(weights, tmp_path))


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    weights = models.resnet18(weights=None).state_dict()
    weights["conv1.weight"] = torch.zeros(2)
    complaint = (
        r"torchvision's resnet18: .* conv1.weight: "
        r".* shape torch.Size\(\[2\]\) .* torch.Size\(\[64, 3, 7, 7\]\)"
    )
    with pytest.raises(UsageError, match=complaint):
        Backbone("resnet18", 3, 2, 0, weights=saved(weights, tmp_path))


def test_a_stride_that_leaves_no_layer_is_refused() -> None:
    with pytest.raises(UsageError, match="stride = 1 leaves no layer of resnet18"):
        Backbone("resnet18", 3, 2, 0, stride=1)  # type: ignore[arg-type]


def test_a_file_of_weights_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file of weights"):
        read_weights(tmp_path / "weights.pth")


class Trap:
    """An object that runs code when it is unpickled: it prints."""

    def __reduce__(self) -> tuple[object, ...]:
        return print, ("unpickled",)


def test_code_in_a_file_of_weights_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps({"conv1.weight": Trap()}))
    with pytest.raises(UsageError, match="cannot be read as weights"):
        read_weights(path)
    assert "unpickled" not in capsys.readouterr().out


def test_a_file_with_one_tensor_is_no_file_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(torch.zeros(2), path)
    with pytest.raises(UsageError, match="holds no state_dict"):
        read_weights(path)


@pytest.mark.parametrize("name", ["resnet18", "convnext_tiny"])
def test_neither_weights_nor_outputs_use_the_global_generator(name: str) -> None:
    before = torch.get_rng_state()
    # In training torchvision's networks have dropout and stochastic depth.
    network = Backbone(name, 3, 2, seed=0, stride=8).train()
    network(torch.zeros(2, 3, 64, 64))
    assert torch.equal(torch.get_rng_state(), before)
