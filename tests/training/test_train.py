"""Training: the steps, what two losses of a seed share, and a killed cell that ends bit for bit as an unbroken one."""

import hashlib
import io
import itertools
import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Bags, Recipe, UsageError, generator, load_loss, load_task
from milbench.contracts.predictions import load_predictions
from milbench.contracts.registry import RegistryEntry
from milbench.evaluation.metrics import reliability
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.inference.trained import load_trained
from milbench.losses import Exact
from milbench.networks.known_networks import make_network
from milbench.optimizers.known_optimizers import optimizers
from milbench.store.folders import Root
from milbench.training import train as training
from milbench.training.training_setup import Setup
from tests._helpers.command_line import PLUGINS, TINY
from tests._helpers.damage import DAMAGES, damage
from tests._helpers.training import (
    Stop,
    Trained,
    needs_muon,
    normed_network,
    small_cell,
    stop_after,
    train,
)

DRAWING = str(PLUGINS / "drawing_loss.py")


def same(first: Trained, second: Trained) -> bool:
    weights = all(torch.equal(first.weights[name], second.weights[name]) for name in second.weights)
    return weights and first.history == second.history and first.outcomes == second.outcomes


@pytest.mark.parametrize(
    ("loss", "saves", "recipe"),
    [
        (DRAWING, 1, {}),
        (DRAWING, 4, {}),
        (DRAWING, 5, {}),
        (DRAWING, 14, {}),
        (DRAWING, 6, {"gradient_norm": "quantile:0.3"}),
        (DRAWING, 7, {"evaluate_every": 2}),
        (DRAWING, 6, {"average_last": 0.4}),
        (DRAWING, 6, {"optimizer": "psgd"}),
        pytest.param(DRAWING, 6, {"optimizer": "muon"}, marks=needs_muon),
        (DRAWING, 6, {"optimizer": "radam"}),
        ("attention", 2, {}),  # a loss with weights of its own
        ("attention", 2, {"optimizer": "psgd"}),
    ],
)
def test_a_killed_cell_ends_bit_for_bit_where_an_unbroken_one_does(
    loss: str, saves: int, recipe: dict[str, object], tmp_path: Path
) -> None:
    """An epoch has four steps with a checkpoint each, and one after it but for the last: there are fourteen."""
    cell = small_cell(loss, recipe={"epochs": 3, **recipe})
    unbroken = train(cell, tmp_path / "unbroken")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(saves, patch)
        with pytest.raises(Stop):
            train(cell, tmp_path / "broken")
    torch.manual_seed(12345)  # the global generator's state in between must not matter
    torch.rand(7)
    resumed = train(cell, tmp_path / "broken")
    assert same(resumed, unbroken)
    assert resumed.folder.decoder.read_text() == unbroken.folder.decoder.read_text()


@pytest.mark.parametrize("network", ["context", "set-transformer"])
def test_attention_is_trained_by_second_derivatives(network: str, tmp_path: Path) -> None:
    cell = small_cell("one-vs-rest", networks=[network], recipe={"optimizer": "psgd", "epochs": 1})
    weights = train(cell, tmp_path / "c").weights
    assert all(value.isfinite().all() for value in weights.values())


@pytest.mark.parametrize("how", [*DAMAGES, "without a part"])
def test_a_stopped_cell_goes_on_only_where_its_checkpoint_is_whole_and_its_history_leads_to_it(
    how: str, tmp_path: Path
) -> None:
    cell, other = (small_cell(seed=seed, recipe={"epochs": 3}) for seed in (0, 1))
    unbroken = train(cell, tmp_path / "unbroken")
    for stopped in (cell, other):
        with pytest.MonkeyPatch.context() as patch:
            stop_after(11, patch)
            with pytest.raises(Stop):
                train(stopped, tmp_path / stopped.id)
    for name in ("checkpoint.pt", "history.csv", "cell.json", "progress.json"):
        folder = Path(shutil.copytree(tmp_path / cell.id, tmp_path / name / cell.id))
        if how != "without a part":
            damage(folder / name, how, tmp_path / other.id / name)
        elif name == "checkpoint.pt":
            content = torch.load(io.BytesIO((folder / name).read_bytes()[32:]))
            torch.save(
                {key: part for key, part in content.items() if key != "cpu"}, buffer := io.BytesIO()
            )
            (folder / name).write_bytes(
                hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue()
            )
        assert same(train(cell, folder), unbroken), name


