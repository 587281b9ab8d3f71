"""Networks that take an encoder, built in or from a user's file: what milbench gives to them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from milbench import BagNetwork, Bags, InstanceMLP, Network, UsageError, generator, load_task
from milbench.contracts.network import NetworkMaker
from milbench.networks.known_networks import (
    OF_BAGS,
    make_network,
    network_name,
    network_source,
    suitable_networks,
)
from milbench.testing import NetworkContract

FEATURES = 64
"""The number of features that an encoder gives for each position."""

OWN = """
import torch
from torch import nn
from milbench import BagNetwork, Network

class BesideMean(BagNetwork):
    loss_heads = {heads}

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:
        super().__init__()
        self.head = nn.Linear(2 * inputs, num_classes + 1)

    def bag_logits(self, features, present):
        count = present.sum(dim=1, keepdim=True).unsqueeze(2)
        mean = features.sum(dim=1, keepdim=True) / count
        both = torch.cat([features, mean.expand_as(features)], dim=2)
        return self.head(both).transpose(1, 2)

def beside_mean_function(inputs: int, num_classes: int, seed: int):
    return BesideMean(inputs, num_classes, seed)

class WithoutMethod(Network):
    takes_encoder = True

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:
        super().__init__()
        self.head = nn.Linear(inputs, num_classes + 1)

class OnOutputs(WithoutMethod):
    def with_encoder(self, encoder, seed):
        self.encoder = encoder
        return self

    def forward(self, images):
        return self.head(self.encoder(images).movedim(1, -1)).movedim(-1, 1)
