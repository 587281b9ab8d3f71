import math

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench import Bags
from milbench.contracts.geometry import Layer
from milbench.networks.convolutional import AllConvolutional
from milbench.networks.instance import InstanceMLP
from milbench.networks.standardise import StandardiseFeatures, StandardiseImages

# Of extended MNIST, X.-L. Li 2018.
PAPER = (*(Layer(64, 5, s, p) for s, p in [(1, 2), (1, 2), (2, 2), (1, 1), (1, 0)]), Layer(11, 5))


@pytest.mark.parametrize(
    "network", [AllConvolutional(PAPER, 1, 0), InstanceMLP(2, 10, 0, hidden=2000)]
)
def test_initialisation_is_normal_over_root_fan_in_for_weights_and_biases(
    network: torch.nn.Module,
) -> None:
    layers = [
        layer for layer in network.modules() if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear)
    ]
    for layer in layers:
        scaled = layer.weight.detach() * math.sqrt(layer.weight[0].numel())
        assert abs(float(scaled.std()) - 1) < 5 / math.sqrt(2 * scaled.numel())
        assert abs(float(scaled.mean())) < 5 / math.sqrt(scaled.numel())
    biases = torch.cat(
        [layer.get_parameter("bias") * math.sqrt(layer.weight[0].numel()) for layer in layers]
    )
    assert abs(float(biases.std()) - 1) < 5 / math.sqrt(2 * len(biases))


def test_channels_last_and_half_precision_change_speed_not_meaning() -> None:
    network = AllConvolutional(PAPER, 1, seed=0)
    images = torch.rand(3, 1, 40, 44)
    expected = network(images)
    network = network.move_to(torch.device("cpu"))
    assert network.head.weight.is_contiguous(memory_format=torch.channels_last)
    channels_last = network.logits_of(Bags(images, torch.zeros(3, 1, dtype=torch.bool)))
    assert channels_last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(channels_last, expected, rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        half: Tensor = network(images)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.1, atol=0.1)
    half.float().logsumexp(dim=1).mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_standardised_images_have_mean_0_and_deviation_1_each() -> None:
    standardise = StandardiseImages()
    images = torch.rand(3, 2, 9, 7) * torch.tensor([1.0, 0.5, 0.2]).view(3, 1, 1, 1) + 0.2
    for image, result in zip(images.numpy(), standardise(images).numpy(), strict=True):
        np.testing.assert_allclose(
            result, (image - image.mean()) / image.std(), rtol=1e-4, atol=1e-5
        )
    flat = 0.5 + 0.001 * torch.randn(1, 3, 8, 8)
    assert standardise(flat).abs().max() < 0.2  # noise is not blown up to the contrast of a picture
    assert torch.equal(standardise(torch.full((1, 3, 8, 8), 0.25)), torch.zeros(1, 3, 8, 8))


def test_standardised_features_have_mean_0_and_deviation_1_whatever_their_unit() -> None:
    """But for a feature that does not vary, or by rounding alone, which is only centred."""
    features = torch.randn(400, 3).double() * torch.tensor([1e-9, 1.0, 1e9]) + torch.tensor(
        [1e-9, -5.0, 0.0]
    )
    features = torch.cat([features, torch.full((400, 1), 1 / 3).double()], dim=1)
    standardise = StandardiseFeatures(features.mean(dim=0), features.std(dim=0, correction=0))
    standardised = standardise(features.float().view(4, 100, 4)).view(400, 4).numpy()
    np.testing.assert_allclose(standardised.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(standardised[:, :3].std(axis=0), 1, rtol=1e-4)
    assert np.abs(standardised[:, 3]).max() < 1e-6
