"""The network `context` against its formula in loops, and on the encoders of tasks.

It is a transformer without coordinates: each position sees all positions of its bag.
"""

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.special import softmax

from milbench import Bags, Network, Task, load_loss, load_network, load_task
from milbench.contracts.registry import losses
from milbench.networks.known_networks import make_network
from milbench.networks.sequence import pad_frames
from milbench.testing import NetworkContract
from tests._helpers.network_formulas import Array, Weights, weighted_sum

# D features of each instance, and C classes.
D = 6
C = 3


def on_encoder(task: Task, seed: int = 0) -> Network:
    """Return the network on the encoder of a task."""
    return make_network(task, task.format_from({}), "context", {}, seed)


class OnATask(NetworkContract):
    """The contract of a network, on the encoder of a task."""

    task: ClassVar[str]
    network = "context"

    @classmethod
    def make(cls, seed: int = 0) -> Network:
        return on_encoder(load_task(cls.task), seed)


class TestOnImages(OnATask):
    task = "extended-digits"
    bag_kind = "images"
    inputs = 1
    num_classes = 10


class TestOnSequences(OnATask):
    task = "sound-events"
    bag_kind = "sequences"
    inputs = 32
    num_classes = 8


class TestOnSets(OnATask):
    task = "synthetic-bags"
    bag_kind = "sets"
    inputs = 8
    num_classes = 5


def block(w: Weights, name: str, bag: list[Array], heads: int) -> list[Array]:
    """Return the output of a transformer block for the positions of a bag, by plain loops."""
    # Indexed by position, then by head.
    queries, keys, values = [], [], []
    for x in bag:
        qkv = w.linear(f"{name}.qkv", w.norm(f"{name}.attention_norm", x))
        query, key, value = np.split(qkv, 3)
        queries.append(np.split(query, heads))
        keys.append(np.split(key, heads))
        values.append(np.split(value, heads))

    results = []
    for position, x in enumerate(bag):
        of_heads = []
        for head in range(heads):
            query = queries[position][head]
            likeness = [query @ key[head] / math.sqrt(len(query)) for key in keys]
            attention = softmax(likeness)
            of_heads.append(weighted_sum(attention, [value[head] for value in values]))
        y = x + w.linear(f"{name}.joined", np.concatenate(of_heads))
        hidden = w.linear(f"{name}.feed.0", w.norm(f"{name}.feed_norm", y))
        results.append(y + w.linear(f"{name}.feed.2", np.maximum(hidden, 0)))
    return results


def context(w: Weights, bag: Array, layers: int, heads: int) -> Array:
    """Return the logits (C+1, K) of a bag (K, D)."""
    positions = [w.linear("embed", instance) for instance in bag]
    for number in range(layers):
        positions = block(w, f"blocks.{number}", positions, heads)
    return np.stack([w.linear("head", w.norm("norm", x)) for x in positions], axis=1)


def some_bags(sizes: list[int], features: int = D, classes: int = C) -> Bags:
    """Return random bags of these sizes, whose padding is far from 0."""
    rng = torch.Generator().manual_seed(3)
    instances = torch.randn(len(sizes), max(sizes), features, generator=rng)
    mask = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
    instances = instances.masked_fill(~mask.unsqueeze(2), 100)
    return Bags(instances, torch.zeros(len(sizes), classes, dtype=torch.bool), mask)


def drawn_norms(network: Network) -> Network:
    """Give random scales and shifts to the layer norms.

    They begin as 1 and 0, with which a mistake in their use would not show.
    """
    rng = torch.Generator().manual_seed(4)
    for module in network.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.normal_(module.weight, mean=1, generator=rng)
            torch.nn.init.normal_(module.bias, generator=rng)
    return network


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("heads", [1, 4])
def test_logits_agree_with_loops_over_heads_and_positions(layers: int, heads: int) -> None:
    sizes = [5, 2, 1]
    bags = some_bags(sizes)
    network = drawn_norms(load_network("context", D, C, seed=1, layers=layers, heads=heads))
    logits = network.logits_of(bags)
    for number, size in enumerate(sizes):
        bag = bags.instances[number, :size].double().numpy()
        expected = context(Weights(network), bag, layers, heads)
        np.testing.assert_allclose(logits[number, :, :size].detach(), expected, atol=1e-4)


def test_features_that_have_the_network_s_width_are_not_projected() -> None:
    names = [name for name, _ in load_network("context", 64, C, seed=0).named_parameters()]
    assert not [name for name in names if name.startswith("embed")]