def test_statistics_over_batches_are_kept_as_they_were_evaluated(tmp_path: Path) -> None:
    """A cell that was killed after its last epoch keeps its weights in a later process: they are the same."""
    cell = small_cell(networks=[normed_network(tmp_path)])
    first = train(cell, tmp_path / "c")
    assert any("running_mean" in name for name in first.weights)
    second = train(cell, tmp_path / "c")
    for name, weights in first.weights.items():
        assert torch.equal(second.weights[name], weights), name


def test_training_learns_and_says_what_it_costs(tmp_path: Path) -> None:
    trained = train(
        small_cell(recipe={"epochs": 12}, task={"tiny": {"batches": 10}}), tmp_path / "c"
    )
    assert trained.history[12, "train/loss"] < trained.history[1, "train/loss"]
    assert trained.history[12, "test/instance_error"] < 0.25
    costs = trained.result["costs"]
    assert 0 < costs["loss_seconds_min"] <= costs["loss_seconds"]
    assert 0 < costs["step_seconds_min"] <= costs["step_seconds"] < costs["train_seconds"]
    assert costs["peak_bytes"] > 1e6


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """The initial weights of every cell whose recipe has the optimiser "recording", in the order of training."""
    weights: list[dict[str, torch.Tensor]] = []

    def recording(model: torch.nn.Module, recipe: Recipe, seed: int) -> torch.optim.Optimizer:
        weights.append({k: v.clone() for k, v in model.state_dict().items()})
        return torch.optim.SGD(model.parameters(), lr=recipe.lr)

    monkeypatch.setitem(
        optimizers().entries, "recording", RegistryEntry("recording", "here", lambda: recording, "")
    )
    return weights


def test_losses_and_networks_of_a_seed_see_the_same_bags_and_losses_start_from_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[dict[str, torch.Tensor]]
) -> None:
    seen: list[list[bytes]] = []
    train_batches = Setup.train_batches

    def recorded(setup: Setup, epoch: int) -> Iterator[Bags]:
        for bags in train_batches(setup, epoch):
            seen[-1].append(bags.instances.numpy().tobytes() + bags.labels.numpy().tobytes())
            yield bags

    monkeypatch.setattr(Setup, "train_batches", recorded)
    items = []
    for loss, network, seed in (
        ("exact", "mlp", 5), ("max-pooling", "mlp", 5), ("one-vs-rest", "mlp", 5), ("one-vs-rest", "linear", 5),
        ("one-vs-rest", "gated-attention", 5), ("one-vs-rest", normed_network(tmp_path), 5), ("exact", "mlp", 6),
    ):  # fmt: skip
        seen.append([])
        cell = small_cell(loss, seed, networks=[network], recipe={"optimizer": "recording"})
        trained = train(cell, tmp_path / cell.id)
        items.append({name: found for name, (_, _, found) in trained.outcomes.items()})
    *same, other = seen
    assert all(bags == same[0] for bags in same)
    assert len(same[0]) == 9  # two epochs of four batches, then the one on which the loss is timed
    assert len({*same[0][:8], *other[:8]}) == 16, "seeds and epochs differ"
    assert all(of_cell == items[0] for of_cell in items)
    assert len(starts) == 7
    for start in starts[1:3]:
        assert start.keys() == starts[0].keys()
        assert all(torch.equal(start[k], starts[0][k]) for k in start)
    assert not torch.equal(starts[6]["network.head.weight"], starts[0]["network.head.weight"])


def enumerated(
    log_p: torch.Tensor, classes: list[int], shown: Callable[[Iterable[int]], object]
) -> torch.Tensor:
    """-log of the summed probability of every label map that shows what the bag shows."""
    maps = [m for m in itertools.product(range(4), repeat=5) if shown(m) == shown(classes)]
    return -torch.stack(
        [torch.stack([log_p[c, k] for k, c in enumerate(m)]).sum() for m in maps]
    ).logsumexp(0)


def exact_loss(log_p: torch.Tensor, classes: list[int]) -> torch.Tensor:
    return enumerated(log_p, classes, lambda kinds: {*kinds} - {3})


def count_loss(log_p: torch.Tensor, classes: list[int]) -> torch.Tensor:
    return enumerated(log_p, classes, sorted)


def position_loss(log_p: torch.Tensor, classes: list[int]) -> torch.Tensor:
    return -torch.stack([log_p[c, k] for k, c in enumerate(classes)]).mean()


