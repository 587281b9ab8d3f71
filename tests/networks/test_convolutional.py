"""Convolutional networks and perceptrons: initial weights, precision and standardisation."""

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

PAPER = (
    Layer(64, 5, 1, 2),
    Layer(64, 5, 1, 2),
    Layer(64, 5, 2, 2),
    Layer(64, 5, 1, 1),
    Layer(64, 5, 1, 0),
    Layer(11, 5),
)
"""The network that X.-L. Li trained on extended MNIST, 2018."""


def scaled_parameters(network: torch.nn.Module, name: str) -> list[Tensor]:
    """Return the weights or the biases of each layer, times sqrt(number of inputs of a unit)."""
    found = []
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
            fan_in = layer.weight[0].numel()
            found.append(layer.get_parameter(name).detach() * math.sqrt(fan_in))
    return found


NETWORKS = [
    pytest.param(AllConvolutional(PAPER, 1, 0), id="convolutional"),
    pytest.param(InstanceMLP(2, 10, 0, hidden=2000), id="perceptron"),
]


def assert_standard_deviation_1(values: Tensor) -> None:
    """Assert that the standard deviation is 1, within five standard errors for normal numbers."""
    standard_error = 1 / math.sqrt(2 * values.numel())
    assert abs(float(values.std()) - 1) < 5 * standard_error


def assert_mean_0(values: Tensor) -> None:
    """Assert that the mean is 0, within five standard errors for standard normal numbers."""
    standard_error = 1 / math.sqrt(values.numel())
    assert abs(float(values.mean())) < 5 * standard_error


@pytest.mark.parametrize("network", NETWORKS)
def test_initial_weights_are_normal_over_root_fan_in(network: torch.nn.Module) -> None:
    for weights in scaled_parameters(network, "weight"):
        assert_standard_deviation_1(weights)
        assert_mean_0(weights)


@pytest.mark.parametrize("network", NETWORKS)
def test_initial_biases_are_normal_over_root_fan_in(network: torch.nn.Module) -> None:
    assert_standard_deviation_1(torch.cat(scaled_parameters(network, "bias")))


IMAGES = torch.rand(3, 1, 40, 44, generator=torch.Generator().manual_seed(0))


def test_channels_last_change_speed_not_meaning() -> None:
    network = AllConvolutional(PAPER, 1, seed=0)
    expected = network(IMAGES)
    network = network.move_to(torch.device("cpu"))
    assert network.head.weight.is_contiguous(memory_format=torch.channels_last)
    found = network.logits_of(Bags(IMAGES, torch.zeros(3, 1, dtype=torch.bool)))
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def in_half_precision(network: AllConvolutional) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logits: Tensor = network(IMAGES)
    return logits


def test_half_precision_changes_speed_not_meaning() -> None:
    network = AllConvolutional(PAPER, 1, seed=0).move_to(torch.device("cpu"))
    half = in_half_precision(network)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), network(IMAGES), rtol=0.1, atol=0.1)


def test_half_precision_has_a_gradient_for_every_weight() -> None:
    network = AllConvolutional(PAPER, 1, seed=0).move_to(torch.device("cpu"))
    # Any function that depends on all logits would do.
    loss = in_half_precision(network).float().logsumexp(dim=1).mean()
    loss.backward()
    for name, weights in network.named_parameters():
        assert weights.grad is not None, name
        assert weights.grad.abs().sum() > 0, name


def test_standardised_images_have_mean_0_and_deviation_1_each() -> None:
    contrasts = torch.tensor([1.0, 0.5, 0.2]).view(3, 1, 1, 1)
    images = torch.rand(3, 2, 9, 7) * contrasts + 0.2
    standardised = StandardiseImages()(images)
    for image, result in zip(images.numpy(), standardised.numpy(), strict=True):
        expected = (image - image.mean()) / image.std()
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_noise_is_not_blown_up_to_the_contrast_of_pictures() -> None:
    flat = 0.5 + 0.001 * torch.randn(1, 3, 8, 8)
    assert StandardiseImages()(flat).abs().max() < 0.2


def test_an_image_of_one_grey_becomes_zero() -> None:
    grey = torch.full((1, 3, 8, 8), 0.25)
    assert torch.equal(StandardiseImages()(grey), torch.zeros(1, 3, 8, 8))


def standardised_features(features: Tensor) -> Tensor:
    """Return features (400, D), standardised by their own means and deviations.

    They are standardised as four bags of 100 instances.
    """
    standardise = StandardiseFeatures(features.mean(dim=0), features.std(dim=0, correction=0))
    bags = features.float().view(4, 100, -1)
    standardised: Tensor = standardise(bags)
    return standardised.view(400, -1)


def test_features_of_any_unit_get_mean_0_and_deviation_1() -> None:
    units = torch.tensor([1e-9, 1.0, 1e9])
    means = torch.tensor([1e-9, -5.0, 0.0])
    found = standardised_features(torch.randn(400, 3).double() * units + means).numpy()
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-4)


def test_a_feature_that_varies_by_rounding_alone_is_only_centred() -> None:
    found = standardised_features(torch.full((400, 1), 1 / 3).double())
    assert found.abs().max() < 1e-6