def test_logits_at_masked_positions_are_zero() -> None:
    bags = some_bags([4, 2])
    logits = load_network("context", D, C, seed=0).logits_of(bags)
    assert (logits[1, :, 2:] == 0).all()
    assert (logits[1, :, :2] != 0).all()


@pytest.mark.parametrize("padding", [0.0, math.nan])
def test_an_empty_bag_leaves_logits_and_gradients_finite(padding: float) -> None:
    bags = some_bags([3, 0])
    assert bags.mask is not None
    instances = bags.instances.masked_fill(~bags.mask.unsqueeze(2), padding)
    network = load_network("context", D, C, seed=0)
    logits = network(instances, bags.mask)
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert (logits[1] == 0).all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_every_position_depends_on_every_instance_of_its_bag_alone() -> None:
    bags = some_bags([4, 3])
    instances = bags.instances.requires_grad_()
    logits = load_network("context", D, C, seed=0)(instances, bags.mask)
    for position in range(4):
        (gradient,) = torch.autograd.grad(
            logits[0, :, position].sum(), instances, retain_graph=True
        )
        assert (gradient[0].abs().sum(dim=1) > 0).all()
        assert (gradient[1] == 0).all()


@torch.no_grad()
def test_positions_of_an_encoder_may_be_in_any_order() -> None:
    """The network is not told where in an image a position is."""
    network = on_encoder(load_task("extended-digits"))
    features = torch.randn(2, 12, 64, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    present = torch.ones(2, 12, dtype=torch.bool)
    logits = network.bag_logits(features, present)  # type: ignore[operator]
    moved = network.bag_logits(features[:, order], present)  # type: ignore[operator]
    torch.testing.assert_close(moved, logits[:, :, order], atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("length", [21, 50, 200])
def test_padding_does_not_change_the_logits_of_a_recording(length: int) -> None:
    """Padding of sequences is NaN, which would spread if it were used."""
    task = load_task("sound-events")
    features = task.format_from({}).inputs
    network = on_encoder(task)
    rng = torch.Generator().manual_seed(length)
    short = torch.randn(features, 20, generator=rng)
    long = torch.randn(features, length, generator=rng)
    labels = torch.zeros(2, task.format_from({}).num_classes, dtype=torch.bool)
    has_frame = torch.arange(length) < torch.tensor([[20], [length]])
    bags = Bags(pad_frames([short, long]), labels, has_frame)
    mask = network.mask_of(bags)
    assert mask is not None
    of_short = network.logits_of(bags)[:1, :, mask[0]]
    torch.testing.assert_close(of_short, network(short.unsqueeze(0)), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_encoder_decides_where_positions_are() -> None:
    task = load_task("extended-digits")
    bags = Bags(torch.rand(2, 1, 20, 28), torch.zeros(2, 10, dtype=torch.bool))
    encoder = make_network(task, task.format_from({}), "conv", {}, seed=0)
    network = on_encoder(task)
    assert network.logits_of(bags).shape == encoder.logits_of(bags).shape
    found = network.centres_in(bags)
    expected = encoder.centres_in(bags)
    assert found is not None
    assert expected is not None
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


SET_LOSSES = [name for name in losses().names() if losses().get(name).supervision == "set"]


@pytest.mark.parametrize("name", SET_LOSSES)
def test_every_loss_of_label_sets_gets_a_finite_gradient(name: str) -> None:
    loss = load_loss(name).build(C, 0)
    bags = some_bags([5, 2, 1])
    network = load_network("context", D, C, seed=0)
    network.start_at_prior(5)
    labels = torch.tensor([[True, True, False], [False, True, False], [False, False, False]])
    loss(network.logits_of(bags), labels, bags.mask).backward()
    gradients = [p.grad for p in network.parameters()]
    assert all(g is not None and g.isfinite().all() for g in gradients)
    assert any(g is not None and g.any() for g in gradients)


@torch.no_grad()
def test_training_begins_near_one_instance_of_each_class() -> None:
    """At 20 positions, initial networks give each class odds of 1/20 against the background."""
    positions = 20
    bags = some_bags([positions] * 8)
    log_odds = []
    for seed in range(30):
        network = load_network("context", D, C, seed)
        network.start_at_prior(positions)
        logits = network.logits_of(bags)
        background = logits[:, C:]
        log_odds.append(float((logits[:, :C] - background).mean()))
    standard_error = np.std(log_odds) / math.sqrt(len(log_odds))
    assert abs(np.mean(log_odds) - math.log(1 / positions)) < 4 * standard_error