@pytest.mark.parametrize(
    ("name", "definition"),
    [("exact", exact_loss), ("count", count_loss), ("position", position_loss)],
)
def test_a_step_follows_the_gradient_of_the_loss_for_the_supervision_it_has(
    name: str, definition: Callable[[torch.Tensor, list[int]], torch.Tensor], tmp_path: Path
) -> None:
    """One step of SGD from the same start, with the loss written out bag by bag from the classes of the instances."""
    recipe = {
        "optimizer": "sgd",
        "lr": 0.1,
        "schedule": "constant",
        "gradient_norm": "none",
        "epochs": 1,
    }
    outcome = train(
        small_cell(name, seed=7, recipe=recipe, task={"tiny": {"batches": 1}}), tmp_path / "c"
    )

    task = load_task(TINY, batches=1)
    problem = task.load(seed=7)
    network = make_network(task, problem.format, "mlp", {}, seed=7)
    with torch.no_grad():
        network.get_parameter("head.bias").copy_(torch.tensor([-math.log(5)] * 3 + [0.0]))
    (bags,) = problem.train_batches(0, generator("bags", "tiny", 7, 0))
    assert bags.truth is not None
    assert bags.truth.position_classes is not None
    log_p = network(bags.instances).log_softmax(dim=1)
    losses = [
        definition(log_p[b], bags.truth.position_classes[b].tolist()) for b in range(len(bags))
    ]
    loss = torch.stack(losses).mean()
    loss.backward()
    assert outcome.history[1, "train/loss"] == pytest.approx(loss.item(), rel=1e-5)
    for key, weight in network.named_parameters():
        assert weight.grad is not None
        # The first step of Nesterov's momentum of 0.9: the gradient and 0.9 times itself.
        expected = weight.detach() - 0.1 * 1.9 * weight.grad
        torch.testing.assert_close(
            outcome.weights[f"network.{key}"], expected, rtol=1e-5, atol=1e-6
        )
        assert not torch.equal(expected, weight.detach())


def test_data_that_changed_since_a_cell_was_planned_are_not_trained_on_under_its_name(
    tmp_path: Path,
) -> None:
    table = tmp_path / "bags.csv"
    rows = [
        f"{bag},{'x' if bag % 2 else ''},{bag % 2 + i / 9}" for bag in range(20) for i in range(2)
    ]
    table.write_text("\n".join(["bag,labels,f0", *rows, ""]))
    spec = {
        "losses": ["exact"],
        "tasks": ["feature-bags"],
        "task": {"feature-bags": {"table": str(table)}},
    }
    (cell,) = make_plan(make_spec({**spec, "name": "t", "recipe": {"epochs": 1}})).cells
    train(cell, tmp_path / "before")
    table.write_text("\n".join(["bag,labels,f0", *rows, "20,,7", "20,,8", ""]))
    with pytest.raises(
        UsageError,
        match=r"the data of feature-bags are not those that .*, seed 0 was planned with: ",
    ):
        train(cell, tmp_path / "after")


