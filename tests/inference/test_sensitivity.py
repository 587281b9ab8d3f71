"""How much a detection depends on each pixel, by a network of one weight and by finite differences."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import AllConvolutional, Layer, load_loss
from milbench.inference.predict import sensitivity


def test_sensitivity_by_a_network_of_one_weight() -> None:
    """Logit of class 0: 4 * pixel, so d log p / d pixel = 4 (1 - p) at the position's own pixel and 0 elsewhere."""
    network = AllConvolutional((Layer(3, 1),), 1, seed=0)
    weight, bias = network.head.weight, network.head.bias
    assert bias is not None
    with torch.no_grad():
        weight.zero_()
        bias.copy_(torch.tensor([-2.0, -50.0, 0.0]))
        weight[0] = 4
    image = torch.zeros(1, 2, 3)
    image[0, 0, 0], image[0, 1, 2] = 1.0, 0.75
    loss = load_loss("exact")
    found = sensitivity(network, loss, image, 0, torch.ones(2, 3, dtype=torch.bool))
    assert_close(found, 4 * torch.sigmoid(-(4 * image[0].double() - 2)))  # 1 - p


def test_sensitivity_agrees_with_finite_differences() -> None:
    network = AllConvolutional((Layer(4, 3, 2, 1), Layer(3, 3)), 2, seed=0).double()
    image = torch.randn(2, 8, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shape: Any = network.output_shape(8, 9)
    positions = torch.zeros(shape, dtype=torch.bool)
    positions[0, 1] = positions[1, 2] = True

    def log_p(pixels: Tensor) -> float:
        with torch.no_grad():
            p = network(pixels.unsqueeze(0)).softmax(dim=1)[0, 1]
        return math.log(p[0, 1]) + math.log(p[1, 2])

    loss = load_loss("exact")  # its map is the softmax
    got = sensitivity(network, loss, image, 1, positions)
    expected = torch.zeros(8, 9, dtype=torch.float64)
    for n, y, x in torch.cartesian_prod(*map(torch.arange, image.shape)).tolist():
        step = torch.zeros_like(image)
        step[n, y, x] = 1e-5
        expected[y, x] += abs(log_p(image + step) - log_p(image - step)) / 2e-5
    assert_close(got, expected, rtol=1e-4, atol=1e-8)
    assert (got > 0).any()
    with torch.no_grad():
        assert torch.equal(sensitivity(network, loss, image, 1, positions), got)
    assert all(p.grad is None for p in network.parameters())
    assert image.grad is None
