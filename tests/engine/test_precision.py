"""TF32 belongs to the network in training where a recipe wants it, and to nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Loss
from milbench.engine import optimizers
from milbench.engine import trainer as trainer_module
from milbench.engine.callback import Callback
from milbench.engine.spec import make_plan, make_spec
from milbench.engine.trainer import Trainer
from tests._helpers.command_line import TINY, Milbench


@pytest.fixture(autouse=True)
def as_torch_starts() -> Iterator[None]:
    """Set the switches as torch has them when it is imported, so that each cell has to see to them."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def allowed_in(precision: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[tuple[bool, bool]]]:
    """Train a cell; return whether convolutions and matrix products might use TF32, by what was being computed."""
    seen: dict[str, set[tuple[bool, bool]]] = {}

    def note(what: str) -> None:
        now = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        seen.setdefault(what, set()).add(now)

    def noted(what: str, function: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            note(what)
            return function(*args, **named)

        return call

    def watch(network: torch.nn.Module, _: Any, logits: torch.Tensor) -> None:
        note("network" if network.training else "evaluation")
        if logits.requires_grad:
            logits.register_hook(lambda slope: note("gradient of the network"))

    monkeypatch.setattr(Loss, "forward", noted("loss", Loss.forward))
    monkeypatch.setattr(trainer_module, "optimizer_step", noted("optimiser", optimizers.optimizer_step))
    spec = make_spec(
        {"name": "t", "losses": ["exact"], "tasks": [TINY], "seeds": 0, "recipe": {"precision": precision, "epochs": 1}}
    )
    trainer = Trainer(make_plan(spec, None).cells[0], torch.device("cpu"), None, Callback(), folder / "none.pt")
    setup = trainer._set_up

    def set_up() -> None:
        setup()
        trainer.network.register_forward_hook(watch)

    monkeypatch.setattr(trainer, "_set_up", set_up)
    trained = trainer.run()
    trained.save_gallery(folder / "gallery.npz")
    return seen


def test_float32_means_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = allowed_in("float32", tmp_path, monkeypatch)
    assert {"network", "gradient of the network", "evaluation", "optimiser"} < set(seen)
    assert set.union(*seen.values()) == {(False, False)}


def test_tf32_is_for_the_network_in_training_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = allowed_in("tf32", tmp_path, monkeypatch)
    network = {name: seen.pop(name) for name in ("network", "gradient of the network")}
    assert all(switches == {(True, True)} for switches in network.values())
    assert set(seen) == {"loss", "optimiser", "evaluation"}
    assert set.union(*seen.values()) == {(False, False)}


def test_tf32_on_a_cpu_is_one_line(milbench: Milbench) -> None:
    words = ("run", "--loss", "exact", "--task", TINY, "-p", "recipe.precision=tf32", "--device", "cpu")
    assert milbench(*words).complaint().startswith("recipe.precision = tf32 needs an NVIDIA GPU")