def test_a_trained_cell_has_the_calibration_of_its_loss_if_it_has_probabilities(
    tmp_path: Path,
) -> None:
    task: dict[str, Any] = {
        "tasks": ["synthetic-bags"],
        "task": {"synthetic-bags": {"bags_per_epoch": 64}},
    }
    recipe = {"epochs": 1, "evaluation_bags": 16}
    trained = {
        loss: train(small_cell(loss, recipe=recipe, **task), tmp_path / loss)
        for loss in ("exact", "max-pooling")
    }
    metrics = {name: value for (_, name), value in trained["exact"].history.items()}
    _, predictions = load_predictions(trained["exact"].folder.predictions)["last"]
    curves = reliability(predictions["test"])
    sums, weights, _ = trained["exact"].outcomes["nll"]
    assert len(weights) == 16  # evaluation_bags
    assert metrics["test/nll"] == pytest.approx(sum(sums) / sum(weights))
    assert set(curves) == {
        name.removeprefix("test/") for name in metrics if name.startswith("test/") and "ece" in name
    }
    _, predictions = load_predictions(trained["max-pooling"].folder.predictions)["last"]
    assert reliability(predictions["test"]) == {}
    assert not any("nll" in name or "ece" in name for _, name in trained["max-pooling"].history)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_loss_is_computed_in_the_precision_that_the_recipe_names(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtypes = set()
    bag_loss = Exact.bag_loss

    def recorded(self: Exact, logits: torch.Tensor, *rest: Any) -> torch.Tensor:
        dtypes.add(logits.dtype)
        return bag_loss(self, logits, *rest)

    monkeypatch.setattr(Exact, "bag_loss", recorded)
    cell = small_cell("exact", recipe={"loss_precision": precision})
    outcome = train(cell, tmp_path / "c")
    assert dtypes == {getattr(torch, precision)}
    assert all(weights.dtype == torch.float32 for weights in outcome.weights.values())


def test_the_cells_seed_draws_the_weights_of_a_loss(tmp_path: Path) -> None:
    for seed in (4, 5):
        still = small_cell("attention", seed, recipe={"optimizer": "sgd", "lr": 1e-30})
        weights = train(still, tmp_path / f"{seed}").weights
        assert torch.equal(
            weights["loss.v"], load_loss("attention").build(3, seed).get_parameter("v")
        )


def test_a_loaded_cell_scores_with_the_weights_that_were_stored(root: Path) -> None:
    cell, place = small_cell("attention"), Root(root).make()
    trained = train(cell, place.cell(cell.id).path)
    trained.folder.finish(trained.result)
    loaded = load_trained(place.find(cell.id), torch.device("cpu"))
    initial = load_loss("attention").build(3, cell.seed)
    for name in ("v", "w"):
        stored = trained.weights[f"loss.{name}"]
        assert torch.equal(loaded.loss.get_parameter(name), stored)
        assert (stored - initial.get_parameter(name)).abs().max() > 1e-3, "not initial"
    bag = Bags(torch.randn(1, 5, 2), torch.zeros(1, 3))
    with torch.no_grad():
        expected = loaded.loss.score(loaded.network(bag.instances).double()).presence
    torch.testing.assert_close(loaded.scores(bag).presence, expected)


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (9, [5])])
def test_an_evaluation_now_and_then_finds_what_one_after_every_epoch_finds(
    tmp_path: Path, every: int, epochs: list[int]
) -> None:
    whole = train(small_cell("noisy-or", 3, recipe={"epochs": 5}), tmp_path / "whole")
    some = train(
        small_cell("noisy-or", 3, recipe={"epochs": 5, "evaluate_every": every}), tmp_path / "some"
    )
    found = {
        key: value
        for key, value in whole.history.items()
        if key[0] in epochs or key[1].startswith("train/")
    }
    assert some.history == found
    assert all(torch.equal(some.weights[k], whole.weights[k]) for k in whole.weights)
    assert some.folder.decoder.read_text() == whole.folder.decoder.read_text()


@pytest.mark.parametrize(("share", "last"), [(0.5, 4), (0.3, 2)])
def test_the_kept_weights_are_the_mean_of_those_after_the_last_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, last: int
) -> None:
    """Also where torch takes all weights at once, as on a GPU, in an operation that refuses BatchNorm's counter."""
    monkeypatch.setattr(
        "torch.optim.swa_utils._get_foreach_kernels_supported_devices", lambda: ["cpu"]
    )
    network, step = normed_network(tmp_path), training.train_step
    by_step: list[dict[str, torch.Tensor]] = []

    def watched(setup: Setup, *arguments: Any) -> torch.Tensor:
        value = step(setup, *arguments)
        by_step.append(
            {name: weight.detach().clone() for name, weight in setup.model.state_dict().items()}
        )
        return value

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_step", watched)
        train(small_cell(networks=[network], recipe={"epochs": 2}), tmp_path / "plain")
    assert len(by_step) == 8, "two epochs of four"
    cell = small_cell(networks=[network], recipe={"epochs": 2, "average_last": share})
    averaged = train(cell, tmp_path / "mean").weights
    for name in (name for name, weight in averaged.items() if weight.is_floating_point()):
        weight = averaged[name]
        expected = torch.stack([weights[name].double() for weights in by_step[-last:]]).mean(dim=0)
        torch.testing.assert_close(weight.double(), expected, rtol=1e-5, atol=1e-6)


def test_training_does_not_see_the_mean_and_the_evaluation_does(tmp_path: Path) -> None:
    plain = train(small_cell(recipe={"epochs": 2}), tmp_path / "plain").history
    mean = train(small_cell(recipe={"epochs": 2, "average_last": 0.5}), tmp_path / "mean").history
    same = {key for key in plain if plain[key] == mean[key]}
    assert {key for key in plain if key[1] == "train/loss" or key[0] == 1} <= same, (
        "it begins after the first epoch"
    )
    assert any(key[1].startswith("test/") for key in plain.keys() - same)
