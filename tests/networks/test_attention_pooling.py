"""Networks that pool instances, against the formulas of their papers in loops over instances, and with padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from milbench import Bags, load_loss
from milbench.engine.parts import network_for, task_for
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.networks.registry import load_network

NAMES = ["gated-attention", "dsmil", "set-transformer"]
D, C = 6, 3
Array = NDArray[np.float64]


def softmax(values: Sequence[float]) -> Array:
    shares = np.exp(np.array(values) - max(values))
    found: Array = shares / shares.sum()
    return found


def sigmoid(x: Array) -> Array:
    found: Array = 1 / (1 + np.exp(-x))
    return found


class Weights:
    """The weights of a network, and its linear layers by name."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.of = {name: value.detach().double().numpy() for name, value in network.state_dict().items()}

    def linear(self, layer: str, x: Array) -> Array:
        found: Array = self.of[f"{layer}.weight"] @ x + self.of.get(f"{layer}.bias", 0)
        return found

    def norm(self, layer: str, x: Array) -> Array:
        found: Array = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * self.of[f"{layer}.weight"] + self.of[f"{layer}.bias"]
        return found


def gated_attention(w: Weights, bag: Array) -> tuple[list[float], list[Array]]:
    logits, attention = [], []
    for c in range(C):
        scores = [w.linear("w", np.tanh(w.linear("v", h)) * sigmoid(w.linear("u", h)))[c] for h in bag]
        attention.append(softmax(scores))
        logits.append(w.linear("head", sum(a * h for a, h in zip(attention[-1], bag, strict=True)))[c])
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
    seen = []
    for x, mine in zip(embedded, parts, strict=True):
        taken = []
        for head in range(heads):
            q = mine[0, head]
            shares = softmax([q @ other[1, head] / len(q) ** 0.5 for other in parts])
            taken.append(sum(s * other[2, head] for s, other in zip(shares, parts, strict=True)))
        y = w.norm("norms.0", x + w.linear("joined", np.concatenate(taken)))
        seen.append(w.norm("norms.1", y + w.linear("feed.2", np.maximum(w.linear("feed.0", y), 0))))
    logits, attention = [], []
    for c in range(C):
        scores = [w.of["seeds.weight"][c] @ w.linear("key", x) / len(x) ** 0.5 for x in seen]
        attention.append(softmax(scores))
        logits.append(
            w.linear("head", sum(a * w.linear("value", x) for a, x in zip(attention[-1], seen, strict=True)))[c]
        )
    return logits, attention


DIRECT: dict[str, Callable[[Weights, Array], tuple[list[float], list[Array]]]] = {
    "gated-attention": gated_attention, "dsmil": dsmil, "set-transformer": set_transformer
}  # fmt: skip


def some_bags(*sizes: int) -> Bags:
    rng = torch.Generator().manual_seed(len(sizes))
    instances = torch.randn(len(sizes), max(sizes), D, generator=rng)
    mask = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
    return Bags(instances, torch.zeros(len(sizes), C, dtype=torch.bool), mask)


@pytest.mark.parametrize("name", NAMES)
def test_one_vs_rest_of_the_network_is_the_formula_of_its_paper(name: str) -> None:
    """The class scores are the logits of the bag, and the evidence is the attention, but for a constant."""
    bags, network, loss = some_bags(5, 2, 1), load_network(name, D, C, seed=1), load_loss("one-vs-rest")
    logits = network.logits_of(bags)
    scores, evidence = loss.class_scores(logits, bags.mask), loss.instance_evidence(logits, bags.mask)
    for b, size in enumerate((5, 2, 1)):
        expected, attention = DIRECT[name](Weights(network), bags.instances[b, :size].double().numpy())
        assert scores[b].tolist() == pytest.approx(expected, abs=1e-5)
        for c in range(C):
            assert softmax(evidence[b, c, :size].tolist()) == pytest.approx(attention[c], abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_neither_logits_nor_gradients(name: str) -> None:
    """Whatever stands there, also NaN; of the logits of padding the loss reads none."""
    network, loss = load_network(name, D, C, seed=2), load_loss("one-vs-rest")
    bags = some_bags(7, 3)
    assert bags.mask is not None
    labels = torch.tensor([[True, True, False], [False, True, False]])
    padding = torch.where(bags.mask.unsqueeze(2), bags.instances, torch.nan)

    def gradients(instances: torch.Tensor, mask: torch.Tensor | None, bag: int) -> list[torch.Tensor]:
        logits = network.logits_of(Bags(instances, labels, mask))
        assert logits.isfinite().all()
        value = loss(logits[bag : bag + 1], labels[1:], None if mask is None else mask[bag : bag + 1])
        return [value, *torch.autograd.grad(value.sum(), list(network.parameters()))]

    alone = gradients(bags.instances[1:, :3], None, 0)
    for one, other in zip(alone, gradients(padding, bags.mask, 1), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def cells(**values: Any) -> list[Any]:
    return make_plan(make_spec({"name": "t", "losses": ["exact", "one-vs-rest"], "seeds": 0, **values})).cells


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task_name", ["synthetic-bags", "sound-events"])
def test_it_stands_on_the_network_of_the_task(name: str, task_name: str) -> None:
    """Sequences of different length too, of which padding is NaN."""
    given: dict[str, Any] = {"task": {"sound-events": {"train_bags": 64}}} if task_name == "sound-events" else {}
    cell = cells(tasks=[task_name], loss={"one-vs-rest": {"network": name}}, **given)[-1]
    task = task_for(cell)
    if task_name == "sound-events":
        vars(task)["features"] = 32
        short, long = torch.randn(32, 20), torch.randn(32, 50)
        instances = torch.stack([torch.nn.functional.pad(short, (0, 30), value=torch.nan), long])
        mask = torch.arange(13) < torch.tensor([[5], [13]])
        alone = short.unsqueeze(0)
    else:
        instances, mask = torch.randn(2, 9, 8), torch.arange(9) < torch.tensor([[4], [9]])
        alone = instances[:1, :4]
    network = network_for(load_loss("one-vs-rest", network=name), task, seed=4)
    positions = int(mask[0].sum())
    labels = torch.zeros(2, task.num_classes, dtype=torch.bool)
    logits = network.logits_of(Bags(instances, labels, mask))
    torch.testing.assert_close(logits[:1, :, :positions], network(alone), atol=1e-5, rtol=1e-5)
    again = network_for(load_loss("one-vs-rest", network=name), task, seed=4).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_positions_of_an_image_stay_where_they_are(name: str) -> None:
    task = task_for(cells(tasks=["extended-digits"])[0])
    images = torch.rand(2, 1, 16, 24, generator=torch.Generator().manual_seed(5))
    network, plain = network_for(load_loss("one-vs-rest", network=name), task, seed=6), task.network(seed=6)
    logits = network(images)
    assert logits.shape == plain(images).shape
    torch.testing.assert_close(network(images[:1]), logits[:1], atol=1e-5, rtol=1e-5)