"""
"""The file of a user, with a `BagNetwork` for losses of some heads and networks of other kinds."""


class BesideMean(BagNetwork):
    """A network that sees each position beside the mean of its bag.

    The same class is in OWN, since the user's file cannot import this module.
    """

    name = "mean-of-test"

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:
        super().__init__()
        self.head = nn.Linear(2 * inputs, num_classes + 1)

    def bag_logits(self, features: Tensor, present: Tensor) -> Tensor:
        count = present.sum(dim=1, keepdim=True).unsqueeze(2)
        mean = features.sum(dim=1, keepdim=True) / count
        both = torch.cat([features, mean.expand_as(features)], dim=2)
        logits: Tensor = self.head(both)
        return logits.transpose(1, 2)


class TestInAFile(NetworkContract):
    network, bag_kind = "test_bag_network.py:BesideMean", "sets"


def made(
    task: Any, name: str, seed: int = 0, head: Literal["softmax", "sigmoid"] = "softmax"
) -> Any:
    return make_network(task, task.format_from({}), name, {}, seed, head)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "nets.py"
    path.write_text(OWN.format(heads=("softmax", "sigmoid")), "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("task_name", "shape"),
    [
        ("extended-digits", (2, 1, 20, 28)),
        ("sound-events", (2, 32, 50)),
        ("synthetic-bags", (2, 9, 8)),
    ],
)
def test_a_network_of_a_file_uses_the_task_s_encoder(
    file: str, task_name: str, shape: tuple[int, ...]
) -> None:
    task = load_task(task_name)
    network = made(task, network_name(task, f"{file}:BesideMean", "softmax"))
    first = made(task, next(iter(task.networks)))
    instances = torch.rand(shape)
    assert network(instances).shape == first(instances).shape
    features_and_their_means = 2 * FEATURES
    assert network.head.in_features == features_and_their_means


def test_logits_are_made_of_the_encoder_s_outputs(file: str) -> None:
    task = load_task("synthetic-bags")
    network = made(task, network_name(task, f"{file}:BesideMean"))
    bag = torch.randn(1, 3, 8)
    assert isinstance(network.encoder, Network)
    logits = network(bag)
    features = [leaky_relu(output, 0.1) for output in network.encoder(bag)[0].T]
    mean = (features[0] + features[1] + features[2]) / 3
    for position, own in enumerate(features):
        expected = network.head(torch.cat([own, mean]))
        torch.testing.assert_close(logits[0, :, position], expected)


@pytest.mark.parametrize("name", OF_BAGS)
def test_the_encoder_begins_with_weights_of_its_seed_and_names(name: str) -> None:
    """For all of these networks they are standard normal numbers divided by sqrt(fan_in)."""
    network = made(load_task("synthetic-bags"), name, seed=7, head="sigmoid")
    assert isinstance(network.encoder, InstanceMLP)
    weight = network.encoder.head.weight
    outputs, fan_in = weight.shape
    assert outputs == FEATURES
    rng = generator("weights", 7, "encoder.head", "weight")
    expected = torch.randn(outputs, fan_in, generator=rng) / math.sqrt(fan_in)
    torch.testing.assert_close(weight, expected)


@pytest.mark.parametrize("name", OF_BAGS)
def test_weights_behind_the_encoder_do_not_depend_on_it(name: str) -> None:
    task = load_task("extended-digits")
    network = made(task, name, seed=7, head="sigmoid")
    weights = network.state_dict()
    alone = OF_BAGS[name](FEATURES, task.format_from({}).num_classes, 7).state_dict()
    for key, value in alone.items():
        assert torch.equal(weights[key], value)
    of_encoder = {f"encoder.{key}" for key in network.encoder.state_dict()}
    assert weights.keys() - alone.keys() == of_encoder


def test_a_network_suits_the_losses_whose_heads_it_names(tmp_path: Path) -> None:
    path = tmp_path / "nets.py"
    path.write_text(OWN.format(heads=("sigmoid",)), "utf-8")
    task = load_task("extended-digits")
    name = network_name(task, f"{path}:BesideMean")
    assert name in suitable_networks(task, "sigmoid")
    assert name not in suitable_networks(task, "softmax")
    made(task, name, head="sigmoid")
    with pytest.raises(UsageError, match="no network for extended-digits and a loss with the head"):
        made(task, name, head="softmax")


def test_a_function_that_makes_a_network_with_encoder_is_refused(file: str) -> None:
    task = load_task("extended-digits")
    name = network_name(task, f"{file}:beside_mean_function")
    with pytest.raises(UsageError, match="takes an encoder: name its class, not a function"):
        made(task, name)


def test_a_network_that_cannot_be_given_its_encoder_is_refused(file: str) -> None:
    task = load_task("extended-digits")
    name = network_name(task, f"{file}:WithoutMethod")
    complaint = "WithoutMethod takes an encoder and needs a method with_encoder"
    with pytest.raises(UsageError, match=complaint):
        made(task, name)


def test_a_network_may_take_its_encoder_in_its_own_way(file: str) -> None:
    task = load_task("extended-digits")
    network = made(task, network_name(task, f"{file}:OnOutputs"))
    images = torch.rand(2, 1, 20, 28)
    assert network(images).shape == made(task, "conv")(images).shape


@pytest.fixture
def task_of_bag_networks() -> Any:
    """Return a task whose networks both take an encoder."""

    class Own(type(load_task("synthetic-bags"))):  # type: ignore[misc]
        networks: ClassVar[Mapping[str, NetworkMaker]] = {"first": BesideMean, "other": BesideMean}

    return Own()


def test_the_first_network_of_a_task_has_no_encoder(task_of_bag_networks: Any) -> None:
    assert made(task_of_bag_networks, "first").encoder is None
    assert isinstance(made(task_of_bag_networks, "other").encoder, BesideMean)


def test_the_source_of_a_network_names_its_encoder(task_of_bag_networks: Any) -> None:
    revision_of_first, _ = network_source(task_of_bag_networks, "first")
    revision_of_other, _ = network_source(task_of_bag_networks, "other")
    assert revision_of_first == "1"
    assert revision_of_other == "1 on first 1"


def test_an_encoder_that_sees_the_mask_gets_it() -> None:
    """Without the mask, padding would count in the mean of a bag."""
    encoder = BesideMean(2, 63, 0)
    network = BesideMean(64, 3, 0).with_encoder(encoder, 0)
    bag = torch.randn(1, 2, 2)
    padded = torch.cat([bag, torch.full((1, 3, 2), 100.0)], dim=1)
    mask = torch.tensor([[True, True, False, False, False]])
    bags = Bags(padded, torch.zeros(1, 3, dtype=torch.bool), mask)
    torch.testing.assert_close(network.logits_of(bags)[:, :, :2], network(bag))


def test_images_need_an_encoder() -> None:
    with pytest.raises(UsageError, match=r"without an encoder is for sets \(B, K, D\), got \(2, 3"):
        BesideMean(3, 2, 0)(torch.zeros(2, 3, 8, 8))
