"""Training of a cell: its steps, its random numbers, and going on after a kill.

A cell that was killed and goes on must end with the same bits as a cell that was not.
"""

import hashlib
import io
import itertools
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Bags, Recipe, UsageError, generator, load_loss, load_task
from milbench.contracts.predictions import load_predictions
from milbench.contracts.registry import RegistryEntry
from milbench.evaluation.metrics import reliability
from milbench.experiment.cell import Cell
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.inference import trained as trained_cells
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

RANDOM_LOSS = str(PLUGINS / "drawing_loss.py")
"""A loss on one random position, which torch's global generator picks.

A cell that goes on after a kill has the right results only if the state of this generator is
restored.
"""


def assert_same(first: Trained, second: Trained) -> None:
    """Check that two cells ended with the same weights, history and outcomes, bit for bit."""
    assert first.weights.keys() == second.weights.keys()
    for name, weights in second.weights.items():
        assert torch.equal(first.weights[name], weights), name
    assert first.history == second.history
    assert first.outcomes == second.outcomes


def train_and_kill(cell: Cell, path: Path, saves: int) -> None:
    """Train a cell until it has saved `saves` checkpoints, and end it there as a kill would."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(saves, patch)
        with pytest.raises(Stop):
            train(cell, path)


# Each of three epochs saves a checkpoint after each of its four steps. The first two epochs save
# another one at their end, so there are fourteen.
@pytest.mark.parametrize(
    ("loss", "saves", "recipe"),
    [
        pytest.param(RANDOM_LOSS, 1, {}, id="first step"),
        pytest.param(RANDOM_LOSS, 4, {}, id="last step of an epoch"),
        pytest.param(RANDOM_LOSS, 5, {}, id="after an epoch"),
        pytest.param(RANDOM_LOSS, 14, {}, id="last step of all"),
        pytest.param(RANDOM_LOSS, 6, {"gradient_norm": "quantile:0.3"}, id="lengths of gradients"),
        pytest.param(RANDOM_LOSS, 7, {"evaluate_every": 2}, id="evaluations now and then"),
        pytest.param(RANDOM_LOSS, 6, {"average_last": 0.4}, id="averaged weights"),
        pytest.param(RANDOM_LOSS, 6, {"optimizer": "psgd"}, id="psgd"),
        pytest.param(RANDOM_LOSS, 6, {"optimizer": "muon"}, marks=needs_muon, id="muon"),
        pytest.param(RANDOM_LOSS, 6, {"optimizer": "radam"}, id="radam"),
        pytest.param("attention", 2, {}, id="weights of a loss"),
        pytest.param("attention", 2, {"optimizer": "psgd"}, id="weights of a loss, by psgd"),
    ],
)
def test_a_killed_cell_ends_as_an_unbroken_one(
    loss: str, saves: int, recipe: dict[str, object], tmp_path: Path
) -> None:
    cell = small_cell(loss, recipe={"epochs": 3, **recipe})
    unbroken = train(cell, tmp_path / "unbroken")
    train_and_kill(cell, tmp_path / "broken", saves)
    # Other code may use torch's global generator in the meantime, which must not matter.
    torch.manual_seed(12345)
    torch.rand(7)
    resumed = train(cell, tmp_path / "broken")
    assert_same(resumed, unbroken)
    # `Problem.evaluate` may return a decoder, which the cell stores. The decoder of the tiny task
    # holds the lowest presence of the evaluated bags.
    assert resumed.folder.decoder.read_text() == unbroken.folder.decoder.read_text()


@pytest.mark.parametrize("network", ["context", "set-transformer"])
def test_attention_is_trained_by_second_derivatives(network: str, tmp_path: Path) -> None:
    # psgd needs second derivatives of the network.
    cell = small_cell("one-vs-rest", networks=[network], recipe={"optimizer": "psgd", "epochs": 1})
    weights = train(cell, tmp_path / "c").weights
    assert all(value.isfinite().all() for value in weights.values())


@dataclass(frozen=True)
class Stopped:
    """A cell that was killed in its last epoch."""

    folder: Path
    cell: Cell
    other: Cell
    """Another cell, killed in the same step, whose files are wrong for the first cell."""
    unbroken: Trained
    """The first cell, trained without a kill."""

    def copy_to(self, target: Path) -> Path:
        """Copy the folder of the cell, so that a test may damage it."""
        return Path(shutil.copytree(self.folder / self.cell.id, target / self.cell.id))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("stopped")
    cell = small_cell(seed=0, recipe={"epochs": 3})
    other = small_cell(seed=1, recipe={"epochs": 3})
    unbroken = train(cell, folder / "unbroken")
    for one in (cell, other):
        train_and_kill(one, folder / one.id, saves=11)
    return Stopped(folder, cell, other, unbroken)


@pytest.mark.parametrize("name", ["checkpoint.pt", "history.csv", "cell.json", "progress.json"])
@pytest.mark.parametrize("how", DAMAGES)
def test_a_stopped_cell_with_a_damaged_file_ends_the_same(
    stopped: Stopped, how: str, name: str, tmp_path: Path
) -> None:
    folder = stopped.copy_to(tmp_path)
    damage(folder / name, how, stopped.folder / stopped.other.id / name)
    assert_same(train(stopped.cell, folder), stopped.unbroken)


def test_a_checkpoint_that_lacks_a_part_is_not_used(stopped: Stopped, tmp_path: Path) -> None:
    folder = stopped.copy_to(tmp_path)
    file = folder / "checkpoint.pt"
    # A checkpoint begins with 32 bytes, the digest of what follows.
    stored = file.read_bytes()[32:]
    content = torch.load(io.BytesIO(stored))
    del content["cpu"]
    buffer = io.BytesIO()
    torch.save(content, buffer)
    lacking = buffer.getvalue()
    file.write_bytes(hashlib.sha256(lacking).digest() + lacking)
    assert_same(train(stopped.cell, folder), stopped.unbroken)


def test_statistics_over_batches_are_kept_as_they_were_evaluated(tmp_path: Path) -> None:
    # The second training starts from the last epoch, as after a kill at that point, and stores the
    # weights again.
    cell = small_cell(networks=[normed_network(tmp_path)])
    first = train(cell, tmp_path / "c")
    assert any("running_mean" in name for name in first.weights)
    second = train(cell, tmp_path / "c")
    for name, weights in first.weights.items():
        assert torch.equal(second.weights[name], weights), name


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    cell = small_cell(recipe={"epochs": 12}, task={"tiny": {"batches": 10}})
    return train(cell, tmp_path_factory.mktemp("learnt"))


def test_training_lowers_the_loss(learnt: Trained) -> None:
    assert learnt.history[12, "train/loss"] < learnt.history[1, "train/loss"]


def test_training_learns(learnt: Trained) -> None:
    assert learnt.history[12, "test/instance_error"] < 0.25


def test_a_cell_says_what_it_costs(learnt: Trained) -> None:
    costs = learnt.result["costs"]
    assert 0 < costs["loss_seconds_min"] <= costs["loss_seconds"]
    assert 0 < costs["step_seconds_min"] <= costs["step_seconds"] < costs["train_seconds"]
    assert costs["peak_bytes"] > 1e6


@dataclass
class Seen:
    """The initial weights, the training batches and the test items of one cell."""

    start: dict[str, torch.Tensor]
    batches: list[bytes]
    items: dict[str, str] = field(default_factory=dict)
    """For each metric, the digest of the items that it is computed on."""


class Observer:
    """Trains cells of two epochs, and records their initial weights, batches and items."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._normed = normed_network(folder)
        self._known: dict[tuple[str, str, int], Seen] = {}
        self._seen: list[Seen] = []
        self._train_batches = Setup.train_batches

    def look(self, loss: str, network: str, seed: int) -> Seen:
        """Return the records of a cell; it is trained at the first call only."""
        key = (loss, network, seed)
        if key not in self._known:
            network_name = self._normed if network == "normed" else network
            recipe = {"optimizer": "recording"}
            cell = small_cell(loss, seed, networks=[network_name], recipe=recipe)
            trained = train(cell, self._folder / cell.id)
            seen = self._seen[-1]
            seen.items = {name: items for name, (_, _, items) in trained.outcomes.items()}
            self._known[key] = seen
        return self._known[key]

    def recording_optimizer(
        self, model: torch.nn.Module, recipe: Recipe, seed: int
    ) -> torch.optim.Optimizer:
        """Record the initial weights: the optimiser is made before the first step."""
        start = {name: weights.clone() for name, weights in model.state_dict().items()}
        self._seen.append(Seen(start, batches=[]))
        return torch.optim.SGD(model.parameters(), lr=recipe.lr)

    def recorded_batches(self, setup: Setup, epoch: int) -> Iterator[Bags]:
        """Yield the batches of an epoch, and record them."""
        for bags in self._train_batches(setup, epoch):
            content = bags.instances.numpy().tobytes() + bags.labels.numpy().tobytes()
            self._seen[-1].batches.append(content)
            yield bags


