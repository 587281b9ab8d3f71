"""TF32 belongs to the network in training where a recipe wants it, and to nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from milbench import Loss
from milbench.engine import optimizers
from milbench.engine import trainer as trainer_module
from milbench.engine.callback import Callback
from milbench.engine.planning import make_plan
from milbench.engine.precision import auto_precision
from milbench.engine.spec import make_spec
from milbench.engine.trainer import Trainer
from tests._helpers.command_line import TINY, Milbench


@pytest.fixture(autouse=True)
def as_torch_starts() -> Iterator[None]:
    """Set the switches as torch has them when it is imported, so that each cell has to see to them."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


Switches = dict[str, set[tuple[bool, bool]]]
"""By what was being computed: whether convolutions and matrix products might use TF32."""


class Noted(torch.autograd.Function):
    """The identity, which notes the switches wherever it is computed: forwards, backwards, and backwards through that.

    It sees what any other function sees that a loss or a network computes with in its place.
    """

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, what: str, seen: Switches) -> torch.Tensor:
        ctx.what, ctx.seen = what, seen
        note(what, seen)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> Any:
        return Noted.apply(slope, f"gradient of {ctx.what}", ctx.seen), None, None


def note(what: str, seen: Switches) -> None:
    now = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    seen.setdefault(what, set()).add(now)


def allowed_in(
    precision: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimizer: str = "adamw",
    at_once: int | None = None,
    coupled: bool = False,
) -> Switches:
    """Train a cell; return the switches.

    Args:
        precision: of the recipe.
        folder: for files.
        monkeypatch: to undo what this does.
        optimizer: of the recipe.
        at_once: how many bags memory seems to hold; None: all.
        coupled: whether the loss seems to couple bags.
    """
    seen: Switches = {}
    forward, step = Loss.forward, optimizers.optimizer_step

    def noted_loss(self: Loss, logits: torch.Tensor, *args: Any) -> torch.Tensor:
        return forward(self, cast(torch.Tensor, Noted.apply(logits, "loss", seen)), *args)

    def noted_step(*args: Any) -> torch.Tensor:
        note("optimiser", seen)
        return step(*args)

    def watch(network: torch.nn.Module, _: Any, logits: torch.Tensor) -> Any:
        return Noted.apply(logits, "network" if network.training else "evaluation", seen)

    monkeypatch.setattr(Loss, "forward", noted_loss)
    monkeypatch.setattr(trainer_module, "optimizer_step", noted_step)
    recipe = {"precision": precision, "epochs": 1, "optimizer": optimizer}
    spec = make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY], "seeds": 0, "recipe": recipe})
    trainer = Trainer(make_plan(spec, None).cells[0], torch.device("cpu"), None, Callback(), folder / "none.pt")
    setup = trainer._set_up

    def set_up() -> None:
        setup()
        trainer.network.register_forward_hook(watch)
        trainer.loss.couples_bags = coupled

    monkeypatch.setattr(trainer, "_set_up", set_up)
    monkeypatch.setattr(
        trainer, "_loss_costs", lambda _: {}
    )  # they need logits as training has them, but train nothing
    monkeypatch.setattr(trainer, "_fitting", lambda bags, _, compute, __: compute(at_once or bags))
    trained = trainer.run()
    trained.save_gallery(folder / "gallery.npz")
    return seen


def test_float32_means_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = allowed_in("float32", tmp_path, monkeypatch)
    assert {"network", "gradient of network", "loss", "gradient of loss", "evaluation", "optimiser"} == set(seen)
    assert set.union(*seen.values()) == {(False, False)}


@pytest.mark.parametrize(
    ("optimizer", "at_once", "coupled"),
    [("adamw", None, False), ("adamw", 3, False), ("adamw", 3, True), ("psgd", None, False), ("psgd", 3, False)],
)
def test_tf32_is_for_the_network_in_training_alone(
    optimizer: str, at_once: int | None, coupled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = allowed_in("tf32", tmp_path, monkeypatch, optimizer, at_once, coupled)
    expected = {"network", "gradient of network", "loss", "gradient of loss", "evaluation", "optimiser"}
    if optimizer == "psgd":  # whose Hessian-vector products go backwards through the backward pass
        expected |= {"gradient of gradient of network", "gradient of gradient of loss"}
    assert set(seen) == expected
    for what, switches in seen.items():
        allowed = what.endswith("network")
        assert switches == {(allowed, allowed)}, what


def test_tf32_on_a_cpu_is_one_line(milbench: Milbench) -> None:
    words = ("run", "--loss", "exact", "--task", TINY, "-p", "recipe.precision=tf32", "--device", "cpu")
    assert milbench(*words).complaint().startswith("recipe.precision = tf32 needs an NVIDIA GPU")


@pytest.mark.parametrize(("multiplies", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_bfloat16_where_the_cpu_multiplies_it(
    multiplies: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: multiplies)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    values = {"name": "t", "losses": ["exact"], "tasks": [TINY], "recipe": {"precision": "auto"}}
    plan = make_plan(make_spec(values), None)
    assert [cell.recipe["precision"] for cell in plan.cells] == [expected]
    assert f"Precision auto is {expected} here" in plan.notes[-1]
    explicit = make_plan(make_spec(values | {"recipe": {"precision": expected}}), None)
    assert [cell.id for cell in plan.cells] == [cell.id for cell in explicit.cells]


@pytest.mark.parametrize("capable", [True, False])
def test_auto_asks_a_gpu_whether_it_multiplies_bfloat16_without_emulation(
    capable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: capable or including_emulation
    )
    assert auto_precision(torch.device("cuda:0")) == ("bfloat16" if capable else "float32")
