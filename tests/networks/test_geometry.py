"""Where the positions of a network are in an image, against the pixels that they depend on.

A position depends on the pixels by which its logits have a gradient.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milbench import Network
from milbench.contracts.geometry import Layer
from milbench.contracts.network import input_standardised
from milbench.networks.convolutional import AllConvolutional
from milbench.networks.standardise import StandardiseImages

PAPER = (
    Layer(8, 5, stride=1, padding=2),
    Layer(8, 5, stride=1, padding=2),
    Layer(8, 5, stride=2, padding=2),
    Layer(8, 5, stride=1, padding=1),
    Layer(8, 5, stride=1, padding=0),
    Layer(11, 5),
)
EVEN = (Layer(3, 4, stride=2, padding=1), Layer(2, 2, stride=3, padding=0))


# The size of images in pixels.
HEIGHT = 90
WIDTH = 101


def conv(*arguments: int, **named: object) -> nn.Module:
    return nn.Conv2d(1, 1, *arguments, **named)  # type: ignore[arg-type]


class Own(Network):
    """A network of `one` convolution, then a function, then a `head`; all have one channel."""

    def __init__(
        self,
        one: nn.Module,
        then: Callable[[Network, Tensor], Tensor],
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        # Users often have an attribute `layers`. It must not be taken for the layers that tell
        # the geometry of AllConvolutional.
        self.layers = nn.Sequential(one)
        self.other = conv(3, padding=1)
        self.then = then
        self.last = conv(1) if head is None else head

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.then(self, self.layers(images))
        logits: Tensor = self.last(hidden)
        return logits


def receptive_centre(network: nn.Module, row: int, column: int) -> tuple[float, float]:
    """Return the middle of the pixels that a position depends on, in pixel coordinates."""
    # A rectifier may make the gradient of a pixel 0 in one image, but hardly in fifty.
    images = torch.randn(50, 1, HEIGHT, WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(network(images)[:, 0, row, column].sum(), images)
    rows, columns = gradient.abs().sum(dim=(0, 1)).nonzero().unbind(dim=1)
    y = float(rows.min() + rows.max() + 1) / 2
    x = float(columns.min() + columns.max() + 1) / 2
    return y, x


def unchanged(network: Network, x: Tensor) -> Tensor:
    return x


def weighed(network: Network, x: Tensor) -> Tensor:
    return x * F.adaptive_avg_pool2d(x, 1).sigmoid()


def sum_of_paths(network: Network, x: Tensor) -> Tensor:
    other: Tensor = network.get_submodule("other")(x)
    return other + x


WEIGHED = "traced, channels weighed"
KNOWN: dict[str, Network] = {
    "paper": AllConvolutional(PAPER, 1, seed=0),
    "even kernels": AllConvolutional(EVEN, 1, seed=0),
    "traced, pooled": Own(
        nn.Sequential(conv(5, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)), unchanged, conv(4)
    ),
    "traced, the same size": Own(conv(5, padding="same"), lambda _, x: x.relu(), conv(2, stride=2)),
    "traced, dilated": Own(conv(3, dilation=3, stride=2), unchanged),
    "traced, a sum of paths": Own(conv(3, stride=2), sum_of_paths),
    WEIGHED: Own(conv(4, stride=2), weighed),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_the_output_shape_is_known_without_a_call(kind: str) -> None:
    network = KNOWN[kind].eval()
    logits = network(torch.zeros(1, 1, HEIGHT, WIDTH))
    assert network.output_shape(HEIGHT, WIDTH) == tuple(logits.shape[2:])


@pytest.mark.parametrize("kind", KNOWN)
def test_position_centres_are_the_centres_of_receptive_fields(kind: str) -> None:
    network = KNOWN[kind].eval()
    shape = network.output_shape(HEIGHT, WIDTH)
    centres = network.position_centres(HEIGHT, WIDTH)
    assert shape is not None
    assert centres is not None
    ys, xs = centres
    height, width = shape
    assert len(ys) == height
    assert len(xs) == width
    if kind == WEIGHED:
        # The weights of channels depend on the whole image, so a receptive field would have no
        # middle. It is found without these weights.
        network = Own(network.get_submodule("layers"), unchanged)
    # Two positions whose receptive fields do not reach the border of the image.
    middle = (height // 2, width // 2)
    below_and_left = (height // 2 + 1, width // 2 - 3)
    for row, column in (middle, below_and_left):
        assert receptive_centre(network, row, column) == (float(ys[row]), float(xs[column]))


@pytest.mark.parametrize("kind", KNOWN)
def test_the_smallest_image_has_a_position_and_a_smaller_one_none(kind: str) -> None:
    network = KNOWN[kind].eval()
    side = network.smallest_side()
    assert min(network(torch.zeros(1, 1, side, side)).shape[2:]) == 1
    if side > 1:
        with pytest.raises(RuntimeError):
            network(torch.zeros(1, 1, side - 1, side - 1))


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(lambda _, x: F.max_pool2d(x, 2), id="pooled"),
        pytest.param(lambda _, x: F.interpolate(x, scale_factor=2.0), id="enlarged"),
        pytest.param(lambda _, x: F.pad(x, (1, 1, 1, 1)), id="padded"),
        pytest.param(lambda _, x: F.adaptive_avg_pool2d(x, 4), id="of one size"),
        pytest.param(lambda _, x: x[:, :, ::2, ::2], id="sliced"),
        # A condition on values cannot be traced.
        pytest.param(lambda _, x: x.relu() if x.mean() > 0 else x, id="by a condition"),
        pytest.param(lambda _, x: x.flatten(2), id="flat"),
    ],
)
def test_a_geometry_that_cannot_be_found_is_unknown_rather_than_wrong(
    then: Callable[[Network, Tensor], Tensor],
) -> None:
    network = Own(conv(3, stride=2), then, nn.Identity())
    assert network.geometry is None
    assert network.output_shape(60, 60) is None
    assert network.position_centres(60, 60) is None
    assert network.smallest_side() == 1


def test_tracing_leaves_the_network_in_training() -> None:
    network = Own(conv(3, stride=2), unchanged)
    assert network.geometry is not None
    assert network.training


def test_tracing_leaves_a_module_in_evaluation_mode() -> None:
    frozen = nn.BatchNorm2d(1)
    network = Own(nn.Sequential(conv(3, stride=2), frozen), unchanged)
    # Whoever trains with the statistics of other data freezes this module so.
    frozen.eval()
    assert network.geometry is not None
    assert not frozen.training
    assert network.training


def test_standardised_images_leave_the_geometry_known() -> None:
    """Images then go through a module that the task adds before the network."""
    network = input_standardised(Own(conv(5, stride=2), unchanged), StandardiseImages())
    # By the kernel of 5 and the stride of 2: (30 - 5) // 2 + 1 and (41 - 5) // 2 + 1.
    assert network.output_shape(30, 41) == (13, 19)
    assert tuple(network(torch.rand(1, 1, 30, 41)).shape[2:]) == (13, 19)