Look = Callable[[str, str, int], Seen]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Look]:
    """Return a function that trains a cell of a loss, network and seed, and returns its records."""
    observer = Observer(tmp_path_factory.mktemp("seen"))
    optimizer = RegistryEntry("recording", "here", lambda: observer.recording_optimizer, "")

    def recorded_batches(setup: Setup, epoch: int) -> Iterator[Bags]:
        return observer.recorded_batches(setup, epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(optimizers().entries, "recording", optimizer)
        patch.setattr(Setup, "train_batches", recorded_batches)
        yield observer.look


def test_every_batch_of_two_epochs_is_new(look: Look) -> None:
    batches = look("exact", "mlp", 5).batches
    # Two epochs of four batches each, then the batch on which the loss is timed.
    assert len(batches) == 9
    assert len(set(batches[:8])) == 8


@pytest.mark.parametrize(
    ("loss", "network"),
    [
        pytest.param("max-pooling", "mlp", id="another loss"),
        pytest.param("one-vs-rest", "mlp", id="a loss with detectors"),
        pytest.param("one-vs-rest", "linear", id="another network"),
        pytest.param("one-vs-rest", "gated-attention", id="a network of whole bags"),
        pytest.param("one-vs-rest", "normed", id="a network that normalises over batches"),
    ],
)
def test_losses_and_networks_of_a_seed_see_the_same_bags(
    look: Look, loss: str, network: str
) -> None:
    expected = look("exact", "mlp", 5)
    found = look(loss, network, 5)
    assert found.batches == expected.batches
    assert found.items == expected.items


@pytest.mark.parametrize("loss", ["max-pooling", "one-vs-rest"])
def test_losses_of_a_seed_start_from_the_same_weights(look: Look, loss: str) -> None:
    expected = look("exact", "mlp", 5).start
    found = look(loss, "mlp", 5).start
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        assert torch.equal(found[name], weights), name


def test_another_seed_trains_on_other_bags(look: Look) -> None:
    of_5 = look("exact", "mlp", 5)
    of_6 = look("exact", "mlp", 6)
    assert not set(of_5.batches[:8]) & set(of_6.batches[:8])


def test_another_seed_is_tested_on_the_same_bags(look: Look) -> None:
    assert look("exact", "mlp", 6).items == look("exact", "mlp", 5).items


def test_another_seed_starts_from_other_weights(look: Look) -> None:
    of_5 = look("exact", "mlp", 5).start["network.head.weight"]
    of_6 = look("exact", "mlp", 6).start["network.head.weight"]
    assert not torch.equal(of_5, of_6)


def test_a_loss_that_is_not_finite_on_a_gpu_is_found_by_the_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_step(setup: Setup, bags: Bags, step: int, weigh: object) -> torch.Tensor:
        """Stand for a step on a GPU, which checks nothing; the loss of step 0 is not finite."""
        return torch.tensor([math.nan if step == 0 else 1.0, 0.0])

    monkeypatch.setattr(training, "train_step", train_step)
    # There is no look at the sum before the end of the epoch, which has four steps.
    monkeypatch.setattr(training, "LOOK_INTERVAL", math.inf)
    expected = "non-finite sum of losses at epoch 1, step 4"
    with pytest.raises(FloatingPointError, match=expected):
        train(small_cell("exact"), tmp_path / "cell")


BACKGROUND = 3
"""The background's channel in the tiny task, which has three classes and bags of five instances."""


def enumerated(
    log_p: torch.Tensor, classes: list[int], shown: Callable[[Iterable[int]], object]
) -> torch.Tensor:
    """Return -log of the probability of all label maps that look like the bag to the loss.

    A label map has a class for each position. `log_p` (C+1, K) are the log-probabilities of each
    class at each position, `classes` the classes of the instances. `shown` returns what the loss is
    told of a label map, such as its label set.
    """
    label_maps = itertools.product(range(BACKGROUND + 1), repeat=5)
    shown_by_bag = shown(classes)
    showing_the_same = [label_map for label_map in label_maps if shown(label_map) == shown_by_bag]
    log_probs = [at_classes(log_p, label_map).sum() for label_map in showing_the_same]
    return -torch.stack(log_probs).logsumexp(0)


def at_classes(log_p: torch.Tensor, classes: Sequence[int]) -> torch.Tensor:
    """Return the log-probability of the class that each position has, (K,)."""
    return torch.stack([log_p[number, position] for position, number in enumerate(classes)])


def exact_loss(log_p: torch.Tensor, classes: list[int]) -> torch.Tensor:
    """Return the loss of label sets: it is told which classes there are."""
    return enumerated(log_p, classes, lambda label_map: set(label_map) - {BACKGROUND})


def count_loss(log_p: torch.Tensor, classes: list[int]) -> torch.Tensor:
    """Return the loss of counts: it is told how often each class is there."""
    return enumerated(log_p, classes, sorted)


def position_loss(log_p: torch.Tensor, classes: list[int]) -> torch.Tensor:
    """Return the loss of positions: the mean over positions of -log of the true class."""
    return -at_classes(log_p, classes).mean()


ONE_STEP_OF_SGD = {
    "optimizer": "sgd",
    "lr": 0.1,
    "schedule": "constant",
    "gradient_norm": "none",
    "epochs": 1,
}


@pytest.mark.parametrize(
    ("name", "definition"),
    [("exact", exact_loss), ("count", count_loss), ("position", position_loss)],
)
def test_a_step_follows_the_gradient_of_the_written_out_loss(
    name: str, definition: Callable[[torch.Tensor, list[int]], torch.Tensor], tmp_path: Path
) -> None:
    cell = small_cell(name, seed=7, recipe=ONE_STEP_OF_SGD, task={"tiny": {"batches": 1}})
    outcome = train(cell, tmp_path / "c")

    # The same start and the same bags, without the code of training.
    task = load_task(TINY, batches=1)
    problem = task.load(seed=7)
    network = make_network(task, problem.format, "mlp", {}, seed=7)
    # Training sets the biases of the head as `Network.start_at_prior` says: -log(positions) for
    # each class, and 0 for background. Bags of the tiny task have five positions, so by the biases
    # alone each class is a fifth as likely as background.
    positions = 5
    prior = torch.tensor([-math.log(positions)] * 3 + [0.0])
    with torch.no_grad():
        network.get_parameter("head.bias").copy_(prior)
    (bags,) = problem.train_batches(0, generator("bags", "tiny", 7, 0))

    # The loss is written out bag by bag from the classes of the instances.
    assert bags.truth is not None
    assert bags.truth.position_classes is not None
    log_p = network(bags.instances).log_softmax(dim=1)
    losses = []
    for of_bag, classes in zip(log_p, bags.truth.position_classes.tolist(), strict=True):
        losses.append(definition(of_bag, classes))
    loss = torch.stack(losses).mean()
    loss.backward()

    assert outcome.history[1, "train/loss"] == pytest.approx(loss.item(), rel=1e-5)
    for key, weight in network.named_parameters():
        assert weight.grad is not None
        # With Nesterov's momentum of 0.9, the first step is the gradient plus 0.9 times the
        # gradient, times the learning rate of 0.1.
        expected = weight.detach() - 0.1 * 1.9 * weight.grad
        found = outcome.weights[f"network.{key}"]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert not torch.equal(expected, weight.detach())


def test_data_that_changed_since_planning_are_not_trained_on(tmp_path: Path) -> None:
    table = tmp_path / "bags.csv"
    rows = []
    for bag in range(20):
        # Every other bag has the label.
        level = bag % 2
        label = "x" if level == 1 else ""
        for instance in range(2):
            feature = level + instance / 9
            rows.append(f"{bag},{label},{feature}")
    table.write_text("\n".join(["bag,labels,f0", *rows, ""]))
    spec = make_spec(
        {
            "name": "t",
            "losses": ["exact"],
            "tasks": ["feature-bags"],
            "task": {"feature-bags": {"table": str(table)}},
            "recipe": {"epochs": 1},
        }
    )
    (cell,) = make_plan(spec).cells
    train(cell, tmp_path / "before")
    table.write_text("\n".join(["bag,labels,f0", *rows, "20,,7", "20,,8", ""]))
    with pytest.raises(
        UsageError,
        match=r"the data of feature-bags are not those that .*, seed 0 was planned with: ",
    ):
        train(cell, tmp_path / "after")


def on_synthetic_bags(loss: str, path: Path) -> Trained:
    """Train a loss for an epoch, and evaluate it on 16 bags."""
    cell = small_cell(
        loss,
        task_name="synthetic-bags",
        task={"synthetic-bags": {"bags_per_epoch": 64}},
        recipe={"epochs": 1, "evaluation_bags": 16},
    )
    return train(cell, path)


@pytest.fixture(scope="module")
def of_exact(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return on_synthetic_bags("exact", tmp_path_factory.mktemp("exact"))


def test_the_nll_is_the_mean_over_the_test_bags(of_exact: Trained) -> None:
    sums, weights, _ = of_exact.outcomes["nll"]
    assert len(weights) == 16
    assert of_exact.history[1, "test/nll"] == pytest.approx(sum(sums) / sum(weights))


def curves_of(trained: Trained) -> set[str]:
    """Return the calibration errors whose curve can be drawn from the predictions of a cell."""
    _, predictions = load_predictions(trained.folder.predictions)["last"]
    return set(reliability(predictions["test"]))


def test_a_cell_keeps_the_forecasts_of_its_calibration_errors(of_exact: Trained) -> None:
    errors = [name for _, name in of_exact.history if name.startswith("test/") and "ece" in name]
    assert curves_of(of_exact) == {name.removeprefix("test/") for name in errors}
    assert errors


def test_a_loss_without_probabilities_has_no_calibration(tmp_path: Path) -> None:
    trained = on_synthetic_bags("max-pooling", tmp_path / "c")
    assert curves_of(trained) == set()
    assert not [name for _, name in trained.history if "nll" in name or "ece" in name]


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_loss_is_computed_in_the_precision_of_the_recipe(
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


@pytest.mark.parametrize("seed", [4, 5])
def test_a_loss_starts_from_weights_of_the_seed(tmp_path: Path, seed: int) -> None:
    # With so small a learning rate the weights do not move.
    still = small_cell("attention", seed, recipe={"optimizer": "sgd", "lr": 1e-30})
    weights = train(still, tmp_path / "c").weights
    initial = load_loss("attention").build(3, seed)
    assert torch.equal(weights["loss.v"], initial.get_parameter("v"))


@pytest.fixture
def stored_and_loaded(root: Path) -> tuple[Trained, trained_cells.Trained]:
    """Return a cell of a loss with weights of its own, as it was trained and as it is loaded."""
    cell = small_cell("attention")
    store = Root(root).make()
    trained = train(cell, store.cell(cell.id).path)
    trained.folder.finish(trained.result)
    return trained, trained_cells.load_trained(store.find(cell.id), torch.device("cpu"))


@pytest.mark.parametrize("name", ["v", "w"])
def test_a_loaded_loss_has_the_weights_that_were_stored(
    stored_and_loaded: tuple[Trained, trained_cells.Trained], name: str
) -> None:
    trained, loaded = stored_and_loaded
    weights = trained.weights[f"loss.{name}"]
    assert torch.equal(loaded.loss.get_parameter(name), weights)
    # The weights have moved since the start, so that loading the initial weights would be noticed.
    initial = load_loss("attention").build(3, 0).get_parameter(name)
    assert (weights - initial).abs().max() > 1e-3


def test_a_loaded_cell_scores_with_its_network_and_loss(
    stored_and_loaded: tuple[Trained, trained_cells.Trained],
) -> None:
    _, loaded = stored_and_loaded
    bag = Bags(torch.randn(1, 5, 2), torch.zeros(1, 3))
    with torch.no_grad():
        expected = loaded.loss.score(loaded.network(bag.instances).double()).presence
    torch.testing.assert_close(loaded.scores(bag).presence, expected)


@pytest.fixture(scope="module")
def evaluated_often(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    cell = small_cell("noisy-or", 3, recipe={"epochs": 5})
    return train(cell, tmp_path_factory.mktemp("often"))


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (9, [5])])
def test_rare_evaluations_find_what_one_after_every_epoch_finds(
    evaluated_often: Trained, tmp_path: Path, every: int, epochs: list[int]
) -> None:
    cell = small_cell("noisy-or", 3, recipe={"epochs": 5, "evaluate_every": every})
    rarely = train(cell, tmp_path / "rarely")
    # The training loss is stored for every epoch.
    often = evaluated_often.history.items()
    of_training = {key: value for key, value in often if key[1].startswith("train/")}
    of_epochs = {key: value for key, value in often if key[0] in epochs}
    assert rarely.history == of_training | of_epochs
    for name, weights in evaluated_often.weights.items():
        assert torch.equal(rarely.weights[name], weights), name
    # The decoder of the tiny task holds the lowest presence of the evaluated bags.
    assert rarely.folder.decoder.read_text() == evaluated_often.folder.decoder.read_text()


# Two epochs have eight steps: a share of 0.5 are four steps, and 0.3 are two, rounded down.
@pytest.mark.parametrize(("share", "last"), [(0.5, 4), (0.3, 2)])
def test_kept_weights_are_the_mean_over_the_last_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, last: int
) -> None:
    # Let torch average all weights in one operation, as it does on a GPU. This operation refuses
    # integers, such as BatchNorm's counter of batches.
    monkeypatch.setattr(
        "torch.optim.swa_utils._get_foreach_kernels_supported_devices", lambda: ["cpu"]
    )
    network = normed_network(tmp_path)
    train_step = training.train_step
    by_step: list[dict[str, torch.Tensor]] = []

    def watched(setup: Setup, *arguments: Any) -> torch.Tensor:
        value = train_step(setup, *arguments)
        weights = setup.model.state_dict()
        by_step.append({name: weight.detach().clone() for name, weight in weights.items()})
        return value

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_step", watched)
        train(small_cell(networks=[network], recipe={"epochs": 2}), tmp_path / "plain")
    # Two epochs of four steps.
    assert len(by_step) == 8

    cell = small_cell(networks=[network], recipe={"epochs": 2, "average_last": share})
    averaged = train(cell, tmp_path / "mean").weights
    for name, weight in averaged.items():
        if weight.is_floating_point():
            of_last = [weights[name].double() for weights in by_step[-last:]]
            expected = torch.stack(of_last).mean(dim=0)
            torch.testing.assert_close(weight.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def plain_and_mean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, Trained]:
    """Return a cell of two epochs, and one whose weights are averaged over the second epoch."""
    folder = tmp_path_factory.mktemp("mean")
    plain = train(small_cell(recipe={"epochs": 2}), folder / "plain")
    mean = train(small_cell(recipe={"epochs": 2, "average_last": 0.5}), folder / "mean")
    return plain, mean


def test_training_does_not_see_the_mean(plain_and_mean: tuple[Trained, Trained]) -> None:
    plain, mean = plain_and_mean
    for (epoch, metric), value in plain.history.items():
        if epoch == 1 or metric == "train/loss":
            assert mean.history[epoch, metric] == value, (epoch, metric)


def test_the_evaluation_sees_the_mean(plain_and_mean: tuple[Trained, Trained]) -> None:
    plain, mean = plain_and_mean
    changed = [key for key in plain.history if plain.history[key] != mean.history[key]]
    assert any(metric.startswith("test/") for _, metric in changed)
