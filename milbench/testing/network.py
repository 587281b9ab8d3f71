"""What every network must do, as tests to inherit."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from milbench import Bags, Network, load_network
from milbench.api.network import BagKind
from milbench.api.parameters import check_values, network_parameters
from milbench.networks.registry import general_maker
from milbench.testing.files import beside

SIZES: dict[BagKind, tuple[int, ...]] = {"images": (32, 44), "sequences": (30,), "sets": (5,)}


class NetworkContract:
    """The contract tests of a network. A test file inherits them:

        class TestMine(NetworkContract):
            network = "mine.py"
            bag_kind = "sets"

    They give it random bags. What it cannot meet by its nature is overridden, with a docstring that says why.
    """  # noqa: D400 what follows is an example

    network: ClassVar[str]
    """The name of the network, or its file, FILE.py or FILE.py:NAME, relative to the file of the test class."""
    params: ClassVar[dict[str, Any]] = {}
    bag_kind: ClassVar[BagKind] = "images"
    inputs: ClassVar[int] = 3  # the channels of an image, or the features of a frame or an instance
    num_classes: ClassVar[int] = 4
    size: ClassVar[tuple[int, ...]] = ()
    """Of bags that are not too small: (H, W), (T,) or (K,). (): 32 x 44 pixels, 30 frames or 5 instances."""

    @classmethod
    def make(cls, seed: int = 0) -> Network:
        """Return the network, made anew, on the CPU."""
        return load_network(beside(cls, cls.network), cls.inputs, cls.num_classes, seed, **cls.params)

    def bags(self, more: int = 0) -> Bags:
        """Return three random bags, larger by `more`, of which the second one is padded if it is no image."""
        size, rng = [side + more for side in self.size or SIZES[self.bag_kind]], torch.Generator().manual_seed(more)
        shape = (*size, self.inputs) if self.bag_kind == "sets" else (self.inputs, *size)
        instances, labels = torch.rand(3, *shape, generator=rng), torch.zeros(3, self.num_classes, dtype=torch.bool)
        if self.bag_kind == "images":
            return Bags(instances, labels)
        mask = torch.arange(size[0]) < torch.tensor([[size[0]], [max(1, size[0] // 2)], [size[0]]])
        if self.bag_kind == "sequences":
            instances = instances.masked_fill(~mask.unsqueeze(1), torch.nan)
        return Bags(instances, labels, mask)

    def logits(self, network: Network, bags: Bags) -> tuple[Tensor, Tensor]:
        """Return logits (B, C+1, *positions) float32 and where they show an instance, (B, *positions) bool."""
        logits, there = network.logits_of(bags).float(), network.mask_of(bags)
        assert logits.ndim >= 3, "(B, C+1, *positions)"
        assert logits.shape[:2] == (len(bags), self.num_classes + 1), "with the background"
        assert logits.isfinite().all(), "at padding too"
        there = torch.ones_like(logits[:, 0], dtype=torch.bool) if there is None else there
        assert there.shape == (len(bags), *logits.shape[2:]), "a mask has the shape of the positions"
        return logits, there

    def test_there_are_positions_in_bags_of_any_size(self) -> None:
        network = self.make()
        for bags in (self.bags(), self.bags(more=7)):
            logits, there = self.logits(network, bags)
            assert there.flatten(1).any(dim=1).all()
            if self.bag_kind == "sets":
                assert logits.shape[2:] == bags.instances.shape[1:2], "a position for every instance"
            if (centres := network.centres_in(bags)) is not None:
                assert tuple(map(len, centres)) == (logits.shape[2:] if bags.are_images else (1, *logits.shape[2:]))

    def test_a_bag_has_the_same_logits_alone_and_padded_among_others(self) -> None:
        network, bags = self.make().eval(), self.bags()
        with torch.no_grad():
            together, mask = self.logits(network, bags)
            for number in range(3):
                bag = bags.part(number, number + 1)
                if bag.mask is not None:
                    real = (slice(None), bag.mask[0]) if self.bag_kind == "sets" else (..., bag.mask[0])
                    bag = replace(bag, instances=bag.instances[real], mask=None)
                alone, _ = self.logits(network, bag)
                assert_close(alone[0].flatten(1), together[number][:, mask[number]], rtol=1e-3, atol=1e-4)

    def test_initial_weights_depend_on_the_seed_alone(self) -> None:
        np.random.seed(1)  # noqa: NPY002 the generator of the whole process is meant, as by the next line
        random.seed(1)
        first, again, other = (self.make(seed).state_dict() for seed in (5, 5, 6))
        assert first.keys() == again.keys()
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)

    def test_every_weight_gets_a_finite_gradient(self) -> None:
        network = self.make()
        logits, there = self.logits(network, self.bags())
        logits.movedim(1, -1)[there].logsumexp(dim=1).sum().backward()
        for name, weights in network.named_parameters():
            assert not weights.requires_grad or weights.grad is not None, f"{name} has no part in the logits"
            assert weights.grad is None or weights.grad.isfinite().all(), name

    def test_half_precision_changes_little(self) -> None:
        network, bags = self.make().eval(), self.bags()
        with torch.no_grad():
            exact, there = self.logits(network, bags)
            with torch.autocast("cpu", torch.bfloat16):
                half, _ = self.logits(network, bags)
        exact, half = (logits.movedim(1, -1)[there] for logits in (exact, half))
        assert_close(half, exact, rtol=0.1, atol=0.1 * float(exact.abs().max()))

    def test_training_starts_at_the_bag_prior(self) -> None:
        """By the biases of the head, which alone make the logits where its weights are 0."""
        network = self.make()
        network.start_at_prior(50)
        assert network.head.get_parameter("bias").shape == (self.num_classes + 1,)
        if type(network).start_at_prior is not Network.start_at_prior:
            pytest.skip("the network has a start of its own")
        nn.init.zeros_(network.head.get_parameter("weight"))
        logits = self.logits(network, self.bags())[0].movedim(1, -1)
        assert_close(logits, torch.tensor([-math.log(50)] * self.num_classes + [0.0]).expand_as(logits))

    def test_parameters_are_checked_and_can_be_stored(self) -> None:
        parameters = network_parameters(general_maker(beside(type(self), self.network)))
        for name, one in parameters.items():
            assert one.empty not in (one.annotation, one.default), f"{name} needs an annotation and a default"
        complete = check_values("the network", parameters, self.params)
        assert json.loads(json.dumps(complete)) == complete
