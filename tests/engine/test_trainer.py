from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from milbench import Bags, Loss, Recipe, UsageError
from milbench.api.plan import Cell
from milbench.engine import trainer as trainer_module
from milbench.engine.checkpoints import Checkpoint
from milbench.engine.optimizers import OPTIMIZERS, SCHEDULES, learning_rate, make_optimizer, optimizer_step
from milbench.engine.spec import make_plan, make_spec
from milbench.engine.trainer import Outcome, Trainer
from tests._helpers.command_line import PLUGINS, TINY


class Stop(Exception):  # noqa: N818
    """Raised in the middle of training, as a kill would end it."""


class Recorder:
    """Hears everything and stops where it is told to."""

    def __init__(self, stop_after: tuple[int, int] | None = None) -> None:
        self.stop_after = stop_after
        self.epochs: dict[int, dict[str, float]] = {}
        self.resumed_at: tuple[int, int] | None = None

    def resumed(self, epoch: int, step: int) -> None:
        self.resumed_at = (epoch, step)

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        if self.stop_after is not None and (epoch, step) > self.stop_after:
            raise Stop

    def epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        self.epochs[epoch] = metrics


def tiny_cell(name: str = "exact", seed: int = 0, **values: object) -> Cell:
    spec = make_spec({"name": "t", "losses": [name], "tasks": [TINY], "seeds": seed, **values})
    return make_plan(spec, None).cells[0]


