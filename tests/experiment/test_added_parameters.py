"""A parameter that is added later: which cells keep their id, and what is built from those of before."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from milbench import InstanceMLP, Loss, Network, UsageError, load_loss
from milbench.contracts.parameters import neutral_values, with_neutral, without_neutral
from milbench.contracts.published import Published
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import RegistryEntry, losses, tasks
from milbench.contracts.resolver import resolve
from milbench.experiment.cell import Cell, stored_recipe
from milbench.experiment.expand_spec import changed_loss, changed_recipe
from milbench.experiment.make_plan import make_plan
from milbench.experiment.plan import Plan
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.experiment.spec_files import make_spec
from milbench.losses import OneVsRest
from milbench.networks.known_networks import networks
from milbench.report.literature import deviations
from milbench.training.training_setup import network_for, setup_for_cell, task_for, unbuilt_loss
from tests._helpers.command_line import TINY
from tests._helpers.training import train

CPU = torch.device("cpu")


class Before(OneVsRest):
    """A loss before it gets the parameter `shift`."""

    name = "growing"

    def __init__(self, margin: float = 0.0) -> None:
        super().__init__()
        self.margin = margin


class After(Before):
    """The same with it: at 0 it computes what it did, and by default it computes something else."""

    added: ClassVar[Any] = MappingProxyType({"shift": 0.0})

    def __init__(self, margin: float = 0.0, shift: float = 5.0) -> None:
        super().__init__(margin)
        self.shift = shift

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return super().bag_loss(logits, labels, mask) + self.shift


class WithoutIt(After):
    """A subclass whose own constructor has no `shift`."""

    def __init__(self, margin: float = 0.0) -> None:
        super().__init__(margin, shift=0.0)


class Mistaken(Before):
    """It names a parameter that it does not have."""

    added: ClassVar[Any] = MappingProxyType({"marjin": 0.0})


Install = Callable[[type[Loss]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that makes a class the loss `growing`, as if it were built in."""

    def installed(cls: type[Loss]) -> None:
        entry = RegistryEntry("growing", "milbench", lambda: cls, __name__)
        monkeypatch.setitem(losses().entries, "growing", entry)

    return installed


def plan(*, recipe: dict[str, Any] | None = None, **params: Any) -> Plan:
    values: dict[str, Any] = {"name": "t", "losses": ["growing"], "tasks": [TINY], "seeds": 0}
    small = {"epochs": 1, "steps_per_epoch": 2, "precision": "float32"}
    return make_plan(
        make_spec({**values, "loss": {"growing": params}, "recipe": {**small, **(recipe or {})}})
    )


def one_cell(**params: Any) -> Cell:
    return plan(**params).cells[0]


def test_the_neutral_value_keeps_the_id_of_before(install: Install) -> None:
    install(Before)
    before = one_cell(margin=1.0)
    install(After)
    assert one_cell(margin=1.0, shift=0).id == before.id


def test_another_value_has_another_id(install: Install) -> None:
    install(After)
    ids = {one_cell(shift=shift).id for shift in (0.0, 1.0, 2.0)}
    assert len(ids) == 3


def test_the_default_is_hashed_where_it_is_not_neutral(install: Install) -> None:
    install(After)
    assert one_cell().loss.params == {"margin": 0.0, "shift": 5.0}
    assert one_cell().id == one_cell(shift=5.0).id != one_cell(shift=0.0).id


def test_a_cell_of_before_is_built_with_the_neutral_value(install: Install) -> None:
    install(Before)
    cell = one_cell()
    install(After)
    built: Any = unbuilt_loss(cell)
    assert built.shift == 0.0


def test_who_loads_the_loss_gets_its_default(install: Install) -> None:
    install(After)
    loss: Any = load_loss("growing")
    assert loss.shift == 5.0


def test_a_cell_of_before_trains_as_it_did(install: Install, tmp_path: Path) -> None:
    install(Before)
    cell = one_cell()
    expected = train(cell, tmp_path / "before").history
    install(After)
    assert train(cell, tmp_path / "after").history == expected


def test_labels_name_the_value_that_is_not_neutral(install: Install) -> None:
    install(After)
    both = plan(shift=[0.0, 1.0])
    assert {label.loss for label in both.labels.values()} == {"growing", "growing shift=1.0"}


def test_settings_of_a_plan_include_the_neutral_value(install: Install) -> None:
    install(After)
    both = plan_from_json(plan_to_json(plan(shift=[0.0, 1.0])).encode())
    assert [both.params(cell)["loss.shift"] for cell in both.cells] == [0.0, 1.0]


