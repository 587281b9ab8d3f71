"""Where positions are, against the pixels on which the gradient says that they depend."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milbench import Network
from milbench.contracts.geometry import Layer
from milbench.networks.convolutional import AllConvolutional

PAPER = (*(Layer(8, 5, s, p) for s, p in [(1, 2), (1, 2), (2, 2), (1, 1), (1, 0)]), Layer(11, 5))
EVEN = Layer(3, 4, 2, 1), Layer(2, 2, 3, 0)


def conv(*arguments: int, **named: object) -> nn.Module:
    return nn.Conv2d(1, 1, *arguments, **named)  # type: ignore[arg-type]


class Own(Network):
    """A network of one channel in every layer, whose convolution `one` comes before a function and `head`."""

    def __init__(
        self,
        one: nn.Module,
        then: Callable[[Network, Tensor], Tensor],
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(one)  # a name that users are fond of
        self.other, self.then, self.last = conv(3, padding=1), then, head or conv(1)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.last(self.then(self, self.layers(images)))
        return logits


def receptive_centre(
    network: nn.Module, side: tuple[int, int], row: int, column: int
) -> tuple[float, float]:
    """Find by the gradient which pixels a position sees, and return the middle of them in pixel coordinates."""
    images = torch.randn(
        50, 1, *side, requires_grad=True
    )  # one image may hide pixels, hardly all do
    (grad,) = torch.autograd.grad(network(images)[:, 0, row, column].sum(), images)
    rows, columns = grad.abs().sum(dim=(0, 1)).nonzero().unbind(dim=1)
    return float(rows.min() + rows.max() + 1) / 2, float(columns.min() + columns.max() + 1) / 2


KNOWN: dict[str, nn.Module] = {
    "paper": AllConvolutional(PAPER, 1, seed=0),
    "even kernels": AllConvolutional(EVEN, 1, seed=0),
    "traced, pooled": Own(
        nn.Sequential(conv(5, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)), lambda _, x: x, conv(4)
    ),
    "traced, the same size": Own(conv(5, padding="same"), lambda _, x: x.relu(), conv(2, stride=2)),
    "traced, dilated": Own(conv(3, dilation=3, stride=2), lambda _, x: x),
    "traced, a sum of paths": Own(
        conv(3, stride=2), lambda it, x: it.get_submodule("other")(x) + x
    ),
    "traced, channels weighed": Own(
        conv(4, stride=2), lambda _, x: x * F.adaptive_avg_pool2d(x, 1).sigmoid()
    ),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_position_centres_are_those_of_the_receptive_fields(kind: str) -> None:
    network = KNOWN[kind].eval()
    assert isinstance(network, Network)
    side = 90, 101
    shape, centres = network.output_shape(*side), network.position_centres(*side)
    assert shape is not None
    assert centres is not None
    ys, xs = centres
    assert (len(ys), len(xs)) == shape == tuple(network(torch.zeros(1, 1, *side)).shape[2:])
    if "weighed" in kind:  # by the whole image, in which a field has no middle
        network = Own(network.get_submodule("layers"), lambda _, x: x)
    for row, column in [
        (shape[0] // 2, shape[1] // 2),
        (shape[0] // 2 + 1, shape[1] // 2 - 3),
    ]:  # off the borders
        assert receptive_centre(network, side, row, column) == (float(ys[row]), float(xs[column]))


@pytest.mark.parametrize("kind", KNOWN)
def test_the_smallest_image_has_a_position_and_a_smaller_one_none(kind: str) -> None:
    network = KNOWN[kind].eval()
    assert isinstance(network, Network)
    side = network.smallest_side()
    assert min(network(torch.zeros(1, 1, side, side)).shape[2:]) == 1
    if side > 1:
        with pytest.raises(RuntimeError):
            network(torch.zeros(1, 1, side - 1, side - 1))


@pytest.mark.parametrize(
    "then",
    [
        lambda _, x: F.max_pool2d(x, 2),
        lambda _, x: F.interpolate(x, scale_factor=2.0),
        lambda _, x: F.pad(x, (1, 1, 1, 1)),
        lambda _, x: F.adaptive_avg_pool2d(x, 4),
        lambda _, x: x[:, :, ::2, ::2],
        lambda _, x: x.relu() if x.mean() > 0 else x,  # cannot be traced
        lambda _, x: x.flatten(2),
    ],
    ids=["pooled", "enlarged", "padded", "of one size", "sliced", "by a condition", "flat"],
)
def test_what_no_layer_tells_is_not_known_rather_than_wrong(
    then: Callable[[Network, Tensor], Tensor],
) -> None:
    network = Own(conv(3, stride=2), then, nn.Identity())
    assert network.geometry is None
    assert network.output_shape(60, 60) is None
    assert network.position_centres(60, 60) is None
    assert network.smallest_side() == 1
    assert network.training, "tracing leaves the network as it was"


def test_standardised_images_leave_the_geometry_known() -> None:
    """The input goes through a module that the task adds."""
    from milbench.contracts.network import input_standardised
    from milbench.networks.standardise import StandardiseImages

    network = input_standardised(Own(conv(5, stride=2), lambda _, x: x), StandardiseImages())
    assert (
        network.output_shape(30, 41)
        == (13, 19)
        == tuple(network(torch.rand(1, 1, 30, 41)).shape[2:])
    )
