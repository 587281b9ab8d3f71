"""What every network gets that takes an encoder, built in or in a file of the user's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

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

class Bare(Network):
    takes_encoder = True

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:
        super().__init__()
        self.head = nn.Linear(inputs, num_classes + 1)

class OnOutputs(Bare):
    def with_encoder(self, encoder, seed):
        self.encoder = encoder
        return self

    def forward(self, images):
        return self.head(self.encoder(images).movedim(1, -1)).movedim(-1, 1)
"""


class BesideMean(BagNetwork):
    """Each position beside the mean of its bag."""

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
    name = network_name(task, f"{file}:BesideMean", "softmax")
    network, first = (
        make_network(task, task.format_from({}), one, {}, 0)
        for one in (name, next(iter(task.networks)))
    )
    instances = torch.rand(shape)
    logits = network(instances)
    assert logits.shape == first(instances).shape
    (head,) = (m for m in network.modules() if isinstance(m, nn.Linear) and m is network.head)
    assert head.in_features == 128, "64 features, and as many means"


def test_logits_are_made_of_the_encoder_s_outputs(file: str) -> None:
    task = load_task("synthetic-bags")
    name = network_name(task, f"{file}:BesideMean")
    network = make_network(task, task.format_from({}), name, {}, seed=0)
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
    """Equal for all of these networks, and normal / sqrt(fan_in)."""
    task = load_task("synthetic-bags")
    network = make_network(task, task.format_from({}), name, {}, seed=7, head="sigmoid")
    assert isinstance(network.encoder, InstanceMLP)
    rng = generator("weights", 7, "encoder.head", "weight")
    weight = network.encoder.head.weight
    assert weight.shape[0] == 64
    torch.testing.assert_close(weight, torch.randn(weight.shape, generator=rng) / 64**0.5)


@pytest.mark.parametrize("name", OF_BAGS)
def test_weights_behind_the_encoder_are_those_without_one(name: str) -> None:
    task = load_task("extended-digits")
    network = make_network(task, task.format_from({}), name, {}, seed=7, head="sigmoid")
    alone = OF_BAGS[name](64, task.format_from({}).num_classes, 7)
    weights = network.state_dict()
    for key, value in alone.state_dict().items():
        assert torch.equal(weights[key], value)
    assert weights.keys() - alone.state_dict().keys() == {
        f"encoder.{key}" for key in network.get_submodule("encoder").state_dict()
    }


def test_a_network_suits_the_losses_whose_heads_it_names(tmp_path: Path) -> None:
    path = tmp_path / "nets.py"
    path.write_text(OWN.format(heads=("sigmoid",)), "utf-8")
    task = load_task("extended-digits")
    name = network_name(task, f"{path}:BesideMean")
    assert name in suitable_networks(task, "sigmoid")
    assert name not in suitable_networks(task, "softmax")
    make_network(task, task.format_from({}), name, {}, 0, "sigmoid")
    with pytest.raises(UsageError, match="no network for extended-digits and a loss with the head"):
        make_network(task, task.format_from({}), name, {}, 0, "softmax")


def test_a_function_that_makes_one_is_refused(file: str) -> None:
    task = load_task("extended-digits")
    name = network_name(task, f"{file}:beside_mean_function")
    with pytest.raises(UsageError, match="takes an encoder: name its class, not a function"):
        make_network(task, task.format_from({}), name, {}, 0)


def test_a_network_that_takes_no_encoder_is_refused(file: str) -> None:
    task = load_task("extended-digits")
    name = network_name(task, f"{file}:Bare")
    with pytest.raises(UsageError, match="Bare takes an encoder and needs a method with_encoder"):
        make_network(task, task.format_from({}), name, {}, 0)


def test_a_network_may_take_its_encoder_in_its_own_way(file: str) -> None:
    task = load_task("extended-digits")
    network = make_network(
        task, task.format_from({}), network_name(task, f"{file}:OnOutputs"), {}, 0
    )
    images = torch.rand(2, 1, 20, 28)
    assert (
        network(images).shape
        == make_network(task, task.format_from({}), "conv", {}, 0)(images).shape
    )


def test_the_first_network_of_a_task_has_no_encoder() -> None:
    class Own(type(load_task("synthetic-bags"))):  # type: ignore[misc]
        networks: ClassVar[Mapping[str, NetworkMaker]] = {"own": BesideMean, "other": BesideMean}

    task: Any = Own()
    first: Any = make_network(task, task.format_from({}), "own", {}, 0)
    other: Any = make_network(task, task.format_from({}), "other", {}, 0)
    assert first.encoder is None
    assert isinstance(other.encoder, BesideMean)
    assert network_source(task, "own")[0] == "1"
    assert network_source(task, "other")[0] == "1 on own 1"


def test_an_encoder_that_sees_the_mask_gets_it() -> None:
    """Else the padding would have a part in the mean of a bag."""
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
