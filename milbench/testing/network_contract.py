"""What every network must do, as tests to inherit."""

import json
import math
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from milbench import Bags, Network, load_network
from milbench.contracts.network import BagKind
from milbench.contracts.parameters import check_values, network_parameters
from milbench.networks.known_networks import general_maker
from milbench.testing import common

SIZES: dict[BagKind, tuple[int, ...]] = {"images": (32, 44), "sequences": (30,), "sets": (5,)}
"""The size of a bag if a test class names no size: pixels, frames or instances."""


class NetworkContract:
    """The contract tests of a network. A test file inherits them:

        class TestMine(NetworkContract):
            network = "mine.py"
            bag_kind = "sets"

    They give the network random bags. If a network cannot pass a test by its nature, override the
    test, with a docstring that says why.
    """  # noqa: D400 what follows is an example

    network: ClassVar[str]
    """The name of the network, or its file: FILE.py or FILE.py:NAME.

    The file is relative to the file of the test class.
    """
    params: ClassVar[dict[str, Any]] = {}
    """Parameters of the network."""
    bag_kind: ClassVar[BagKind] = "images"
    """What a bag is: images, sequences or sets."""
    inputs: ClassVar[int] = 3
    """The channels of an image, or the features of a frame or an instance."""
    num_classes: ClassVar[int] = 4
    size: ClassVar[tuple[int, ...]] = ()
    """The size of bags that the network can read: (H, W), (T,) or (K,).

    (): 32 x 44 pixels, 30 frames or 5 instances.
    """

    @classmethod
    def make(cls, seed: int = 0) -> Network:
        """Return a new network on the CPU."""
        return load_network(
            common.reference_to(cls, cls.network), cls.inputs, cls.num_classes, seed, **cls.params
        )

    def bags(self, more: int = 0) -> Bags:
        """Return a batch of three random bags, whose sides are larger than `size` by `more`.

        Unless they are images, the second bag is padded.
        """
        size = [side + more for side in self.size or SIZES[self.bag_kind]]
        shape = (*size, self.inputs) if self.bag_kind == "sets" else (self.inputs, *size)
        rng = torch.Generator().manual_seed(more)
        instances = torch.rand(3, *shape, generator=rng)
        labels = torch.zeros(3, self.num_classes, dtype=torch.bool)
        if self.bag_kind == "images":
            return Bags(instances, labels)
        whole = size[0]
        half = max(1, whole // 2)
        mask = torch.arange(whole) < torch.tensor([[whole], [half], [whole]])
        if self.bag_kind == "sequences":
            instances = instances.masked_fill(~mask.unsqueeze(1), torch.nan)
        return Bags(instances, labels, mask)

    def test_there_are_positions_in_bags_of_any_size(self) -> None:
        network = self.make()
        for bags in (self.bags(), self.bags(more=7)):
            logits, mask = common.checked_logits(network, bags, self.num_classes)
            assert mask.flatten(1).any(dim=1).all()
            if self.bag_kind == "sets":
                assert logits.shape[2:] == bags.instances.shape[1:2], (
                    "a position for every instance"
                )

    def test_a_bag_has_the_same_logits_alone_and_padded_among_others(self) -> None:
        common.assert_padding_has_no_part(self.make(), self.bags(), self.bag_kind, self.num_classes)

    @torch.no_grad()
    def test_the_order_of_a_set_has_no_part(self) -> None:
        """An instance has the same logits whatever its index in its bag is."""
        if self.bag_kind != "sets":
            pytest.skip("positions of images and sequences have an order")
        network = self.make().eval()
        bags = self.bags()
        size = bags.instances.shape[1]
        order = torch.randperm(size, generator=torch.Generator().manual_seed(1))
        mask = None if bags.mask is None else bags.mask[:, order]
        shuffled = replace(bags, instances=bags.instances[:, order], mask=mask)
        logits, is_instance = common.checked_logits(network, bags, self.num_classes)
        moved, _ = common.checked_logits(network, shuffled, self.num_classes)
        found = common.of_instances(moved, is_instance[:, order])
        expected = common.of_instances(logits[:, :, order], is_instance[:, order])
        assert_close(found, expected, rtol=1e-4, atol=1e-5)

    @torch.no_grad()
    def test_a_set_of_one_instance_has_logits(self) -> None:
        if self.bag_kind != "sets":
            pytest.skip("how small an image or a sequence may be is up to the network")
        bags = self.bags()
        one = replace(bags, instances=bags.instances[:, :1], mask=None)
        logits, _ = common.checked_logits(self.make().eval(), one, self.num_classes)
        assert logits.shape == (len(bags), self.num_classes + 1, 1)

    def test_initial_weights_depend_on_the_seed_alone(self) -> None:
        common.assert_weights_depend_on_the_seed_alone(self.make)

    def test_every_weight_gets_a_finite_gradient(self) -> None:
        network = self.make()
        logits, mask = common.checked_logits(network, self.bags(), self.num_classes)
        # A value that depends on every logit.
        common.of_instances(logits, mask).logsumexp(dim=1).sum().backward()
        common.assert_gradients(network)

    def test_half_precision_changes_little(self) -> None:
        network = self.make().eval()
        bags = self.bags()
        with torch.no_grad():
            exact, mask = common.checked_logits(network, bags, self.num_classes)
            with torch.autocast("cpu", torch.bfloat16):
                half, _ = common.checked_logits(network, bags, self.num_classes)
        exact = common.of_instances(exact, mask)
        half = common.of_instances(half, mask)
        largest = float(exact.abs().max())
        assert_close(half, exact, rtol=0.1, atol=0.1 * largest)

    def test_training_starts_at_the_bag_prior(self) -> None:
        """At the start, each class is expected at about one of the positions of a bag.

        The biases of the head do this. The test sets its weights to 0, so that the logits are the
        biases.
        """
        positions = 50
        network = self.make()
        network.start_at_prior(positions)
        assert network.head.get_parameter("bias").shape == (self.num_classes + 1,)
        if type(network).start_at_prior is not Network.start_at_prior:
            pytest.skip("the network has a start of its own")
        nn.init.zeros_(network.head.get_parameter("weight"))
        logits, mask = common.checked_logits(network, self.bags(), self.num_classes)
        logits = common.of_instances(logits, mask)
        prior = torch.tensor([-math.log(positions)] * self.num_classes + [0.0])
        assert_close(logits, prior.expand_as(logits))

    def test_parameters_are_checked_and_can_be_stored(self) -> None:
        parameters = network_parameters(
            general_maker(common.reference_to(type(self), self.network))
        )
        for name, parameter in parameters.items():
            assert parameter.empty not in (parameter.annotation, parameter.default), (
                f"{name} needs an annotation and a default"
            )
        complete = check_values("the network", parameters, self.params)
        assert json.loads(json.dumps(complete)) == complete
