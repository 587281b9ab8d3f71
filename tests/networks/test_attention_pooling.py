"""Networks that pool instances, against the formulas of their papers in loops over instances, and with padding."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax

from milbench import Bags, Network, Task, load_loss, load_network, load_task
from milbench.networks.known_networks import make_network
from milbench.networks.sequence import pad_frames

D, C = 6, 3
Array = NDArray[np.float64]


class Weights:
    """The weights of a network, and its layers by name."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.of = {
            name: value.detach().double().numpy() for name, value in network.state_dict().items()
        }

    def linear(self, layer: str, x: Array) -> Any:
        return self.of[f"{layer}.weight"] @ x + self.of.get(f"{layer}.bias", 0)

    def norm(self, layer: str, x: Array) -> Any:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * self.of[f"{layer}.weight"] + self.of[
            f"{layer}.bias"
        ]


def gated_attention(w: Weights, bag: Array) -> tuple[list[float], list[Array]]:
    logits, attention = [], []
    for c in range(C):
        scores = [
            w.linear("w", np.tanh(w.linear("v", h)) * expit(w.linear("u", h)))[c] for h in bag
        ]
        attention.append(softmax(scores))
        logits.append(
            w.linear("head", sum(a * h for a, h in zip(attention[-1], bag, strict=True)))[c]
        )
    return logits, attention


def dsmil(w: Weights, bag: Array) -> tuple[list[float], list[Array]]:
    logits, attention = [], []
    queries = [np.tanh(w.linear("query", h)) for h in bag]
    for c in range(C):
        scores = [w.linear("instance", h)[c] for h in bag]
        critical = int(np.argmax(scores))
        attention.append(softmax([q @ queries[critical] / len(q) ** 0.5 for q in queries]))
        pooled = sum(a * w.linear("value", h) for a, h in zip(attention[-1], bag, strict=True))
        logits.append((scores[critical] + w.linear("head", pooled)[c]) / 2)
    return logits, attention


def set_transformer(w: Weights, bag: Array) -> tuple[list[float], list[Array]]:
    heads, embedded = 4, [w.linear("embed", h) for h in bag]
    parts = [w.linear("qkv", x).reshape(3, heads, -1) for x in embedded]
    hidden = []
    for x, own_parts in zip(embedded, parts, strict=True):
        of_heads = []
        for head in range(heads):
            q = own_parts[0, head]
            shares = softmax([q @ other[1, head] / len(q) ** 0.5 for other in parts])
            of_heads.append(sum(s * other[2, head] for s, other in zip(shares, parts, strict=True)))
        y = w.norm("norms.0", x + w.linear("joined", np.concatenate(of_heads)))
        hidden.append(
            w.norm("norms.1", y + w.linear("feed.2", np.maximum(w.linear("feed.0", y), 0)))
        )
    logits, attention = [], []
    for c in range(C):
        scores = [w.of["seeds.weight"][c] @ w.linear("key", x) / len(x) ** 0.5 for x in hidden]
        attention.append(softmax(scores))
        pooled = sum(a * w.linear("value", x) for a, x in zip(attention[-1], hidden, strict=True))
        logits.append(w.linear("head", pooled)[c])
    return logits, attention


DIRECT: dict[str, Callable[[Weights, Array], tuple[list[float], list[Array]]]] = {
    "gated-attention": gated_attention, "dsmil": dsmil, "set-transformer": set_transformer
}  # fmt: skip
NAMES = [*DIRECT]


def some_bags(*sizes: int) -> Bags:
    rng = torch.Generator().manual_seed(len(sizes))
    instances = torch.randn(len(sizes), max(sizes), D, generator=rng)
    mask = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
    return Bags(instances, torch.zeros(len(sizes), C, dtype=torch.bool), mask)


@pytest.mark.parametrize("name", NAMES)
def test_one_vs_rest_is_the_formula_of_its_paper(name: str) -> None:
    """The class scores are the logits of the bag, and the evidence is the attention, but for a constant."""
    bags, network, loss = (
        some_bags(5, 2, 1),
        load_network(name, D, C, seed=1),
        load_loss("one-vs-rest"),
    )
    logits = network.logits_of(bags)
    answer = loss.score(logits, bags.mask)
    scores, evidence = answer.classes, answer.evidence
    for b, size in enumerate((5, 2, 1)):
        expected, attention = DIRECT[name](
            Weights(network), bags.instances[b, :size].double().numpy()
        )
        assert scores[b].tolist() == pytest.approx(expected, abs=1e-5)
        for c in range(C):
            assert softmax(evidence[b, c, :size].tolist()) == pytest.approx(attention[c], abs=1e-5)


def made(name: str, task: Task, seed: int) -> Network:
    return make_network(task, task.format_from({}), name, {}, seed, "sigmoid")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task_name", ["synthetic-bags", "sound-events"])
def test_it_stands_on_the_network_of_the_task(name: str, task_name: str) -> None:
    """Sequences of different length too, of which padding is NaN."""
    task = load_task(task_name)
    sizes = torch.tensor([[20], [50]])
    if task_name == "sound-events":
        short, long = torch.randn(32, 20), torch.randn(32, 50)
        instances, alone = pad_frames([short, long]), short.unsqueeze(0)
    else:
        instances = torch.randn(2, 50, 8)
        alone = instances[:1, :20]
    bags = Bags(
        instances,
        torch.zeros(2, task.format_from({}).num_classes, dtype=torch.bool),
        torch.arange(50) < sizes,
    )
    network = made(name, task, seed=4)
    logits, there = network.logits_of(bags), network.mask_of(bags)
    assert there is not None
    assert there.shape == (2, logits.shape[2])
    torch.testing.assert_close(logits[:1, :, there[0]], network(alone), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_positions_of_an_image_stay_where_they_are(name: str) -> None:
    task = load_task("extended-digits")
    images = torch.rand(2, 1, 16, 24, generator=torch.Generator().manual_seed(5))
    network, plain = made(name, task, seed=6), made("conv", task, seed=6)
    logits = network(images)
    assert logits.shape == plain(images).shape
    torch.testing.assert_close(network(images[:1]), logits[:1], atol=1e-5, rtol=1e-5)
    bags = Bags(images, torch.zeros(2, 10, dtype=torch.bool))
    for one, other in zip(
        network.centres_in(bags) or (), plain.centres_in(bags) or (), strict=True
    ):
        assert torch.equal(one, other)