def test_a_published_protocol_may_ask_for_the_neutral_value(install: Install) -> None:
    install(After)
    neutral = plan(shift=0.0)
    params = [neutral.params(cell) for cell in neutral.cells]

    def differing(shift: float) -> list[str]:
        figure = Published(
            "set_error", 0.1, "a paper", loss="growing", protocol={"loss.shift": shift}
        )
        return deviations(figure, params)

    assert differing(0.0) == []
    assert differing(1.0) == ["shift 0.0 (published: 1.0)"]


def test_a_change_of_a_cell_leaves_what_it_lacks_neutral(install: Install) -> None:
    install(After)
    choice = replace(one_cell(margin=1.0, shift=0.0).loss, params={"margin": 0.0})
    assert changed_loss(choice, {"margin": 1.0}).params == {"margin": 1.0}
    assert changed_loss(choice, {"shift": 2.0}).params["shift"] == 2.0


def test_a_subclass_without_the_parameter_is_not_given_it() -> None:
    assert neutral_values(WithoutIt) == {}


def test_a_misspelt_parameter_is_named() -> None:
    with pytest.raises(UsageError, match=r"'marjin'; did you mean 'margin'"):
        neutral_values(Mistaken)


def test_true_is_not_one() -> None:
    class Counted:
        added: ClassVar[Any] = MappingProxyType({"times": 1})

        def __init__(self, times: int | bool = 1) -> None: ...

    assert without_neutral(Counted, {"times": True}) == {"times": True}
    assert without_neutral(Counted, {"times": 1}) == {}
    assert with_neutral(Counted, {}) == {"times": 1}


def test_a_later_field_of_the_recipe_changes_no_id(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(Before)
    # `average_last` is taken for a later field, which was neutral at 0.5.
    monkeypatch.setattr(Recipe, "added", {"average_last": 0.5})
    neutral = plan(recipe={"average_last": 0.5}).cells[0]
    assert "average_last" not in stored_recipe(neutral.recipe)
    assert plan(recipe={"average_last": "none"}).cells[0].recipe.average_last is None
    assert setup_for_cell(neutral, CPU, None).recipe.average_last == 0.5
    changed = changed_recipe(neutral.recipe, {"lr": 0.5})
    assert changed.lr == 0.5
    assert "average_last" not in stored_recipe(changed)


def test_a_later_parameter_of_a_task_changes_no_id(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(Before)
    values: dict[str, Any] = {"name": "t", "losses": ["growing"], "tasks": [TINY], "seeds": 0}
    tiny = tasks().get(resolve(tasks(), TINY))
    default = make_plan(make_spec(values)).cells[0]
    # `size` is taken for a later parameter, whose neutral value is not its default.
    monkeypatch.setattr(tiny, "added", {"size": 6}, raising=False)
    neutral = make_plan(make_spec({**values, "task": {"tiny": {"size": 6}}})).cells[0]
    assert "size" not in neutral.task.params
    assert make_plan(make_spec(values)).cells[0].id == default.id, "its default is hashed"
    built: Any = task_for(neutral)
    assert built.size == 6


def small_network(inputs: int, num_classes: int, seed: int, width: int = 9) -> Network:
    return InstanceMLP(inputs, num_classes, seed, hidden=width)


def test_a_later_parameter_of_a_network_function_is_filled_in(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(Before)
    monkeypatch.setattr(small_network, "added", {"width": 4}, raising=False)
    entry: Any = RegistryEntry("small-network", "milbench", lambda: small_network, __name__)
    monkeypatch.setitem(networks().entries, "small-network", entry)
    values: dict[str, Any] = {"name": "t", "losses": ["growing"], "tasks": [TINY], "seeds": 0}
    values["networks"] = ["small-network"]

    def cell(width: int) -> Cell:
        network = {"small-network": {"width": width}}
        return make_plan(make_spec({**values, "network": network})).cells[0]

    assert cell(4).network.params == {}
    assert cell(9).network.params == {"width": 9}
    for planned, width in ((cell(4), 4), (cell(9), 9)):
        setup = setup_for_cell(planned, CPU, None)
        network = network_for(planned, task_for(planned), setup.problem.format, setup.model.loss)
        shapes = [tuple(weight.shape) for weight in network.parameters()]
        assert width in {side for shape in shapes for side in shape}


def test_a_plan_with_later_parameters_is_json(install: Install) -> None:
    install(After)
    assert json.loads(plan_to_json(plan(shift=0.0)))["neutral"] == {"loss growing": {"shift": 0.0}}