def train(cell: Cell, checkpoint: Path, callback: Recorder | None = None) -> Outcome:
    return Trainer(cell, torch.device("cpu"), None, callback or Recorder(), checkpoint).run()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report and checkpoint at every step."""
    monkeypatch.setattr(trainer_module, "CHECKPOINT_INTERVAL", -1.0)
    monkeypatch.setattr(trainer_module, "PROGRESS_INTERVAL", -1.0)


def without_clock(history: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if not k.startswith("cost/")} for row in history]


@pytest.mark.parametrize(
    ("stop_after", "optimizer"),
    [((1, 1), "adamw"), ((1, 4), "adamw"), ((2, 2), "adamw"), ((3, 3), "adamw"), ((2, 2), "psgd"), ((2, 2), "muon")],
)
@pytest.mark.usefixtures("eager")
def test_a_stopped_cell_ends_bit_for_bit_where_an_unbroken_one_does(
    tmp_path: Path, stop_after: tuple[int, int], optimizer: str
) -> None:
    cell = tiny_cell(recipe={"epochs": 3, "optimizer": optimizer})
    unbroken = train(cell, tmp_path / "unbroken.pt")
    checkpoint = tmp_path / "broken.pt"
    with pytest.raises(Stop):
        train(cell, checkpoint, Recorder(stop_after))
    torch.manual_seed(12345)  # whatever else this process does in between
    torch.rand(7)
    callback = Recorder()
    resumed = train(cell, checkpoint, callback)
    assert callback.resumed_at == ((stop_after[0], stop_after[1]) if stop_after[1] < 4 else (stop_after[0] + 1, 0))
    assert without_clock(resumed.history) == without_clock(unbroken.history)
    assert all(torch.equal(resumed.weights[k], unbroken.weights[k]) for k in unbroken.weights)


def test_training_learns_and_tells(tmp_path: Path) -> None:
    callback = Recorder()
    outcome = train(tiny_cell(recipe={"epochs": 12}, task={"tiny": {"batches": 10}}), tmp_path / "c.pt", callback)
    assert list(callback.epochs) == list(range(1, 13))
    assert outcome.history == list(callback.epochs.values())
    first, last = outcome.history[0], outcome.history[-1]
    assert last["train/loss"] < first["train/loss"]
    assert last["test/instance_error"] < 0.25
    for name in ("cost/loss_seconds", "cost/loss_peak_bytes", "cost/step_seconds", "cost/peak_bytes"):
        assert outcome.costs[name] > 0


def test_two_losses_of_a_seed_see_the_same_bags_and_start_from_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[Bags]] = {}
    weights: dict[str, dict[str, torch.Tensor]] = {}
    step = Trainer._train_step

    def watch(self: Trainer, bags: Bags, number: int) -> torch.Tensor:
        if number == 0:
            weights[self.cell.loss] = {k: v.clone() for k, v in self.network.state_dict().items()}
        seen.setdefault(self.cell.loss, []).append(bags)
        return step(self, bags, number)

    monkeypatch.setattr(Trainer, "_train_step", watch)
    losses = ["exact", "max-pooling", "one-vs-rest", "noisy-or"]
    for loss in losses:
        train(tiny_cell(loss, seed=5), tmp_path / f"{loss}.pt")
    train(tiny_cell("exact", seed=6), tmp_path / "other.pt")
    other = seen["exact"][8:]  # two epochs of four batches, then those of seed 6
    for loss in losses[1:]:
        assert len(seen[loss]) == 8
        for mine, exacts in zip(seen[loss], seen["exact"], strict=False):
            assert torch.equal(mine.instances, exacts.instances)
            assert torch.equal(mine.labels, exacts.labels)
        assert all(torch.equal(weights[loss][k], weights["noisy-or"][k]) for k in weights[loss])
    assert not torch.equal(other[0].instances, seen["max-pooling"][0].instances)
    assert not torch.equal(seen["max-pooling"][0].instances, seen["max-pooling"][4].instances)  # epochs differ too


def test_the_head_starts_where_the_recipe_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    biases: dict[str, torch.Tensor] = {}
    step = Trainer._train_step

    def watch(self: Trainer, bags: Bags, number: int) -> torch.Tensor:
        if number == 0:
            biases[self.recipe.head_init] = self.network.head.bias.detach().clone()  # type: ignore[union-attr]
        return step(self, bags, number)

    monkeypatch.setattr(Trainer, "_train_step", watch)
    for head in ("prior", "paper"):
        train(tiny_cell(recipe={"head_init": head}), tmp_path / f"{head}.pt")
    assert biases["prior"].tolist() == pytest.approx([-math.log(5)] * 3 + [0.0])
    assert len(set(biases["paper"].tolist())) == 4


@pytest.mark.parametrize("name", ["count", "position"])
def test_losses_with_more_supervision_train(name: str, tmp_path: Path) -> None:
    outcome = train(tiny_cell(name, recipe={"epochs": 6}, task={"tiny": {"batches": 10}}), tmp_path / "c.pt")
    assert outcome.history[-1]["train/loss"] < outcome.history[0]["train/loss"]


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_loss_is_computed_in_the_precision_that_the_recipe_names(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    forward = Loss.forward

    def watch(self: Loss, logits: torch.Tensor, *rest: torch.Tensor | None) -> torch.Tensor:
        seen.add(logits.dtype)
        return forward(self, logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Loss, "forward", watch)
    outcome = train(tiny_cell(recipe={"loss_precision": precision}), tmp_path / "c.pt")
    assert seen == {getattr(torch, precision)}
    assert all(weights.dtype == torch.float32 for weights in outcome.weights.values())


def test_a_loss_that_diverges_is_a_failure_with_a_place(tmp_path: Path) -> None:
    cell = tiny_cell(str(PLUGINS / "breaking_loss.py"), loss={"breaking": {"how": "nan"}})
    with pytest.raises(FloatingPointError, match="loss in training: not finite at epoch 1, step 3"):
        train(cell, tmp_path / "c.pt")


def test_a_damaged_checkpoint_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    path.write_bytes(b"not a checkpoint at all")
    assert Checkpoint.load(path, "x", torch.device("cpu")) is None
    assert not path.exists()
    assert path.with_suffix(".damaged").exists()
    assert Checkpoint.load(path, "x", torch.device("cpu")) is None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_descends(name: str) -> None:
    model = torch.nn.Linear(2, 3)
    optimizer = make_optimizer(model, Recipe(optimizer=name, lr=0.05), seed=0)
    for _ in range(300):
        weights = torch.cat([model.weight, model.bias.unsqueeze(1)], dim=1)
        optimizer_step(optimizer, (weights * torch.tensor([1.0, 3.0, 2.0])).square().sum(), clip_norm=None)
    assert model.weight.abs().max() < 0.1
    assert model.bias.abs().max() < 0.1


def test_muon_moves_every_matrix_by_an_orthogonal_one() -> None:
    """From rest, a step's singular values are alike, whatever the gradient's are, in either memory format."""
    for layout in (torch.contiguous_format, torch.channels_last):
        model = torch.nn.Conv2d(3, 8, 3).to(memory_format=layout)
        before = model.weight.detach().clone()
        rng = torch.Generator().manual_seed(0)
        slopes = torch.randn(8, 3, 3, 3, generator=rng) * torch.logspace(-2, 0, 8)[:, None, None, None]
        optimizer_step(make_optimizer(model, Recipe(optimizer="muon", lr=0.1), 0), (model.weight * slopes).sum(), None)
        values = torch.linalg.svdvals((model.weight.detach() - before).flatten(1))
        assert values.max() < 2 * values.min()
        assert torch.linalg.svdvals(slopes.flatten(1)).max() > 20 * torch.linalg.svdvals(slopes.flatten(1)).min()


def test_another_optimiser_brings_its_own_settings() -> None:
    recipe = tiny_cell(recipe={"optimizer": "psgd"}).recipe
    assert {k: recipe[k] for k in ("lr", "schedule", "clip_norm", "clip_rms", "epochs")} == {
        "lr": 0.02, "schedule": "drop-at-half", "clip_norm": None, "clip_rms": 0.1, "epochs": 2
    }  # fmt: skip
    assert tiny_cell(recipe={"optimizer": "psgd", "lr": 0.5}).recipe["lr"] == 0.5
    assert tiny_cell(recipe={"optimizer": "adamw"}).recipe["lr"] == 0.05


@pytest.mark.parametrize(
    ("recipe", "complaint"),
    [
        ({"optimizer": "muon", "clip_rms": 0.1}, "clip_rms shortens the steps of psgd alone, not of muon"),
        ({"optimizer": "psgd", "weight_decay": 0.1}, "weight_decay = 0.1: psgd has none"),
    ],
)
def test_a_setting_that_the_optimiser_would_ignore_is_refused(recipe: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        tiny_cell(recipe=recipe)


def test_schedules() -> None:
    def rates(name: str, steps: int = 1000) -> list[float]:
        return [learning_rate(Recipe(schedule=name, lr=2.0), step, steps) for step in range(steps)]

    parameter = torch.nn.Parameter(torch.zeros(1))
    reference = torch.optim.SGD([parameter], lr=0.1)
    theirs = torch.optim.lr_scheduler.OneCycleLR(reference, max_lr=2.0, total_steps=1000, cycle_momentum=False)
    for step, mine in enumerate(rates("one-cycle")):
        assert mine == pytest.approx(theirs.get_last_lr()[0], rel=0.02, abs=1e-4), step
        reference.step()
        if step < 999:
            theirs.step()
    assert rates("drop-at-half") == [2.0] * 500 + [0.2] * 500
    assert rates("drop-at-thirds") == pytest.approx([2.0] * 334 + [0.2] * 333 + [0.02] * 333)
    assert rates("constant") == [2.0] * 1000
    assert all(0 < rate <= 2.0 for name in SCHEDULES for rate in rates(name, 1) + rates(name, 2))


def test_a_plug_in_that_changed_since_it_was_planned_is_not_run_under_its_old_name(tmp_path: Path) -> None:
    from milbench.api import registry

    source = tmp_path / "loss.py"
    source.write_text((PLUGINS / "learning_loss.py").read_text().replace('"learning"', '"changing"'))
    cell = tiny_cell(str(source))
    source.write_text(source.read_text() + "\n# something else\n")
    registry.losses.cache_clear()  # as in a worker, which has not imported it yet
    with pytest.raises(UsageError, match="was changed after the cell was planned"):
        train(cell, tmp_path / "c.pt")


def test_clipped_steps_are_counted(tmp_path: Path) -> None:
    for limit, share in ((1e-9, 1.0), (1e9, 0.0), ("none", 0.0)):
        outcome = train(tiny_cell(recipe={"clip_norm": limit}), tmp_path / f"{limit}.pt")
        assert [row["train/clipped"] for row in outcome.history] == [share] * 2
