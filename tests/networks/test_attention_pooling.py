"""Networks that pool instances, against the formulas of their papers in loops over instances."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from torch import Tensor

from milbench import Bags, Network, Task, load_loss, load_network, load_task
from milbench.networks.known_networks import make_network
from milbench.networks.sequence import pad_frames
from tests._helpers.network_formulas import Array, Weights, weighted_sum

# D features of each instance, and C classes.
D = 6
C = 3


class Pooled(NamedTuple):
    """The results of a formula for one bag of K instances."""

    logits: list[float]
    """A logit for each class."""
    attention: list[Array]
    """For each class, the attention of the instances (K,)."""


def gated_attention(w: Weights, bag: Array) -> Pooled:
    pooled = Pooled([], [])
    gated = [np.tanh(w.linear("v", h)) * expit(w.linear("u", h)) for h in bag]
    for c in range(C):
        attention = softmax([w.linear("w", g)[c] for g in gated])
        embedding = weighted_sum(attention, list(bag))
        pooled.attention.append(attention)
        pooled.logits.append(w.linear("head", embedding)[c])
    return pooled


def dsmil(w: Weights, bag: Array) -> Pooled:
    pooled = Pooled([], [])
    queries = [np.tanh(w.linear("query", h)) for h in bag]
    values = [w.linear("value", h) for h in bag]
    for c in range(C):
        instance_logits = [w.linear("instance", h)[c] for h in bag]
        critical = int(np.argmax(instance_logits))
        likeness = [q @ queries[critical] / len(q) ** 0.5 for q in queries]
        attention = softmax(likeness)
        bag_logit = w.linear("head", weighted_sum(attention, values))[c]
        pooled.attention.append(attention)
        pooled.logits.append((instance_logits[critical] + bag_logit) / 2)
    return pooled


def set_transformer(w: Weights, bag: Array) -> Pooled:
    embedded = [w.linear("embed", h) for h in bag]
    attended = multi_head(w, embedded, heads=4)
    hidden = []
    for x, joined in zip(embedded, attended, strict=True):
        y = w.norm("norms.0", x + joined)
        fed = w.linear("feed.2", np.maximum(w.linear("feed.0", y), 0))
        hidden.append(w.norm("norms.1", y + fed))

    pooled = Pooled([], [])
    keys = [w.linear("key", h) for h in hidden]
    values = [w.linear("value", h) for h in hidden]
    for c in range(C):
        seed = w.of["seeds.weight"][c]
        attention = softmax([seed @ key / len(key) ** 0.5 for key in keys])
        pooled.attention.append(attention)
        pooled.logits.append(w.linear("head", weighted_sum(attention, values))[c])
    return pooled


def multi_head(w: Weights, embedded: list[Array], heads: int) -> list[Array]:
    """Return the result of self-attention for each instance."""
    # For each instance (3, heads, D / heads): its query, key and value.
    parts = [w.linear("qkv", x).reshape(3, heads, -1) for x in embedded]
    attended = []
    for own in parts:
        of_heads = []
        for head in range(heads):
            query = own[0, head]
            shares = softmax([query @ other[1, head] / len(query) ** 0.5 for other in parts])
            of_heads.append(weighted_sum(shares, [other[2, head] for other in parts]))
        attended.append(w.linear("joined", np.concatenate(of_heads)))
    return attended


FORMULAS: dict[str, Callable[[Weights, Array], Pooled]] = {
    "gated-attention": gated_attention,
    "dsmil": dsmil,
    "set-transformer": set_transformer,
}
NAMES = list(FORMULAS)


def bags_of(*sizes: int) -> Bags:
    """Return random bags with these numbers of instances."""
    rng = torch.Generator().manual_seed(len(sizes))
    instances = torch.randn(len(sizes), max(sizes), D, generator=rng)
    mask = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
    return Bags(instances, torch.zeros(len(sizes), C, dtype=torch.bool), mask)


@pytest.mark.parametrize("name", NAMES)
def test_scores_and_evidence_are_the_formula_of_the_paper(name: str) -> None:
    sizes = (5, 2, 1)
    bags = bags_of(*sizes)
    network = load_network(name, D, C, seed=1)
    answer = load_loss("one-vs-rest").score(network.logits_of(bags), bags.mask)
    weights = Weights(network)
    for bag, size in enumerate(sizes):
        instances = bags.instances[bag, :size].double().numpy()
        expected = FORMULAS[name](weights, instances)
        assert answer.classes[bag].tolist() == pytest.approx(expected.logits, abs=1e-5)
        for c in range(C):
            # The evidence is the logarithm of the attention plus a constant.
            attention = softmax(answer.evidence[bag, c, :size].tolist())
            assert attention == pytest.approx(expected.attention[c], abs=1e-5)


def on_encoder(name: str, task: Task, seed: int) -> Network:
    return make_network(task, task.format_from({}), name, {}, seed, "sigmoid")


def no_labels(task: Task) -> Tensor:
    return torch.zeros(2, task.format_from({}).num_classes, dtype=torch.bool)


def check_padding_changes_nothing(network: Network, bags: Bags, alone: Tensor) -> None:
    """Check the logits of the first of two bags, which is padded, against those without padding."""
    logits = network.logits_of(bags)
    mask = network.mask_of(bags)
    assert mask is not None
    assert mask.shape == (2, logits.shape[2])
    of_first = logits[:1, :, mask[0]]
    torch.testing.assert_close(of_first, network(alone), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_on_the_encoder_of_sets_padding_changes_nothing(name: str) -> None:
    task = load_task("synthetic-bags")
    instances = torch.randn(2, 50, 8)
    mask = torch.arange(50) < torch.tensor([[20], [50]])
    bags = Bags(instances, no_labels(task), mask)
    check_padding_changes_nothing(on_encoder(name, task, seed=4), bags, instances[:1, :20])


@pytest.mark.parametrize("name", NAMES)
def test_on_the_encoder_of_sequences_padding_changes_nothing(name: str) -> None:
    task = load_task("sound-events")
    short = torch.randn(32, 20)
    long = torch.randn(32, 50)
    mask = torch.arange(50) < torch.tensor([[20], [50]])
    # Padding is NaN.
    bags = Bags(pad_frames([short, long]), no_labels(task), mask)
    check_padding_changes_nothing(on_encoder(name, task, seed=4), bags, short.unsqueeze(0))


@pytest.mark.parametrize("name", NAMES)
def test_positions_of_an_image_stay_where_they_are(name: str) -> None:
    task = load_task("extended-digits")
    images = torch.rand(2, 1, 16, 24, generator=torch.Generator().manual_seed(5))
    bags = Bags(images, no_labels(task))
    network = on_encoder(name, task, seed=6)
    encoder = on_encoder("conv", task, seed=6)
    assert network(images).shape == encoder(images).shape
    centres = network.centres_in(bags)
    expected = encoder.centres_in(bags)
    assert centres is not None
    assert expected is not None
    torch.testing.assert_close(centres, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_does_not_depend_on_other_images_of_its_batch(name: str) -> None:
    images = torch.rand(2, 1, 16, 24, generator=torch.Generator().manual_seed(5))
    network = on_encoder(name, load_task("extended-digits"), seed=6)
    torch.testing.assert_close(network(images[:1]), network(images)[:1], atol=1e-5, rtol=1e-5)
