"""Torchvision's networks as maps of positions: their geometry, their weights, and their independence of chance."""

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


@pytest.mark.parametrize("name", NAMES)
def test_the_shape_of_the_map_is_known_without_computing_it(name: str) -> None:
    network = Backbone(name, 3, 4, seed=0, stride=8).eval()
    for height, width in ((64, 96), (75, 101)):
        with torch.no_grad():
            shape = network.output_shape(height, width)
            assert shape is not None
            assert network(torch.zeros(1, 3, height, width)).shape == (1, 5, *shape)
    least = network.smallest_side()
    with torch.no_grad():
        assert min(network(torch.zeros(1, 3, least, least)).shape[2:]) == 1


@pytest.mark.parametrize(
    ("name", "stride", "side"), [("resnet18", 8, 144), ("convnext_tiny", 4, 96)]
)
def test_positions_are_centred_on_the_pixels_they_see(
    name: str, stride: Literal[4, 8], side: int
) -> None:
    network = Backbone(name, 3, 1, seed=0, stride=stride).eval().double()
    centres = network.position_centres(side, side)
    assert centres is not None
    ys, xs = centres
    row, column = len(ys) // 2, len(xs) // 2 - 1
    seen = torch.zeros(side, side)
    for n in range(3):  # a rectifier may hide a pixel in one image, hardly in three
        images = torch.rand(
            2, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(n)
        )
        images.requires_grad_()
        network(images)[:, :, row, column].square().sum().backward()
        assert images.grad is not None
        seen += images.grad.abs().sum(dim=(0, 1)) > 0
    for centre, along in ((ys[row], seen.any(dim=1)), (xs[column], seen.any(dim=0))):
        there = along.nonzero().flatten()
        assert there[0] > 0
        assert there[-1] < side - 1, "the field ends inside the image, else its centre says nothing"
        assert float(centre) == (int(there[0]) + int(there[-1]) + 1) / 2
    assert float(ys[1] - ys[0]) == stride


def test_weights_of_a_file_give_the_maps_of_torchvision(tmp_path: Path) -> None:
    whole = models.resnet18(weights=None).eval()
    torch.save(whole.state_dict(), tmp_path / "resnet18.pth")
    network = Backbone(
        "resnet18", 1, 2, seed=0, stride=32, weights=str(tmp_path / "resnet18.pth")
    ).eval()
    grey = torch.rand(1, 1, 64, 64)
    whole.fc = whole.avgpool = torch.nn.Identity()
    with torch.no_grad():
        mean, scale = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
        expected = whole((grey - mean) / scale).view(1, 512, 2, 2)
        torch.testing.assert_close(network(grey), network.head(expected))


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    def saved(weights: dict[str, Tensor]) -> str:
        torch.save(weights, tmp_path / "weights.pth")
        return str(tmp_path / "weights.pth")

    state = models.resnet18(weights=None).state_dict()
    lacking = {name: tensor for name, tensor in state.items() if name != "layer1.0.conv1.weight"}
    with pytest.raises(
        UsageError, match=r"no 'layer1.0.conv1.weight', expected the state_dict of .* resnet18"
    ):
        Backbone("resnet18", 3, 2, 0, weights=saved(lacking))
    said = r"torchvision's resnet18: .* conv1.weight: .* shape torch.Size\(\[2\]\) .* torch.Size\(\[64, 3, 7, 7\]\)"
    with pytest.raises(UsageError, match=said):
        Backbone("resnet18", 3, 2, 0, weights=saved({**state, "conv1.weight": torch.zeros(2)}))
    with pytest.raises(UsageError, match="stride = 1 leaves no layer of resnet18"):
        Backbone("resnet18", 3, 2, 0, stride=1)  # type: ignore[arg-type]


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("unpickled",)


def test_a_file_of_weights_holds_tensors_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weights.pth"
    with pytest.raises(UsageError, match="there is no file of weights"):
        read_weights(path)
    path.write_bytes(pickle.dumps({"conv1.weight": Trap()}))
    with pytest.raises(UsageError, match="cannot be read as weights"):
        read_weights(path)
    torch.save(torch.zeros(2), path)
    with pytest.raises(UsageError, match="holds no state_dict"):
        read_weights(path)
    assert "unpickled" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["resnet18", "convnext_tiny"])
def test_neither_weights_nor_outputs_draw_from_the_global_generator(name: str) -> None:
    before = torch.get_rng_state()
    Backbone(name, 3, 2, seed=0, stride=8).train()(torch.zeros(2, 3, 64, 64))
    assert torch.equal(torch.get_rng_state(), before)
